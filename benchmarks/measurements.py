"""What is measured, and the tables it makes. Every function adds a table and the raw numbers to `Found`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import children, corpora
from benchmarks.page import Table
from benchmarks.sides import Ours, Peer, Side, load_ours, load_peer
from benchmarks.timing import Timed, interleaved, lowest_cosine, once, progress, ratio
from munjang.nn.device import cpu_has_bfloat16

WARM_UP = 64  # texts, on a CPU
WARM_UP_CUDA = 4096  # a whole window: kernels are compiled, memory is taken
SEARCH = {"cpu": 400, "cuda": 4000}  # texts on which the peer's settings are compared; the fastest runs on all of them
PEER_BATCHES = (32, 256, 1024)
NOTE_SPEED = (
    "ST: sentence-transformers; default: float32, batches of 32. /s: texts per second. times: how many times sooner "
    "Munjang is done. lowest cosine: between the vectors that Munjang and sentence-transformers (float32) give the "
    "same text."
)


def peer_dtypes(kind: str) -> tuple[str, ...]:
    """The precisions in which sentence-transformers may be fastest on this kind of device."""
    if kind == "cuda":
        return ("float32", "float16", "bfloat16")
    return ("float32", "bfloat16") if cpu_has_bfloat16() else ("float32",)


@dataclass
class Found:
    """Tables in the order they were made, and everything behind them."""

    tables: list[Table] = field(default_factory=list)
    raw: list[dict[str, Any]] = field(default_factory=list)

    def add(self, table: Table) -> None:
        """Keep a table and print it."""
        self.tables.append(table)
        print(table.text(), flush=True)


def table_of_texts(model: Path, texts: Mapping[str, Sequence[str]]) -> Table:
    """How many texts there are, and how long."""
    table = Table(
        "Texts",
        ("corpus", "what", "texts", "tokens a text", "shortest", "longest", "cut", "different words"),
        note="tokens: of this model, special tokens included, before cutting. cut: texts longer than the model takes. "
        "different words: split at spaces, in the whole corpus.",
    )
    tokenizer = load_ours(model, "cpu", "float32").parts.tokenizer
    for name, own in texts.items():
        counts = tokenizer.count(list(own))
        words = len({word for text in own for word in text.split()})
        cut = int((counts > tokenizer.max_length).sum())
        table.rows.append(
            (
                name,
                corpora.MEANINGS.get(name, "from a file"),
                f"{len(own):,}",
                f"{counts.mean():.1f}",
                str(counts.min()),
                str(counts.max()),
                str(cut),
                f"{words:,}",
            )
        )
    return table


def measure_speed(
    found: Found,
    folders: Mapping[str, Path],
    texts: Mapping[str, Sequence[str]],
    *,
    device: str,
    repeats: int,
    busy: bool = False,
) -> None:
    """Texts per second of both sides for every model and corpus."""
    kind = "cuda" if device.startswith("cuda") else "cpu"
    dtypes = ("float32",) if busy else peer_dtypes(kind)
    columns: tuple[str, ...] = ("model", "corpus", "Munjang", "Munjang /s", "ST default /s", "times")
    columns += ("lowest cosine",) if busy else ("ST best", "ST best /s", "times best", "lowest cosine")
    title = "Speed, one core kept busy by another process" if busy else "Speed"
    rows: list[tuple[str, ...]] = []
    notes = [NOTE_SPEED]
    if not busy:
        batches = ", ".join(map(str, PEER_BATCHES))
        notes.append(
            f"ST best: the fastest of {', '.join(dtypes)} with batches of {batches}, found on the first "
            f"{SEARCH[kind]:,} texts."
        )
    for model, folder in folders.items():
        peers = {dtype: load_peer(folder, device, dtype) for dtype in dtypes}
        ours = _our_sides(folder, device)
        if kind == "cpu" and len(ours) == 1 and not busy:
            notes.append("`auto` is float32 on this processor (it has no bfloat16 instructions), so it is one row.")
        for corpus, own in texts.items():
            progress(f"{title}: {model}, {corpus}")
            default = Peer(peers["float32"], "float32", 32)
            sides: list[Side] = [default]
            if not busy:
                best = _best_peer(peers, own[: SEARCH[kind]], found, f"{model}, {corpus}")
                if best.name != default.name:
                    sides.append(best)
            with children.busy_core() if busy else contextlib.nullcontext():
                timed = interleaved([*sides, *ours], own, repeats, warm_up=WARM_UP_CUDA if kind == "cuda" else WARM_UP)
            theirs = (timed[0],) if busy else (timed[0], timed[len(sides) - 1])
            for side, taken in zip(ours, timed[len(sides) :], strict=True):
                rows.append(_speed_row((model, corpus, side.name.removeprefix("Munjang ")), theirs, taken))
                print("  ".join(rows[-1]), flush=True)
            found.raw.append(_raw_speed(model, corpus, busy, timed))
    found.add(Table(title, columns, rows, " ".join(notes)))


def _our_sides(folder: Path, device: str) -> list[Ours]:
    """CPU: float32 and auto, where they differ, each with an empty word table. CUDA: auto, empty and warm."""
    auto = load_ours(folder, device, "auto")
    if device.startswith("cuda"):
        # The warm one follows the cold one, which has just met every word.
        return [Ours(auto, folder, asked="auto", cold=cold) for cold in (True, False)]
    exact = Ours(load_ours(folder, device, "float32"), folder, asked="float32", cold=True)
    quick = Ours(auto, folder, asked="auto", cold=True)
    return [exact] if quick.dtype == "float32" else [exact, quick]


def _best_peer(peers: Mapping[str, Any], texts: Sequence[str], found: Found, where: str) -> Peer:
    """Every precision and batch size once, after a warm-up; the fastest."""
    tried: list[tuple[float, Peer]] = []
    for dtype, model in peers.items():
        for batch in PEER_BATCHES:
            peer = Peer(model, dtype, batch)
            once(peer, texts[: 4 * batch])
            tried.append((once(peer, texts)[0], peer))
            progress(f"{where}: {peer.name}: {len(texts) / tried[-1][0]:,.0f}/s")
    seconds = {peer.name: taken for taken, peer in tried}
    found.raw.append({"what": "peer settings", "where": where, "texts": len(texts), "seconds": seconds})
    return min(tried, key=lambda pair: pair[0])[1]


def _speed_row(names: tuple[str, ...], theirs: Sequence[Timed], ours: Timed) -> tuple[str, ...]:
    cosine = f"{lowest_cosine(theirs[0].vectors, ours.vectors):.6f}"
    row = (*names, f"{ours.rate:,.0f}", f"{theirs[0].rate:,.0f}", str(ratio(theirs[0], ours)))
    if len(theirs) > 1:
        setting = theirs[1].name.removeprefix("sentence-transformers ")
        row += (setting, f"{theirs[1].rate:,.0f}", str(ratio(theirs[1], ours)))
    return (*row, cosine)


def _raw_speed(model: str, corpus: str, busy: bool, timed: Sequence[Timed]) -> dict[str, Any]:
    return {
        "what": "speed",
        "model": model,
        "corpus": corpus,
        "busy": busy,
        "texts": timed[0].texts,
        "seconds": {side.name: side.seconds for side in timed},
        "lowest cosine": {side.name: lowest_cosine(timed[0].vectors, side.vectors) for side in timed[1:]},
    }


def measure_start(found: Found, folder: Path, *, device: str, repeats: int) -> None:
    """Importing, and the way from nothing to the first vector."""
    imports = {"munjang": ["munjang"], "sentence-transformers": ["sentence_transformers"]}
    firsts = {
        "munjang": ["munjang", str(folder), device, "auto", "@now"],
        "sentence-transformers": ["peer", str(folder), device, "float32", "@now"],
    }
    table = Table(
        "Start",
        ("what", "ST", "Munjang", "ST / Munjang"),
        note="import: of the package alone, memory added by it. first vector: from the start of the process over "
        "importing and loading to one vector.",
    )
    for what, kind, sides in (("import", "import", imports), ("first vector", "first", firsts)):
        taken = children.repeated(kind, sides, repeats)
        theirs, ours = taken["sentence-transformers"], taken["munjang"]
        for key, words, unit in (
            ("wall_s", "wall clock", "s"),
            ("cpu_s", "CPU time", "s"),
            ("added_mb", "memory", "MB"),
            ("peak_mb", "peak memory", "MB"),
        ):
            if key in theirs:
                shown = [
                    f"{side[key]:.2f} {unit}" if unit == "s" else f"{side[key]:,.0f} MB" for side in (theirs, ours)
                ]
                table.rows.append((f"{what}, {words}", *shown, f"{theirs[key] / max(ours[key], 1e-3):.1f}"))
        found.raw.append({"what": what, **taken})
    found.add(table)


def measure_memory(found: Found, folder: Path, counts: Mapping[str, int], *, device: str) -> None:
    """Peak memory of each side while it encodes."""
    cuda = device.startswith("cuda")
    columns = ("corpus", "texts", "side", "loaded MB", "peak MB") + (("device peak MB",) if cuda else ())
    table = Table("Memory", columns, note="loaded: resident after one text was encoded. peak: the high-water mark.")
    sides = {"sentence-transformers": ("peer", "float32"), "Munjang auto": ("munjang", "auto")}
    for corpus, count in counts.items():
        for name, (side, dtype) in sides.items():
            progress(f"memory: {corpus}, {name}")
            taken = children.probe("memory", side, str(folder), device, dtype, corpus, str(count))
            row = (corpus, f"{count:,}", name, f"{taken['loaded_mb']:,.0f}", f"{taken['peak_mb']:,.0f}")
            table.rows.append((*row, f"{taken['device_peak_mb']:,.0f}") if cuda else row)
            found.raw.append({"what": "memory", "corpus": corpus, "texts": count, "side": name, **taken})
    progress("")
    found.add(table)


def measure_stream(found: Found, models: Mapping[str, tuple[Path, int]], *, device: str, scratch: Path) -> None:
    """`encode_to` of a generator, so many texts for each model: the memory must not grow with their number."""
    table = Table(
        "A stream through encode_to",
        ("model", "texts", "/s", "loaded MB", "at a quarter MB", "at half MB", "at the end MB"),
        note="short texts from a generator into a .npy file. MB: the high-water mark of the process when that text was "
        "asked for. Three windows of 4,096 texts are in memory at a time: once these are full, the mark stays.",
    )
    for name, (folder, count) in models.items():
        progress(f"stream: {count:,} texts, {name}")
        target = scratch / "stream.npy"
        taken = children.probe("stream", str(folder), device, "auto", str(count), str(target), timeout=24 * 3600)
        target.unlink()
        marks = [f"{taken[key]:,.0f}" for key in ("loaded_mb", "quarter_mb", "half_mb", "end_mb")]
        table.rows.append((name, f"{count:,}", f"{count / taken['seconds']:,.0f}", *marks))
        found.raw.append({"what": "stream", "model": name, "texts": count, **taken})
    progress("")
    found.add(table)
