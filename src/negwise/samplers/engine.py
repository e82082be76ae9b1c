"""Draws from a catalogue, by numba's loops or in plain torch: the same bits, and anyone may ask which."""

from __future__ import annotations

from functools import cached_property
from importlib.util import find_spec
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from negwise.draws import Key, Stream
from negwise.errors import InputError, require
from negwise.protocols import Draw, Negatives, SamplingTables
from negwise.samplers.catalogue import Catalogue, Rows
from negwise.samplers.device import OnDevice
from negwise.samplers.exclusions import Exclusions
from negwise.samplers.law import MAX_ITEMS, Alias, Law
from negwise.samplers.lists import check_count, check_ids, check_range
from negwise.samplers.request import Request, check_owner
from negwise.samplers.shortage import OnShortage, check_policy, settle
from negwise.samplers.words import LAPS, prefix, slots

Impl = Literal["auto", "torch", "numba"]

NOTHING = np.zeros(0, np.int64)


def which(impl: str, device: torch.device) -> Literal["torch", "numba"]:
    """What ``impl`` means on ``device``: "auto" is numba on the CPU where it is installed, else torch."""
    if impl not in get_args(Impl):
        raise InputError(f"impl={impl!r}, expected 'auto', 'torch' or 'numba'")
    if impl == "numba" and device.type != "cpu":
        raise InputError(f"impl='numba' runs on the CPU, and positives are on {device}; pass impl='auto'")
    if impl == "auto":
        impl = "numba" if device.type == "cpu" and find_spec("numba") else "torch"
    return "numba" if impl == "numba" else "torch"


def kernels() -> Any:
    """The numba loops; compiled when first called, then cached on disk."""
    require("numba", extra="train")
    from negwise.samplers import kernels

    return kernels


