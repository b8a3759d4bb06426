"""A body built anew from a config and weights; the one it came from keeps its own.

Every tensor is cloned: a student that is trained must not train the model that it was made of.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from munjang.checkpoint import Body
from munjang.errors import ModelError
from munjang.nn.encoder import Encoder, EncoderConfig
from munjang.nn.families import FAMILIES


def known_body(body: Body, purpose: str) -> Encoder:
    """The body, if it is one that can be taken apart here."""
    if isinstance(body, Encoder):
        return body
    raise ModelError(
        f"{purpose} needs a body of one of the families {', '.join(FAMILIES)}, but this model's is "
        f"{body.config.family!r}: choose another model to start from"
    )


def rebuilt(config: EncoderConfig, state: Mapping[str, Tensor]) -> Encoder:
    """An encoder with copies of these weights, float32 and on the CPU."""
    with torch.device("meta"):
        encoder = Encoder(config)
    encoder.load_state_dict(
        {name: tensor.detach().to("cpu", torch.float32, copy=True) for name, tensor in state.items()}, assign=True
    )
    return encoder.eval()
