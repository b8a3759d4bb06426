"""The experiments of the Sentence-BERT paper, run again: what was compared there, on the data that is there here.

    studies.py    which rows the paper's tables have, and what it found
    material.py   a folder of public data sets -> what trains and what measures
    trial.py      one row with one seed -> a trained model's scores
    running.py    a study -> trials -> results, each kept as soon as it is there
    results.py    the file of results; a rerun skips what is in it
    tables.py     results -> Markdown, beside the paper's numbers
    page.py       tables -> the generated part of a page

Reimers and Gurevych 2019, 'Sentence-BERT: sentence embeddings using Siamese BERT-networks', tables 1, 2 and 6.
"""

from research.material import Language, Material, read_material
from research.page import write_page
from research.results import Results
from research.running import run_study
from research.studies import STUDIES, Row, Study
from research.tables import kendall, tables
from research.trial import Setup

__all__ = [
    "STUDIES",
    "Language",
    "Material",
    "Results",
    "Row",
    "Setup",
    "Study",
    "kendall",
    "read_material",
    "run_study",
    "tables",
    "write_page",
]
