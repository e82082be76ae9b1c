"""Hugging Face trainers over models that score items, for the tests and for the processes that they start."""

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

from negwise.integrations.transformers import attach

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


def make_trainer(
    out, rule=None, model=Scorer, labels=True, evaluate=True, attach_options=None, train=None, metrics=None, **args
):
    """A trainer of 20 steps; ``evaluate`` is a data set of its own, or whether to evaluate."""
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
        train_dataset=Rows(labels=labels) if train is None else train,
        eval_dataset=Rows(96, labels, seed=1) if evaluate is True else evaluate or None,
        compute_metrics=metrics,
    )
    if rule is not None:
        attach(trainer, rule, **attach_options or {})
    return trainer


def steps_of(trainer):
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def evals_of(trainer):
    return [entry for entry in trainer.state.log_history if "eval_loss" in entry]
