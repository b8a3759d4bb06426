"""The head of every family's Hugging Face sequence classifier: its shape, its dropout and its weights' names.

Enters: config.json. Leaves: a `StandardHead`, from which `ClassifierHead` is built and whose `names` map its weights to
theirs; names are without the body's prefix, as `from_theirs` leaves them.
"""

from __future__ import annotations

from dataclasses import dataclass

from munjang.errors import ModelError
from munjang.nn.classifier import HeadActivation, HeadShape
from munjang.nn.config import ACTIVATIONS
from munjang.nn.families.reading import Config, number

_PREFIXES = {
    "bert": "bert.",
    "roberta": "roberta.",
    "xlm-roberta": "roberta.",
    "camembert": "roberta.",
    "electra": "electra.",
    "albert": "albert.",
    "distilbert": "distilbert.",
    "mpnet": "mpnet.",
    "modernbert": "model.",
    "deberta": "deberta.",
    "deberta-v2": "deberta.",
}
_CLASSES = {
    "bert": "Bert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "camembert": "Camembert",
    "electra": "Electra",
    "albert": "Albert",
    "distilbert": "DistilBert",
    "mpnet": "MPNet",
    "modernbert": "ModernBert",
    "deberta": "Deberta",
    "deberta-v2": "DebertaV2",
}


@dataclass(frozen=True)
class StandardHead:
    """How one family classifies sequences."""

    shape: HeadShape
    dropout: float
    layers: dict[str, str]  # ours (dense, norm, out) -> theirs
    in_body: frozenset[str] = frozenset()  # those of ours that stand under the body's prefix: poolers
    prefix: str = ""  # of the body, in a sequence classifier's weights
    architecture: str = ""

    def theirs(self, name: str) -> str:
        """Their name of one of our weights ('dense.weight'), without the body's prefix."""
        layer, _, kind = name.partition(".")
        return f"{self.layers[layer]}.{kind}"

    def saved_name(self, name: str) -> str:
        """The same, as a saved sequence classifier has it."""
        inside = name.partition(".")[0] in self.in_body
        return (self.prefix if inside else "") + self.theirs(name)


def standard_head(config: Config) -> StandardHead | None:
    """The head that transformers gives this config's model, or None where it is not known here."""
    kind = str(config.get("model_type", ""))
    if kind not in _CLASSES:
        return None
    shape, dropout, layers, in_body = _shape(kind, config)
    return StandardHead(shape, dropout, layers, in_body, _PREFIXES[kind], f"{_CLASSES[kind]}ForSequenceClassification")


def sbert_dropout(config: Config) -> float:
    """The paper's head: classifier_dropout, or else the body's."""
    return number(config, "classifier_dropout", "hidden_dropout_prob", "dropout", default=0.1, most=1)


def _shape(kind: str, config: Config) -> tuple[HeadShape, float, dict[str, str], frozenset[str]]:
    dropout = sbert_dropout(config)
    two_layers = {"dense": "classifier.dense", "out": "classifier.out_proj"}
    if kind == "bert":
        pooler = {"dense": "pooler.dense", "out": "classifier"}
        return HeadShape("tanh", drop_first=False), dropout, pooler, frozenset({"dense"})
    if kind == "albert":
        dropout = number(config, "classifier_dropout_prob", default=0.1, most=1)
        layers = {"dense": "pooler", "out": "classifier"}
        return HeadShape("tanh", drop_first=False), dropout, layers, frozenset({"dense"})
    if kind == "electra":
        return HeadShape("gelu"), dropout, two_layers, frozenset()
    if kind == "distilbert":
        dropout = number(config, "seq_classif_dropout", default=0.2, most=1)
        layers = {"dense": "pre_classifier", "out": "classifier"}
        return HeadShape("relu", drop_first=False), dropout, layers, frozenset()
    if kind == "modernbert":
        return _modernbert(config)
    if kind.startswith("deberta"):
        return _deberta(config)
    return HeadShape("tanh"), dropout, two_layers, frozenset()


def _modernbert(config: Config) -> tuple[HeadShape, float, dict[str, str], frozenset[str]]:
    pooling = config.get("classifier_pooling") or "cls"
    if pooling not in ("cls", "mean"):
        raise ModelError(f"config.json: classifier_pooling must be 'cls' or 'mean', got {pooling!r}")
    shape = HeadShape(
        _activation(config, "classifier_activation", "gelu"),
        pooling="mean" if pooling == "mean" else "cls",
        drop_first=False,
        bias=bool(config.get("classifier_bias", False)),
        norm_eps=number(config, "norm_eps", default=1e-5),
        norm_bias=bool(config.get("norm_bias", False)),
    )
    layers = {"dense": "head.dense", "norm": "head.norm", "out": "classifier"}
    return shape, number(config, "classifier_dropout", default=0.0, most=1), layers, frozenset()


def _deberta(config: Config) -> tuple[HeadShape, float, dict[str, str], frozenset[str]]:
    # The first dropout has a rate of its own (pooler_dropout, 0 in published models): it counts only in training.
    dropout = number(config, "cls_dropout", "hidden_dropout_prob", default=0.1, most=1)
    shape = HeadShape(_activation(config, "pooler_hidden_act", "gelu"), drop_first=False)
    return shape, dropout, {"dense": "pooler.dense", "out": "classifier"}, frozenset()


def _activation(config: Config, key: str, default: HeadActivation) -> HeadActivation:
    name = config.get(key) or default
    if name == "tanh" or name == "sigmoid":
        return name
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ModelError(f"config.json: {key} {name!r} is not known here; known are tanh, {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]
