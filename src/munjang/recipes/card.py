"""README.md of a trained model: what it is, what it learned from, what was measured, how to load it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from munjang.checkpoint.card import model_card
from munjang.checkpoint.cross_card import cross_card
from munjang.checkpoint.cross_writing import form_of
from munjang.cross_encoder import CrossEncoder
from munjang.files import atomic_write
from munjang.recipes.options import Model

_SHOWN = ("epochs", "max_steps", "batch_size", "learning_rate", "warm_up", "schedule", "weight_decay", "ema", "seed")


def write_card(folder: Path, model: Model, record: Mapping[str, Any]) -> None:
    """Write the card into the folder of the saved model."""
    target = folder / "model" / "README.md"
    if target.parent.is_dir():
        atomic_write(target, card_text(folder, model, record).encode("utf-8", "replace"))


def card_text(folder: Path, model: Model, record: Mapping[str, Any]) -> str:
    """The plain card of such a model, and what this run knows about it."""
    name = f"{folder.resolve().name}/model"
    if isinstance(model, CrossEncoder):
        plain = cross_card(model.parts, name, form_of(model.parts))
    else:
        plain = model_card(model.parts, name)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return "\n".join(
        [
            plain.rstrip(),
            "",
            "## Measured",
            "",
            f"{plain_cell(record['headline'])}.",
            "",
            *_scores(record),
            "",
            "## Training",
            "",
            *_training(record, config),
            "",
            "## Licence",
            "",
            "Unknown: fill it in. It follows from the model that this one was made of and from the training data "
            "above; look up the licences of both before you publish it.",
            "",
        ]
    )


def _scores(record: Mapping[str, Any]) -> list[str]:
    known = record.get("before") or {}
    rows = [(one, old, "test") for one, old in _with(record["test"], known.get("test", []))]
    rows += [(one, None, "test") for one in record["truncated"]]
    chosen = "development: chose the model, optimistic"
    rows += [(one, old, chosen) for one, old in _with(record["dev"], known.get("dev", []))]
    if not rows:
        return ["Nothing was measured: the training had neither a development nor a test set."]
    lines = [
        "| Set | Metric | Before training | Value (x 100) | 95 % interval | Rows | Part |",
        "|---|---|---:|---:|---|---:|---|",
    ]
    for one, old, part in rows:
        low_high = one["intervals"].get(one["main"])
        shown = f"{100 * low_high[0]:.2f} to {100 * low_high[1]:.2f}" if low_high else ""
        value = f"{100 * one['values'][one['main']]:.2f}"
        was = "" if old is None else f"{100 * old['values'][one['main']]:.2f}"
        cells = (plain_cell(one["name"]), one["main"], was, value, shown, f"{one['rows']:,}", part)
        lines.append(f"| {' | '.join(cells)} |")
    leaked = [one for one in (record["leakage"] or {"sets": []})["sets"] if one["normalised"]["some"]]
    if leaked and record["leakage"]["policy"] == "report":
        lines += ["", "Sentences of these sets stand in the training data, which makes scores too good: "]
        lines[-1] += "; ".join(
            f"{plain_cell(one['name'])} ({one['normalised']['some']:,} of {one['rows']:,} rows)" for one in leaked
        )
        lines[-1] += "."
    return lines


def _with(after: Sequence[Any], before: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(zip(after, before if len(before) == len(after) else [None] * len(after), strict=True))


def _training(record: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    source = config["model"]["source"]
    lines = [f"Recipe `{record['recipe']}` of Munjang {record['versions']['munjang']}, from `{Path(source).name}`.", ""]
    lines += ["| Data | Kind | Rows | Objective |", "|---|---|---:|---|"]
    for task in config["tasks"]:
        lines.append(f"| {plain_cell(task['name'])} | {task['kind']} | {task['rows']:,} | {task['objective']} |")
    settings = config["settings"]
    shown: Sequence[str] = [f"{name} {settings[name]}" for name in _SHOWN if settings[name] is not None]
    return [*lines, "", f"Settings: {', '.join(shown)}."]


def plain_cell(text: str) -> str:
    """A text as a cell of a Markdown table, with nothing in it that Markdown or HTML would take for its own."""
    for sign, instead in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("`", "'"), ("[", "\\["), ("\n", " ")):
        text = text.replace(sign, instead)
    return text
