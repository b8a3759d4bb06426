"""Small randomly initialised Hugging Face bodies of every family, and the same in ours."""

from __future__ import annotations

import numpy as np
import torch
import transformers

from munjang.nn.encoder import Encoder
from munjang.nn.families import family_of, import_weights
from munjang.nn.packed import to_packed

VOCABULARY = 120
_COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 96,
}
_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}

# The name of the case -> (config class, its arguments).
CASES = {
    "bert": ("BertConfig", _COMMON),
    "bert-relu": ("BertConfig", {**_COMMON, "hidden_act": "relu", "type_vocab_size": 1}),
    "roberta": ("RobertaConfig", {**_COMMON, "type_vocab_size": 1}),
    "xlm-roberta": ("XLMRobertaConfig", {**_COMMON, "type_vocab_size": 1}),
    "camembert": ("CamembertConfig", {**_COMMON, "type_vocab_size": 1}),
    "electra": ("ElectraConfig", {**_COMMON, "embedding_size": 16}),
    "electra-unprojected": ("ElectraConfig", {**_COMMON, "embedding_size": 32}),
    "albert": ("AlbertConfig", {**_COMMON, "embedding_size": 16}),
    "albert-groups": (
        "AlbertConfig",
        {**_COMMON, "embedding_size": 16, "num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2},
    ),
    "distilbert": (
        "DistilBertConfig",
        {
            "vocab_size": VOCABULARY,
            "dim": 32,
            "n_layers": 3,
            "n_heads": 4,
            "hidden_dim": 48,
            "max_position_embeddings": 96,
        },
    ),
    "mpnet": ("MPNetConfig", _COMMON),
    "modernbert": ("ModernBertConfig", {**_COMMON, **_TOKENS, "num_hidden_layers": 4, "local_attention": 16}),
    "modernbert-biased": (
        "ModernBertConfig",
        {**_COMMON, **_TOKENS, "attention_bias": True, "mlp_bias": True, "norm_bias": True, "local_attention": 8},
    ),
}


def theirs(case: str) -> transformers.PreTrainedModel:
    """The Hugging Face model, weights larger than at a usual start so that every part matters."""
    name, arguments = CASES[case]
    torch.manual_seed(7)
    config = getattr(transformers, name)(**arguments)
    model = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "norm" in key.lower() and key.endswith("weight"):
                parameter.normal_(1.0, 0.2)
            else:
                parameter.normal_(0.0, 0.15)
    return model


def ours(model: transformers.PreTrainedModel) -> Encoder:
    """The packed encoder with the same weights."""
    config = model.config.to_dict()
    family = family_of(config)
    assert family is not None
    read = family.read(config)
    encoder = Encoder(read)
    state, _ = import_weights(model.state_dict(), family.weight_names(read))
    encoder.load_state_dict(state, strict=True)
    return encoder.eval()


def random_batch(lengths: list[int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Token ids (never a special one) and lengths."""
    generator = np.random.default_rng(seed)
    return generator.integers(5, VOCABULARY, sum(lengths)).astype(np.int32), np.array(lengths, np.int32)


def padded(ids: np.ndarray, lengths: np.ndarray, pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The same batch as transformers wants it: ids and mask [n, longest]."""
    rows = np.split(ids, np.cumsum(lengths)[:-1])
    table = np.full((len(rows), max(lengths)), pad, np.int64)
    mask = np.zeros_like(table)
    for i, row in enumerate(rows):
        table[i, : len(row)] = row
        mask[i, : len(row)] = 1
    return torch.from_numpy(table), torch.from_numpy(mask)


def hidden_states(
    model: transformers.PreTrainedModel, ids: np.ndarray, lengths: np.ndarray
) -> tuple[torch.Tensor, torch.Tensor]:
    """What transformers computes, padded [n, longest, hidden], and the mask."""
    table, mask = padded(ids, lengths, model.config.pad_token_id)
    return model(input_ids=table, attention_mask=mask).last_hidden_state, mask


def pack(ids: np.ndarray, lengths: np.ndarray):
    return to_packed(ids, lengths, torch.device("cpu"))
