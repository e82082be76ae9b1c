"""The Lightning callback and `find_k`, with the real framework under both of its names."""

import lightning.pytorch as lp
import lightning_ranks
import pytest
import pytorch_lightning as ptl
import torch
from boards import read_board
from lightning_world import FRAMEWORKS, STEPS, loaders, make_module, make_trainer, pairs, rows_of
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from two_processes import run_on_two

import negwise.curves
from negwise.draws import Key, counts
from negwise.errors import InputError
from negwise.integrations import KInfoNCE, StepControl, lightning, pytorch_lightning
from negwise.integrations.column_choice import keep_mask
from negwise.integrations.step_control import LAG
from negwise.losses import info_nce
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


def run_once(folder, batch=None, data=None, accumulate=1, loss=None, rule="2.5", **options):
    """A module after one step on ``data``, and the row of it in the log."""
    data = pairs(batch, 0) if data is None else data
    module = make_module(loss=loss or KInfoNCE(temperature=0.25))
    trainer, _ = make_trainer(folder, rule, max_steps=1, accumulate_grad_batches=accumulate, **options)
    trainer.fit(module, DataLoader(data, batch or len(data)), DataLoader(pairs(16, 1), 16))
    return module, next(row for row in rows_of(trainer) if row.get("k"))


def test_loss_is_info_nce_over_the_kept_negatives(tmp_path):
    _, row = run_once(tmp_path, 32)
    control = StepControl("2.5", 1)
    control.begin(0)
    rows, order = control.draws(32, 31, torch.device("cpu"))
    x, positive = pairs(32, 0).tensors
    query = make_module().layer(x).detach()
    expected = info_nce(query, positive, mask=keep_mask(order, rows, 0, 1, 32)[:, 0], temperature=0.25).loss
    assert float(row["train_loss"]) == pytest.approx(float(expected), rel=1e-4)  # in one row with K


def test_accumulated_gradients_are_a_mean(tmp_path):
    once, _ = run_once(tmp_path, data=pairs(16, 0), batch=16, rule="15")
    twice = TensorDataset(*(torch.cat([part, part]) for part in pairs(16, 0).tensors))
    again, _ = run_once(tmp_path, data=twice, batch=16, rule="15", accumulate=2)
    torch.testing.assert_close(once.layer.weight, again.layer.weight)
    assert not torch.equal(once.layer.weight, make_module().layer.weight)


def test_rows_with_fewer_negatives_than_k(tmp_path):
    class Ragged(KInfoNCE):
        """Two given negatives, of which rows have none, one or both; all other rows have the same positive."""

        def forward(self, query, positive):
            given = positive.roll(1, 0)[:, None].expand(-1, 2, -1) + torch.tensor([[[0.1], [0.2]]])
            there = torch.arange(len(query))[:, None] % 3 > torch.arange(2)
            same = torch.zeros(len(query), dtype=torch.long)
            return super().forward(query, positive, given, there, same, 1 + torch.arange(2 * len(query)).view(-1, 2))

    module, row = run_once(tmp_path, 9, loss=Ragged(), rule="4")
    # Of 9 given negatives each row has its own and, by drawing, those of others: fewer than 4 are never there.
    assert float(row["k_used"]) == 4
    with pytest.warns(UserWarning, match=r"K is 40 at step 0, and a row has 26 negatives.*or gather=True"):
        module, row = run_once(tmp_path, 9, loss=Ragged(), rule="40")
    assert float(row["k_used"]) == 9 and torch.isfinite(module.layer.weight).all()


def test_the_board_has_what_the_csv_has(tmp_path):
    board = lp.loggers.TensorBoardLogger(tmp_path / "board")
    csv = lp.loggers.CSVLogger(tmp_path)
    trainer, _ = make_trainer(tmp_path, "ans:9", logger=[csv, board], max_epochs=1)
    trainer.fit(make_module(), *loaders())
    found = read_board(tmp_path / "board")
    steps = [AnsK(9)(step / 9) for step in range(10)]
    assert [step for step, _ in found["k"]] == [step for step, _ in found["train_loss"]] == list(range(10))
    assert [value for _, value in found["k"]] == pytest.approx(steps)
    assert {"k_used", "win_rate", "val_auc_se"} <= set(found) and found["val_auc"][0][0] == 0
    rows = [row for row in rows_of(trainer) if row.get("k")]
    assert len(rows) == 10 and all(row["train_loss"] and row["k_used"] for row in rows)


def test_a_trainer_that_logs_nothing(tmp_path):
    trainer, callback = make_trainer(tmp_path, "online", log_every_n_steps=0, max_epochs=1)
    trainer.fit(make_module(), *loaders())
    assert callback.control.steps_ended == 10 and not any(row.get("k") for row in rows_of(trainer))


