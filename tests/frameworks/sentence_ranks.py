"""One of several processes that train a sentence encoder; rank 0 writes the log."""

import json
import sys
import warnings
from pathlib import Path

from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_world import make_trainer
from tiny_bert import text_pairs

warnings.simplefilter("ignore")
bert, out, batch = sys.argv[1:]
trainer = make_trainer(
    bert,
    Path(out).parent / f"trainer-{batch}",
    "online",
    make_loss=lambda model: MultipleNegativesRankingLoss(model, gather_across_devices=True),
    train=text_pairs(480, 1),
    evaluate=text_pairs(64, 1, seed=1),
    max_steps=13,
    per_device_train_batch_size=int(batch),
    per_device_eval_batch_size=int(batch),
    ddp_backend="gloo",
)
trainer.train()
if trainer.is_world_process_zero():
    names = ("step", "loss", "k", "k_used", "win_rate", "eval_auc", "eval_auc_se", "eval_auc_queries")
    history = [entry for entry in trainer.state.log_history if "loss" in entry or "eval_auc" in entry]
    Path(out).write_text(json.dumps([{name: e[name] for name in names if name in e} for e in history]))
