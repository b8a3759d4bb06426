"""Fewer positions: a body without those that it will never read, and its config.json.

Enters: a body and its config.json. Leaves: new ones; the given stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping

from munjang.checkpoint.parts import ModelBody
from munjang.errors import InputError, ModelError
from munjang.nn.encoder import Encoder
from munjang.nn.families import family_of
from munjang.students.rebuilding import known_body, rebuilt

_TABLE = "embeddings.position.weight"


def fewer_positions(
    body: ModelBody, hf_config: Mapping[str, object], positions: int
) -> tuple[Encoder, dict[str, object]]:
    """The body for texts of at most so many tokens, special ones included; what it computes for them is the same."""
    encoder = known_body(body, "a student with fewer positions")
    family, most = family_of(hf_config), encoder.config.max_positions
    if family is None or not encoder.config.position_rows:
        raise ModelError(f"the model has no table of positions to shorten: its family is {encoder.config.family!r}")
    if not 1 <= positions <= most:
        raise InputError(f"positions must be 1..{most} (those that the model has), got {positions}")
    rows = positions + encoder.config.position_rows - most  # some of a table are never read (RoBERTa)
    config = {**hf_config, "max_position_embeddings": rows}
    state = encoder.state_dict()
    return rebuilt(family.read(config), {**state, _TABLE: state[_TABLE][:rows]}), config
