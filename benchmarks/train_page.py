"""Records -> tables -> the page's part for one kind of device; what stands around it is kept."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.page import Table
from benchmarks.train_measure import Record, our_seconds, speed_ratio

TITLE = "# Training beside sentence-transformers\n"
HEADINGS = {"cpu": "Training on a CPU", "cuda": "Training on a GPU"}
NOTE_SPEED = (
    "rows/s: rows of the data a second, of whole steps, Munjang's tokenising included. tokens/s: real tokens, padding "
    "not counted. step: milliseconds, without tokenising for Munjang, which does it before the first step. times: how "
    "many times sooner Munjang is done, tokenising included; the median of the rounds, with the lowest and the highest."
)
NOTE_QUALITY = (
    "Spearman x 100 after the same epochs with the same settings, mean ± standard deviation over the seeds, both "
    "measured by Munjang's evaluator in float32. difference: Munjang less sentence-transformers, seed by seed."
)
HOW = """Both sides load the same folder and train on the same rows: the same batch size, learning rate, schedule,
weight decay, clipping and length; AdamW, fused. Nothing is evaluated, logged or saved. The clock runs from the end of
step {warm_up} to the end of step {steps} and waits for the device at both; the sides take turns, {repeats} times, each
with a freshly loaded model. sentence-transformers is its own trainer, `SentenceTransformerTrainer`, on a GPU in the
quickest of float32, float16 and bfloat16, with 0 and, in half precision, 4 loader processes (kept alive between
epochs); its check for losses that are not a number, which waits for the device in every step, is off. The package
`datasets` is stood in for by a plain list. Every batch is full on both sides. Its batches may hold a
text twice (its default); Munjang's with in-batch negatives never do. The trainer of 6.0.1 does not clear the gradients
of the softmax layer between steps (6.2 does); where it does not, the benchmark does, so that both sides train the
same."""
SMOKE = "**A smoke test with rows written for it: these numbers mean nothing.** "


def speed_table(records: Sequence[Record]) -> Table:
    """One row for every body and objective."""
    ours_columns = ("Munjang rows/s", "tokens/s", "step ms")
    their_columns = ("best ST setting", "ST rows/s", "ST tokens/s", "ST step ms")
    columns = ("body", "objective", *ours_columns, *their_columns, "times")
    table = Table("Speed of training", columns, note=NOTE_SPEED)
    for record in records:
        steps, rows, tokens = record["steps"], record["rows"], record["tokens a row"]
        theirs = statistics.median(record["seconds"][record["peer"]])
        ours = statistics.median(our_seconds(record))
        bare = statistics.median(record["seconds"][record["ours"]])
        table.rows.append(
            (
                record["body"],
                record["objective"],
                f"{rows / ours:,.0f}",
                f"{rows * tokens / ours:,.0f}",
                f"{1000 * bare / steps:.2f}",
                record["peer"].removeprefix("sentence-transformers "),
                f"{rows / theirs:,.0f}",
                f"{rows * tokens / theirs:,.0f}",
                f"{1000 * theirs / steps:.2f}",
                str(speed_ratio(record)),
            )
        )
    return table


def tried_table(records: Sequence[Record]) -> Table:
    """What a step took in each of the peer's settings, when the best was looked for."""
    names = list(dict.fromkeys(name for record in records for name in record["tried"]))
    columns = ("body", "objective", *(name.removeprefix("sentence-transformers ") for name in names))
    table = Table("Settings of sentence-transformers, ms a step", columns, note="A short training each.")
    for record in records:
        if record["tried"]:
            values = (f"{record['tried'][name]:.2f}" if name in record["tried"] else "-" for name in names)
            table.rows.append((record["body"], record["objective"], *values))
    return table


def quality_table(records: Sequence[Record]) -> Table:
    """Both sides' scores on every set, and their difference."""
    columns = ("body", "objective", "set", "seeds", "Munjang", "sentence-transformers", "difference")
    table = Table("Quality after the same training", columns, note=NOTE_QUALITY)
    for record in records:
        ours, theirs = (record["spearman"][record[side]] for side in ("ours", "peer"))
        for name in ours:
            apart = [a - b for a, b in zip(ours[name], theirs[name], strict=True)]
            values = (spread(ours[name]), spread(theirs[name]), spread(apart, sign="+"))
            table.rows.append((record["body"], record["objective"], name, str(len(apart)), *values))
    return table


def spread(values: Sequence[float], *, sign: str = "") -> str:
    """Mean ± standard deviation, x 100."""
    middle = format(100 * statistics.mean(values), f"{sign}.2f")
    return middle if len(values) < 2 else f"{middle} ± {100 * statistics.stdev(values):.2f}"


def tables(records: Sequence[Record]) -> list[Table]:
    """Every table that has rows."""
    speed = [record for record in records if record["part"] == "speed"]
    quality = [record for record in records if record["part"] == "quality"]
    found = [speed_table(speed), tried_table(speed), quality_table(quality)]
    return [table for table in found if table.rows]


def write(path: Path, kind: str, *, command: str, machine: Mapping[str, str], body: str, how: str) -> None:
    """Put one kind of device's part into the page; a page without it gets it at its end."""
    begin, end = f"<!-- training-{kind}:begin -->", f"<!-- training-{kind}:end -->"
    page = path.read_text(encoding="utf-8") if path.exists() else TITLE
    if begin not in page:
        page = f"{page.rstrip()}\n\n{begin}\n{end}\n"
    before, _, rest = page.partition(begin)
    if end not in rest:
        raise ValueError(f"{path} has {begin} without {end} behind it: put it back, or delete the part")
    facts = "\n".join(f"- {name}: {value}" for name, value in machine.items())
    content = f"## {HEADINGS[kind]}\n\n`{command}`\n\n{facts}\n\n{body}\n\n### How training was measured\n\n{how}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{before}{begin}\n{content}\n{end}{rest.partition(end)[2]}", encoding="utf-8")
