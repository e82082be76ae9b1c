"""A cross-encoder that scores only the K pairs that its rule asks for.

``python cross_encoder.py MODEL PAIRS.csv OUT [STEPS]``; columns of the CSV: anchor, positive, any number of negatives.
"""

import sys

from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder.losses import MultipleNegativesRankingLoss

from datasets import Dataset
from negwise.integrations.cross_encoder import attach

name, pairs, out, steps = [*sys.argv[1:], "100"][:4]
data = Dataset.from_csv(pairs, keep_in_memory=True).train_test_split(test_size=0.1, seed=0)
model = CrossEncoder(name, num_labels=1)
trainer = CrossEncoderTrainer(
    model=model,
    args=CrossEncoderTrainingArguments(
        output_dir=out,
        max_steps=int(steps),
        per_device_train_batch_size=16,
        learning_rate=1e-3,
        eval_strategy="steps",
        eval_steps=int(steps) // 2,
        logging_steps=int(steps) // 2,
        report_to="none",
    ),
    train_dataset=data["train"],
    eval_dataset=data["test"],
    loss=MultipleNegativesRankingLoss(model),
)
attach(trainer, "ans:8")
trainer.train()
for entry in trainer.state.log_history:
    if "k" in entry or "eval_auc" in entry:
        shown = {key: round(entry[key], 3) for key in ("k", "k_used", "eval_auc", "eval_auc_se") if key in entry}
        print("step", entry["step"], shown)
