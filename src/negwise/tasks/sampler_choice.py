"""Where negatives come from: the sampler that fits the data, or the one that was asked for by name.

=============  ====================  ===========================================================
kind of data   by default            also
=============  ====================  ===========================================================
impressions    impression            uniform, popularity, in-batch, queue, hardest, a mix
sequences      uniform               popularity, in-batch, queue, hardest, a mix
pairs          batch-first           pool, uniform, popularity, in-batch, queue, given, hardest, a mix
=============  ====================  ===========================================================

Negatives that came with text pairs are used before any of these, unless "given" is asked for: then they alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from negwise.datasets import Ragged, TaskData
from negwise.errors import InputError
from negwise.metrics.model_ranking import DistinctIds
from negwise.protocols import Query, Sampler
from negwise.requests.training_requests import POOL, Spec, parse_samplers
from negwise.samplers import (
    BatchFirst,
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

DEFAULTS = {"impressions": "impression", "sequences": "uniform", "pairs": "batch-first"}
"""The usual sampler of each kind of data."""
EVERY_KIND = tuple(DEFAULTS)
QUEUE_CAPACITY = 4096
HARDEST_CANDIDATES = 100


def make_sampler(data: TaskData, model: Any, text: str | None = None, pool: int | None = None) -> Sampler:
    """The sampler ``text`` for ``data``, as ``"queue:4096"`` or ``"0.5*uniform+0.5*popularity"``.

    None is the usual one: what was shown and not clicked; the catalogue; for texts those of the other rows, then others
    of the training split, or where ``pool`` is given so many of them a step, drawn at random. Negatives that came with
    text pairs are used first, unless ``text`` is "given": then they alone. ``model`` scores candidates for "hardest".
    """
    parts = _Ingredients(data, model, pool or POOL)
    specs = _fitting_specs(data, text, pool)
    samplers = [CHOICES[spec.name].make(parts, spec) for spec in specs]
    sampler = samplers[0] if len(samplers) == 1 else Mixture(samplers, [spec.weight for spec in specs])
    return GivenFirst(parts.given, sampler) if _takes_given_first(parts, specs) else sampler


def max_negatives(
    data: TaskData, text: str | None = None, pool: int | None = None, batch_size: int | None = None
) -> int:
    """The largest number of negatives that any row of training can get: what `make_sampler` draws from has no more."""
    parts = _Ingredients(data, None, pool or POOL, batch_size)
    specs = _fitting_specs(data, text, pool)
    drawn = max(CHOICES[spec.name].limit(parts, spec) for spec in specs)
    first = parts.longest_list if _takes_given_first(parts, specs) else 0
    return min(parts.largest_catalogue, drawn + first)


def _fitting_specs(data: TaskData, text: str | None, pool: int | None) -> tuple[Spec, ...]:
    usual = "pool" if pool is not None and data.name == "pairs" else DEFAULTS[data.name]
    specs = parse_samplers(text or usual)
    fitting = [name for name, choice in CHOICES.items() if data.name in choice.kinds]
    for spec in specs:
        if spec.name not in fitting:
            raise InputError(
                f"negatives: got {spec.name!r}, but this data is {data.name}. Expected one of {', '.join(fitting)}."
            )
    return specs


def _takes_given_first(parts: _Ingredients, specs: tuple[Spec, ...]) -> bool:
    return parts.has_given and all(spec.name != "given" for spec in specs)


@dataclass(frozen=True, eq=False)
class _Ingredients:
    """What samplers of one task are made of, and how many negatives its rows can have."""

    data: TaskData
    model: Any
    pool_size: int
    batch_size: int | None = None

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
        if not self.has_given and int(known.ids.max() if len(known.ids) else 0) < last:
            return Exclusions.of(known, last)
        owners, ids = known.owners, known.ids
        if self.has_given:  # an id that was given does not come a second time
            owners, ids = torch.cat((owners, self.given.owners)), torch.cat((ids, self.given.ids))
        inside = ids < last
        return Exclusions.of(Lists.of_pairs(owners[inside], ids[inside], len(known)), last)

    @cached_property
    def uniform(self) -> Uniform:
        return Uniform(self.n_candidates, exclude=self.exclusions)

    def popularity(self, alpha: float) -> Popularity:
        counts = torch.from_numpy(self.data.popularity[: self.n_candidates])
        return Popularity(counts, alpha, exclude=self.exclusions)

    def hardest(self, candidates: int) -> Hardest:
        source: Any = Pool(self.uniform, self.pool_size) if self.data.name == "pairs" else self.uniform
        return Hardest(source, candidates, ModelScore(self.model))

    @property
    def impressions(self) -> Lists:
        if self.data.negatives is None:
            raise InputError(f"{self.data.name}: nothing was shown and not clicked, so there are no negatives to draw.")
        return as_lists(self.data.negatives)

    @property
    def has_given(self) -> bool:
        """Whether negatives came with text pairs."""
        return self.data.name == "pairs" and self.data.negatives is not None

    @cached_property
    def given(self) -> Lists:
        if not self.has_given or self.data.negatives is None:
            raise InputError(
                "negatives: got 'given', but no negatives came with the data (columns neg, negatives, ...)."
            )
        return as_lists(self.data.negatives)

    @cached_property
    def owners(self) -> NDArray[np.int64]:
        """The owner of each row of training. An impression without a click is no row."""
        rows = self.data.train.groups
        return rows if self.data.windows is None else np.concatenate((rows, self.data.windows.users))

    @property
    def largest_catalogue(self) -> int:
        """Candidates of the training split for the row with the fewest exclusions among them."""
        known = self.data.train_exclusions
        inside = np.append(0, np.cumsum(known.ids < self.n_candidates))[known.offsets]
        return self.n_candidates - int(np.diff(inside)[self.owners].min())

    @property
    def longest_list(self) -> int:
        return 0 if self.data.negatives is None else int(self.data.negatives.lengths[self.owners].max())

    @property
    def others_in_batch(self) -> int:
        return self.largest_catalogue if self.batch_size is None else self.batch_size - 1

    @property
    def hardest_source(self) -> int:
        return self.pool_size if self.data.name == "pairs" else self.largest_catalogue


@dataclass(frozen=True)
class _Choice:
    """A sampler by name: the kinds of data that it fits, how it is made, and how many negatives a row can get."""

    kinds: tuple[str, ...]
    make: Callable[[_Ingredients, Spec], Sampler]
    limit: Callable[[_Ingredients, Spec], int]


CHOICES = {
    "uniform": _Choice(
        EVERY_KIND,
        lambda parts, _: parts.uniform,
        lambda parts, _: parts.largest_catalogue,
    ),
    "popularity": _Choice(
        EVERY_KIND,
        lambda parts, spec: parts.popularity(spec.options.get("alpha", 1.0)),
        lambda parts, _: parts.largest_catalogue,
    ),
    "in-batch": _Choice(
        EVERY_KIND,
        lambda parts, _: InBatch(exclude=parts.exclusions),
        lambda parts, _: parts.others_in_batch,
    ),
    "batch-first": _Choice(
        ("pairs",),
        lambda parts, _: BatchFirst(parts.n_candidates, exclude=parts.exclusions),
        lambda parts, _: parts.largest_catalogue,
    ),
    "queue": _Choice(
        EVERY_KIND,
        lambda parts, spec: Queue(spec.whole("capacity", QUEUE_CAPACITY), exclude=parts.exclusions),
        lambda _, spec: spec.whole("capacity", QUEUE_CAPACITY),
    ),
    "impression": _Choice(
        ("impressions",),
        lambda parts, _: Impression(parts.impressions),
        lambda parts, _: parts.longest_list,
    ),
    "given": _Choice(
        ("pairs",),
        lambda parts, _: Given(parts.given),
        lambda parts, _: parts.longest_list,
    ),
    "pool": _Choice(
        ("pairs",),
        lambda parts, spec: Pool(parts.uniform, spec.whole("size", parts.pool_size)),
        lambda parts, spec: spec.whole("size", parts.pool_size),
    ),
    "hardest": _Choice(
        EVERY_KIND,
        lambda parts, spec: parts.hardest(spec.whole("candidates", HARDEST_CANDIDATES)),
        lambda parts, spec: min(parts.hardest_source, spec.whole("candidates", HARDEST_CANDIDATES)),
    ),
}
"""One line for each name of `negwise.requests.training_requests.SAMPLERS`."""


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
