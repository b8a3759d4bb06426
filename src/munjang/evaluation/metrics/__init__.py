"""Metrics: arrays in, numbers out, in numpy alone. No models, no files.

    correlation.py     two rows of scores -> Pearson, Spearman
    classification.py  classes and scores -> accuracy, F1, thresholds, average precision, ROC AUC, calibration
    ranking.py         ranked lists -> MRR, NDCG, recall, precision, MAP, hit rate, one value per query
    clustering.py      two groupings -> V-measure, NMI, adjusted Rand index
    intervals.py       any of them -> intervals, and differences of two models

What has no value (constant scores, one class only) is an `InputError`, never NaN.
"""

from munjang.evaluation.metrics.classification import (
    AgainstMajority,
    PrecisionRecallF1,
    Threshold,
    accuracy,
    average_precision,
    best_accuracy,
    best_f1,
    brier,
    calibration_error,
    f1,
    matthews,
    precision_recall_f1,
    roc_auc,
)
from munjang.evaluation.metrics.clustering import (
    VMeasure,
    adjusted_rand_index,
    normalized_mutual_information,
    v_measure,
    v_measures,
)
from munjang.evaluation.metrics.correlation import pearson, ranks, spearman
from munjang.evaluation.metrics.intervals import Difference, bootstrap, bootstrap_mean, mean, paired_bootstrap
from munjang.evaluation.metrics.ranking import (
    average_precision_at,
    hit_rate,
    ndcg,
    precision_at,
    recall_at,
    reciprocal_rank,
    tied_ndcg,
)

__all__ = [
    "AgainstMajority",
    "Difference",
    "PrecisionRecallF1",
    "Threshold",
    "VMeasure",
    "accuracy",
    "adjusted_rand_index",
    "average_precision",
    "average_precision_at",
    "best_accuracy",
    "best_f1",
    "bootstrap",
    "bootstrap_mean",
    "brier",
    "calibration_error",
    "f1",
    "hit_rate",
    "matthews",
    "mean",
    "ndcg",
    "normalized_mutual_information",
    "paired_bootstrap",
    "pearson",
    "precision_at",
    "precision_recall_f1",
    "ranks",
    "recall_at",
    "reciprocal_rank",
    "roc_auc",
    "spearman",
    "tied_ndcg",
    "v_measure",
    "v_measures",
]
