"""InfoNCE over K of a batch's own candidates, with what the controller needs to count.

Shapes: B rows of this rank, W rows of all ranks, C columns, M = C W candidates, D width; see `column_choice`.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from negwise import distributed
from negwise.draws import max_count
from negwise.errors import InputError
from negwise.integrations.column_choice import keep_ids, keep_mask
from negwise.integrations.one_pass_loss import Counts, one_pass_loss, takes
from negwise.integrations.step_control import COUNTS, StepControl
from negwise.losses import LossResult, LossWithoutBound, info_nce
from negwise.losses.checks import check_finite, check_temperature, check_vectors
from negwise.losses.result import log_k1

GATHER_BELOW = 1 / 32
"""Below this share of the candidates, looking up the chosen ones is faster than masking a product with all of them."""


class Candidates(NamedTuple):
    """The candidates of a batch: ``vectors`` (M, D), of which rows ``first`` to ``first + rows`` are this rank's.

    ``excluded`` (B, C, W) are candidates that a row must not take, None where there are none. ``present`` (B, C - 1)
    are the given negatives that a row has, None without given ones.
    """

    vectors: Tensor
    rows: int
    first: int
    columns: int
    width: int
    excluded: Tensor | None
    present: Tensor | None

    @property
    def available(self) -> int:
        """The most negatives of a row."""
        return self.columns * self.width - 1

    def own_places(self) -> Tensor:
        """True for a row's own texts, (B, 1, W)."""
        places = torch.arange(self.width, device=self.vectors.device)
        return (places == places[self.first : self.first + self.rows, None])[:, None]


class Choice(NamedTuple):
    """What `info_nce` needs to know of the negatives that are kept, and those of them that were drawn."""

    options: dict[str, Any]
    of_drawn: dict[str, Any] | None

    @property
    def by_mask(self) -> bool:
        """Whether it is over all candidates, and not over a few that are looked up."""
        return "mask" not in self.options or self.options.get("ids") is None


def batch_info_nce(
    query: Tensor,
    columns: list[Tensor],
    control: StepControl | None,
    *,
    ids: list[Tensor] | None = None,
    present: Tensor | None = None,
    temperature: float | Tensor = 1.0,
    gather: bool = False,
    more: str = "a larger batch",
    stats: bool = True,
) -> LossResult | LossWithoutBound:
    """InfoNCE of ``query`` (B, D) against K of a batch's candidates, ``columns`` C times (B, D), positives first.

    ``control`` None means all candidates, as in an evaluation. ``ids`` C times (B,) leave out candidates with the id of
    the row's positive. ``present`` (B, C - 1) is False for a given negative that a row does not have. With ``gather``
    the candidates are those of all ranks. The loss is the mean over rows of `info_nce` with the chosen candidates.
    ``more`` is what gives a row more candidates, for the message where K asks for more than there are. Without
    ``stats`` the result may lack the counts of rows; ``control`` has their sums all the same.
    """
    batch = gather_candidates(query, columns, ids, present, gather)
    choice = everything(batch) if control is None else choose(batch, control, more)
    if choice.by_mask and not torch.compiler.is_compiling() and takes(query):
        return _in_one_pass(query, columns[0], batch, choice, temperature, control, stats)
    negatives = batch.vectors if choice.options else None
    result = info_nce(query, columns[0], negatives, temperature=temperature, reduction="none", **choice.options)
    if control is not None:
        of_drawn = result
        if choice.of_drawn is not None:
            with torch.no_grad():
                of_drawn = info_nce(query, columns[0], batch.vectors, reduction="none", **choice.of_drawn)
        control.add(batch_sums(result, (of_drawn.wins, of_drawn.pairs, of_drawn.hits)))
    return result._replace(loss=result.loss.mean())


