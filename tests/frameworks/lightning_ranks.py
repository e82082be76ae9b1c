"""One of several processes that train with Lightning; rank 0 writes the log."""

import sys
import warnings
from pathlib import Path

from lightning_world import loaders, make_module, make_trainer, rows_of
from two_processes import write_and_leave

NAMES = ("step", "k", "k_used", "win_rate", "val_auc", "val_auc_se", "val_auc_queries")


class Shard:
    """Batches of the whole, of which each rank takes its part, in the order of the ranks."""

    def __init__(self, loader, trainer):
        self.loader, self.trainer = loader, trainer

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        rank, size = self.trainer.global_rank, 32 // self.trainer.world_size
        for batch in self.loader:
            yield [part[rank * size : (rank + 1) * size] for part in batch]


def train(out, **options):
    """What was logged."""
    trainer, _ = make_trainer(Path(out), "online", use_distributed_sampler=False, **options)
    trainer.fit(make_module(gather=True), *(Shard(loader, trainer) for loader in loaders(shuffle=False)))
    if not trainer.is_global_zero:
        return None
    rows = [{name: row[name] for name in NAMES if row.get(name)} for row in rows_of(trainer)]
    return [row for row in rows if len(row) > 1]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    write_and_leave(sys.argv[1], train(Path(sys.argv[1]).parent / "two", devices=2, strategy="ddp"))
