"""When a pilot has converged: on curves whose end is known."""

import numpy as np
import pytest

from negwise.errors import InputError
from negwise.jobs.pilot import check_convergence, estimate_from_log
from negwise.records import EvalRecord, RunLog
from negwise.theory.optimal_k import optimal_k
from negwise.theory.separation import auc


def curve(steps, mu, tau):
    return auc(mu * (1 - np.exp(-np.asarray(steps) / tau)))


def log_of(steps, train, val, se=0.002):
    def records(split, values):
        return [
            EvalRecord(step=int(step), split=split, auc=float(value), auc_se=se, pairs=50_000)
            for step, value in zip(steps, values, strict=True)
        ]

    return RunLog((), (*records("train", train), *records("val", val)), ())


def converging(end, points=13, tau=100.0, train_mu=2.4, val_mu=2.0):
    steps = np.linspace(0, end, points).round()
    return log_of(steps, curve(steps, train_mu, tau), curve(steps, val_mu, tau))


def test_a_pilot_ends_once_both_curves_are_flat():
    assert check_convergence(converging(1000)).converged
    early = check_convergence(converging(150))
    assert not early.converged
    assert "grew by" in early.why


def test_the_growth_is_counted_over_the_last_third():
    """By hand: 1 - exp(-t) between two thirds and the end."""
    end = 300.0
    grown = 1 - (1 - np.exp(-200 / 100)) / (1 - np.exp(-300 / 100))
    assert f"{grown:.1%}" in check_convergence(converging(end, points=16)).why


def test_a_training_auc_that_still_rises_keeps_it_going():
    steps = np.linspace(0, 1000, 13).round()
    rising = log_of(steps, auc(np.linspace(0.1, 3.5, 13)), curve(steps, 2.0, 60.0))
    found = check_convergence(rising)
    assert not found.converged
    assert "rises" in found.why or "K*" in found.why


def test_few_evaluations_say_nothing():
    found = check_convergence(converging(1000, points=5))
    assert not found.converged
    assert "5 evaluations" in found.why


def test_the_estimate_is_that_of_the_curves():
    log = converging(1000)
    val, train = log.of_split("val"), log.of_split("train")
    direct = optimal_k(
        [r.auc for r in train],
        [r.auc for r in val],
        steps=[r.step for r in val],
        train_steps=[r.step for r in train],
        train_se=[0.002] * 13,
        val_se=[0.002] * 13,
    )
    assert estimate_from_log(log).to_dict() == direct.to_dict()
    shorter = estimate_from_log(log, until=500)
    assert max(shorter.pilot.val_steps) <= 500


def test_a_perfect_auc_is_read_half_a_pair_below_and_said():
    steps = np.linspace(0, 1000, 13).round()
    top = np.minimum(curve(steps, 6.0, 100.0), 1.0)
    top[-4:] = 1.0
    found = estimate_from_log(log_of(steps, top, curve(steps, 2.0, 100.0)))
    assert any("exactly 0 or 1" in reason for reason in found.reasons)
    assert check_convergence(log_of(steps, top, top)).why
    assert not any("exactly" in reason for reason in estimate_from_log(converging(1000)).reasons)


def test_evaluations_without_an_auc_are_no_pilot():
    with pytest.raises(InputError, match="nothing to estimate"):
        estimate_from_log(RunLog((), (EvalRecord(step=0, split="val", auc=None),), ()))
