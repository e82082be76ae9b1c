"""Make the log files of this folder with the real frameworks.

    pip install torch==2.13.0 lightning==2.6.6 transformers==5.22.2 accelerate
    python tests/curves/make_logs.py

A bilinear scorer learns synthetic pairs with InfoNCE. Lightning's `Trainer` with `CSVLogger`
and Hugging Face's `Trainer` train it and write their logs as they always do; nothing is edited afterwards.

Shapes: Q queries, N negatives, D width.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import lightning as L
import numpy as np
import torch
from lightning.pytorch.loggers import CSVLogger
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset
from transformers import EvalPrediction, Trainer, TrainerCallback, TrainingArguments, set_seed

LOGS = Path(__file__).parent / "logs"
QUERIES, NEGATIVES, WIDTH, NOISE = 64, 20, 8, 2.0


class Pairs(Dataset):
    """A positive is a fixed rotation of its query plus noise; negatives are noise alone."""

    def __init__(self, seed: int) -> None:
        rotation = torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(0)))[0]
        random = torch.Generator().manual_seed(seed)
        self.query = torch.randn(QUERIES, WIDTH, generator=random)
        noise = torch.randn(QUERIES, 1 + NEGATIVES, WIDTH, generator=random)
        noise[:, 0] = self.query @ rotation + NOISE * noise[:, 0]
        self.candidates = noise  # (Q, 1 + N, D), the positive first

    def __len__(self) -> int:
        return QUERIES

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return {"query": self.query[row], "candidates": self.candidates[row], "labels": torch.tensor(0)}


class Scorer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(0.01 * torch.randn(WIDTH, WIDTH))

    def forward(self, query: torch.Tensor, candidates: torch.Tensor, labels: torch.Tensor) -> dict:
        scores = torch.einsum("qd,de,qne->qn", query, self.weight, candidates)
        return {"loss": cross_entropy(scores, labels), "scores": scores}


def auc(scores: np.ndarray) -> float:
    """Mean over positives of the share of their own negatives below them; scores (Q, 1 + N), no ties here."""
    return float((scores[:, :1] > scores[:, 1:]).mean())


class LightningScorer(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.scorer = Scorer()
        self.train_scores: list[torch.Tensor] = []
        self.val_scores: list[torch.Tensor] = []

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=5e-3)

    def training_step(self, batch: dict, _: int) -> torch.Tensor:
        out = self.scorer(**batch)
        self.train_scores.append(out["scores"].detach())
        self.log("train_loss", out["loss"])
        return out["loss"]

    def validation_step(self, batch: dict, _: int) -> None:
        self.val_scores.append(self.scorer(**batch)["scores"])

    def on_train_epoch_end(self) -> None:
        self.log("train_auc", auc(torch.cat(self.train_scores).numpy()))
        self.train_scores.clear()

    def on_validation_epoch_end(self) -> None:
        self.log("val_auc", auc(torch.cat(self.val_scores).numpy()))
        self.log("val_queries", float(QUERIES))
        self.val_scores.clear()


def lightning_metrics(folder: Path) -> Path:
    L.seed_everything(0)
    logger = CSVLogger(folder, name="lightning_logs")
    trainer = L.Trainer(
        max_epochs=8, logger=logger, accelerator="cpu", log_every_n_steps=4, num_sanity_val_steps=0,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    train, val = DataLoader(Pairs(1), batch_size=8, shuffle=True), DataLoader(Pairs(2), batch_size=32)
    trainer.fit(LightningScorer(), train, val)
    return Path(logger.log_dir) / "metrics.csv"


def evaluation_auc(prediction: EvalPrediction) -> dict[str, float]:
    return {"auc": auc(prediction.predictions)}


class TrainAuc(TrainerCallback):
    """Logs the AUC of the training queries beside each evaluation, as people do it."""

    trainer: Trainer

    def on_evaluate(self, *_: object, **__: object) -> None:
        scores = self.trainer.predict(self.trainer.train_dataset).predictions
        self.trainer.log({"train_auc": auc(scores)})


def trainer_state(folder: Path, eval_dataset: Pairs | dict[str, Pairs], callbacks: list[TrainAuc]) -> Path:
    set_seed(0)
    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=48, learning_rate=5e-3, per_device_train_batch_size=8,
        eval_strategy="steps", eval_steps=8, save_steps=24, logging_steps=16, report_to=[], use_cpu=True,
        disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(
        Scorer(), arguments, train_dataset=Pairs(1), eval_dataset=eval_dataset,
        compute_metrics=evaluation_auc, callbacks=callbacks,
    )  # fmt: skip
    for callback in callbacks:
        callback.trainer = trainer
    trainer.train()
    return folder / "checkpoint-48" / "trainer_state.json"


def main() -> None:
    LOGS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        shutil.copy(lightning_metrics(folder), LOGS / "metrics.csv")
        state = trainer_state(folder / "one", Pairs(2), [TrainAuc()])
        shutil.copy(state, LOGS / "trainer_state.json")
        state = trainer_state(folder / "two", {"train": Pairs(1), "val": Pairs(2)}, [])
        shutil.copy(state, LOGS / "trainer_state_two_sets.json")


if __name__ == "__main__":
    main()
