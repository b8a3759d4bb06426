"""What a job of many shards can be told, checked before anything is read or started. Nothing here imports torch."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from munjang import bundled
from munjang.data.rows import check_encoding
from munjang.errors import InputError
from munjang.types import DTypeName

if TYPE_CHECKING:
    from munjang.encoders import BiEncoder

EngineName = Literal["processes", "ray"]
OutputFormat = Literal["parquet", "jsonl", "npy"]
LARGEST_ROW = 8 << 20  # bytes of a row; what is larger is a mistake far more often than a text


@dataclass(frozen=True)
class ModelSource:
    """A model by its name, and how to load it: workers load it themselves, on their own machine."""

    name: str | Path | None = None  # None: the bundled one; with `into`, the model of the index
    device: str | None = None
    dtype: DTypeName = "auto"
    revision: str | None = None
    local_files_only: bool = False
    max_length: int | None = None
    truncate_dim: int | None = None

    def __post_init__(self) -> None:
        if self.name is not None and not isinstance(self.name, str | Path):
            raise InputError(
                f"workers load the model by its name, so give a bundled name, a folder or a hub id, got "
                f"{type(self.name).__name__}; save a model that is only in memory first (model.save)"
            )

    def absolute(self) -> ModelSource:
        """The same, as it can be found from another working directory."""
        name = bundled.BI_ENCODER if self.name is None else self.name
        if isinstance(name, str) and name in bundled.NAMES:
            return replace(self, name=name)
        folder = Path(name).expanduser()
        return replace(self, name=str(folder.absolute()) if folder.is_dir() else os.fspath(name))

    def load(self) -> BiEncoder:
        """The model, as asked for."""
        from munjang.loading import load

        model = load(
            self.name,
            device=self.device,
            dtype=self.dtype,
            max_length=self.max_length,
            revision=self.revision,
            local_files_only=self.local_files_only,
        )
        if self.truncate_dim is not None:
            model.truncate_dim = self.truncate_dim
        return model


@dataclass(frozen=True)
class Reading:
    """How the rows of a shard are read."""

    column: str | int | None = None  # of the texts: name, or 0-based number; None: the one with a telling name
    keep: tuple[str, ...] = ()  # columns to copy to the output
    encoding: str = "utf-8"  # of jsonl
    largest_row: int = LARGEST_ROW  # bytes; a larger one is set aside
    id_column: str | None = None  # with `into`; None: "id", where a row has it
    metadata: tuple[str, ...] | None = None  # with `into`: columns to keep; None: all others

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        if "\n".encode(self.encoding) != b"\n":
            raise InputError(
                f"jsonl shards are cut into lines as bytes, which {self.encoding} does not allow: expected utf-8, "
                "cp949, euc-kr or another encoding that holds ASCII as it is"
            )
        if self.largest_row < 1:
            raise InputError(f"largest_row must be at least 1 byte, got {self.largest_row}")
        if {"text", "vector"} & set(self.keep):
            raise InputError("keep cannot take columns named 'text' or 'vector': the output has these already")


@dataclass(frozen=True)
class ShardOptions:
    """How a job runs. Only `format`, `reading`, the prompt and `normalize` have a say in what comes out."""

    engine: EngineName = "processes"
    workers: int | None = None  # None: one a GPU, else as many as the cores carry
    threads: int | None = None  # CPU threads of each worker; None: the cores divided by the workers
    address: str | None = None  # of a Ray cluster: "auto", "host:6379"; None as ray.init takes it
    format: OutputFormat = "parquet"
    reading: Reading = field(default_factory=Reading)
    prompt: str | None = None
    prompt_name: str | None = None
    normalize: bool | None = None
    attempts: int = 3  # how often a shard is tried whose worker dies
    start_seconds: float = 600.0  # how long to wait for a first worker
    overwrite: bool = False  # begin anew although the output is of another model or other settings
    state: str | Path | None = None  # with `into`: where the record of what is done lies

    def __post_init__(self) -> None:
        if self.engine not in get_args(EngineName):
            raise InputError(f"engine must be one of {', '.join(get_args(EngineName))}, got {self.engine!r}")
        if self.format not in get_args(OutputFormat):
            raise InputError(f"format must be one of {', '.join(get_args(OutputFormat))}, got {self.format!r}")
        for name in ("workers", "threads", "attempts"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InputError(f"{name} must be a whole number, 1 or more, got {value!r}")
        if self.address is not None and self.engine != "ray":
            raise InputError("address is that of a Ray cluster: it needs engine='ray'")
        if self.reading.keep and self.format == "npy":
            raise InputError("keep needs an output with columns: parquet or jsonl, not npy")
        if self.prompt is not None and self.prompt_name is not None:
            raise InputError("give prompt or prompt_name, not both")
