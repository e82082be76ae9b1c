"""One of several processes that train with the trainers of Hugging Face; rank 0 writes the logs of all of them."""

import sys
import warnings
from pathlib import Path

import cross_world
import scorer_world
import sentence_world
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
)
from tiny_bert import text_pairs
from two_processes import write_and_leave

NAMES = ("step", "loss", "grad_norm", "k", "k_used", "win_rate")
EQUAL = {"positive": "say1 word1"}
"""The positive of every third row."""
LAST = 70
"""Rows of an evaluation: more than two batches of 32, so that the last one of several ranks is not full."""


def train(bert, out, ranks, **options):
    """What each trainer logged, with the same rows in a step on any number of ranks."""
    sides = {"per_device_train_batch_size": 32 // ranks, "per_device_eval_batch_size": 32 // ranks, **options}
    sentences = sentence_world.make_trainer(
        bert,
        out,
        "online",
        make_loss=lambda model: MultipleNegativesRankingLoss(model, gather_across_devices=True),
        train=text_pairs(480, 1),
        evaluate={"val": text_pairs(64, 1, seed=1), "last": text_pairs(LAST, 1, seed=2)},
        max_steps=13,
        **sides,
    )
    # Texts that are missing, and equal ones on both ranks, for the cached loss in Matryoshka.
    cached = sentence_world.make_trainer(
        bert,
        out / "cached",
        "11",
        make_loss=lambda model: MatryoshkaLoss(
            model,
            CachedMultipleNegativesRankingLoss(model, mini_batch_size=8, gather_across_devices=True),
            [32, 8],
        ),
        train=text_pairs(160, 2, ragged=True).map(
            lambda row, place: row if place % 3 else row | EQUAL, with_indices=True
        ),
        max_steps=4,
        **sides,
    )
    scores = scorer_world.make_trainer(out, "online", evaluate=scorer_world.Rows(LAST, seed=1), **sides)
    # A CrossEncoder compares with the texts of its own rank, so the other ranks' batches are micro-batches here.
    pieces = {
        "max_steps": 4,
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 8,
        "gradient_accumulation_steps": 2 // ranks,
        "evaluate": text_pairs(16, seed=1),
        "eval_steps": 4,
        "ddp_find_unused_parameters": False,
        **options,
    }
    whole = cross_world.make_trainer(bert, out, "7", make_loss=cross_world.all_negatives, **pieces)
    drawn = cross_world.make_trainer(bert, out, "2.5", **pieces)
    trainers = {"sentences": sentences, "cached": cached, "scores": scores, "whole": whole, "drawn": drawn}
    for trainer in trainers.values():
        trainer.train()
    return sentences.is_world_process_zero(), {name: logs_of(trainer) for name, trainer in trainers.items()}


def logs_of(trainer):
    return [
        {name: value for name, value in entry.items() if name in NAMES or "_auc" in name}
        for entry in trainer.state.log_history
        if "loss" in entry or any(name.endswith("_auc") for name in entry)
    ]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    is_first, logs = train(sys.argv[1], Path(sys.argv[2]).parent / "two", 2, ddp_backend="gloo")
    write_and_leave(sys.argv[2], logs if is_first else None)
