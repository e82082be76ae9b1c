"""The recipe for Optuna: K* as the first trial, K on a log scale."""

import math

import pytest

pytest.importorskip("optuna")

import optuna
import torch

import negwise as nw
from negwise.integrations import KInfoNCE

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


@pytest.mark.filterwarnings("ignore:K is .* negatives to draw from")
def test_where_online_k_went_is_the_first_trial():
    torch.manual_seed(0)
    x = torch.randn(320, 8)
    model = torch.nn.Linear(8, 8, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    loss = KInfoNCE("online", temperature=0.25, optimizer=optimizer)
    for rows in x.split(32) * 4:
        optimizer.zero_grad()
        loss(model(rows), rows.roll(1, 1)).backward()
        optimizer.step()
    found = round(loss.control.k)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    study.enqueue_trial({"k": found})
    study.optimize(lambda trial: -trial.suggest_int("k", 1, 1024, log=True), n_trials=2)
    assert study.trials[0].params["k"] == found > 4
