"""A batch sampler for loops that draw negatives in a collator: it yields each row's index with its count.

A collator that reads K from elsewhere reads a stale value. Workers hold a copy from before training, and the
loader runs ahead even without workers. Batches of (index, count) pairs always hold the K of their own step.

This is for loops of one's own. In `negwise.training` rows are chosen by `EpochOrder`, and K by `KController`.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any

import numpy as np

from negwise.draws import Key, counts
from negwise.errors import InputError
from negwise.protocols import OpenLoopRule, Rule
from negwise.schedule.rules import training_fraction


class KIndex(tuple[int, int]):
    """The pair (index, count) of a row, and the ``step`` it is for."""

    step: int

    def __new__(cls, index: int, count: int, step: int) -> KIndex:
        pair = super().__new__(cls, (index, count))
        pair.step = step
        return pair

    @property
    def row(self) -> int:
        """The index of the row in its data."""
        return self[0]

    @property
    def k(self) -> int:
        """The number of negatives of the row."""
        return self[1]

    def __getnewargs__(self) -> tuple[int, int, int]:
        return self[0], self[1], self.step

    def __repr__(self) -> str:
        return f"KIndex(row={self[0]}, k={self[1]}, step={self.step})"


class KDataset:
    """Data that takes plain indices, for a loader with a `KBatchSampler`: ``(data[pair.row], pair)`` for a `KIndex`.

    ::

        loader = DataLoader(KDataset(data), batch_sampler=sampler, collate_fn=collate)

        def collate(rows):
            examples, pairs = zip(*rows)
            counts, step = [pair.k for pair in pairs], pairs[0].step
    """

    def __init__(self, data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, pair: KIndex) -> tuple[Any, KIndex]:
        if not isinstance(pair, KIndex):
            raise InputError(
                f"KDataset got the index {pair!r}, expected a KIndex: use it with batch_sampler=KBatchSampler(...)"
            )
        return self.data[pair.row], pair


class KBatchSampler:
    """Wraps a batch sampler and yields each of its batches as a list of (index, count) pairs, each with its ``step``.

    ::

        batches = BatchSampler(RandomSampler(data), batch_size=64, drop_last=True)
        sampler = KBatchSampler(batches, AnsK(20), total_steps=10 * len(batches), seed=0)
        loader = DataLoader(data, batch_sampler=sampler, num_workers=2, collate_fn=...)

    The loader then asks for ``data[index, count]``; `KDataset` wraps data that takes an index alone. The counts of a
    batch have the mean ``rule(fraction)`` of their step. They come from `negwise.draws.counts` with the index as the
    row number, so a row gets the same count however the batch is split and whichever rank or worker loads it.

    ``batches_per_step`` is the number of batches in one optimizer step: the gradient accumulation, times the
    number of processes if ``accelerate`` hands whole batches to them (its default; not with
    ``split_batches=True``, nor if each rank has its own sampler). With ``drop_last`` an incomplete last step of
    an epoch is dropped, like an incomplete last batch. Prefer that under ``accelerate`` with several processes:
    otherwise it fills the last batches with pairs of the epoch's first step, counts included.

    One pass is one epoch. `set_epoch` sets its number, also in the wrapped samplers. To resume, pass
    ``start_step``: the steps before it are skipped within their epoch. There is no ``state_dict``: the loader
    prefetches, so the sampler is ahead of training, and only the loop knows the step. The last pass ends at
    ``total_steps``.
    """

    def __init__(
        self,
        batch_sampler: Any,
        rule: OpenLoopRule,
        total_steps: int,
        seed: int,
        *,
        start_step: int = 0,
        batches_per_step: int = 1,
    ) -> None:
        _check_rule(rule)
        if not hasattr(batch_sampler, "__len__"):
            raise InputError(
                f"KBatchSampler needs a batch sampler with a length, to count steps per epoch; got "
                f"{batch_sampler!r}. Pass torch.utils.data.BatchSampler(sampler, batch_size, drop_last=True)"
            )
        if total_steps < 1 or batches_per_step < 1 or not 0 <= start_step <= total_steps:
            raise InputError(
                f"KBatchSampler: total_steps={total_steps}, batches_per_step={batches_per_step}, "
                f"start_step={start_step}; expected at least 1, 1 and 0, with start_step <= total_steps"
            )
        self.batch_sampler = batch_sampler
        self.rule = rule
        self.total_steps = total_steps
        self.seed = seed
        self.start_step = start_step
        self.batches_per_step = batches_per_step
        if self.steps_per_epoch == 0:
            raise InputError(
                f"KBatchSampler: an epoch of {len(batch_sampler)} batches has no whole step of "
                f"batches_per_step={batches_per_step}. Use smaller batches, or drop_last=False"
            )
        self.epoch = start_step // self.steps_per_epoch

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in one pass over the batch sampler."""
        whole, rest = divmod(len(self.batch_sampler), self.batches_per_step)
        return whole + (rest > 0 and not self.drop_last)

    # Launchers read and replace these attributes of a batch sampler; they belong to the wrapped one.

    @property
    def batch_size(self) -> int:
        return self.batch_sampler.batch_size

    @property
    def drop_last(self) -> bool:
        return getattr(self.batch_sampler, "drop_last", False)

    @property
    def sampler(self) -> Any:
        return self.batch_sampler.sampler

    @sampler.setter
    def sampler(self, sampler: Any) -> None:
        self.batch_sampler.sampler = sampler

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass, here and in the wrapped samplers that have a ``set_epoch``."""
        self.epoch = epoch
        for inner in (self.batch_sampler, getattr(self.batch_sampler, "sampler", None)):
            if inner is not None and hasattr(inner, "set_epoch"):
                inner.set_epoch(epoch)

    def __len__(self) -> int:
        """Batches in a whole epoch."""
        return min(len(self.batch_sampler), self.steps_per_epoch * self.batches_per_step)

    def __iter__(self) -> Iterator[list[KIndex]]:
        epoch_start = self.epoch * self.steps_per_epoch
        first = max(epoch_start, self.start_step)
        self._check_epoch(epoch_start, first)
        self.epoch += 1
        skipped = (first - epoch_start) * self.batches_per_step
        wanted = min(len(self), (self.total_steps - epoch_start) * self.batches_per_step)
        for number, batch in enumerate(islice(self.batch_sampler, skipped, wanted), start=skipped):
            yield self._index_count_pairs(epoch_start + number // self.batches_per_step, batch)

    def _check_epoch(self, epoch_start: int, first: int) -> None:
        if first >= epoch_start + self.steps_per_epoch:
            raise InputError(
                f"KBatchSampler: epoch {self.epoch}, which starts at step {epoch_start}, lies before "
                f"start_step={self.start_step}. Call set_epoch({self.start_step // self.steps_per_epoch}) "
                "on the loader before its first pass"
            )
        if first >= self.total_steps:
            raise InputError(
                f"KBatchSampler: epoch {self.epoch} starts at step {first}, past total_steps="
                f"{self.total_steps}. With {self.steps_per_epoch} steps in an epoch, pass total_steps="
                f"{self.steps_per_epoch} * epochs"
            )

    def _index_count_pairs(self, step: int, batch: Collection[Any]) -> list[KIndex]:
        try:
            rows = np.fromiter(map(operator.index, batch), dtype=np.int64, count=len(batch))
        except TypeError:
            raise InputError(
                f"KBatchSampler: an index must be an integer, as it is the row number of the draw; got {batch!r}"
            ) from None
        k = self.rule(training_fraction(step, self.total_steps))
        drawn = counts(k, len(rows), Key(self.seed, step, rows))
        return [KIndex(row, count, step) for row, count in zip(rows.tolist(), drawn.tolist(), strict=True)]


def _check_rule(rule: object) -> None:
    if isinstance(rule, OpenLoopRule):
        return
    if isinstance(rule, Rule):
        raise InputError(
            f"KBatchSampler cannot use the closed-loop rule {rule!r}: loaders fetch batches ahead, so K "
            "would be set before the observation that decides it. Set K in the training loop, once it has the "
            "batch: k, state = rule.update(observation, state), then sampler(positives, k, key)"
        )
    raise InputError(
        f"KBatchSampler needs a rule such as ConstantK(4) or AnsK(20), got {rule!r}. "
        "Wrap a function of the fraction of training as FunctionK(f)"
    )
