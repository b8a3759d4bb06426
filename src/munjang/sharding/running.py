"""`encode_shards`: everything is checked, the team started, the scheduler run; and whatever happens, all is ended."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from munjang.errors import DataError, InputError
from munjang.index.remote.address import is_address, masked
from munjang.sharding.manifest import Book
from munjang.sharding.messages import Cutting, Plan, Prompting, Team, own_version
from munjang.sharding.options import ModelSource, ShardOptions
from munjang.sharding.progress import JobTeller, Tracker
from munjang.sharding.results import ShardResult
from munjang.sharding.scheduling import Scheduler
from munjang.sharding.shards import Shard, find_shards

if TYPE_CHECKING:
    from munjang.index.index import Index

_MOST_WORKERS = 8  # where nobody says how many: every one holds the model


@dataclass(frozen=True)
class _Model:
    """What the coordinator must know of the model."""

    source: ModelSource
    fingerprint: str
    prompt: str
    normalize: bool
    dimension: int


def encode_shards(
    inputs: Sequence[str | Path] | str | Path,
    output: str | Path | None = None,
    *,
    model: ModelSource | str | Path | None = None,
    into: str | Path | None = None,
    options: ShardOptions | None = None,
    progress: JobTeller = False,
) -> ShardResult:
    """Encode folders (or globs, or files) of parquet and jsonl shards by several processes or machines.

    output: a folder that gets one file of vectors for every shard; or into: an index (a folder or an address) that
    gets the rows as documents. Run again, it skips the shards that are done and have not changed; a shard that has is
    done anew. A row that cannot be used is set aside with its reason. A shard that cannot be done is in the result's
    `failed`, and the others are done. What is finished stays, however the job ends.
    """
    options = options or ShardOptions()
    source = model if isinstance(model, ModelSource) else ModelSource(model)
    if (output is None) == (into is None):
        raise InputError("give either output, a folder for files of vectors, or into, an index")
    shards = find_shards(inputs)
    if options.engine == "ray":
        from munjang.sharding.ray_team import check

        check(options.address)
    started = time.perf_counter()
    with contextlib.ExitStack() as stack:
        if output is not None:
            job = _files_job(shards, inputs, Path(output), source, options, stack)
        else:
            assert into is not None
            job = _index_job(into, source, options, stack)
        return job.run(shards, options, progress, started)


@dataclass(frozen=True)
class _Job:
    """A job that is ready to run."""

    book: Book
    plan: Plan
    outputs: dict[str, str]
    index: Index | None

    def run(self, shards: list[Shard], options: ShardOptions, progress: JobTeller, started: float) -> ShardResult:
        from munjang.sharding.filling import Filler

        tracker = Tracker(shards, progress)
        team = _team(self.plan, options, len(shards))
        scheduler = Scheduler(team, self.book, tracker, attempts=options.attempts, start_seconds=options.start_seconds)
        filler = None if self.index is None else Filler(self.index, self.book)
        try:
            scheduler.run(shards, outputs=self.outputs, filler=filler)
        finally:
            team.stop()
            tracker.close()
        rejects = self.book.collect_rejects()
        if not scheduler.failed:
            self.book.tidy()
        return ShardResult(
            shards=len(shards),
            encoded=len(scheduler.done),
            skipped=tracker.skipped,
            failed=tuple(sorted(scheduler.failed, key=lambda shard: shard.name)),
            gone=tuple(sorted(set(self.book.records) - {shard.name for shard in shards})),
            rows=sum(done.rows for done in scheduler.done),
            rejected=sum(done.rejected for done in scheduler.done),
            tokens=sum(done.tokens for done in scheduler.done),
            truncated=sum(done.truncated for done in scheduler.done),
            seconds=time.perf_counter() - started,
            rejects=rejects,
        )


# --- into files -------------------------------------------------------------------------------------------------------


def _files_job(
    shards: list[Shard],
    inputs: Sequence[str | Path] | str | Path,
    root: Path,
    source: ModelSource,
    options: ShardOptions,
    stack: contextlib.ExitStack,
) -> _Job:
    root = root.expanduser().absolute()
    _check_apart(root, inputs)
    if options.state is not None:
        raise InputError("state is for into: with output, the record lies in the output folder")
    if options.format == "parquet" or any(shard.kind == "parquet" for shard in shards):
        from munjang.vectors.files import import_pyarrow

        import_pyarrow("reading and writing .parquet files")
    outputs = _outputs(shards, options.format)
    found = _look_at(source, options)
    setting = {
        "model": found.fingerprint,
        "dtype": source.dtype,
        "dimension": found.dimension,
        "prompt": found.prompt,
        "normalize": found.normalize,
        "format": options.format,
        **_reading(options),
    }
    book = Book(root, setting, overwrite=options.overwrite)
    stack.callback(book.close)
    prompting = Prompting(options.prompt, options.prompt_name, options.normalize)
    return _Job(book, _plan(found.source, found.fingerprint, options, book, prompting=prompting), outputs, None)


def _check_apart(root: Path, inputs: Sequence[str | Path] | str | Path) -> None:
    if root.exists() and not root.is_dir():
        raise DataError(f"{root} is a file: the output of many shards is a folder")
    real = Path(os.path.realpath(root))
    for given in [inputs] if isinstance(inputs, str | Path) else inputs:
        folder = Path(os.path.realpath(Path(given).expanduser()))
        if folder.is_dir() and (folder == real or folder in real.parents):
            raise InputError(
                f"the output folder {root} lies in the input folder {given}: its files would be taken for shards the "
                "next time; choose one outside"
            )


def _outputs(shards: list[Shard], suffix: str) -> dict[str, str]:
    """Where each shard's output goes: under its own name, with the suffix of the format where it has another."""
    found: dict[str, str] = {}
    for shard in shards:
        name = shard.name if shard.name.lower().endswith(f".{suffix}") else f"{shard.name}.{suffix}"
        if name in found:
            raise InputError(f"{shard.name!r} and {found[name]!r} would both be written to {name!r}: rename one")
        found[name] = shard.name
    return {shard: name for name, shard in found.items()}


