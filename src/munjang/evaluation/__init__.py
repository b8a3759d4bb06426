"""Models in, numbers out: metrics, evaluators, tables.

metrics/       arrays -> numbers: pure, numpy alone
scores.py      what an evaluator is, and what it answers with
encoding.py    texts -> vectors or scores, each text once per model
sets.py        examples -> the same, checked
sts.py pairs.py retrieval.py two_stage.py mining.py clustering.py probe.py    the evaluators
mistakes.py    the rows where a model is most wrong
running.py     a model and evaluators -> scores
suites.py      a folder of public data sets -> evaluators
report.py      scores -> Markdown, JSON
mteb_adapter.py    a model as the package mteb wants it
"""

from munjang.evaluation.candidates import lexical_lists
from munjang.evaluation.clustering import ClusteringEvaluator, Clusters, k_means
from munjang.evaluation.comparing import score_model
from munjang.evaluation.encoding import remembering
from munjang.evaluation.mining import BitextEvaluator, ParaphraseMiningEvaluator
from munjang.evaluation.mistakes import Mistake, largest_errors
from munjang.evaluation.pairs import LabelEvaluator, PairClassificationEvaluator, TripletEvaluator
from munjang.evaluation.probe import LinearProbe, ProbeEvaluator, fit_probe
from munjang.evaluation.report import Column, markdown
from munjang.evaluation.results import Results
from munjang.evaluation.retrieval import RerankingEvaluator, RetrievalEvaluator
from munjang.evaluation.running import evaluate
from munjang.evaluation.scores import Evaluator, Scores
from munjang.evaluation.sts import StsEvaluator, StsMeanEvaluator
from munjang.evaluation.suites import Suite, Trial, build_suite, suite
from munjang.evaluation.two_stage import TwoStageEvaluator

__all__ = [
    "BitextEvaluator",
    "ClusteringEvaluator",
    "Clusters",
    "Column",
    "Evaluator",
    "LabelEvaluator",
    "LinearProbe",
    "Mistake",
    "PairClassificationEvaluator",
    "ParaphraseMiningEvaluator",
    "ProbeEvaluator",
    "RerankingEvaluator",
    "Results",
    "RetrievalEvaluator",
    "Scores",
    "StsEvaluator",
    "StsMeanEvaluator",
    "Suite",
    "Trial",
    "TripletEvaluator",
    "TwoStageEvaluator",
    "build_suite",
    "evaluate",
    "fit_probe",
    "k_means",
    "largest_errors",
    "lexical_lists",
    "markdown",
    "remembering",
    "score_model",
    "suite",
]
