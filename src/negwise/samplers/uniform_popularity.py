"""Samplers over the whole catalogue, uniform or by popularity. Numba and plain torch draw the same bits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from negwise.draws import Key, Stream
from negwise.errors import InputError
from negwise.protocols import Draw, Negatives, SamplingTables
from negwise.samplers.distribution import (
    MAX_ITEMS,
    AliasTable,
    CatalogueRows,
    CatalogueSampling,
    Distribution,
    UniformDistribution,
    pack_columns,
)
from negwise.samplers.draw_request import (
    MAX_REDRAWS,
    DrawRequest,
    Impl,
    OnShortage,
    check_on_shortage,
    load_compiled,
    prefix_mask,
    resolve_impl,
    resolve_shortage,
    slot_words,
)
from negwise.samplers.exclusions import Exclusions, check_owner
from negwise.samplers.lists import OnDevice, check_ids, check_positive_int, check_range

EMPTY = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Uniform:
    """Ids 0..n_items - 1 with equal probability, with replacement, without the positive and the exclusions.

    ``log_q = -log(ids that are left)``. A row is short only if no id is left.

    >>> uniform = Uniform(5)
    >>> negatives = uniform(torch.tensor([0, 3]), k=2, key=Key(seed=1, step=0))
    >>> negatives.ids.shape, bool((negatives.ids == torch.tensor([[0], [3]])).any())
    (torch.Size([2, 2]), False)
    """

    n_items: int
    exclude: Exclusions | None = None
    on_shortage: OnShortage = "mask"
    impl: Impl = "auto"

    def __post_init__(self) -> None:
        _ = self.sampler

    @cached_property
    def sampler(self) -> CatalogueSampler:
        return CatalogueSampler(
            UniformDistribution(check_items(self.n_items)), self.exclude, self.on_shortage, self.impl
        )

    def __call__(self, positives: Tensor, k: float, key: Key, *, owner: Tensor | None = None) -> Negatives:
        return self.sampler.plan(positives, k, key, owner).negatives()

    def plan(self, positives: Tensor, k: float, key: Key, *, owner: Tensor | None = None) -> Draw:
        """The same draw, planned but not drawn, for a loss that draws the ids itself: ``info_nce(..., ids=draw)``."""
        return self.sampler.plan(positives, k, key, owner)

    def log_prob(self, ids: Tensor, positives: Tensor, *, owner: Tensor | None = None) -> Tensor:
        """Log probability (B, K) that a slot of row b holds ``ids[b, k]``; -inf for excluded ids."""
        return self.sampler.log_prob(ids, positives, owner)

    def which(self, device: torch.device | str = "cpu") -> str:
        """The implementation that runs on ``device``: "numba" or "torch"."""
        return resolve_impl(self.impl, torch.device(device))


@dataclass(frozen=True, eq=False)
class Popularity:
    """Ids with ``q(i)`` proportional to ``counts[i] ** alpha``, with replacement, without positive and exclusions.

    The alias method draws them. ``q`` is rounded to units of 2^-32 over the number of columns, and ``log_q`` is the
    log of the rounded ``q``, renormalised over the ids that are left. For alpha > 0 an id with count 0 is never drawn,
    so a row is short if only such ids are left.

    How to choose alpha: 1 is plain popularity, 0.75 is word2vec's choice, 0 is uniform. If the loss does not use
    ``log_q``, pass ``log_q=False``.
    """

    counts: Tensor
    alpha: float = 1.0
    exclude: Exclusions | None = None
    on_shortage: OnShortage = "mask"
    impl: Impl = "auto"
    log_q: bool = True

    def __post_init__(self) -> None:
        if not math.isfinite(self.alpha) or self.alpha < 0:
            raise InputError(f"alpha={self.alpha}, expected a finite number >= 0, such as 0.75")
        came: object = self.counts  # callers without types pass lists
        if not isinstance(came, Tensor):
            raise InputError(
                f"Popularity: counts is a {type(came).__name__}; expected a torch tensor: torch.tensor(counts)"
            )
        counts = self.counts.double()
        if not bool(counts.isfinite().all()) or bool((counts < 0).any()):
            raise InputError("Popularity: counts hold negative or non-finite numbers, expected the count of each id")
        _ = self.sampler

    @cached_property
    def sampler(self) -> CatalogueSampler:
        weights = self.counts.double() ** self.alpha
        return CatalogueSampler(AliasTable.of(weights), self.exclude, self.on_shortage, self.impl, self.log_q)

    def __call__(self, positives: Tensor, k: float, key: Key, *, owner: Tensor | None = None) -> Negatives:
        return self.sampler.plan(positives, k, key, owner).negatives()

    def plan(self, positives: Tensor, k: float, key: Key, *, owner: Tensor | None = None) -> Draw:
        """The same draw, planned but not drawn, for a loss that draws the ids itself: ``info_nce(..., ids=draw)``."""
        return self.sampler.plan(positives, k, key, owner)

    def log_prob(self, ids: Tensor, positives: Tensor, *, owner: Tensor | None = None) -> Tensor:
        """Log probability (B, K) that a slot of row b holds ``ids[b, k]``; -inf for excluded ids."""
        return self.sampler.log_prob(ids, positives, owner)

    def which(self, device: torch.device | str = "cpu") -> str:
        """The implementation that runs on ``device``: "numba" or "torch"."""
        return resolve_impl(self.impl, torch.device(device))


class CatalogueSampler:
    """Everything that `Uniform` and `Popularity` share: all but the distribution."""

    def __init__(
        self,
        distribution: Distribution,
        exclude: Exclusions | None,
        on_shortage: OnShortage,
        impl: Impl,
        log_q: bool = True,
    ) -> None:
        check_on_shortage(on_shortage)
        resolve_impl(impl, torch.device("cpu"))
        if exclude is not None and exclude.n_items != distribution.n_items:
            raise InputError(
                f"exclude was made for n_items={exclude.n_items}, but the catalogue has {distribution.n_items}"
            )
        self.exclude, self.on_shortage, self.impl, self.log_q = exclude, on_shortage, impl, log_q
        self.sampling = OnDevice(CatalogueSampling.of(distribution, exclude or Exclusions.none(distribution.n_items)))
        self.tables_by_device: dict[torch.device, SamplingTables] = {}

    def plan(self, positives: Tensor, k: float, key: Key, owner: Tensor | None) -> Draw:
        request = DrawRequest.of(positives, k, key)
        sampling, rows = self.rows(request.positives, owner)
        return Draw(
            seed=int(request.key.seed),
            step=int(request.key.step),
            stream=int(Stream.ITEM),
            max_redraws=MAX_REDRAWS,
            n_items=sampling.distribution.n_items,
            width=request.width,
            numbers=request.key.rows(len(request.positives)),
            counts=resolve_shortage(request.wanted, torch.where(rows.allowed > 0, request.wanted, 0), self.on_shortage),
            positives=rows.positive,
            owners=rows.owner,
            allowed=rows.allowed,
            tables=self.sampling_tables,
            fill=self.fill,
        )

    def fill(self, draw: Draw) -> Negatives:
        sampling, rows = self.sampling(draw.device), CatalogueRows(draw.positives, draw.owners, draw.allowed)
        if resolve_impl(self.impl, draw.device) == "numba":
            ids, mask = self.draw_compiled(draw)
        else:
            key = Key(draw.seed, draw.step, draw.numbers)
            ids = sampling.draw(rows, draw.counts, draw.width, key, Stream(draw.stream))
            mask = prefix_mask(draw.counts, draw.width)
        removed = 1 - rows.allowed.double() / sampling.distribution.total
        log_q = self.compute_log_q(sampling, rows, ids) if self.log_q else None
        return Negatives(ids, mask, log_q, removed.float())

    def rows(self, positives: Tensor, owner: Tensor | None) -> tuple[CatalogueSampling, CatalogueRows]:
        sampling = self.sampling(positives.device)
        check_range("positives", positives, sampling.distribution.n_items)
        if self.exclude is None:
            return sampling, sampling.rows(positives, torch.zeros_like(positives))
        return sampling, sampling.rows(positives, check_owner(owner, len(self.exclude), positives))

    def log_prob(self, ids: Tensor, positives: Tensor, owner: Tensor | None) -> Tensor:
        sampling, rows = self.rows(check_ids("positives", positives), owner)
        ids, n_items = check_ids("ids", ids), sampling.distribution.n_items
        # Another part of a mixture may draw an id beyond this catalogue. It is never drawn here.
        inside = (ids >= 0) & (ids < n_items)
        return torch.where(inside, sampling.log_prob(rows, ids.clamp(0, n_items - 1)), -torch.inf)

    def draw_pool(self, n: int, key: Key, device: torch.device) -> Tensor:
        """``n`` ids (n,) from the distribution without exclusions, the same for every row of a step."""
        hi, lo = slot_words(Key(key.seed, key.step).on(device, 1), n, Stream.POOL)
        return self.sampling(device).distribution.draw(hi[0], lo[0])

    def draw_compiled(self, draw: Draw) -> tuple[Tensor, Tensor]:
        """`CatalogueSampling.draw` and its mask, with numba."""
        ids = torch.empty(draw.rows, draw.width, dtype=torch.int64)
        mask = torch.empty(ids.shape, dtype=torch.bool)
        load_compiled().draw_catalogue(
            ids.numpy(),
            mask.numpy(),
            draw.numbers.numpy(),
            np.uint64(draw.seed),
            draw.step,
            draw.stream,
            *(values.contiguous().numpy() for values in (draw.counts, draw.positives, draw.owners, draw.allowed)),
            *self.compiled_tables,
        )
        return ids, mask

    def compute_log_q(self, sampling: CatalogueSampling, rows: CatalogueRows, ids: Tensor) -> Tensor:
        """`CatalogueSampling.log_q`, with numba if there is a loop for it."""
        if resolve_impl(self.impl, ids.device) == "torch" or not isinstance(sampling.distribution, AliasTable):
            return sampling.log_q(rows, ids)
        log_q = torch.empty(ids.shape, dtype=torch.float32)
        log_allowed = rows.allowed.clamp(min=1).double().log()
        load_compiled().catalogue_log_q(
            log_q.numpy(), ids.numpy(), sampling.distribution.log_masses.numpy(), log_allowed.numpy()
        )
        return log_q

    def sampling_tables(self, device: torch.device) -> SamplingTables:
        """The tables that a `Draw` is drawn from, on ``device``."""
        if device not in self.tables_by_device:
            sampling = self.sampling(device)
            distribution, exclusions = sampling.distribution, sampling.exclusions
            columns, starts = None, None
            if isinstance(distribution, AliasTable):
                columns, starts = pack_columns(distribution), distribution.starts
            self.tables_by_device[device] = SamplingTables(
                columns, starts, exclusions.bits, exclusions.offsets, exclusions.keys, sampling.excluded_mass
            )
        return self.tables_by_device[device]

    @cached_property
    def compiled_tables(self) -> tuple[Any, ...]:
        """The tables as arrays for numba. Empty arrays mean a uniform distribution, or no bitmap."""
        sampling = self.sampling(torch.device("cpu"))
        distribution, exclusions = sampling.distribution, sampling.exclusions
        alias: tuple[Any, ...] = (EMPTY.view(np.uint64), 0, EMPTY, EMPTY)
        if isinstance(distribution, AliasTable):
            columns = pack_columns(distribution).numpy().view(np.uint64)
            alias = (columns, distribution.shift, distribution.masses.numpy(), distribution.starts.numpy())
        bits, stride = EMPTY, 0
        if exclusions.bits is not None:
            bits, stride = exclusions.bits.flatten().numpy(), exclusions.bits.shape[1]
        lists = (exclusions.offsets.numpy(), exclusions.ids.numpy(), sampling.excluded_mass.numpy())
        return (distribution.n_items, *alias, *lists, bits.view(np.uint64), stride)


def check_items(n_items: int) -> int:
    return check_positive_int("n_items", n_items, MAX_ITEMS, "2**30")
