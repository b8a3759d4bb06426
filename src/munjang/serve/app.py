"""The application: settings in, a FastAPI application out, its models loaded when it starts and drained when it ends.

Nothing is loaded by `create_app` itself. When the application starts, it answers at once (`/health`), and loads what
the settings name in a thread; until that is done `/ready` and everything that needs a model says 503. Where a
model cannot be loaded, the task `app.state.loading` ends with the error, and every answer names it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import TYPE_CHECKING

from munjang.errors import MissingExtraError
from munjang.serve.settings import ServeSettings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from munjang.serve.rooms import Rooms

_log = logging.getLogger("munjang.serve")


def create_app(settings: ServeSettings, *, rooms: Rooms | None = None) -> FastAPI:
    """The application of a service.

    rooms: models that are loaded already; those of the settings are added to them. They end with the application.
    """
    try:
        from fastapi import FastAPI
    except ImportError as error:
        raise MissingExtraError("fastapi", "serve", "the service") from error
    from munjang.serve.indexes import Shelf
    from munjang.serve.maps import Maps
    from munjang.serve.metrics import Metrics
    from munjang.serve.rooms import Rooms
    from munjang.serve.uploads import Workspace

    app = FastAPI(title=settings.title, version=version("munjang"), lifespan=_lifespan, docs_url=None, redoc_url=None)
    app.router.redirect_slashes = False  # such a redirect goes to wherever the Host header says
    app.state.settings = settings
    app.state.rooms = rooms or Rooms(settings.limits)
    app.state.failure = None  # why the models could not be loaded
    app.state.shelf = Shelf(settings)
    app.state.workspace = Workspace()
    app.state.maps = Maps(settings.limits.map_passages)
    app.state.metrics = Metrics()
    app.state.on_failure = None  # told when what the settings name cannot be loaded
    app.state.on_ready = None
    app.state.given_up = False  # whether something that was accepted did not end in time
    _add_routes(app, settings)
    _add_layers(app, settings)
    return app


def _add_routes(app: FastAPI, settings: ServeSettings) -> None:
    from munjang.serve import (
        docs_page,
        errors,
        routes_cohere,
        routes_health,
        routes_index,
        routes_openai,
        routes_tei,
        routes_tools,
    )
    from munjang.serve.page import page_router

    errors.install(app)
    for module in (routes_openai, routes_cohere, routes_tei, routes_index, routes_tools, routes_health, docs_page):
        app.include_router(module.router)
    if settings.page:
        app.include_router(page_router())


def _add_layers(app: FastAPI, settings: ServeSettings) -> None:
    """What every request passes through, from the inside out."""
    from starlette.middleware.cors import CORSMiddleware

    from munjang.serve.auth import KeyCheck
    from munjang.serve.limits import BodyLimit
    from munjang.serve.logs import RequestLog
    from munjang.serve.metrics import Sources

    app.add_middleware(BodyLimit, limits=settings.limits)
    app.add_middleware(KeyCheck, settings=settings)
    if settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "X-API-Key", "Content-Type", "X-Request-Id"],
            expose_headers=["X-Request-Id", "X-Truncated", "Retry-After"],
        )
    metrics, rooms, shelf = app.state.metrics, app.state.rooms, app.state.shelf
    metrics.attach(
        Sources(
            lambda: {room.name: room.batcher.stats() for room in (*rooms.bi_rooms, *rooms.rerankers)},
            lambda: {shelved.name: shelved.size() for shelved in shelf.all()},
            lambda: rooms.ready,
        )
    )
    app.add_middleware(RequestLog, observe=metrics.observe)


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Load in the background, serve, finish what was accepted, end."""
    await asyncio.to_thread(_clean, app)
    app.state.loading = loading = asyncio.create_task(_load(app))  # whoever runs the service ends it if this fails
    try:
        yield
    finally:
        loading.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await loading
        await _close(app)


def _clean(app: FastAPI) -> None:
    try:
        removed = app.state.workspace.clean()
    except OSError as error:
        _log.warning("the folder for temporary files cannot be used, so no files can be uploaded: %s", error)
    else:
        if removed:
            _log.info("removed the temporary files of %d services that were killed", removed)


async def _load(app: FastAPI) -> None:
    settings: ServeSettings = app.state.settings
    rooms: Rooms = app.state.rooms
    loop = asyncio.get_running_loop()
    if settings.indexes:
        rooms.ready = False  # also where models came ready: an index that is not open is not there
    try:
        await asyncio.to_thread(rooms.fill, settings.models, settings.rerankers, device=settings.device)
        await asyncio.to_thread(app.state.shelf.fill, rooms, loop)
    except Exception as error:
        app.state.failure = error
        if app.state.on_failure is None:
            raise
        app.state.on_failure(error)
        return
    rooms.ready = True
    _log.info("ready")
    if app.state.on_ready is not None:
        app.state.on_ready()


async def _close(app: FastAPI) -> None:
    """Finish what was accepted: documents first, because they need the models."""
    limit = app.state.settings.limits.drain_s
    started = time.monotonic()
    app.state.rooms.ready = False
    app.state.maps.close()
    for shelved in app.state.shelf.all():
        await shelved.drain(max(0.0, limit - (time.monotonic() - started)))
    finished = await asyncio.to_thread(app.state.shelf.close, max(0.0, limit - (time.monotonic() - started)))
    await asyncio.to_thread(app.state.rooms.close, max(1.0, limit - (time.monotonic() - started)))
    await asyncio.to_thread(app.state.workspace.close)
    if not finished:
        app.state.given_up = True
        _log.warning("what was being done did not end within %g s and is given up", limit)