def _look_at(source: ModelSource, options: ShardOptions) -> _Model:
    """Load the model once on the CPU, where it costs nothing but reading, to know it and to see that all is right."""
    source = source.absolute()
    model = replace(source, device="cpu", dtype="float32").load()
    call = model.call_options(options.prompt, options.prompt_name, options.normalize)
    return _Model(source, model.fingerprint, call.prompt, call.normalize, model.dimension)


def _reading(options: ShardOptions) -> dict[str, Any]:
    """The settings of reading as JSON gives them back."""
    given = asdict(options.reading)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}


# --- into an index ----------------------------------------------------------------------------------------------------


def _index_job(into: str | Path, source: ModelSource, options: ShardOptions, stack: contextlib.ExitStack) -> _Job:
    if options.prompt is not None or options.prompt_name is not None or options.normalize is not None:
        raise InputError("prompt and normalize are decided by the index; leave them out with into")
    if options.reading.keep:
        raise InputError("keep is for output files; with into, metadata says which columns to keep")
    state = _state(into, options)
    from munjang.index.cutting import Cutter
    from munjang.index.index import Index

    given = None if source.name is None else replace(source.absolute(), device="cpu", dtype="float32").load()
    index = Index.open(into, given)
    stack.callback(index.close)
    source = source.absolute() if source.name is not None else _own_source(index, source)
    model = index.model
    shape = index.options
    prompt = index.identity.prompt
    cutter = Cutter.resolve(model.tokenizer, shape.chunk_tokens, shape.stride, prompt=prompt)
    setting = {"model": model.fingerprint, "dtype": source.dtype, "into": _called(into), **_reading(options)}
    book = Book(state, setting, overwrite=options.overwrite)
    stack.callback(book.close)
    cutting = Cutting(cutter.size, cutter.stride, prompt, shape.title)
    return _Job(book, _plan(source, model.fingerprint, options, book, cutting=cutting), {}, index)


def _own_source(index: Index, asked: ModelSource) -> ModelSource:
    """The index's own model, as workers can load it."""
    identity, model = index.identity, index.model
    if not identity.source:
        raise InputError("the model of this index was never on disk, so workers cannot load it: give the model")
    name, _, revision = identity.source.partition("@")
    from_hub = bool(revision) and not os.path.isdir(identity.source)
    return replace(
        asked,
        name=name if from_hub else identity.source,
        revision=revision if from_hub else None,
        max_length=model.max_length,
        truncate_dim=None if model.dimension == model.full_dimension else model.dimension,
    )


def _state(into: str | Path, options: ShardOptions) -> Path:
    """Where the record of what is in the index lies."""
    if options.state is not None:
        return Path(options.state).expanduser().absolute()
    if is_address(into):
        raise InputError(
            "an index at an address needs state (--state FOLDER), a folder for the record of the shards that are in it"
        )
    folder = Path(into).expanduser().absolute()
    return folder.with_name(folder.name + ".shards")


def _called(into: str | Path) -> str:
    """The index as the record names it, whoever connects to it: without user and password."""
    if not is_address(into):
        return str(Path(into).expanduser().absolute())
    parts = urlsplit(masked(into))
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


# --- the team ---------------------------------------------------------------------------------------------------------


def _plan(
    source: ModelSource,
    fingerprint: str,
    options: ShardOptions,
    book: Book,
    *,
    prompting: Prompting | None = None,
    cutting: Cutting | None = None,
) -> Plan:
    return Plan(
        version=own_version(),
        model=source,
        fingerprint=fingerprint,
        reading=options.reading,
        threads=options.threads or 1,
        format=options.format,
        prompting=prompting or Prompting(None, None, None),
        cutting=cutting,
        folder=str(book.aside),
        token=book.token,
    )


def _team(plan: Plan, options: ShardOptions, shards: int) -> Team:
    if options.engine == "ray":
        from munjang.sharding.ray_team import RayTeam, cluster_size, connect

        ray, own = connect(options.address)
        fit, threads, on_gpus = cluster_size(ray, options.threads, device=plan.model.device)
        size = min(shards, options.workers or fit)
        return RayTeam(ray, replace(plan, threads=threads), size, gpus=on_gpus, own=own)
    from munjang.sharding.processes import Processes

    size, threads, gpus = local_size(options, plan.model.device)
    return Processes(replace(plan, threads=threads), min(shards, size), gpus)


def local_size(options: ShardOptions, device: str | None) -> tuple[int, int, int]:
    """Workers on this machine, CPU threads of each, and the GPUs they share out (0: none, or the one named)."""
    import torch

    from munjang.nn.device import cpu_cores

    gpus = torch.cuda.device_count() if device in (None, "cuda") and torch.cuda.is_available() else 0
    cores = cpu_cores()
    workers = options.workers or gpus or min(cores, _MOST_WORKERS)
    return workers, options.threads or max(1, cores // workers), gpus
