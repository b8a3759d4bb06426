"""The README.md that goes with a saved model, where the caller has nothing better to say."""

from __future__ import annotations

from collections.abc import Mapping

from munjang.checkpoint.parts import ModelParts
from munjang.checkpoint.static import ENDLESS
from munjang.checkpoint.thresholds import described
from munjang.checkpoint.weights import COMPACT
from munjang.nn.heads import Dense
from munjang.types import Threshold

_THEIRS = """With sentence-transformers:

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{name}")
vectors = model.encode(["첫 문장", "a second sentence"])
```
"""


def model_card(parts: ModelParts, name: str, *, compact: bool = False) -> str:
    """What the model is, its dimension, pooling and length, and how to load it; `compact`: its weights are int8."""
    dimension = parts.pooling.dimension(parts.body.hidden)
    for head in parts.heads:
        if isinstance(head, Dense):
            dimension = head.dimension
    length = parts.tokenizer.max_length
    rows = [
        ("Body", f"{parts.body.config.family}, {parts.body.hidden} values per token"),
        ("Pooling", " + ".join(parts.pooling.modes)),
        ("After pooling", ", ".join(type(head).__name__ for head in parts.heads) or "nothing"),
        ("Dimension", str(min(dimension, parts.truncate_dim or dimension))),
        ("Longest text", "no limit" if length >= ENDLESS else f"{length} tokens"),
        ("Similarity", parts.similarity),
    ]
    if parts.prompts:
        rows.append(("Prompts", ", ".join(f"`{key}`: {text!r}" for key, text in parts.prompts.items())))
    rows += threshold_rows(parts.thresholds)
    table = "\n".join(f"| {key} | {value} |" for key, value in rows)
    return f"""{front("sentence-similarity", "sentence-similarity", compact=compact)}
# {name}

A sentence encoder: texts go in, vectors come out, and texts that mean the same get similar vectors.

| | |
|---|---|
{table}

With [Munjang](https://pypi.org/project/munjang/):

```python
import munjang

model = munjang.load("{name}")
vectors = model.encode(["첫 문장", "a second sentence"])
```

{compact_note(name) if compact else _THEIRS.format(name=name)}"""


def front(pipeline: str, tag: str, *, compact: bool) -> str:
    """What the hub reads of a card: the library that loads the model, what it is for, how it is found."""
    library = "munjang" if compact else "sentence-transformers"
    tags = "\n".join(f"- {one}" for one in dict.fromkeys(("munjang", library, tag)))
    return f"---\nlibrary_name: {library}\npipeline_tag: {pipeline}\ntags:\n{tags}\n---\n"


def threshold_rows(thresholds: Mapping[str, Threshold]) -> list[tuple[str, str]]:
    """The measured thresholds as rows of the card's table."""
    return [(f"Threshold: {task}", words) for task, words in described(thresholds).items()]


def compact_note(name: str) -> str:
    """Who reads a compact folder and who does not."""
    return f"""The weights are int8 rows with scales (`{COMPACT}`), which only Munjang reads: sentence-transformers and
transformers do not. For them, write an ordinary folder first:

```bash
munjang export {name} -o {name}-float32
```
"""