@pytest.mark.parametrize("others", [0, 1, 2])
def test_several_optimizers_are_one_step_of_k(tmp_path, others):
    class Manual(make_module().__class__):
        """Other optimizers step too, and Lightning's global_step counts them all."""

        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.other = nn.ParameterList([nn.Parameter(torch.zeros(1)) for _ in range(others)])

        def configure_optimizers(self):
            return [torch.optim.SGD([one], lr=0.3) for one in (self.layer.weight, *self.other)]

        def training_step(self, batch, _):
            found = self.optimizers()
            loss = self.step(batch) + sum(self.other)
            self.manual_backward(loss)
            for one in found if isinstance(found, list) else [found]:
                one.step()
                one.zero_grad()

    trainer, callback = make_trainer(tmp_path, "online", max_epochs=2)
    trainer.fit(Manual(), *loaders(shuffle=False))
    assert trainer.global_step == 20 * (1 + others) and callback.control.steps_ended == 20
    ks = [float(row["k"]) for row in rows_of(trainer) if row.get("k")]
    single, _ = make_trainer(tmp_path / "single", "online", max_epochs=2)
    single.fit(make_module(), *loaders(shuffle=False))
    assert ks == [float(row["k"]) for row in rows_of(single) if row.get("k")] and ks[-1] > ks[0]
    assert len(callback.control._seen) <= LAG + 1


def test_streams_have_no_number_of_steps(tmp_path):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(zip(*pairs(320, 0).tensors, strict=True))

    data = DataLoader(Stream(), 32), loaders()[1]
    trainer, _ = make_trainer(tmp_path, "ans:9", max_epochs=1)
    with pytest.raises(InputError, match="needs the number of optimizer steps of the whole training: pass total_steps"):
        trainer.fit(make_module(), *data)
    trainer, _ = make_trainer(
        tmp_path, None, max_epochs=1, more=[callback := lightning.KCallback("ans:9", total_steps=10)]
    )
    trainer.fit(make_module(), *data)
    assert callback.control.k == AnsK(9)(1.0)
    trainer, callback = make_trainer(tmp_path, "online", max_epochs=1)
    trainer.fit(make_module(), *data)
    assert callback.control.steps_ended == 10


def test_an_estimate_from_the_log_of_a_run_that_was_resumed(tmp_path):
    def run(resume=None, epochs=6):
        keep = lp.callbacks.ModelCheckpoint(tmp_path, every_n_epochs=3, save_top_k=-1, filename="{step}")
        trainer, _ = make_trainer(tmp_path, "1", max_epochs=epochs, more=[keep])
        train, val = loaders(shuffle=False)
        part = DataLoader(pairs(96, 0), 32)
        trainer.fit(make_module(), train, {"val": val, "train": part}, ckpt_path=resume, weights_only=True)

    run()
    run(tmp_path / "step=30.ckpt", epochs=9)
    curves = negwise.curves.read(tmp_path / "lightning_logs")
    assert "Read 2 versions as one run that was resumed" in curves.notes[0]
    assert curves.val_steps.tolist() == curves.train_steps.tolist() == [0, *range(9, 90, 10)]
    assert curves.columns["train_auc"] == "train_auc" and curves.val_queries.tolist() == [96] * 10
    assert curves.trained_k == (1, 1)
    estimate = curves.estimate()
    assert estimate.k >= 1 and estimate.interval is not None
    listed, _ = make_trainer(tmp_path / "listed", "1", max_epochs=1)
    listed.fit(make_module(), loaders()[0], [loaders()[1], loaders()[1]])
    with pytest.raises(InputError, match=r"val_auc may be any of 'val_1_auc', 'val_auc'.*--val-column NAME"):
        negwise.curves.read(tmp_path / "listed")


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
    with pytest.raises(InputError, match=r"KInfoNCE has a rule of its own, AnsK.*type KInfoNCE\(\) without a rule"):
        trainer.fit(make_module(loss=KInfoNCE("ans:9", 20)), *loaders())


@pytest.mark.parametrize("framework", ["lightning", "pytorch_lightning"])
def test_find_k_estimates_and_puts_the_weights_back(tmp_path, framework):
    module, find_k = make_module(framework), FRAMEWORKS[framework][1].find_k
    before = [one.detach().clone() for one in module.parameters()]
    estimate = find_k(module, *loaders(), steps=80, evaluations=10, accelerator="cpu", default_root_dir=str(tmp_path))
    assert estimate.k >= 1 and estimate.interval is not None
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    with pytest.raises(InputError, match="find_k: steps=1 and evaluations=20"):
        find_k(module, *loaders(), steps=1)
    with pytest.raises(InputError, match="find_k got a DataLoader for the model, expected a LightningModule"):
        find_k(loaders()[0], module, loaders()[1])
    with pytest.raises(InputError, match="find_k sets max_steps of the trainer itself: pass steps= and evaluations="):
        find_k(module, *loaders(), max_steps=9)


def test_two_ranks_are_one(tmp_path):
    one = lightning_ranks.train(tmp_path / "one")
    two = run_on_two("lightning_ranks.py", tmp_path / "two.json")
    for a, b in zip(one, two, strict=True):
        assert set(a) == set(b)
        for name in a:
            assert float(a[name]) == pytest.approx(float(b[name]), rel=1e-3), (name, a, b)


def test_frameworks_are_two():
    assert FRAMEWORKS["lightning"] == (lp, lightning) and FRAMEWORKS["pytorch_lightning"] == (ptl, pytorch_lightning)
