"""Natural language inference sets -> labelled examples: KorNLI, KLUE-NLI, AllNLI, SNLI, MultiNLI.

All have the labels entailment, neutral, contradiction with the ids 0, 1, 2. Pairs without a gold label ('-', -1) are
refused and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from munjang.data.building import Broken, Records, Wanted
from munjang.data.cells import NLI_LABELS
from munjang.data.columns import named_column
from munjang.data.examples import Examples
from munjang.data.files import TextSource
from munjang.data.tabular import file_records, only_where, read_records, read_source

_PREMISES = {"a": "premise", "b": "hypothesis"}
_SENTENCES = {"a": "sentence1", "b": "sentence2"}
_QUESTION = re.compile(
    r'For the statement, "(?P<premise>.*)", does the hypothesis "(?P<hypothesis>.*)"'
    r" represent entailment, contradiction, or neutrality\?",
    re.DOTALL,
)


def kornli(path: str | Path, *, name: str = "KorNLI") -> Examples:
    """KorNLI (kakaobrain/kor-nlu-datasets), the training files and the XNLI ones: tsv without quoting."""
    wanted = Wanted("labelled", {**_SENTENCES, "label": "gold_label"}, NLI_LABELS)
    return read_source(TextSource(path, format="tsv", quoting=False), wanted, name=name)


def klue_nli(path: str | Path, *, name: str = "KLUE-NLI") -> Examples:
    """KLUE-NLI: a JSON list of objects with premise, hypothesis and gold_label."""
    return read_source(
        TextSource(path), Wanted("labelled", {**_PREMISES, "label": "gold_label"}, NLI_LABELS), name=name
    )


def allnli(path: str | Path, *, split: str = "train", name: str = "AllNLI") -> Examples:
    """AllNLI of sentence-transformers (SNLI and MultiNLI): tsv with split, sentence1, sentence2, label."""
    found = only_where(file_records(TextSource(path, format="tsv", quoting=False)), "split", split)
    return read_records(found, Wanted("labelled", {**_SENTENCES, "label": "label"}, NLI_LABELS), name=name)


def snli(path: str | Path, *, name: str = "SNLI") -> Examples:
    """SNLI: tsv with premise, hypothesis and label (0, 1, 2), or with sentence1, sentence2 and gold_label."""
    found = file_records(TextSource(path, quoting=False))
    official = {**_SENTENCES, "label": "gold_label"}
    columns = official if "gold_label" in found.names else {**_PREMISES, "label": "label"}
    return read_records(found, Wanted("labelled", columns, NLI_LABELS), name=name)


def mnli(path: str | Path, *, name: str = "MultiNLI") -> Examples:
    """MultiNLI as a csv of questions: premise and hypothesis stand inside one text, the label is the answer."""
    found = file_records(TextSource(path))
    question = named_column(found.names, "Question", found.where)
    answer = named_column(found.names, "Answer", found.where)

    def rows() -> Iterator[tuple[int, Sequence[object] | Broken]]:
        for number, cells in found.rows:
            if isinstance(cells, Broken):
                yield number, cells
                continue
            match = _QUESTION.fullmatch(str(cells[question]).strip())
            if match is None:
                yield number, Broken("no premise and hypothesis inside the question", cells)
            else:
                yield number, (match["premise"], match["hypothesis"], cells[answer])

    pairs: Records = replace(found, names=("premise", "hypothesis", "label"), rows=rows())
    return read_records(pairs, Wanted("labelled", {**_PREMISES, "label": "label"}, NLI_LABELS), name=name)
