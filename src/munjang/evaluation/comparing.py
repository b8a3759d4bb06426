"""A model and trials -> a column of the table: what is known is taken, what is unsuited named, the rest computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from munjang.errors import InputError
from munjang.evaluation.encoding import remembering
from munjang.evaluation.report import Column
from munjang.evaluation.results import Results, content_of, identity_of
from munjang.evaluation.scores import Model, Scores
from munjang.evaluation.suites import Trial


def score_model(
    name: str,
    model: Model,
    trials: Sequence[Trial],
    *,
    results: Results | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Column:
    """Run the trials; `results` keeps each score as soon as it is there; `tell` hears a line about each.

    A trial that fails for this model (vectors that are all the same have no correlation) is named as skipped, with the
    reason: the others still count.
    """
    results = results if results is not None else Results()
    identity = identity_of(name, model)
    scores: dict[str, Scores] = {}
    skipped: dict[str, str] = {}
    with remembering(model):
        for trial in trials:
            content = content_of(trial)
            reason = trial.unsuited(model)
            found = None if reason else results.known(identity, trial.name, content)
            if found is not None:
                tell(f"{name}: {found}, known from an earlier run")
            elif reason is None:
                try:
                    found = trial(model)
                except InputError as error:
                    reason = f"failed: {error}"
                else:
                    results.add(identity, found, content)
                    tell(f"{name}: {found}")
            if found is not None:
                scores[trial.name] = found
            elif reason is not None:
                skipped[trial.name] = reason
                results.skip(identity, trial.name, reason)
                tell(f"{name}: {trial.name} skipped: {reason}")
    return Column(name, scores, skipped, tuple(trial.name for trial in trials))