def _in_one_pass(
    query: Tensor,
    positive: Tensor,
    batch: Candidates,
    choice: Choice,
    temperature: float | Tensor,
    control: StepControl | None,
    stats: bool,
) -> LossResult:
    """`batch_info_nce` by `one_pass_loss`; the positive is one of the candidates."""
    dtype = check_vectors(query, positive, batch.vectors)
    own = _places(batch.first, batch.rows, query.device)
    given = None
    if batch.columns > 1:
        given = own[:, None] + torch.arange(1, batch.columns, device=query.device) * batch.width
    autocasts = torch.is_autocast_enabled(query.device.type)
    with torch.autocast(query.device.type, enabled=False) if autocasts else nullcontext():
        scaled = query.to(dtype) / check_temperature(temperature, query, dtype)
        found = one_pass_loss(scaled, batch.vectors.to(dtype), own, choice.options.get("mask"), given)
    # The check waits for a GPU. There the control looks at the losses that it adds up, some steps later.
    if control is None or control.counted or query.device.type == "cpu":
        check_finite((found.loss,), {"query": query, "positive": positive, "candidates": batch.vectors})
    if control is not None:
        whole = found.of_drawn is found.counts and isinstance(found.counts.pairs, int)
        control.add_later(found[1:], _sums_of_whole if whole else _sums_of_rows)
    if not stats:
        return LossResult(found.mean)
    return LossResult(found.mean, *found.counts.by_row)


@lru_cache(maxsize=8)
def _places(first: int, rows: int, device: torch.device) -> Tensor:
    """The places of so many rows' own positives, (B,)."""
    return torch.arange(first, first + rows, device=device)


def gather_candidates(
    query: Tensor, columns: list[Tensor], ids: list[Tensor] | None, present: Tensor | None, gather: bool
) -> Candidates:
    """The candidates of this rank's rows, from this rank or from all."""
    if query.dim() != 2 or any(column.shape != query.shape for column in columns):
        shapes = [tuple(column.shape) for column in (query, *columns)]
        raise InputError(f"got vectors of shapes {shapes}; expected (rows, width), the same for all")
    rows, first, everywhere = len(query), 0, present
    if present is None and len(columns) > 1:
        present = torch.ones(rows, len(columns) - 1, dtype=torch.bool, device=query.device)
    if gather and distributed.world_size() > 1:
        first = distributed.row_offset(rows, query.device)
        columns = [distributed.gather(column) for column in columns]
        ids = None if ids is None else [distributed.gather(column) for column in ids]
        everywhere = None if everywhere is None else distributed.gather(everywhere.long()).bool()
    width = len(columns[0])
    excluded = None
    if ids is not None:
        own = ids[0][first : first + rows]
        excluded = torch.stack(ids) == own[:, None, None]
    if everywhere is not None:
        missing = torch.cat([torch.zeros_like(everywhere[:, :1]), ~everywhere], 1).t()[None]  # (1, C, W)
        excluded = missing.expand(rows, -1, -1) if excluded is None else excluded | missing
    vectors = columns[0] if len(columns) == 1 else torch.cat(columns)
    return Candidates(vectors, rows, first, len(columns), width, excluded, present)


def everything(batch: Candidates) -> Choice:
    """All candidates but a row's own positive and what it must not take."""
    if batch.columns == 1 and batch.excluded is None and batch.width == batch.rows:
        return Choice({}, None)  # the batch itself, which needs no mask
    others = None
    if batch.columns > 1 or batch.excluded is not None:
        others = ~batch.own_places().expand(-1, batch.columns, -1)
        others = others if batch.excluded is None else others & ~batch.excluded
    of_drawn = {"mask": others.flatten(1)} if batch.columns > 1 and others is not None else None
    if batch.excluded is None:
        places = torch.arange(len(batch.vectors), device=batch.vectors.device)
        return Choice({"ids": places, "positive_ids": places[batch.first : batch.first + batch.rows]}, of_drawn)
    assert others is not None
    if batch.present is not None:
        own = torch.arange(batch.first, batch.first + batch.rows, device=others.device)
        others[own - batch.first, 1:, own] = batch.present
        of_drawn = {"mask": (others & ~batch.own_places()).flatten(1)}
    return Choice({"mask": others.flatten(1)}, of_drawn)


def choose(batch: Candidates, control: StepControl, more: str) -> Choice:
    """K candidates of each row; as ids where K is small, else as a mask over one product with all of them.

    While ``torch.compile`` traces it is always the mask, whose shape does not depend on K.
    """
    device, compiling = batch.vectors.device, torch.compiler.is_compiling()
    control.check_running()
    if not compiling:
        say_what_is_missing(control, batch.available, batch.columns - 1, more)
        if control.k >= batch.available:
            control.count_rows(batch.rows)
            return everything(batch)
    counts, order = control.draws(batch.rows, batch.columns * (batch.width - 1), device)
    besides = control.draws_besides_given
    place = (batch.first, batch.columns, batch.width, batch.present)
    if batch.excluded is None and not compiling and control.k < GATHER_BELOW * len(batch.vectors):
        ids, mask = keep_ids(order, counts, max_count(control.k), *place, besides)
        options, given = {"ids": ids, "mask": mask}, torch.arange(ids.shape[1], device=device) < batch.columns - 1
    else:
        mask = keep_mask(order, counts, *place, batch.excluded, besides)
        options, given = {"mask": mask.flatten(1)}, None
    if batch.columns == 1:
        return Choice(options, None)
    drawn = mask & ~(batch.own_places() if given is None else given)
    return Choice(options, options | {"mask": drawn.flatten(1)})


