"""Trainers of a CrossEncoder over a tiny BERT, for the tests and for the processes that they start."""

import torch
from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder.losses import MultipleNegativesRankingLoss
from tiny_bert import text_pairs

from negwise.integrations.cross_encoder import attach


def make_trainer(
    bert, out, rule=None, train=None, evaluate=None, make_loss=MultipleNegativesRankingLoss, run=None, **args
):
    torch.manual_seed(0)
    model = CrossEncoder(bert, num_labels=1, device="cpu")
    settings = {
        "output_dir": str(out),
        "max_steps": 6,
        "per_device_train_batch_size": 16,
        "per_device_eval_batch_size": 16,
        "logging_steps": 1,
        "learning_rate": 1e-3,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
    }
    if evaluate is not None:
        settings |= {"eval_strategy": "steps", "eval_steps": 6}
    trainer = CrossEncoderTrainer(
        model=model,
        args=CrossEncoderTrainingArguments(**settings | args),
        train_dataset=text_pairs(400) if train is None else train,
        eval_dataset=evaluate,
        loss=make_loss(model),
    )
    if rule is not None:
        attach(trainer, rule, run=run)
    return trainer


def steps_of(trainer):
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def evals_of(trainer):
    return [entry for entry in trainer.state.log_history if "eval_auc" in entry]


def all_negatives(model):
    return MultipleNegativesRankingLoss(model, num_negatives=None)
