"""One of several processes that train a sentence encoder; rank 0 writes the log."""

import json
import sys
import warnings
from pathlib import Path

from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_world import make_trainer
from tiny_bert import text_pairs

NAMES = ("step", "loss", "k", "k_used", "win_rate", "eval_auc", "eval_auc_se", "eval_auc_queries")


def train(bert, out, batch, **options):
    """What was logged, with ``batch`` rows on each rank."""
    trainer = make_trainer(
        bert,
        out,
        "online",
        make_loss=lambda model: MultipleNegativesRankingLoss(model, gather_across_devices=True),
        train=text_pairs(480, 1),
        evaluate=text_pairs(64, 1, seed=1),
        max_steps=13,
        per_device_train_batch_size=batch,
        per_device_eval_batch_size=batch,
        **options,
    )
    trainer.train()
    history = [entry for entry in trainer.state.log_history if "loss" in entry or "eval_auc" in entry]
    return trainer, [{name: entry[name] for name in NAMES if name in entry} for entry in history]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    trainer, logs = train(sys.argv[1], Path(sys.argv[2]).parent / "two", 16, ddp_backend="gloo")
    if trainer.is_world_process_zero():
        Path(sys.argv[2]).write_text(json.dumps(logs))
