"""Whether a model was hardly trained, on curves whose time constant is known."""

import math
from dataclasses import replace

import pytest

from negwise.records import EvalRecord, RunLog
from negwise.report.undertrained import budget_text, find_undertrained, undertrained_text

STEPS = 1000


def log_of(tau, points=20, end=0.6, se=0.001):
    """A metric that rises to ``end`` like 1 - exp(-t / tau)."""
    at = [STEPS * n // points for n in range(points + 1)]
    values = [end * (1 - math.exp(-step / tau)) for step in at]
    evals = [
        EvalRecord(step=step, split="val", auc=0.5, metrics={"hit@5": value, "hit@5_se": se})
        for step, value in zip(at, values, strict=True)
    ]
    return RunLog(evals=tuple(evals))


@pytest.mark.parametrize(("constants", "short"), [(0.5, True), (1.0, True), (1.7, True), (3.0, False), (6.0, False)])
def test_a_model_needs_about_two_time_constants(constants, short):
    found = find_undertrained(STEPS, 100, STEPS, log_of(STEPS / constants), "hit@5")
    assert (found is not None) == short


def test_the_steps_that_would_do_are_those_of_the_curve():
    found = find_undertrained(STEPS, 100, STEPS, log_of(STEPS), "hit@5")
    settles = STEPS * math.log(20)  # 95% of the asymptote
    assert found.steps == pytest.approx(settles, rel=0.25)
    assert "still rising steeply" in found.why


def test_a_curve_that_levels_off_at_its_end_is_trained():
    """As it does where the learning rate decays: steep in the last third, flat in the last tenth."""
    steep = log_of(STEPS).evals
    flat = [r.__class__(**{**vars(r), "metrics": steep[-3].metrics}) if r.step > 0.85 * STEPS else r for r in steep]
    assert find_undertrained(STEPS, 100, STEPS, RunLog(evals=steep), "hit@5") is not None
    assert find_undertrained(STEPS, 100, STEPS, RunLog(evals=tuple(flat)), "hit@5") is None


def test_what_is_not_hardly_trained():
    steep = log_of(STEPS)
    assert find_undertrained(STEPS, 100, 500, steep, "hit@5") is None  # the best step was not the last
    assert find_undertrained(STEPS, 100, STEPS, log_of(STEPS, se=0.2), "hit@5") is None  # a rise within error
    assert find_undertrained(STEPS, 100, STEPS, None, "hit@5") is None
    assert find_undertrained(STEPS, 0, STEPS, log_of(100), "hit@5") is None  # no epoch is known


def test_auc_tells_where_the_metric_is_too_noisy():
    """A real run of 113 steps; with ten times the time its ndcg@10 went from .02 to .11."""
    at = [0, 19, 38, 57, 76, 95, 113]
    ndcg = [0.0037, 0.0108, 0.0118, 0.0148, 0.0153, 0.0148, 0.0194]
    auc = [0.4829, 0.5091, 0.4944, 0.4936, 0.5035, 0.5617, 0.6132]
    evals = tuple(
        EvalRecord(step=step, split="val", auc=area, auc_se=0.0115, metrics={"ndcg@10": value, "ndcg@10_se": 0.0037})
        for step, value, area in zip(at, ndcg, auc, strict=True)
    )
    assert "validation AUC was still rising" in find_undertrained(113, 5, 113, RunLog(evals=evals), "ndcg@10").why
    level = tuple(replace(record, auc=0.6) for record in evals)
    assert find_undertrained(113, 5, 113, RunLog(evals=level), "ndcg@10") is None


def test_less_than_an_epoch():
    found = find_undertrained(24, 117, 24, None, "hit@5")
    assert found.least and found.steps == 117 and "0.21 of an epoch" in found.why
    words = undertrained_text(found, 24, 20.0, 79.0, budget=80.0)
    assert words.endswith("One epoch needs --budget 3m here, and most models need several epochs.")
    words = undertrained_text(found, 24, 20.0, 79.0)  # no budget ran out
    assert words.endswith("One epoch needs --steps 120 (about 2 min 36 s) here, and most models need several epochs.")
    assert undertrained_text(found, 24, None, None).endswith("Try about --steps 120.")
    rising = find_undertrained(STEPS, 1001, STEPS, log_of(STEPS), "hit@5")
    assert not rising.least and rising.steps > 2000


@pytest.mark.parametrize(("seconds", "text"), [(3, "10s"), (50, "50s"), (90, "90s"), (91, "2m"), (9000, "3h")])
def test_budgets_round_up(seconds, text):
    from negwise.requests import parse_duration

    assert budget_text(seconds) == text and parse_duration(text) >= seconds
