"""Processes that start at once: a server that has imported torch already forks them."""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext

import pytest


@pytest.fixture(scope="session")
def server() -> ForkServerContext:
    """Makes processes that can be killed, without the seconds that importing torch takes each time."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "accelerate", "training.material"])
    return context
