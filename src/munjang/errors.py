"""Every error and warning that Munjang raises, in one tree.

    MunjangError
    ├── InputError (ValueError)          an argument or a text cannot be used
    ├── ModelError                       a model on disk cannot be used: damaged, unsafe, unknown, inconsistent
    │   └── ModelNotFoundError           there is no model at that path or hub id
    ├── DataError                        a file of texts cannot be read or written as asked
    │   └── LimitError                   a file holds more than the reader accepts
    ├── ResumeError                      earlier output is there, but belongs to other texts or another model
    ├── TrainingError                    a training run cannot go on: the loss is not a number, nothing fits
    └── MissingExtraError (ImportError)  an optional dependency is not installed; the message has the command

    MunjangWarning (UserWarning)
    ├── TruncationWarning                texts were longer than the model reads
    ├── PrecisionWarning                 a result was not finite and was computed again in float32
    ├── ModelWarning                     something about a model had to be assumed (for example its pooling)
    ├── TrainingWarning                  a training run had to do something else than it was told
    ├── DataWarning                      part of the input was skipped, or is hardly a text
    └── LeakageWarning                   evaluation texts stand in the training data

A message says what was expected, what came, and what to do. `brief` shows a value in a message, however large it is.
"""

from __future__ import annotations

import reprlib


class MunjangError(Exception):
    """Base of every error that Munjang raises on purpose."""


class InputError(MunjangError, ValueError):
    """An argument or a text cannot be used."""


class ModelError(MunjangError):
    """A model on disk cannot be used: damaged, unsafe, unknown or inconsistent."""


class ModelNotFoundError(ModelError):
    """There is no model at that path or hub id."""


class DataError(MunjangError):
    """A file of texts or vectors cannot be read or written as asked."""


class LimitError(DataError):
    """A file holds more than the reader accepts; `limit` names which of its limits."""

    def __init__(self, message: str, limit: str) -> None:
        super().__init__(message)
        self.limit = limit


class ResumeError(MunjangError):
    """Earlier output is there, but it belongs to other texts or another model."""


class TrainingError(MunjangError):
    """A training run cannot go on."""


class MissingExtraError(MunjangError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}, which is not installed: pip install 'munjang[{extra}]'")


class MunjangWarning(UserWarning):
    """Base of every warning that Munjang gives."""


class TruncationWarning(MunjangWarning):
    """Texts were longer than the model reads, and were cut."""


class PrecisionWarning(MunjangWarning):
    """A result was not finite and was computed again in float32."""


class ModelWarning(MunjangWarning):
    """Something about a model had to be assumed."""


class TrainingWarning(MunjangWarning):
    """A training run had to do something else than it was told."""


class DataWarning(MunjangWarning):
    """Part of the input was skipped, or is hardly a text."""


class LeakageWarning(MunjangWarning):
    """Evaluation texts stand in the training data."""


class _Brief(reprlib.Repr):
    """`repr` in bounded time and depth: a value from a request may be megabytes long or nested 900 levels deep."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother, self.maxlong = 3, 60, 60, 40

    def repr_int(self, x: int, level: int) -> str:
        # str() refuses integers of more than 4,300 digits.
        return super().repr_int(x, level) if x.bit_length() <= 4096 else f"<an integer of {x.bit_length():,} bits>"


_brief = _Brief()


def brief(value: object) -> str:
    """`repr(value)` for a message: at most 60 characters of a text, a few items of a list, three levels of nesting."""
    return _brief.repr(value)
