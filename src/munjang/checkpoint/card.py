"""The README.md that goes with a saved model, where the caller has nothing better to say."""

from __future__ import annotations

from munjang.checkpoint.parts import ModelParts
from munjang.checkpoint.static import ENDLESS
from munjang.nn.heads import Dense


def model_card(parts: ModelParts, name: str) -> str:
    """What the model is, its dimension, pooling and length, and how to load it."""
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
    table = "\n".join(f"| {key} | {value} |" for key, value in rows)
    return f"""---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- munjang
- sentence-transformers
- sentence-similarity
---

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

With sentence-transformers:

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{name}")
vectors = model.encode(["첫 문장", "a second sentence"])
```
"""
