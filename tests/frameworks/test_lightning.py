"""The Lightning callback and `find_k`, with the real framework under both of its names."""

import lightning.pytorch as lp
import lightning_ranks
import pytest
import pytorch_lightning as ptl
import torch
from lightning_world import FRAMEWORKS, STEPS, loaders, make_module, make_trainer, rows_of
from torch import nn
from two_processes import run_on_two

from negwise.draws import Key, counts
from negwise.errors import InputError
from negwise.integrations import lightning, pytorch_lightning
from negwise.schedule import AnsK

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
    pytest.mark.filterwarnings("ignore:.*Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:The dirpath has changed"),
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch ended"),
    pytest.mark.filterwarnings("ignore:.*log_every_n_steps"),
    pytest.mark.filterwarnings("ignore:.*lr_scheduler.step"),
]


@pytest.mark.parametrize("framework", ["lightning", "pytorch_lightning"])
@pytest.mark.parametrize("workers", [0, 2])
def test_k_is_that_of_the_very_step_and_in_the_log(tmp_path, framework, workers):
    trainer, _ = make_trainer(tmp_path, "ans:9", framework)
    trainer.fit(make_module(framework), *loaders(workers))
    rows = [row for row in rows_of(trainer) if row.get("k")]
    assert len(rows) == STEPS
    for step, row in enumerate(rows):
        k = AnsK(9)(step / (STEPS - 1))
        assert float(row["k"]) == pytest.approx(k)
        assert float(row["k_used"]) == pytest.approx(counts(k, 32, Key(0, step)).mean())


def test_online_follows_a_model_that_improves(tmp_path):
    checkpoint = lp.callbacks.ModelCheckpoint(tmp_path / "best", monitor="val_auc", mode="max", filename="best")
    trainer, callback = make_trainer(tmp_path, "online", max_epochs=8, more=[checkpoint], run=tmp_path / "run")
    with pytest.warns(UserWarning, match="a row has 31 negatives to draw from"):
        trainer.fit(make_module(), *loaders())
    rows = rows_of(trainer)
    evals = [row for row in rows if row.get("val_auc")]
    assert int(evals[0]["step"]) == 0 and len(evals) == 9  # the one before training by itself
    assert float(evals[0]["val_auc"]) < 0.7 < 0.9 < float(evals[-1]["val_auc"])
    assert float(evals[-1]["val_auc_queries"]) == 96 and float(evals[-1]["val_auc_pairs"]) == 96 * 31
    ks = [float(row["k"]) for row in rows if row.get("k")]
    assert ks[0] == 4.0 and ks[-1] > 10
    best = max(float(row["val_auc"]) for row in evals[1:])
    assert float(checkpoint.best_model_score) == pytest.approx(best)
    assert callback.last_scores.queries == 96
    from negwise.report.write_report import write_report

    assert "online" in write_report([tmp_path / "run"]).read_text()


def test_accumulation_is_one_step(tmp_path):
    trainer, _ = make_trainer(tmp_path, "2.5", accumulate_grad_batches=2, max_epochs=1)
    trainer.fit(make_module(), *loaders(batch=16))
    rows = [row for row in rows_of(trainer) if row.get("k")]
    assert len(rows) == STEPS // 2
    for step, row in enumerate(rows):
        assert float(row["k_used"]) == pytest.approx(counts(2.5, 32, Key(0, step)).mean())


@pytest.mark.parametrize("at", [10, 23])  # the end of an epoch, and the middle of one
def test_resume_and_another_rule(tmp_path, at):
    def run(folder, rule="online:0.3", resume=None):
        keep = lp.callbacks.ModelCheckpoint(tmp_path / folder, every_n_train_steps=at, save_top_k=-1, filename="{step}")
        trainer, _ = make_trainer(tmp_path / folder, rule, max_epochs=3, more=[keep])
        trainer.fit(make_module(), *loaders(shuffle=False), ckpt_path=resume, weights_only=True)
        return [row for row in rows_of(trainer) if row.get("k")]

    whole = run("a")
    again = run("b", resume=tmp_path / "a" / f"step={at}.ckpt")
    # K goes on where it was. Later it may differ: the loader of a run that resumes in mid-epoch starts over, and the
    # checkpoint at the end of an epoch is written before the validation there.
    same = whole[at : at + 7]
    assert [float(row["k"]) for row in again[: len(same)]] == [float(row["k"]) for row in same]
    with pytest.raises(InputError, match="Use the same rule to resume"):
        run("c", "4", resume=tmp_path / "a" / f"step={at}.ckpt")


@pytest.mark.filterwarnings("ignore:K is .* and a row has 31 negatives")
def test_training_without_an_end(tmp_path):
    trainer, _ = make_trainer(tmp_path, "ans:9", max_epochs=-1, max_steps=-1, max_time={"seconds": 2})
    with pytest.raises(InputError, match="needs the number of optimizer steps of the whole training: pass total_steps"):
        trainer.fit(make_module(), *loaders())
    trainer, callback = make_trainer(tmp_path, "online", max_epochs=-1, max_steps=-1, max_time={"seconds": 1})
    trainer.fit(make_module(), *loaders())
    assert callback.control.step > 3


def test_drop_in_for_cross_entropy_and_a_test(tmp_path):
    trainer, _ = make_trainer(tmp_path, "31")
    own, ours = make_module(loss=nn.CrossEntropyLoss()), make_module(scores=True)
    trainer.fit(ours, *loaders(shuffle=False))
    bare, _ = make_trainer(tmp_path / "own", None)
    bare.fit(own, *loaders(shuffle=False))
    for a, b in zip(ours.parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    (found,) = trainer.test(ours, loaders()[1], verbose=False)
    assert found["test_auc_queries"] == 96 and found["test_auc"] > 0.5


def test_a_module_without_a_loss_for_k(tmp_path):
    trainer, _ = make_trainer(tmp_path, "4")
    with pytest.raises(InputError, match=r"has no loss that K is for. Type self.loss = KInfoNCE\(\)"):
        trainer.fit(make_module(loss=nn.CrossEntropyLoss()), *loaders())


def test_find_k_estimates_and_puts_the_weights_back(tmp_path):
    module = make_module()
    before = [one.detach().clone() for one in module.parameters()]
    estimate = lightning.find_k(
        module, *loaders(), steps=80, evaluations=10, accelerator="cpu", default_root_dir=str(tmp_path)
    )
    assert estimate.k >= 1 and estimate.interval is not None
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    with pytest.raises(InputError, match="find_k: steps=1 and evaluations=20"):
        lightning.find_k(module, *loaders(), steps=1)


def test_two_ranks_are_one(tmp_path):
    one = lightning_ranks.train(tmp_path / "one")
    two = run_on_two("lightning_ranks.py", tmp_path / "two.json")
    for a, b in zip(one, two, strict=True):
        assert set(a) == set(b)
        for name in a:
            assert float(a[name]) == pytest.approx(float(b[name]), rel=1e-3), (name, a, b)


def test_frameworks_are_two():
    assert FRAMEWORKS["lightning"] == (lp, lightning) and FRAMEWORKS["pytorch_lightning"] == (ptl, pytorch_lightning)
