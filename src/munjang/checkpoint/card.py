"""`model_card`: the README.md of a saved model, unless the caller gives a better one."""

from __future__ import annotations

from munjang.checkpoint.cross import form_of
from munjang.checkpoint.parts import BiParts, CrossParts, describe_head, describe_thresholds
from munjang.checkpoint.static import UNLIMITED
from munjang.checkpoint.weights import INT8
from munjang.nn.heads import Dense

_FORMS = {
    "classifier": "a Hugging Face sequence classifier: transformers and sentence-transformers 3 to 6 load it",
    "electra": "model_type electra, because a BERT body with this head is exactly that classifier: transformers and"
    " sentence-transformers 3 to 6 load it",
    "modules": "a body with Pooling and Dense modules: sentence-transformers 6 loads it; older releases, and"
    " transformers' own classifiers, would make up a head",
}
_PAGE = """---
library_name: {library}
pipeline_tag: {pipeline}
tags:
{tags}
---

# {name}

{summary}

| | |
|---|---|
{table}

With [Munjang](https://pypi.org/project/munjang/):

```python
import munjang

{ours}
```

{others}
"""
_THEIRS = """With sentence-transformers:

```python
from sentence_transformers import {theirs}
```"""
_COMPACT = f"""The weights are int8 rows with scales (`{INT8}`), which only Munjang reads:
sentence-transformers and transformers do not. For them, write an ordinary folder first:

```bash
munjang export {{name}} -o {{name}}-float32
```"""
_TEXTS = 'vectors = model.encode(["첫 문장", "a second sentence"])'
_PAIRS = 'pairs = [("비가 온다", "It is raining"), ("비가 온다", "주가가 올랐다")]'


def model_card(parts: BiParts | CrossParts, name: str, *, compact: bool = False) -> str:
    """Describe a model and how to load it.

    Args:
        parts: The model.
        name: The name to load it by.
        compact: Whether its weights are int8, which only Munjang reads.
    """
    if isinstance(parts, BiParts):
        summary = "A sentence encoder: it turns texts into vectors, and texts of similar meaning into similar vectors."
        rows = _bi_rows(parts)
        pipeline = tag = "sentence-similarity"
        ours = f'model = munjang.load("{name}")\n{_TEXTS}'
        theirs = f'SentenceTransformer\n\nmodel = SentenceTransformer("{name}")\n{_TEXTS}'
    else:
        score = len(parts.labels) == 1
        purpose = "scores how similar or relevant they are" if score else "gives them a label"
        summary = f"A cross-encoder: it reads two texts together and {purpose}."
        rows = _cross_rows(parts, compact=compact)
        pipeline, tag = "text-ranking" if score else "text-classification", "cross-encoder"
        call = "scores = model.predict(pairs)" if score else "labels = model.predict_labels(pairs)"
        ours = f'model = munjang.load_cross_encoder("{name}")\n{_PAIRS}\n{call}'
        call = f"scores = model.predict(pairs{'' if score else ', apply_softmax=True'})"
        theirs = f'CrossEncoder\n\nmodel = CrossEncoder("{name}")\n{_PAIRS}\n{call}'
    rows += [(f"Threshold: {task}", words) for task, words in describe_thresholds(parts.thresholds).items()]
    library = "munjang" if compact else "sentence-transformers"
    return _PAGE.format(
        library=library,
        pipeline=pipeline,
        tags="\n".join(f"- {name}" for name in dict.fromkeys(("munjang", library, tag))),
        name=name,
        summary=summary,
        table="\n".join(f"| {key} | {value} |" for key, value in rows),
        ours=ours,
        others=_COMPACT.format(name=name) if compact else _THEIRS.format(theirs=theirs),
    )


def _bi_rows(parts: BiParts) -> list[tuple[str, str]]:
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
        ("Longest text", "no limit" if length >= UNLIMITED else f"{length} tokens"),
        ("Similarity", parts.similarity),
    ]
    if parts.prompts:
        rows.append(("Prompts", ", ".join(f"`{key}`: {text!r}" for key, text in parts.prompts.items())))
    return rows


def _cross_rows(parts: CrossParts, *, compact: bool) -> list[tuple[str, str]]:
    score = len(parts.labels) == 1
    return [
        ("Body", f"{parts.body.config.family}, {parts.body.hidden} values per token"),
        ("Head", describe_head(parts.head)),
        ("Output", "one score" if score else f"{len(parts.labels)} labels: {', '.join(parts.labels)}"),
        ("Activation", parts.activation if score or parts.activation != "Identity" else "softmax (raw outputs saved)"),
        ("Longest pair", f"{parts.tokenizer.max_length} tokens, special tokens included"),
        ("Saved as", "int8, for Munjang alone" if compact else _FORMS[form_of(parts)]),
    ]
