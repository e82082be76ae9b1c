"""From the arguments of a loss to the layout of its negatives and their mask, or to plain scores.

Shapes: B rows, K negatives per row, M rows of a shared set or a table, D width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from negwise.errors import InputError
from negwise.losses import reference
from negwise.losses.checks import check_temperature, check_tensors, check_vectors
from negwise.losses.layout import DrawnKeys, Layout, PerRowKeys, SharedKeys, TableKeys
from negwise.losses.masking import ALL, INTEGERS, Masking, make_masking
from negwise.protocols import Draw


class PairScores(NamedTuple):
    """The arguments of the losses on scores, in their order: ``bpr(*scores(query, positive, negatives))``."""

    positive: Tensor  # (B,)
    negatives: Tensor  # (B, K)
    mask: Tensor | None  # (B, K) of bool


def scores(
    query: Tensor,
    positive: Tensor,
    negatives: Tensor | None = None,
    *,
    ids: Tensor | Draw | None = None,
    mask: Tensor | None = None,
    positive_ids: Tensor | None = None,
    temperature: float | Tensor = 1.0,
) -> PairScores:
    """Dot products divided by ``temperature``, for the losses that take scores. The arguments are those of `info_nce`.

    >>> scores(torch.eye(2), torch.eye(2)).mask  # in-batch negatives: a row's own positive is masked
    tensor([[False,  True],
            [ True, False]])
    """
    id_tensor = None if isinstance(ids, Draw) else ids
    check_tensors({"ids": id_tensor, "mask": mask, "positive_ids": positive_ids})
    dtype = check_vectors(query, positive, negatives)
    ids, mask = resolve_draw(query, negatives, ids, mask)
    layout, masking = arrange(query, positive, negatives, ids, mask, None, positive_ids, dtype)
    with torch.autocast(query.device.type, enabled=False):
        scaled = query.to(dtype) / check_temperature(temperature, query, dtype)
        return PairScores(
            positive=(scaled * positive.to(dtype)).sum(1),
            negatives=reference.negative_scores(scaled, layout, masking),
            mask=masking.allowed(ALL, ALL),
        )


def resolve_draw(
    query: Tensor, negatives: Tensor | None, ids: Tensor | Draw | None, mask: Tensor | None, log_q: Tensor | None = None
) -> tuple[Tensor | None, Tensor | None]:
    """``ids`` and ``mask``, drawn first if ``ids`` is a `Draw`."""
    if not isinstance(ids, Draw):
        return ids, mask
    _check_draw(ids, query, negatives, mask, log_q)
    return _draw_ids(ids)


def arrange_draw(
    query: Tensor,
    negatives: Tensor | None,
    draw: Draw,
    mask: Tensor | None,
    log_q: Tensor | None,
    positive_ids: Tensor | None,
    dtype: torch.dtype,
) -> tuple[DrawnKeys, Masking]:
    """`arrange` for kernels that draw the ids themselves. Everything but values is checked."""
    table = _check_draw(draw, query, negatives, mask, log_q)
    _check_positive_ids(positive_ids, query)
    like = query.new_empty(0, dtype=dtype)
    masking = make_masking(draw.rows, draw.width, like, mask=draw.counts, row_ids=positive_ids, check_values=False)
    return DrawnKeys(table, draw), masking


def arrange(
    query: Tensor,
    positive: Tensor,
    negatives: Tensor | None,
    ids: Tensor | None,
    mask: Tensor | None,
    log_q: Tensor | None,
    positive_ids: Tensor | None,
    dtype: torch.dtype,
    check_values: bool = True,
) -> tuple[Layout, Masking]:
    """The layout of the negatives and their masking, all checked; with ``check_values=False`` all but the values.

    No value is read while ``torch.compile`` traces: each would end a graph, or make a new one for each K.
    """
    compiling = torch.compiler.is_compiling()
    check_values = check_values and not compiling
    rows, depth = query.shape
    like = query.new_empty(0, dtype=dtype)
    _check_ids("ids", ids, query)
    _check_positive_ids(positive_ids, query)
    if negatives is None:
        if ids is not None:
            raise InputError("ids came without negatives; pass the ids of the batch as positive_ids")
        row_ids = torch.arange(rows, device=query.device) if positive_ids is None else positive_ids
        masking = make_masking(
            rows,
            rows,
            like,
            mask=mask,
            row_ids=row_ids,
            key_ids=row_ids,
            log_q=log_q,
            exclude_diagonal=positive_ids is None,
            check_values=check_values,
        )
        return SharedKeys(positive), masking
    if negatives.dim() not in (2, 3) or negatives.shape[-1] != depth:
        raise InputError(
            f"negatives has shape {tuple(negatives.shape)}; expected width {depth} as in query: shared (M, {depth}), a "
            f"table (M, {depth}) with ids ({rows}, K), or per row ({rows}, K, {depth})"
        )
    if negatives.dim() == 3:
        if len(negatives) != rows:
            raise InputError(f"negatives has {len(negatives)} rows, query {rows}; expected ({rows}, K, {depth})")
        _check_negative_ids(ids, negatives.shape[:2], positive_ids)
        masking = make_masking(
            rows,
            negatives.shape[1],
            like,
            mask=mask,
            row_ids=positive_ids,
            key_ids=ids,
            log_q=log_q,
            check_values=check_values,
        )
        return PerRowKeys(negatives), masking
    if ids is None or ids.dim() == 1:
        _check_negative_ids(ids, negatives.shape[:1], positive_ids)
        masking = make_masking(
            rows,
            len(negatives),
            like,
            mask=mask,
            row_ids=positive_ids,
            key_ids=ids,
            log_q=log_q,
            check_values=check_values,
        )
        return SharedKeys(negatives), masking
    if ids.shape[0] != rows or ids.dim() != 2:
        raise InputError(f"ids has shape {tuple(ids.shape)}; expected ({rows}, K), rows x negatives, for a table")
    masking = make_masking(
        rows, ids.shape[1], like, mask=mask, row_ids=positive_ids, key_ids=ids, log_q=log_q, check_values=check_values
    )
    if check_values:
        ids = _table_ids(ids, masking, len(negatives))
    elif compiling:  # masked ids may hold any value, and the reference looks them up
        allowed = masking.allowed(ALL, ALL)
        ids = ids.long() if allowed is None else ids.long().masked_fill(~allowed, 0)
    return TableKeys(negatives, ids), masking


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _draw_ids(draw: Draw) -> tuple[Tensor, Tensor]:
    drawn = draw.negatives()
    return drawn.ids, drawn.mask


def _check_ids(name: str, ids: Tensor | None, query: Tensor) -> None:
    if ids is None:
        return
    if ids.dtype not in INTEGERS:
        raise InputError(f"{name} has dtype {ids.dtype}; expected integers: {name}.long()")
    if ids.device != query.device:
        raise InputError(f"{name} is on {ids.device}, query on {query.device}: {name}.to({str(query.device)!r})")


def _check_positive_ids(positive_ids: Tensor | None, query: Tensor) -> None:
    _check_ids("positive_ids", positive_ids, query)
    if positive_ids is not None and positive_ids.shape != query.shape[:1]:
        raise InputError(f"positive_ids has shape {tuple(positive_ids.shape)}; expected one per row, ({len(query)},)")


def _check_draw(
    draw: Draw, query: Tensor, negatives: Tensor | None, mask: Tensor | None, log_q: Tensor | None
) -> Tensor:
    """The table (M, D), checked to have a row for each id of the draw."""
    rows, depth = query.shape
    expected = f"a table ({draw.n_items} or more, {depth}), a row for each id of the draw"
    if negatives is None:
        raise InputError(f"ids is a Draw, and negatives are missing; expected {expected}")
    if negatives.dim() != 2 or negatives.shape[1] != depth or len(negatives) < draw.n_items:
        raise InputError(f"ids is a Draw, and negatives has shape {tuple(negatives.shape)}; expected {expected}")
    if draw.rows != rows:
        raise InputError(f"ids is a Draw of {draw.rows} rows, query has {rows}; expected a plan for the same rows")
    if draw.device != query.device:
        raise InputError(f"ids is a Draw on {draw.device}, query on {query.device}: draw.to({str(query.device)!r})")
    for name, value in (("mask", mask), ("log_q", log_q)):
        if value is not None:
            raise InputError(
                f"{name} came with a Draw as ids; a Draw has its own mask and no log_q. Leave out {name}, or draw "
                "first: neg = draw.negatives(), then ids=neg.ids, mask=neg.mask, log_q=neg.log_q"
            )
    return negatives


def _check_negative_ids(ids: Tensor | None, shape: torch.Size, positive_ids: Tensor | None) -> None:
    """Check that ids of negatives and of positives come together. One without the other would have no effect."""
    if ids is not None and ids.shape != shape:
        raise InputError(f"ids has shape {tuple(ids.shape)}; expected an id for each negative, {tuple(shape)}")
    if (ids is None) != (positive_ids is None):
        given, missing = ("ids", "positive_ids") if positive_ids is None else ("positive_ids", "ids")
        raise InputError(
            f"{given} came without {missing}; to mask negatives that are the row's positive, both need ids. "
            f"Pass {missing} too, or leave out {given}"
        )


def _table_ids(ids: Tensor, masking: Masking, size: int) -> Tensor:
    """The ids to look up, as int64. Masked ids become 0, the others must be in the table."""
    used = ids[:, : masking.width].to(torch.int64)
    allowed = masking.allowed(ALL, ALL)
    if allowed is not None:
        used = used.masked_fill(~allowed, 0)
    outside = (used < 0) | (used >= size)
    if allowed is not None:
        outside &= allowed
    if bool(outside.any()):
        row, col = outside.nonzero()[0].tolist()
        expected = f"0..{size - 1}, a row of the table" if size else "no id at all, since the table has no rows"
        raise InputError(f"ids[{row}, {col}] is {int(used[row, col])}; expected {expected}, or False in the mask")
    return used
