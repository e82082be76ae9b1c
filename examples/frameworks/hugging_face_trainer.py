"""A Hugging Face Trainer whose model scores items; K of them are compared with the right one. Simulated data."""

import sys

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

from negwise.integrations.transformers import attach

ITEMS, WIDTH, ROWS = 64, 16, 2000


class Scorer(nn.Module):
    """Scores of all items for a user, (B, ITEMS)."""

    def __init__(self):
        super().__init__()
        self.items = nn.Linear(WIDTH, ITEMS, bias=False)

    def forward(self, user):
        return {"logits": self.items(user)}


torch.manual_seed(0)
users = torch.randn(ROWS, WIDTH)
clicks = (users @ torch.randn(WIDTH, ITEMS)).argmax(1)
rows = [{"user": user, "labels": click} for user, click in zip(users, clicks, strict=True)]
args = TrainingArguments(
    output_dir=sys.argv[1],
    max_steps=120,
    per_device_train_batch_size=64,
    learning_rate=0.02,
    eval_strategy="steps",
    eval_steps=60,
    logging_steps=30,
    label_names=["labels"],
    report_to="none",
)
trainer = Trainer(model=Scorer(), args=args, train_dataset=rows[:-200], eval_dataset=rows[-200:])
attach(trainer, "online")
trainer.train()
for entry in trainer.state.log_history:
    if "k" in entry or "eval_auc" in entry:
        print("step", entry["step"], {key: round(entry[key], 3) for key in ("k", "k_used", "eval_auc") if key in entry})
