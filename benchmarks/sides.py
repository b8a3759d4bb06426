"""The two sides, behind one shape: a name and `encode(texts) -> float32 [n, dimension]`.

Each loads the same folder on the same device. sentence-transformers' precision is asked for and then checked, as
transformers would otherwise take whatever the checkpoint was saved in.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]


class Side(Protocol):
    """What is timed. `prepare` runs before each repetition, outside the clock."""

    name: str

    def prepare(self) -> None: ...

    def encode(self, texts: Sequence[str]) -> Array: ...


class Peer:
    """sentence-transformers in one precision with one batch size."""

    def __init__(self, model: Any, dtype: str, batch: int) -> None:
        self.name = f"sentence-transformers {dtype}, batch {batch}"
        self.dtype, self.batch = dtype, batch
        self._model = model

    def prepare(self) -> None:
        pass

    def encode(self, texts: Sequence[str]) -> Array:
        return self._model.encode(list(texts), batch_size=self.batch, show_progress_bar=False)  # type: ignore[no-any-return]


class Ours:
    """Munjang in one precision; `cold` forgets the words it has met before each repetition."""

    def __init__(self, model: Any, folder: Path, *, asked: str, cold: bool) -> None:
        self.dtype = str(model.dtype).removeprefix("torch.")
        words = "" if cold else ", warm word table"
        self.name = f"Munjang {asked}" + (f" ({self.dtype})" if asked == "auto" else "") + words
        self.cold = cold
        self._model, self._folder = model, folder

    def prepare(self) -> None:
        if self.cold:
            self._model.parts.tokenizer = fresh_tokenizer(self._folder, self._model.max_length)

    def encode(self, texts: Sequence[str]) -> Array:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that texts were cut is known: a column says so
            return self._model.encode(texts)  # type: ignore[no-any-return]


def fresh_tokenizer(folder: Path, max_length: int) -> Any:
    """A tokenizer that has met no word yet."""
    from munjang.text.tokenizer import Tokenizer

    return Tokenizer.from_folder(folder, max_length=max_length)


def load_peer(folder: Path, device: str, dtype: str = "float32") -> Any:
    """A SentenceTransformer in that precision."""
    import torch
    import transformers
    from sentence_transformers import SentenceTransformer

    transformers.utils.logging.disable_progress_bar()
    wanted = getattr(torch, dtype)
    key = "dtype" if int(transformers.__version__.split(".")[0]) >= 5 else "torch_dtype"
    model = SentenceTransformer(str(folder), device=device, model_kwargs={key: wanted})
    found = {parameter.dtype for parameter in model.parameters()}
    if found != {wanted}:
        raise RuntimeError(f"sentence-transformers was asked for {wanted} and loaded {found}")
    return model


def load_ours(folder: Path, device: str, dtype: str) -> Any:
    """A munjang.BiEncoder in that precision."""
    import munjang

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # notes about random models
        return munjang.load(folder, device=device, dtype=dtype)
