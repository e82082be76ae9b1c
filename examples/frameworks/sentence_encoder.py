"""A sentence encoder whose K follows ``online``: one line more than without.

``python sentence_encoder.py MODEL PAIRS.csv OUT [STEPS]``; columns of the CSV: anchor, positive, negatives.
"""

import sys

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from datasets import Dataset
from negwise.integrations.sentence_transformers import attach

name, pairs, out, steps = [*sys.argv[1:], "200"][:4]
data = Dataset.from_csv(pairs, keep_in_memory=True).train_test_split(test_size=0.1, seed=0)
model = SentenceTransformer(name)
trainer = SentenceTransformerTrainer(
    model=model,
    args=SentenceTransformerTrainingArguments(
        output_dir=out,
        max_steps=int(steps),
        per_device_train_batch_size=32,
        per_device_eval_batch_size=64,
        learning_rate=1e-3,
        eval_strategy="steps",
        eval_steps=int(steps) // 4,
        logging_steps=int(steps) // 4,
        report_to="none",
    ),
    train_dataset=data["train"],
    eval_dataset=data["test"],
    loss=MultipleNegativesRankingLoss(model),
)
attach(trainer, "online", run=f"{out}/run")  # the line; then: negwise report OUT/run
trainer.train()
for entry in trainer.state.log_history:
    if "k" in entry or "eval_auc" in entry:
        shown = {
            key: round(entry[key], 3) for key in ("k", "k_used", "win_rate", "eval_auc", "eval_auc_se") if key in entry
        }
        print("step", entry["step"], shown)
