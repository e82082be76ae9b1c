"""Draws with replacement from a law over the catalogue, without the row's positive and its owner's known ids.

A slot draws; where the id is excluded it draws afresh, at most `LAPS` times two; then it takes the one draw that
cannot fail, the u-th unit of what is allowed, found by bisection. Each way gives the law renormalised over the
allowed ids, so their combination does too, in bounded work whatever share is excluded. This is the plain torch
text; `negwise.samplers.kernels` has the same draws as a numba loop. Shapes: B rows, K slots, R slots to redraw.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from negwise.draws import Key, Stream, block
from negwise.samplers.exclusions import Exclusions
from negwise.samplers.law import Law
from negwise.samplers.words import LAPS, prefix, scale, slots


@dataclass(frozen=True, eq=False)
class Rows:
    """What each row may draw, (B,) each: its positive, its owner, and the mass that is allowed."""

    positive: Tensor
    owner: Tensor
    allowed: Tensor

    def __getitem__(self, index: Tensor) -> Rows:
        return Rows(self.positive[index], self.owner[index], self.allowed[index])


@dataclass(frozen=True, eq=False)
class Catalogue:
    """A law and what is excluded from it."""

    law: Law
    known: Exclusions
    spent: Tensor  # (N + 1,) running mass of the known ids
    left: Tensor  # (U,) mass that each owner does not know

    @classmethod
    def of(cls, law: Law, known: Exclusions) -> Catalogue:
        law = law.to(known.device)
        mass = law.mass(known.ids)
        # The sum over all owners may wrap around int64; only differences are used, and those are right.
        spent = torch.cat((mass.new_zeros(1), mass.cumsum(0)))
        return cls(law, known, spent, law.total - spent[known.offsets].diff())

    @property
    def device(self) -> torch.device:
        return self.spent.device

    def to(self, device: torch.device) -> Catalogue:
        tables = (table.to(device) for table in (self.spent, self.left))
        return Catalogue(self.law.to(device), self.known.to(device), *tables)

    def rows(self, positive: Tensor, owner: Tensor) -> Rows:
        """``allowed`` is the law's total less what the owner knows and the positive, counted once."""
        return Rows(positive, owner, self.left[owner] - self.own(owner, positive))

    def own(self, owner: Tensor, positive: Tensor) -> Tensor:
        """Mass of a positive (B,) that its owner does not know yet, else 0."""
        return torch.where(self.known.contains(owner, positive), 0, self.law.mass(positive))

    def excluded(self, rows: Rows, ids: Tensor) -> Tensor:
        """Whether ``ids`` (B, K) are out of bounds for their row."""
        return (ids == rows.positive[:, None]) | self.known.contains(rows.owner[:, None], ids)

    def log_q(self, rows: Rows, ids: Tensor) -> Tensor:
        """``log(mass / allowed)`` (B, K) of ids that were drawn, rounded once, to float32."""
        log_q = self.law.log_mass(ids) - rows.allowed.clamp(min=1).double().log()[:, None]
        return log_q.float().expand(ids.shape)

    def log_prob(self, rows: Rows, ids: Tensor) -> Tensor:
        """The same for any ids: -inf for those that cannot be drawn."""
        never = self.excluded(rows, ids) | (self.law.mass(ids) == 0)
        return self.log_q(rows, ids).masked_fill(never, -torch.inf)

    def draw(self, rows: Rows, filled: Tensor, width: int, key: Key, stream: Stream) -> Tensor:
        """Ids (B, width), ``filled`` (B,) of them in each row and then zeros; ``key.row`` is a tensor."""
        ids, mask = self.law.draw(*slots(key, width, stream)), prefix(filled, width)
        where, slot = (self.excluded(rows, ids) & mask).nonzero(as_tuple=True)
        numbers = key.rows(len(ids))
        for lap in range(1, LAPS + 1):
            if len(where) == 0:
                break
            w0, w1, w2, w3 = block(key, numbers[where], slot, stream, lap)
            tries = torch.stack((self.law.draw(w0, w1), self.law.draw(w2, w3)), 1)
            bad = self.excluded(rows[where], tries)
            ids[where, slot] = torch.where(bad[:, 0], tries[:, 1], tries[:, 0])
            again = bad.all(1)
            where, slot = where[again], slot[again]
        w0, w1, *_ = block(key, numbers[where], slot, stream, LAPS + 1)
        ids[where, slot] = self.bisect(rows[where], scale(w0, w1, rows.allowed[where]))
        return ids * mask

    def bisect(self, rows: Rows, unit: Tensor) -> Tensor:
        """The id (R,) that holds unit number ``unit`` (R,) of each row's allowed mass.

        The largest id such that the allowed mass before it is at most ``unit``: ids without allowed mass
        are passed over, because the id after them has the same mass before it.
        """
        low, high = torch.zeros_like(unit), torch.full_like(unit, self.law.n_items - 1)
        own = self.own(rows.owner, rows.positive)
        start = self.spent[self.known.offsets[rows.owner]]
        for _ in range((self.law.n_items - 1).bit_length()):
            middle = (low + high + 1) >> 1
            known = self.spent[self.known.before(rows.owner, middle)] - start
            before = self.law.before(middle) - known - own * (rows.positive < middle)
            low = torch.where(before <= unit, middle, low)
            high = torch.where(before <= unit, high, middle - 1)
        return low
