"""A tiny Lightning module, its data and trainers."""

import csv
from pathlib import Path

import lightning.pytorch as lp
import pytorch_lightning as ptl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from negwise.integrations import KCrossEntropy, KInfoNCE, lightning, pytorch_lightning

FRAMEWORKS = {"lightning": (lp, lightning), "pytorch_lightning": (ptl, pytorch_lightning)}
DIM, STEPS = 12, 20


def make_module(framework="lightning", loss=None, scores=False, gather=False):
    """Learns to bring x and a rotation of it together."""
    base = FRAMEWORKS[framework][0].LightningModule

    class Pairs(base):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer = nn.Linear(DIM, DIM, bias=False)
            self.loss = loss or (KCrossEntropy() if scores else KInfoNCE(temperature=0.25, gather=gather))

        def step(self, batch):
            query, positive = self.layer(batch[0]), batch[1]
            if isinstance(self.loss, KInfoNCE):
                return self.loss(query, positive)
            return self.loss(4 * query @ positive.t(), torch.arange(len(query)))

        def training_step(self, batch, _):
            loss = self.step(batch)
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch, _, dataloader_idx=0):
            del dataloader_idx
            self.step(batch)

        test_step = validation_step

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.3)

    return Pairs()


def pairs(rows, seed):
    x = torch.randn(rows, DIM, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, x.roll(1, 1))


def loaders(workers=0, batch=32, shuffle=True):
    """Ten batches of 32 for training, three for validation."""
    order = torch.Generator().manual_seed(1)
    train = DataLoader(pairs(320, 0), batch, shuffle=shuffle, generator=order, num_workers=workers, drop_last=True)
    return train, DataLoader(pairs(96, 1), batch, num_workers=workers)


def make_trainer(folder, rule, framework="lightning", more=(), run=None, **options):
    """A trainer of two epochs with Lightning's own CSV log, and the callback."""
    package, ours = FRAMEWORKS[framework]
    callback = None if rule is None else ours.KCallback(rule, run=run)
    settings = {
        "max_epochs": 2,
        "accelerator": "cpu",
        "logger": package.loggers.CSVLogger(folder),
        "log_every_n_steps": 1,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": bool(more),
        "default_root_dir": str(folder),
    }
    callbacks = [*([] if callback is None else [callback]), *more]
    return package.Trainer(callbacks=callbacks, **settings | options), callback


def rows_of(trainer):
    """What Lightning's CSV log has."""
    with (Path(trainer.logger.log_dir) / "metrics.csv").open() as file:
        return list(csv.DictReader(file))
