"""A Lightning module with a loss that keeps K negatives, a callback that sets K, and K* from a short pilot."""

import sys

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from negwise.integrations import KInfoNCE
from negwise.integrations.lightning import KCallback, find_k

WIDTH = 16


class TwoSides(pl.LightningModule):
    """Brings x and a noisy rotation of it together."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(WIDTH, WIDTH, bias=False)
        self.loss = KInfoNCE(temperature=0.25)

    def training_step(self, batch):
        return self.loss(self.encode(batch[0]), batch[1])

    def validation_step(self, batch):
        self.loss(self.encode(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def pairs(rows, seed):
    x = torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(seed))
    noise = torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(seed + 1))
    return DataLoader(TensorDataset(x, x.roll(1, 1) + 0.5 * noise), 64, shuffle=seed == 0)


torch.manual_seed(0)
model, train, val = TwoSides(), pairs(3200, 0), pairs(640, 7)
estimate = find_k(model, train, val, steps=200, evaluations=10, accelerator="cpu", default_root_dir=sys.argv[1])
print(f"K* {estimate.k:.1f}, as good: {estimate.flat}, verdict {estimate.verdict}")
trainer = pl.Trainer(
    max_epochs=4,
    callbacks=[KCallback("online", run=f"{sys.argv[1]}/run")],
    accelerator="cpu",
    logger=pl.loggers.CSVLogger(sys.argv[1]),
    enable_progress_bar=False,
    default_root_dir=sys.argv[1],
)
trainer.fit(model, train, val)
print("K", round(trainer.callbacks[0].control.k, 1), "AUC", round(float(trainer.callback_metrics["val_auc"]), 3))
