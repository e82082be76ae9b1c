"""Where negatives come from: the sampler that fits the data, or the one that was asked for by name.

=============  ====================  ===========================================================
kind of data   by default            also
=============  ====================  ===========================================================
impressions    impression            uniform, popularity, in-batch, queue, hardest, a mix
sequences      uniform               popularity, in-batch, queue, hardest, a mix
pairs          given first, pool     uniform, popularity, in-batch, queue, given, hardest, a mix
=============  ====================  ===========================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from negwise.datasets import Ragged, TaskData
from negwise.errors import InputError
from negwise.metrics.ranking import DistinctIds
from negwise.protocols import Query, Sampler
from negwise.requests.training_requests import Spec, parse_samplers
from negwise.samplers import (
    Exclusions,
    Given,
    GivenFirst,
    Hardest,
    Impression,
    InBatch,
    Lists,
    Mixture,
    Pool,
    Popularity,
    Queue,
    Uniform,
)

FITTING = {
    "impressions": ("impression", "uniform", "popularity", "in-batch", "queue", "hardest"),
    "sequences": ("uniform", "popularity", "in-batch", "queue", "hardest"),
    "pairs": ("pool", "uniform", "popularity", "in-batch", "queue", "given", "hardest"),
}
CAPACITY = 4096
CANDIDATES = 100


def make_sampler(data: TaskData, model: Any, text: str | None = None, pool: int = 512) -> Sampler:
    """The sampler ``text`` for ``data``, as ``"queue:4096"`` or ``"0.5*uniform+0.5*popularity"``.

    None is the usual one: what was shown and not clicked; the catalogue; other texts of the training split, of which
    ``pool`` are encoded a step. Negatives that came with text pairs are used first, unless ``text`` is "given": then
    they alone. ``model`` scores candidates for "hardest".
    """
    specs = parse_samplers(text or FITTING[data.name][0])
    for spec in specs:
        if spec.name not in FITTING[data.name]:
            raise InputError(
                f"negatives: got {spec.name!r}, but this data is {data.name}. Expected one of "
                f"{', '.join(FITTING[data.name])}."
            )
    parts = _Parts(data, model, pool)
    if len(specs) == 1:
        sampler = parts.make(specs[0])
    else:
        sampler = Mixture([parts.make(spec) for spec in specs], [spec.weight for spec in specs])
    if parts.given is None or any(spec.name == "given" for spec in specs):
        return sampler
    return GivenFirst(parts.given, sampler)


def max_negatives(data: TaskData, text: str | None = None, pool: int = 512, batch_size: int | None = None) -> int:
    """How many negatives the best provided row can have, in any split."""
    rows = [split.groups for split in (data.train, data.val, data.test)]
    rows += [] if data.windows is None else [data.windows.users]
    groups = np.concatenate(rows)  # an impression without a click is no row
    others = data.n_items - int(data.eval_exclusions.lengths[groups].min())
    given = 0 if data.negatives is None else int(data.negatives.lengths[groups].max())
    pooled = min(others, pool)

    def limit(spec: Spec) -> int:
        limits = {
            "impression": given,
            "given": given,
            "pool": min(others, int(spec.options.get("size", pool))),
            "queue": int(spec.options.get("capacity", CAPACITY)),
            "hardest": min(pooled if data.name == "pairs" else others, int(spec.options.get("candidates", CANDIDATES))),
            "in-batch": others if batch_size is None else batch_size - 1,
        }
        return limits.get(spec.name, others)

    return max(limit(spec) for spec in parse_samplers(text or FITTING[data.name][0]))


@dataclass(frozen=True, eq=False)
class _Parts:
    """What samplers of one task are made of."""

    data: TaskData
    model: Any
    pool: int

    def make(self, spec: Spec) -> Sampler:
        makers: dict[str, Callable[[Spec], Sampler]] = {
            "uniform": lambda _: self.uniform,
            "popularity": self.popularity,
            "in-batch": lambda _: InBatch(exclude=self.exclusions),
            "queue": lambda spec: Queue(int(spec.options.get("capacity", CAPACITY)), exclude=self.exclusions),
            "impression": lambda _: Impression(self.impressions),
            "given": lambda _: Given(self.lists_given),
            "pool": lambda spec: Pool(self.uniform, int(spec.options.get("size", self.pool))),
            "hardest": self.hardest,
        }
        return makers[spec.name](spec)

    @cached_property
    def n_candidates(self) -> int:
        first, last = self.data.train.candidates
        if first != 0:
            raise InputError(f"training candidates start at {first}, expected 0")
        return last

    @cached_property
    def exclusions(self) -> Exclusions:
        """Ids that a row must not draw. What lies in another split cannot be drawn, so it need not be excluded."""
        last = self.n_candidates
        known = as_lists(self.data.train_exclusions)
        owners, ids = known.owners, known.ids
        if self.given is not None:  # an id that was given does not come a second time
            owners, ids = torch.cat((owners, self.given.owners)), torch.cat((ids, self.given.ids))
        inside = ids < last
        return Exclusions.of(Lists.of_pairs(owners[inside], ids[inside], len(known)), last)

    @cached_property
    def uniform(self) -> Uniform:
        return Uniform(self.n_candidates, exclude=self.exclusions)

    def popularity(self, spec: Spec) -> Popularity:
        counts = torch.from_numpy(self.data.popularity[: self.n_candidates])
        return Popularity(counts, spec.options.get("alpha", 1.0), exclude=self.exclusions)

    def hardest(self, spec: Spec) -> Hardest:
        source: Any = Pool(self.uniform, self.pool) if self.data.name == "pairs" else self.uniform
        return Hardest(source, int(spec.options.get("candidates", CANDIDATES)), ModelScore(self.model))

    @property
    def impressions(self) -> Lists:
        if self.data.negatives is None:
            raise InputError(f"{self.data.name}: nothing was shown and not clicked, so there are no negatives to draw.")
        return as_lists(self.data.negatives)

    @cached_property
    def given(self) -> Lists | None:
        """Negatives that came with text pairs."""
        return as_lists(self.data.negatives) if self.data.name == "pairs" and self.data.negatives is not None else None

    @property
    def lists_given(self) -> Lists:
        if self.given is None:
            raise InputError(
                "negatives: got 'given', but no negatives came with the data (columns neg, negatives, ...)."
            )
        return self.given


@dataclass(frozen=True, eq=False)
class ModelScore:
    """Scores (B, M) of candidates by the model as it is, without dropout; each distinct candidate is encoded once."""

    model: Any

    def __call__(self, ids: Tensor, positives: Tensor, query: Query) -> Tensor:  # noqa: ARG002
        model, device = self.model, next(self.model.parameters()).device
        wanted = [ids.flatten()] + ([query.items.flatten()] if model.needs_items else [])
        distinct = DistinctIds.of(torch.cat(wanted), int(torch.cat(wanted).max()) + 1)
        training = model.training
        model.eval()
        try:
            with torch.no_grad():
                vectors = model.encode_candidates(distinct.ids.to(device))

                def item_vectors(items: Tensor) -> Tensor:
                    return vectors[distinct.places(items.cpu()).to(device)]

                queries = model.encode_queries(query.to(device), item_vectors)
                return torch.einsum("bd,bmd->bm", queries.float(), item_vectors(ids).float()).cpu()
        finally:
            model.train(training)


def as_lists(ragged: Ragged) -> Lists:
    return Lists(torch.from_numpy(ragged.offsets), torch.from_numpy(ragged.ids))
