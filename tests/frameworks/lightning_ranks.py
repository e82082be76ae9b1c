"""One of several processes that train with Lightning; rank 0 writes the log."""

import json
import sys
import warnings
from pathlib import Path

from lightning_world import loaders, make_module, make_trainer, rows_of

warnings.simplefilter("ignore")
out, batch, ranks = sys.argv[1:]
trainer, _ = make_trainer(Path(out), "online", devices=int(ranks), strategy="ddp", use_distributed_sampler=False)


class Shard:
    """Batches of the whole, of which each rank takes its part, in the order of the ranks."""

    def __init__(self, loader):
        self.loader = loader

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        rank, size = trainer.global_rank, int(batch)
        for one in self.loader:
            yield [part[rank * size : (rank + 1) * size] for part in one]


trainer.fit(make_module(gather=True), *(Shard(loader) for loader in loaders(shuffle=False)))
if trainer.is_global_zero:
    trainer.logger.save()
    names = ("step", "k", "k_used", "win_rate", "val_auc", "val_auc_se", "val_auc_queries")
    rows = [{name: row[name] for name in names if row.get(name)} for row in rows_of(trainer)]
    (Path(out) / "log.json").write_text(json.dumps([row for row in rows if len(row) > 1]))
