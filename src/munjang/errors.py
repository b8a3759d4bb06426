"""Every error and warning that Munjang raises, in one tree.

    MunjangError
    ├── InputError (ValueError)          an argument or a text cannot be used
    ├── ModelError                       a model on disk cannot be used: damaged, unsafe, unknown, inconsistent
    │   └── ModelNotFoundError           no model exists at that path or hub id
    ├── DataError                        a file cannot be read or written as requested
    │   └── LimitError                   a file exceeds a limit of its reader
    ├── ResumeError                      existing output belongs to other texts or another model
    ├── TrainingError                    a training run cannot continue: the loss is not a number, memory is too small
    └── MissingExtraError (ImportError)  an optional dependency is not installed; the message has the command

    MunjangWarning (UserWarning)
    ├── TruncationWarning                inputs were longer than the model's maximum length
    ├── PrecisionWarning                 a result was not finite and was computed again in float32
    ├── ModelWarning                     a property of a model had to be assumed, such as its pooling
    ├── TrainingWarning                  a training run had to deviate from its settings
    ├── DataWarning                      part of the input was skipped, or does not look like text
    └── LeakageWarning                   evaluation texts occur in the training data

A message has the problem, the expected value, the actual one and the remedy. `brief` shortens a value for a message.
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
    """No model exists at that path or hub id."""


class DataError(MunjangError):
    """A file of texts or vectors cannot be read or written as requested."""


class LimitError(DataError):
    """A file exceeds a limit of its reader; `limit` names it."""

    def __init__(self, message: str, limit: str) -> None:
        super().__init__(message)
        self.limit = limit


class ResumeError(MunjangError):
    """Existing output belongs to other texts or another model."""


class TrainingError(MunjangError):
    """A training run cannot continue."""


class MissingExtraError(MunjangError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}, which is not installed: pip install 'munjang[{extra}]'")


class MunjangWarning(UserWarning):
    """Base of every warning that Munjang gives."""


class TruncationWarning(MunjangWarning):
    """Inputs were longer than the model's maximum length and were truncated."""


class PrecisionWarning(MunjangWarning):
    """A result was not finite and was computed again in float32."""


class ModelWarning(MunjangWarning):
    """A property of a model had to be assumed."""


class TrainingWarning(MunjangWarning):
    """A training run had to deviate from its settings."""


class DataWarning(MunjangWarning):
    """Part of the input was skipped, or does not look like text."""


class LeakageWarning(MunjangWarning):
    """Evaluation texts occur in the training data."""


class _Brief(reprlib.Repr):
    """`repr` in bounded time and depth: a value from a request may be megabytes long or deeply nested."""

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
