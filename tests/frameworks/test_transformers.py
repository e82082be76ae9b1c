"""`attach` for a Hugging Face Trainer, with the real framework."""

import pytest
import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

from negwise.draws import Key, counts
from negwise.errors import InputError
from negwise.integrations import KCrossEntropy
from negwise.integrations.transformers import attach
from negwise.schedule import AnsK

ROWS, DIM, M = 640, 12, 16


class Scorer(nn.Module):
    """Scores 16 items for each row; the right one follows from the row."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(DIM, M, bias=False)

    def forward(self, x=None, labels=None):
        logits = self.layer(x)
        return {"loss": nn.functional.cross_entropy(logits, labels) if labels is not None else None, "logits": logits}


class Pairs(nn.Module):
    """Two sides of a batch against each other."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(DIM, DIM, bias=False)

    def forward(self, x=None):
        return {"scores": 4 * self.layer(x) @ x.t()}


class Rows(torch.utils.data.Dataset):
    def __init__(self, rows=ROWS, labels=True, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(rows, DIM, generator=generator)
        truth = torch.randn(DIM, M, generator=torch.Generator().manual_seed(9))
        self.labels = (self.x @ truth).argmax(1) if labels else None

    def __len__(self):
        return len(self.x)

    def __getitem__(self, row):
        return {"x": self.x[row]} | ({} if self.labels is None else {"labels": self.labels[row]})


def make_trainer(out, rule=None, model=Scorer, labels=True, evaluate=True, attach_options=None, **args):
    torch.manual_seed(0)
    settings = {
        "output_dir": str(out),
        "max_steps": 20,
        "per_device_train_batch_size": 32,
        "per_device_eval_batch_size": 32,
        "logging_steps": 1,
        "learning_rate": 0.05,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
        "eval_strategy": "steps" if evaluate else "no",
        "eval_steps": 10,
        "label_names": ["labels"],
    }
    trainer = Trainer(
        model=model(),
        args=TrainingArguments(**settings | args),
        train_dataset=Rows(labels=labels),
        eval_dataset=Rows(96, labels, seed=1) if evaluate else None,
    )
    if rule is not None:
        attach(trainer, rule, **attach_options or {})
    return trainer


def steps_of(trainer):
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def evals_of(trainer):
    return [entry for entry in trainer.state.log_history if "eval_loss" in entry]


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
