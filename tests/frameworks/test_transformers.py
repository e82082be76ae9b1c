"""`attach` for a Hugging Face Trainer, with the real framework."""

import json

import pytest
import torch
from boards import read_board
from scorer_world import M, Pairs, Rows, Scorer, evals_of, make_trainer, steps_of
from transformers import Trainer, TrainerCallback
from transformers.trainer_pt_utils import LabelSmoother

from negwise.draws import Key, counts
from negwise.errors import InputError
from negwise.integrations import KCrossEntropy
from negwise.integrations.transformers import attach
from negwise.losses import info_nce_scores
from negwise.schedule import AnsK, FunctionK


def test_with_all_columns_it_is_the_models_own_loss(tmp_path):
    own, ours = make_trainer(tmp_path), make_trainer(tmp_path, "15")
    for trainer in (own, ours):
        trainer.train()
    assert [e["loss"] for e in steps_of(ours)] == pytest.approx([e["loss"] for e in steps_of(own)], rel=1e-4)
    assert [e["eval_loss"] for e in evals_of(ours)][1:] == pytest.approx(
        [e["eval_loss"] for e in evals_of(own)], rel=1e-4
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_k_is_that_of_the_very_step(tmp_path, workers):
    trainer = make_trainer(tmp_path, "ans:9", dataloader_num_workers=workers)
    trainer.train()
    for step, entry in enumerate(steps_of(trainer)):
        k = AnsK(9)(step / 19)
        assert entry["k"] == k and entry["k_used"] == counts(k, 32, Key(42, step)).mean()


def test_online_follows_a_model_that_improves(tmp_path):
    trainer = make_trainer(
        tmp_path,
        "online",
        attach_options={"run": tmp_path / "run"},
        metric_for_best_model="eval_auc",
        load_best_model_at_end=True,
        save_strategy="steps",
        save_steps=10,
        max_steps=60,
    )
    with pytest.warns(UserWarning, match="a row has 15 negatives to draw from"):
        trainer.train()
    evals = evals_of(trainer)
    assert [entry["step"] for entry in evals] == [0, 10, 20, 30, 40, 50, 60]
    assert evals[0]["eval_auc"] < 0.7 < 0.9 < evals[-1]["eval_auc"]
    assert (evals[-1]["eval_auc_queries"], evals[-1]["eval_auc_pairs"]) == (96, 96 * 15)
    assert trainer.state.best_metric == max(entry["eval_auc"] for entry in evals[1:])
    assert steps_of(trainer)[-1]["k"] > steps_of(trainer)[0]["k"] == 4.0
    from negwise.report.write_report import write_report

    assert "online" in write_report([tmp_path / "run"]).read_text()


def test_the_boards_have_what_the_history_has(tmp_path):
    trainer = make_trainer(tmp_path, "ans:9", report_to="tensorboard", metrics=lambda _: {"eval_mlm_loss": 2.0})
    trainer.train()
    board = read_board(tmp_path)
    assert [value for _, value in board["train/k"]] == pytest.approx([entry["k"] for entry in steps_of(trainer)])
    assert {"train/k_used", "train/win_rate", "eval/auc_se"} <= set(board)
    # A metric that ends in _loss is no name of an evaluation.
    assert [value for _, value in board["eval/auc"]] == pytest.approx([e["eval_auc"] for e in evals_of(trainer)])
    assert all("eval_mlm_loss" in entry and "eval_mlm_auc" not in entry for entry in evals_of(trainer))


class Watched(Scorer):
    """Keeps its scores, with their gradient; -inf where a row has no such item."""

    seen = None

    def forward(self, x=None, hidden=None):
        scores = self.layer(x) if hidden is None else self.layer(x).masked_fill(hidden, -torch.inf)
        if scores.requires_grad:
            scores.retain_grad()
        Watched.seen = scores
        return {"logits": scores}


class Ragged(Rows):
    """Rows that have from 1 to 15 of the wrong items."""

    def __getitem__(self, row):
        generator = torch.Generator().manual_seed(row)
        hidden = torch.rand(M, generator=generator) < row % 7 / 7
        hidden[self.labels[row]] = hidden[(int(self.labels[row]) + 1) % M] = False
        return super().__getitem__(row) | {"hidden": hidden}


def test_loss_is_info_nce_over_the_kept_columns(tmp_path):
    trainer = make_trainer(tmp_path, "2.5", Watched, train=Rows(32), evaluate=False, max_steps=1)
    trainer.train()
    scores, gradient = Watched.seen.detach(), Watched.seen.grad
    target = (gradient < 0).long().argmax(1)  # the only score of a row that should grow
    kept = (gradient > 0).scatter(1, target[:, None], False)
    assert kept.sum(1).tolist() == counts(2.5, 32, Key(42, 0)).tolist()
    expected = info_nce_scores(scores.gather(1, target[:, None])[:, 0], scores, kept).loss
    assert steps_of(trainer)[0]["loss"] == pytest.approx(float(expected), rel=1e-4)


def test_rows_with_fewer_columns_than_k(tmp_path):
    data = Ragged(32)
    trainer = make_trainer(tmp_path, "6.5", Watched, train=data, evaluate=False, max_steps=1)
    trainer.train()
    there = (Watched.seen.detach() > -torch.inf).sum(1) - 1
    assert min(there.tolist()) < 6 and torch.isfinite(Watched.seen.grad).all()
    wanted = torch.from_numpy(counts(6.5, 32, Key(42, 0))).minimum(there)
    assert steps_of(trainer)[0]["k_used"] == float(wanted.double().mean())


class GradNorm(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        del args, state, control
        self.norm = float(model.layer.weight.grad.norm())


def test_accumulation_is_divided_as_it_should_be(tmp_path):
    norms = []
    for batch, accumulation in ((64, 1), (16, 4)):
        trainer = make_trainer(
            tmp_path,
            "15",
            max_steps=1,
            evaluate=False,
            per_device_train_batch_size=batch,
            gradient_accumulation_steps=accumulation,
            max_grad_norm=0,
        )
        trainer.add_callback(callback := GradNorm())
        trainer.train()
        norms.append((callback.norm, steps_of(trainer)[0]["loss"]))
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)
    trainer = make_trainer(
        tmp_path, "2.5", max_steps=3, evaluate=False, per_device_train_batch_size=16, gradient_accumulation_steps=4
    )
    trainer.train()
    for step, entry in enumerate(steps_of(trainer)):
        assert entry["k_used"] == counts(2.5, 64, Key(42, step)).mean()


def test_resume_is_exact_and_another_rule_is_refused(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 11, "max_steps": 22, "evaluate": False}
    whole, again = (make_trainer(tmp_path, "online:0.3", **options) for _ in range(2))
    whole.train()
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-11"))
    assert [e["k"] for e in steps_of(again)] == [e["k"] for e in steps_of(whole)]
    assert [e["loss"] for e in steps_of(again)] == pytest.approx([e["loss"] for e in steps_of(whole)])
    with pytest.raises(InputError, match="Use the same rule to resume"):
        make_trainer(tmp_path, "4", **options).train(resume_from_checkpoint=str(tmp_path / "checkpoint-11"))


def test_a_resume_that_does_not_fit_is_told(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 8, "max_steps": 16, "evaluate": False}
    resume = {"resume_from_checkpoint": str(tmp_path / "checkpoint-8")}
    make_trainer(tmp_path, "ans:9", **options).train()
    with pytest.raises(InputError, match=r"made with total_steps 16, and this run has 32. Use the same total_steps"):
        make_trainer(tmp_path, "ans:9", **options | {"max_steps": 32}).train(**resume)
    with pytest.raises(InputError, match=r"rule AnsK\(peak=9.*this run has FunctionK.*at 0% of training was 1,"):
        make_trainer(tmp_path, FunctionK(lambda fraction: 4 + fraction), **options).train(**resume)
    again = make_trainer(tmp_path, "ans:9", **options)
    again.train(**resume)
    assert [entry["k"] for entry in steps_of(again)] == [AnsK(9)(step / 15) for step in range(16)]
    file = tmp_path / "checkpoint-8" / "trainer_state.json"
    state = json.loads(file.read_text())
    state["stateful_callbacks"]["negwise"]["step"] = 3
    file.write_text(json.dumps(state))
    with pytest.warns(UserWarning) as said:
        make_trainer(tmp_path, "ans:9", **options).train(**resume)
    assert any("is that of step 8, and K in it that of step 4" in str(one.message) for one in said)
    with pytest.raises(InputError, match="Use the same rule to resume"):
        make_trainer(tmp_path, "4", **options).train(**resume)


def test_labels_that_the_trainer_drops(tmp_path):
    options = {"evaluate": False, "max_steps": 1}
    with pytest.raises(InputError, match=r"got no labels.*label_names=\['labels'\].*remove_unused_columns=False"):
        make_trainer(tmp_path, "4", Watched, label_names=None, **options).train()
    for more in ({"label_names": ["labels"]}, {"label_names": None, "remove_unused_columns": False}):
        trainer = make_trainer(tmp_path, "4", Watched, **options | more)
        trainer.train()
        assert steps_of(trainer)[0]["k_used"] == 4


def test_a_batch_against_itself(tmp_path):
    options = {"scores": lambda outputs: outputs["scores"], "in_batch": True}
    trainer = make_trainer(tmp_path, "ans:9", Pairs, labels=False, attach_options=options)
    trainer.train()
    for step, entry in enumerate(steps_of(trainer)):
        assert entry["k_used"] == counts(AnsK(9)(step / 19), 32, Key(42, step)).mean()
    evals = evals_of(trainer)
    assert evals[-1]["eval_auc_pairs"] == 96 * 31 and evals[-1]["eval_auc"] > evals[0]["eval_auc"]


def test_a_model_that_holds_its_own_loss(tmp_path):
    class Own(Scorer):
        def __init__(self):
            super().__init__()
            self.loss = KCrossEntropy()

        def forward(self, x=None, labels=None):
            logits = self.layer(x)
            return {"loss": self.loss(logits, labels), "logits": logits}

    inside, outside = make_trainer(tmp_path, "ans:9", Own), make_trainer(tmp_path, "ans:9")
    for trainer in (inside, outside):
        trainer.train()
    for name in ("loss", "k", "k_used"):
        found, expected = ([e[name] for e in steps_of(trainer)] for trainer in (inside, outside))
        assert found == pytest.approx(expected)
    assert evals_of(inside)[-1]["eval_auc"] == evals_of(outside)[-1]["eval_auc"]
    with pytest.raises(InputError, match="the model holds a KCrossEntropy, with its own scores"):
        make_trainer(tmp_path, "4", Own, attach_options={"given": 2})
    ruled = Own()
    ruled.loss = KCrossEntropy("ans:9", 20)
    with pytest.raises(InputError, match=r"has a rule of its own, AnsK.*type KCrossEntropy\(\) without a rule"):
        make_trainer(tmp_path, "4", lambda: ruled)


def test_a_trainer_that_does_not_ask_for_the_loss_is_refused(tmp_path):
    class Stubborn(Trainer):
        def compute_loss(self, model, inputs, *_, **__):
            return model(**inputs)["loss"]

    class Polite(Trainer):
        def compute_loss(self, *inputs, **options):
            return super().compute_loss(*inputs, **options)

    trainer = make_trainer(tmp_path, evaluate=False, max_steps=2)
    trainer.__class__ = Stubborn
    attach(trainer, "4")
    with pytest.raises(InputError, match="Stubborn computes its loss itself and did not use the one that attach"):
        trainer.train()
    trainer = make_trainer(tmp_path, evaluate=False, max_steps=2)
    trainer.__class__ = Polite
    attach(trainer, "4")
    trainer.train()
    assert [entry["k_used"] for entry in steps_of(trainer)] == [4, 4]


def test_scores_that_are_none(tmp_path):
    options = {"evaluate": False, "max_steps": 1}
    for scores, message in (
        (lambda _: None, r"scores are NoneType; expected a tensor \(rows, columns\)"),
        (lambda out: out["logits"][:, None], r"scores are \(32, 1, 16\); expected a tensor"),
    ):
        with pytest.raises(InputError, match=message):
            make_trainer(tmp_path, "4", attach_options={"scores": scores}, **options).train()
    with pytest.raises(InputError, match=r"in_batch=True and scores have shape \(32, 16\); expected a column for each"):
        make_trainer(tmp_path, "4", attach_options={"in_batch": True}, **options).train()
    with pytest.raises(InputError, match="scores='logits', expected a function"):
        make_trainer(tmp_path, "4", attach_options={"scores": "logits"}, **options)
    trainer = make_trainer(tmp_path, **options)
    trainer.label_smoother = LabelSmoother(0.1)  # TrainingArguments make one where the model has a configuration
    with pytest.raises(InputError, match=r"label_smoothing_factor=0.1, and the loss over K columns has none"):
        attach(trainer, "4")


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(InputError, match=r"got no labels.*label_names=\['labels'\].*in_batch=True"):
        make_trainer(tmp_path, "4", Pairs, labels=False, attach_options={"scores": lambda o: o["scores"]}).train()
    with pytest.raises(
        InputError, match=r"outputs have no logits \(scores\): pass attach\(trainer, rule, scores=...\)"
    ):
        make_trainer(tmp_path, "4", Pairs, labels=False).train()
    trainer = make_trainer(tmp_path)
    trainer.compute_loss_func = lambda *_: None
    with pytest.raises(InputError, match="has a compute_loss_func, which attach would replace"):
        attach(trainer, "4")
    with pytest.raises(InputError, match=r"attach got a int, expected a transformers.Trainer"):
        attach(4)