class Engine:
    """What `Uniform` and `Popularity` share: everything but the law."""

    def __init__(
        self, law: Law, exclude: Exclusions | None, on_shortage: OnShortage, impl: Impl, log_q: bool = True
    ) -> None:
        check_policy(on_shortage)
        which(impl, torch.device("cpu"))
        if exclude is not None and exclude.n_items != law.n_items:
            raise InputError(f"exclude was made for n_items={exclude.n_items}, but the catalogue has {law.n_items}")
        self.exclude, self.on_shortage, self.impl, self.log_q = exclude, on_shortage, impl, log_q
        self.catalogue = OnDevice(Catalogue.of(law, exclude or Exclusions.none(law.n_items)))
        self.tables_on: dict[torch.device, SamplingTables] = {}

    def plan(self, positives: Tensor, k: float, key: Key, owner: Tensor | None) -> Draw:
        ask = Request.of(positives, k, key)
        catalogue, rows = self.rows(ask.positives, owner)
        return Draw(
            seed=int(ask.key.seed),
            step=int(ask.key.step),
            stream=int(Stream.ITEM),
            laps=LAPS,
            n_items=catalogue.law.n_items,
            width=ask.width,
            numbers=ask.key.rows(len(ask.positives)),
            counts=settle(ask.wanted, torch.where(rows.allowed > 0, ask.wanted, 0), self.on_shortage),
            positives=rows.positive,
            owners=rows.owner,
            allowed=rows.allowed,
            tables=self.sampling_tables,
            fill=self.fill,
        )

    def fill(self, draw: Draw) -> Negatives:
        catalogue, rows = self.catalogue(draw.device), Rows(draw.positives, draw.owners, draw.allowed)
        if which(self.impl, draw.device) == "numba":
            ids, mask = self.loop(draw)
        else:
            key = Key(draw.seed, draw.step, draw.numbers)
            ids = catalogue.draw(rows, draw.counts, draw.width, key, Stream(draw.stream))
            mask = prefix(draw.counts, draw.width)
        removed = 1 - rows.allowed.double() / catalogue.law.total
        log_q = self.weigh(catalogue, rows, ids) if self.log_q else None
        return Negatives(ids, mask, log_q, removed.float())

    def rows(self, positives: Tensor, owner: Tensor | None) -> tuple[Catalogue, Rows]:
        catalogue = self.catalogue(positives.device)
        check_range("positives", positives, catalogue.law.n_items)
        if self.exclude is None:
            return catalogue, catalogue.rows(positives, torch.zeros_like(positives))
        return catalogue, catalogue.rows(positives, check_owner(owner, len(self.exclude), positives))

    def log_prob(self, ids: Tensor, positives: Tensor, owner: Tensor | None) -> Tensor:
        catalogue, rows = self.rows(check_ids("positives", positives), owner)
        ids, n_items = check_ids("ids", ids), catalogue.law.n_items
        # An id beyond the catalogue, as another part of a mixture may bring, is never drawn.
        inside = (ids >= 0) & (ids < n_items)
        return torch.where(inside, catalogue.log_prob(rows, ids.clamp(0, n_items - 1)), -torch.inf)

    def propose(self, n: int, key: Key, device: torch.device) -> Tensor:
        """``n`` ids (n,) from the law as it is, the same for every row of a step."""
        hi, lo = slots(Key(key.seed, key.step).on(device, 1), n, Stream.POOL)
        return self.catalogue(device).law.draw(hi[0], lo[0])

    def loop(self, draw: Draw) -> tuple[Tensor, Tensor]:
        """`Catalogue.draw` and its mask by numba."""
        ids = torch.empty(draw.rows, draw.width, dtype=torch.int64)
        mask = torch.empty(ids.shape, dtype=torch.bool)
        kernels().catalogue(
            ids.numpy(),
            mask.numpy(),
            draw.numbers.numpy(),
            np.uint64(draw.seed),
            draw.step,
            draw.stream,
            *(values.contiguous().numpy() for values in (draw.counts, draw.positives, draw.owners, draw.allowed)),
            *self.tables,
        )
        return ids, mask

    def weigh(self, catalogue: Catalogue, rows: Rows, ids: Tensor) -> Tensor:
        """`Catalogue.log_q`, in one pass where there is a loop for it."""
        if which(self.impl, ids.device) == "torch" or not isinstance(catalogue.law, Alias):
            return catalogue.log_q(rows, ids)
        log_q = torch.empty(ids.shape, dtype=torch.float32)
        log_allowed = rows.allowed.clamp(min=1).double().log()
        kernels().weigh(log_q.numpy(), ids.numpy(), catalogue.law.log_masses.numpy(), log_allowed.numpy())
        return log_q

    def sampling_tables(self, device: torch.device) -> SamplingTables:
        """The catalogue's own tables on ``device``, as those who draw from a `Draw` read them."""
        if device not in self.tables_on:
            catalogue = self.catalogue(device)
            law, known = catalogue.law, catalogue.known
            columns, starts = (columns_of(law), law.starts) if isinstance(law, Alias) else (None, None)
            self.tables_on[device] = SamplingTables(
                columns, starts, known.bits, known.offsets, known.keys, catalogue.spent
            )
        return self.tables_on[device]

    @cached_property
    def tables(self) -> tuple[Any, ...]:
        """The catalogue as arrays for the loop; empty ones stand for a uniform law and for no bitmap."""
        catalogue = self.catalogue(torch.device("cpu"))
        law, known = catalogue.law, catalogue.known
        of_law: tuple[Any, ...] = (law.n_items, NOTHING.view(np.uint64), 0, NOTHING, NOTHING)
        if isinstance(law, Alias):
            columns = columns_of(law).numpy().view(np.uint64)
            of_law = (law.n_items, columns, law.shift, law.masses.numpy(), law.starts.numpy())
        bits, stride = NOTHING, 0
        if known.bits is not None:
            bits, stride = known.bits.flatten().numpy(), known.bits.shape[1]
        lists = (known.offsets.numpy(), known.ids.numpy(), catalogue.spent.numpy())
        return (*of_law, *lists, bits.view(np.uint64), stride)


def columns_of(law: Alias) -> Tensor:
    """Threshold and alias of each column in one word, so that a draw reads once."""
    return law.threshold << 32 | law.alias


def check_items(n_items: int) -> int:
    return check_count("n_items", n_items, MAX_ITEMS, "2**30")
