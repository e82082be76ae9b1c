"""The recipe for Optuna: K* as the first trial, K on a log scale."""

import math

import pytest

pytest.importorskip("optuna")

import optuna

import negwise as nw

pytestmark = pytest.mark.slow


def test_k_star_is_the_first_trial_and_k_is_searched_on_a_log_scale():
    estimate = nw.optimal_k(train_auc=0.955, val_auc=[0.5, 0.8, 0.9, 0.93, 0.94], steps=[0, 100, 200, 400, 800])
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    study.enqueue_trial({"k": estimate.k_int})

    def objective(trial):
        k = trial.suggest_int("k", 1, 1024, log=True)
        return nw.effectiveness(nw.separation(0.955), nw.separation(0.9), k)

    study.optimize(objective, n_trials=12)
    ks = [trial.params["k"] for trial in study.trials]
    assert ks[0] == estimate.k_int and min(ks) < 40 and max(ks) > 100
    assert math.isfinite(study.best_value)
