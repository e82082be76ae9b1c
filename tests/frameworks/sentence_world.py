"""Trainers of sentence-transformers over a tiny BERT, for the tests and for the processes that they start."""

import torch
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from tiny_bert import text_pairs

from negwise.integrations.sentence_transformers import attach


def make_trainer(
    bert, out, rule=None, make_loss=MultipleNegativesRankingLoss, train=None, evaluate=None, run=None, **args
):
    """A trainer of 24 steps with K from ``rule``; without one it is the framework's own."""
    torch.manual_seed(0)
    model = SentenceTransformer(bert, device="cpu")
    settings = {
        "output_dir": str(out),
        "max_steps": 24,
        "per_device_train_batch_size": 32,
        "per_device_eval_batch_size": 32,
        "logging_steps": 1,
        "learning_rate": 3e-3,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
    }
    if evaluate is not None:
        settings |= {"eval_strategy": "steps", "eval_steps": 12}
    loss = (
        make_loss(model) if not isinstance(make_loss, dict) else {name: one(model) for name, one in make_loss.items()}
    )
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(**settings | args),
        train_dataset=text_pairs(1600) if train is None else train,
        eval_dataset=evaluate,
        loss=loss,
    )
    if rule is not None:
        attach(trainer, rule, run=run)
    return trainer


def steps_of(trainer):
    """What was logged of each step."""
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def evals_of(trainer, name="eval_auc"):
    return [entry for entry in trainer.state.log_history if name in entry]
