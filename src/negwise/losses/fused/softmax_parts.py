"""The online softmax that all kernels share: merging the parts of each row, and scaling gradients.

With ``t_j = q . k_j`` (less ``T log q_j`` if corrected by ``log_q``), ``t+ = q . k+`` and ``c = log2(e) / T``, eq. 1 is
``log(1 + sum_j 2^(c (t_j - t+)))``. A pass keeps

    top = max(t+, max_j t_j),  total = sum_j 2^(c (t_j - top)),  acc = sum_j 2^(c (t_j - top)) key_j

and the parts of a row merge by their tops. Scores are subtracted before they are scaled, so that scores near the top,
which matter most, lose no precision.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from negwise.losses.fused import deferred_errors
from negwise.losses.fused.arguments import Temperature, next_power_of_two

LOG2E = tl.constexpr(1.4426950408889634)


class ForwardResult(NamedTuple):
    """The results of a forward pass."""

    loss: Tensor  # (B,) float32
    wins: Tensor  # (B,) float64
    pairs: Tensor  # (B,) int64
    hits: Tensor  # (B,) float64
    saved: Tensor  # (3, B): see `merge_kernel`
    unit_grads: Tensor | None  # (B, D): d loss / d query


def merge_parts(
    positive: Tensor, temperature: Temperature, parts: Tensor, accs: Tensor | None, corrected: bool
) -> ForwardResult:
    """Merge ``parts`` (8, S, B) and ``accs`` (S, B, D)."""
    rows, depth = positive.shape
    splits = parts.shape[1]
    loss, saved = parts.new_empty(rows), parts.new_empty(3, rows)
    wins, hits = parts.new_empty(2, rows, dtype=torch.float64)
    pairs = parts.new_empty(rows, dtype=torch.int64)
    block_d = next_power_of_two(depth)
    unit_grads = accs
    if accs is not None:  # a single part is overwritten; several are freed after the merge
        unit_grads = accs[0] if splits == 1 else parts.new_empty(rows, depth)
    merge_kernel[(rows,)](
        positive, temperature.tensor, temperature.number, parts, accs, unit_grads, loss, wins, pairs, hits, saved,
        deferred_errors.error_slots(positive.device), rows, splits,
        D=depth, BLOCK_D=block_d, BLOCK_S=next_power_of_two(splits), CHUNK=min(8, next_power_of_two(splits)),
        STRIDE=temperature.stride, CORRECTED=corrected, QUERY_GRAD=accs is not None,
        num_warps=max(1, min(4, block_d // 128)),
    )  # fmt: skip
    return ForwardResult(loss, wins, pairs, hits, saved, unit_grads)


def scale_gradients(
    query: Tensor, grad: Tensor, saved: Tensor, unit_grads: Tensor | None, temperature: Temperature,
    for_query: torch.dtype | None, for_positive: torch.dtype | None, for_keys: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """The gradients of query and positive in the given dtypes, and the rates for the keys; None if not needed."""
    rows, depth = query.shape
    ours = None if for_query is None else torch.empty_like(query, dtype=for_query)
    theirs = None if for_positive is None else torch.empty_like(query, dtype=for_positive)
    rates = saved.new_empty(rows) if for_keys else None
    block_d = next_power_of_two(depth)
    scale_gradients_kernel[(rows,)](
        query, unit_grads, grad, saved, temperature.tensor, temperature.number, ours, theirs, rates, rows,
        D=depth, BLOCK_D=block_d, STRIDE=temperature.stride, num_warps=max(1, min(4, block_d // 128)),
    )  # fmt: skip
    return ours, theirs, rates


@triton.jit
def inverse(temperatures, temperature, rows, inside, STRIDE: tl.constexpr):
    """1 / temperature of each row; NaN if the temperature is not a finite number above 0."""
    if temperatures is None:
        value = tl.zeros_like(rows).to(tl.float32) + temperature
    else:
        value = tl.load(temperatures + rows * STRIDE, mask=inside, other=1.0).to(tl.float32)
    return tl.where((value > 0) & (value < float("inf")), 1.0 / value, float("nan"))


@triton.jit
def log1p(x):
    """``log(1 + x)`` for x >= 0. Up to 1 it is the series of ``2 artanh(x / (2 + x))``, which does not cancel."""
    z = tl.minimum(x, 1.0) / (2.0 + tl.minimum(x, 1.0))
    w = z * z
    series = 1.0 + w * (
        1.0 / 3 + w * (1.0 / 5 + w * (1.0 / 7 + w * (1.0 / 9 + w * (1.0 / 11 + w * (1.0 / 13 + w * (1.0 / 15))))))
    )
    return tl.where(x <= 1.0, 2.0 * z * series, tl.log(1.0 + x))


@triton.jit(do_not_specialize=["B", "S"])
def merge_kernel(
    positive, temperatures, temperature, parts, accs, unit_grads, loss, wins, pairs, hits, saved, errors, B, S,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr, CHUNK: tl.constexpr,
    STRIDE: tl.constexpr, CORRECTED: tl.constexpr, QUERY_GRAD: tl.constexpr,
):  # fmt: skip
    """Merge the S parts of row b into its loss and what the backward pass needs.

    ``parts`` (8, S, B): top; total; the total of the rounded powers that ``acc`` was computed with; negatives above the
    positive, ties as a half; number of negatives; NaN after an error, else 0; t+; the largest score, t+ among them,
    without correction. ``accs`` (S, B, D). ``unit_grads`` (B, D): d loss /
    d query, possibly in the memory of the first part. ``saved`` (3, B): top; ``factor``, such that the share of key j
    is ``2^(c (t_j - top)) factor``; the sum of all shares.
    """
    b = tl.program_id(0).to(tl.int64)
    size = S.to(tl.int64) * B
    s = tl.arange(0, BLOCK_S)
    here = s < S
    at = parts + s.to(tl.int64) * B + b
    tops = tl.load(at, mask=here, other=float("-inf"))
    top = tl.max(tops, 0)
    inv = inverse(temperatures, temperature, b, b >= 0, STRIDE)
    c = inv * LOG2E
    rescale = tl.exp2(c * (tops - top))
    total = tl.sum(tl.load(at + size, mask=here, other=0.0) * rescale, 0)
    rounded_total = tl.sum(tl.load(at + 2 * size, mask=here, other=0.0) * rescale, 0)
    n_above = tl.sum(tl.load(at + 3 * size, mask=here, other=0.0), 0)
    n_pairs = tl.sum(tl.load(at + 4 * size, mask=here, other=0.0), 0)
    pos_score = tl.load(parts + 6 * size + b)
    best = tl.max(tl.load(at + 7 * size, mask=here, other=float("-inf")), 0)
    poison = tl.sum(tl.load(at + 5 * size, mask=here, other=0.0), 0) + pos_score * 0
    scale = 1.0
    if CORRECTED:
        scale = 1.0 / tl.maximum(n_pairs, 1.0)
    sums = total * scale
    norm = tl.exp2(c * (pos_score - top)) + sums
    value = tl.where(top == pos_score, log1p(sums), inv * (top - pos_score) + tl.log(norm)) + poison
    factor = scale / norm + poison
    share = sums / norm + poison
    if QUERY_GRAD:
        d = tl.arange(0, BLOCK_D)
        width = d < D
        acc = tl.zeros((BLOCK_D,), tl.float32)
        for start in range(0, S, CHUNK):
            part = start + tl.arange(0, CHUNK).to(tl.int64)
            factors = tl.load(parts + part * B + b, mask=part < S, other=float("-inf"))
            factors = tl.exp2(c * (factors - top))
            tile = accs + (part * B + b)[:, None] * D + d[None, :]
            tile = tl.load(tile, mask=(part < S)[:, None] & width[None, :], other=0.0)
            acc += tl.sum(tile * factors[:, None], 0)
        own = tl.load(positive + b * D + d, mask=width, other=0.0).to(tl.float32)
        unit_grad = inv * factor * (acc - rounded_total * own)
        value += tl.sum(unit_grad * 0, 0)
        tl.store(unit_grads + b * D + d, unit_grad, mask=width)
    tl.store(loss + b, value)
    tl.store(wins + b, (n_pairs - n_above).to(tl.float64))
    tl.store(pairs + b, n_pairs.to(tl.int64))
    # Where none is above the positive, n_above counts ties alone, as a half each.
    first = (best <= pos_score) & (n_pairs > 0)
    tl.store(hits + b, tl.where(first, 1.0 / (1.0 + 2.0 * n_above.to(tl.float64)), 0.0))
    tl.store(saved + b, top)
    tl.store(saved + B.to(tl.int64) + b, factor)
    tl.store(saved + 2 * B.to(tl.int64) + b, share)
    bad = (value != value) | (tl.abs(value) == float("inf"))
    tl.store(errors + 1, b, mask=bad)
    tl.store(errors, 1, mask=bad)


@triton.jit(do_not_specialize=["B"])
def scale_gradients_kernel(
    query, unit_grads, grad, saved, temperatures, temperature, for_query, for_positive, rates, B,
    D: tl.constexpr, BLOCK_D: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    """The gradients of query and positive of row b. ``rates`` (B,): the factor of a key's share of the row."""
    b = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK_D)
    width = d < D
    g = tl.load(grad + b).to(tl.float32)
    inv = inverse(temperatures, temperature, b, b >= 0, STRIDE)
    if for_query is not None:
        unit_grad = tl.load(unit_grads + b * D + d, mask=width, other=0.0)
        tl.store(for_query + b * D + d, (g * unit_grad).to(for_query.dtype.element_ty), mask=width)
    if for_positive is not None:
        share = tl.load(saved + 2 * B.to(tl.int64) + b)
        own = tl.load(query + b * D + d, mask=width, other=0.0).to(tl.float32)
        tl.store(for_positive + b * D + d, (-g * share * inv * own).to(for_positive.dtype.element_ty), mask=width)
    if rates is not None:
        tl.store(rates + b, g * inv * tl.load(saved + B.to(tl.int64) + b))
