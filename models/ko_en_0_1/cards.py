"""Results and the facts of a making -> README.md and README.ko.md of a bundled model.

A card says what the model is, what it learned from and under which licences, who taught it, what was measured (with
intervals), what of it stood in the training text, how quick it is, what it cannot do, and how to go on with it. Figures
come from results.json and from making.json; what is not there is said to be missing, never made up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from models.ko_en_0_1.card_words import COMMANDS, LIMITS, WORDS, load_snippet
from models.ko_en_0_1.facts import Making, read_making, said
from models.ko_en_0_1.results import Measured
from models.ko_en_0_1.tables import (
    everything_table,
    machine_line,
    overlap_table,
    table,
    threshold_table,
    two_stage_table,
)
from models.ko_en_0_1.words import Language, word
from munjang.errors import InputError
from munjang.files import atomic_write, disk_errors
from munjang.recipes.card import plain_cell

__all__ = ["card", "read_making", "write_cards"]
_FILES: dict[Language, str] = {"en": "README.md", "ko": "README.ko.md"}


def write_cards(folder: str | Path, making: Making, results: Mapping[str, Measured]) -> list[Path]:
    """Write both cards into the model's folder."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder: expected the folder of the model {making.name}")
    texts = {folder / name: card(making, results, language) for language, name in _FILES.items()}
    for path, text in texts.items():
        with disk_errors(path, safe="the card before it is whole; run the command again"):
            atomic_write(path, text.encode())
    return list(texts)


def card(making: Making, results: Mapping[str, Measured], language: Language) -> str:
    """The whole card in one language."""
    if making.name not in results:
        raise InputError(
            f"the results have no model {making.name}, only {', '.join(results)}: measure it with that name"
        )
    ours = {making.name: results[making.name]}
    words = WORDS[language]
    sections = [
        (words["what"], _what(making, language)),
        (words["load"], load_snippet(making.name, cross=making.is_cross)),
        (words["scores"], _scores(making, results, language)),
        (words["thresholds"], threshold_table(ours, language)),
        (words["data"], _data(making, language)),
        (words["teachers"], _teachers(making, language)),
        (words["making"], _stages(making, language)),
        (words["overlap"], words["overlap text"] + "\n\n" + overlap_table(ours[making.name], language)),
        (words["speed"], _speed(making, language)),
        (words["limits"], _limits(making, language)),
        (words["further"], words["further text"] + "\n\n" + _commands("train", making)),
        (words["export"], words["export text"] + "\n\n" + _commands("export", making)),
        (words["licence"], _licence(making, language)),
    ]
    body = "\n\n".join(f"## {title}\n\n{content.strip()}" for title, content in sections)
    other = f"*[{words['other']}]({_FILES['ko' if language == 'en' else 'en']})*"
    summary = words["summary cross" if making.is_cross else "summary bi"]
    return f"{_front(making)}\n# {making.name}\n\n{other}\n\n{summary}\n\n{body}\n"


def _front(making: Making) -> str:
    """What hubs read: languages, licence, task."""
    task, tag = ("text-ranking", "cross-encoder") if making.is_cross else ("sentence-similarity", "feature-extraction")
    licence = str(making.content["licence"]).lower().replace(" ", "-")
    lines = ["---", "language:", "- ko", "- en", f"license: {licence}", "library_name: munjang"]
    return "\n".join([*lines, f"pipeline_tag: {task}", "tags:", "- munjang", f"- {tag}", "---", ""])


def _what(making: Making, language: Language) -> str:
    model = [[plain_cell(str(key)), _number(one)] for key, one in making.content["model"].items()]
    sizes = [[said(one["what"], language), f"{one['bytes'] / 1e6:.1f} MB"] for one in making.rows("sizes")]
    return table(["", ""], [*model, *sizes])


def _scores(making: Making, results: Mapping[str, Measured], language: Language) -> str:
    ours = {making.name: results[making.name]}
    parts = [everything_table(ours, language), word("interval", language)]
    staged = results if making.is_cross else ours
    if any(name.endswith(" two-stage") for model in staged.values() for name in model.scores):
        parts += [WORDS[language]["two-stage"], two_stage_table(staged, language)]
    return "\n\n".join([*parts, machine_line(ours, language)])


def _data(making: Making, language: Language) -> str:
    words = WORDS[language]
    rows = [
        [said(one["name"], language), said(one["use"], language), f"{one['rows']:,}", one["licence"], one["source"]]
        for one in making.rows("data")
    ]
    head = [words["name"], words["use"], word("rows", language), words["licence"], words["source"]]
    shared = [row[0] for row in rows if str(row[3]).upper().replace("-", " ").startswith("CC BY SA")]
    text = table(head, [[plain_cell(str(cell)) for cell in row] for row in rows], right=(2,))
    if shared:
        text += "\n\n" + words["share alike"].format(sets=", ".join(dict.fromkeys(shared)))
    return text


def _teachers(making: Making, language: Language) -> str:
    words = WORDS[language]
    rows = [
        [plain_cell(said(one[key], language)) for key in ("name", "use", "licence", "source")]
        for one in making.rows("teachers")
    ]
    head = [words["name"], words["use"], words["licence"], words["source"]]
    return table(head, rows) if rows else word("none", language)


def _stages(making: Making, language: Language) -> str:
    words = WORDS[language]
    stages = making.rows("stages")
    rows = [
        [said(one["name"], language), f"{one['seconds']:,.0f}", plain_cell(_settings(one["settings"]))]
        for one in stages
    ]
    seconds = sum(float(one["seconds"]) for one in stages)
    machine = ", ".join(str(value) for value in making.content.get("machine", {}).values())
    line = words["made"].format(seconds=f"{seconds:,.0f}", seed=making.content["seed"])
    parts = [f"```bash\n{making.content['command']}\n```", line + (f" ({plain_cell(machine)})" if machine else "")]
    parts.append(table([words["stage"], words["seconds"], words["settings"]], rows, right=(1,)))
    chosen = [
        [one["set"], word(str(one["metric"]), language), f"{100 * one['value']:.2f}", _source(one, language)]
        for one in making.rows("selection")
    ]
    if chosen:
        head = [word("set", language), word("metric", language), "x 100", words["source"]]
        parts += [words["chosen"], table(head, chosen, right=(2,))]
    return "\n\n".join(parts)


def _speed(making: Making, language: Language) -> str:
    words = WORDS[language]
    rows = [
        [said(one["what"], language), f"{one['per second']:,.0f}", one["device"], _source(one, language)]
        for one in making.rows("speed")
    ]
    if not rows:
        return words["no speed"]
    return table([words["texts"], words["per second"], words["device"], words["source"]], rows, right=(1,))


def _limits(making: Making, language: Language) -> str:
    own: Sequence[str] = making.content.get("limits", {}).get(language, [])
    kind = "cross" if making.is_cross else "bi"
    return "\n".join(f"- {line}" for line in (*LIMITS[language]["both"], *LIMITS[language][kind], *own))


def _licence(making: Making, language: Language) -> str:
    return WORDS[language]["licence text"].format(licence=making.content["licence"])


def _commands(what: str, making: Making) -> str:
    lines = COMMANDS[f"{what} {'cross' if making.is_cross else 'bi'}"]
    return "```bash\n" + "\n".join(line.format(name=making.name) for line in lines) + "\n```"


def _source(row: Mapping[str, object], language: Language) -> str:
    return plain_cell(said(row["source"], language))


def _settings(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{key} {_number(value)}" for key, value in settings.items())


def _number(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return plain_cell(str(value))
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
