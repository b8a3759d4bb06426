"""The README.md that goes with a saved cross-encoder, where the caller has nothing better to say."""

from __future__ import annotations

from munjang.checkpoint.card import compact_note, front, threshold_rows
from munjang.checkpoint.cross_parts import CrossParts, describe_head

_THEIRS = """With sentence-transformers:

```python
from sentence_transformers import CrossEncoder

model = CrossEncoder("{name}")
pairs = [("비가 온다", "It is raining"), ("비가 온다", "주가가 올랐다")]
{theirs}
```
"""
_FORMS = {
    "classifier": "a Hugging Face sequence classifier: transformers and sentence-transformers 3 to 6 load it",
    "electra": "model_type electra, because a BERT body with this head is exactly that classifier: transformers and"
    " sentence-transformers 3 to 6 load it",
    "modules": "a body with Pooling and Dense modules: sentence-transformers 6 loads it; older releases, and"
    " transformers' own classifiers, would make up a head",
}


def cross_card(parts: CrossParts, name: str, form: str, *, compact: bool = False) -> str:
    """What the model is, its labels and length, and how to load it; `compact`: its weights are int8."""
    one = len(parts.labels) == 1
    rows = [
        ("Body", f"{parts.body.config.family}, {parts.body.hidden} values per token"),
        ("Head", describe_head(parts.head)),
        ("Output", "one score" if one else f"{len(parts.labels)} labels: {', '.join(parts.labels)}"),
        ("Activation", parts.activation if one or parts.activation != "Identity" else "softmax (raw outputs saved)"),
        ("Longest pair", f"{parts.tokenizer.max_length} tokens, special tokens included"),
        ("Saved as", "int8, for Munjang alone" if compact else _FORMS[form]),
        *threshold_rows(parts.thresholds),
    ]
    table = "\n".join(f"| {key} | {value} |" for key, value in rows)
    what = "says how alike or how relevant they are" if one else "says which label they have"
    theirs = "scores = model.predict(pairs)" if one else "scores = model.predict(pairs, apply_softmax=True)"
    ours = "scores = model.predict(pairs)" if one else "labels = model.predict_labels(pairs)"
    return f"""{front("text-ranking" if one else "text-classification", "cross-encoder", compact=compact)}
# {name}

A cross-encoder: it reads two texts together and {what}.

| | |
|---|---|
{table}

With [Munjang](https://pypi.org/project/munjang/):

```python
import munjang

model = munjang.load_cross_encoder("{name}")
pairs = [("비가 온다", "It is raining"), ("비가 온다", "주가가 올랐다")]
{ours}
```

{compact_note(name) if compact else _THEIRS.format(name=name, theirs=theirs)}"""