@torch.no_grad()
def batch_sums(result: Any, of_drawn: tuple[Any, Any, Any], used: Tensor | None = None) -> Tensor:
    """The sums of a batch in the order of `COUNTS`; ``of_drawn`` are wins, pairs and hits (B,) over drawn ones.

    Rows that are not ``used`` (B,) are left out.
    """
    drawn_wins, drawn_pairs, hits = of_drawn
    queries = torch.ones_like(result.wins) if used is None else used.double()
    loss = result.loss.detach().double()
    parts = (
        result.wins,
        result.pairs,
        drawn_wins,
        drawn_pairs,
        hits,
        drawn_pairs > 0,
        queries,
        log_k1(result.pairs),
        loss if used is None else loss * queries,
    )
    return torch.stack([part.double() for part in parts]).sum(1)


@torch.no_grad()
def _sums_of_rows(batches: list[tuple[Tensor, Counts, Counts]]) -> Tensor:
    """`batch_sums` of batches, added up, from the losses and the counts of rows, of all negatives and of drawn ones."""
    losses, counts, drawn = zip(*batches, strict=True)
    of_all, of_drawn = (Counts.join(each) for each in (counts, drawn))
    return batch_sums(LossResult(torch.cat(losses), *of_all.by_row), of_drawn.by_row[:3])


@torch.no_grad()
def _sums_of_whole(batches: list[tuple[Tensor, Counts, Counts]]) -> Tensor:
    """`_sums_of_rows` where all rows of a batch have as many negatives, in fewer operations.

    A small batch on a GPU waits for the host, so that operations count.
    """
    total = batches[0][0].new_zeros(len(COUNTS), dtype=torch.float64)
    for pairs in {counts.pairs: None for _, counts, _ in batches}:
        alike = [(counts.balance, counts.above, loss) for loss, counts, _ in batches if counts.pairs == pairs]
        balance, above, loss = (torch.cat(parts) for parts in zip(*alike, strict=True))
        sums, places, shares, one = _sums_by_size(len(balance), pairs, balance.device)
        hits = (above == 0) / (balance + one)
        scored = torch.stack((balance, balance, hits, loss)).sum(1, dtype=torch.float64) * shares
        total += sums.index_add(0, places, scored)
    return total


@lru_cache(maxsize=8)
def _sums_by_size(rows: int, negatives: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For `_sums_of_whole`: the sums of `COUNTS` as far as they follow from the size of a batch, (9,) float64.

    Then the places of wins, drawn wins, hits and loss, what each has of balance, balance, hits and loss, and
    1 + ``negatives``.
    """
    pairs = {"wins": rows * negatives / 2, "pairs": rows * negatives}
    sums = {"queries": rows, "log_k1": rows * float(log_k1(torch.tensor(negatives))), "rows": rows if negatives else 0}
    sums |= pairs | {f"drawn_{name}": value for name, value in pairs.items()} | {"hits": 0, "loss": 0}
    shares = {"wins": -0.5, "drawn_wins": -0.5, "hits": 1.0 if negatives else 0.0, "loss": 1.0}

    def numbers(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=device)

    places = torch.tensor([COUNTS.index(name) for name in shares], device=device)
    return numbers([sums[name] for name in COUNTS]), places, numbers([*shares.values()]), numbers([1.0 + negatives])


def say_what_is_missing(control: StepControl, available: int, given: int, more: str) -> None:
    """Say once that the rule asks for more negatives than a row has, and that ``more`` gives more."""
    most = available - given if control.draws_besides_given else available
    if max_count(control.k) > most:
        control.say_once(
            "available",
            f"K is {control.k:.4g} at step {control.step}, and a row has {most} negatives to draw from: K is what "
            f"there is from here on. For more use {more}",
        )
