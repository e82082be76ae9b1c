"""The parts that the kernels share: a softmax that grows as keys come, and its end.

With ``t_j = q . k_j`` (less ``T log q_j`` where the sampler is corrected for), ``t+ = q . k+`` and ``c = log2(e) / T``,
eq. 1 is ``log(1 + sum_j 2^(c (t_j - t+)))``. A pass keeps

    top = max(t+, max_j t_j),  total = sum_j 2^(c (t_j - top)),  pull = sum_j 2^(c (t_j - top)) key_j

and parts of a row merge by their tops. Scores are subtracted before they are scaled: what is near the top, and so
matters, then loses nothing.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def inverse(temperatures, temperature, rows, inside, STEP: tl.constexpr):
    """1 / temperature of each row, NaN where it is not a finite number above 0."""
    if temperatures is None:
        value = tl.zeros_like(rows).to(tl.float32) + temperature
    else:
        value = tl.load(temperatures + rows * STEP, mask=inside, other=1.0).to(tl.float32)
    return tl.where((value > 0) & (value < float("inf")), 1.0 / value, float("nan"))


@triton.jit
def log1p(x):
    """``2 artanh(x / (2 + x))`` by its series up to 1, where the logarithm of 1 + x would cancel; x >= 0."""
    z = tl.minimum(x, 1.0) / (2.0 + tl.minimum(x, 1.0))
    w = z * z
    series = 1.0 + w * (
        1.0 / 3 + w * (1.0 / 5 + w * (1.0 / 7 + w * (1.0 / 9 + w * (1.0 / 11 + w * (1.0 / 13 + w * (1.0 / 15))))))
    )
    return tl.where(x <= 1.0, 2.0 * z * series, tl.log(1.0 + x))


@triton.jit(do_not_specialize=["B", "S"])
def settle(
    positive, temperatures, temperature, parts, pulls, units, loss, wins, pairs, kept, notes, B, S,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr, CHUNK: tl.constexpr,
    STEP: tl.constexpr, CORRECTED: tl.constexpr, PULL: tl.constexpr,
):  # fmt: skip
    """Merge the S parts of row b; its loss, and what the backward pass needs.

    ``parts`` (7, S, B): top; total; the same of powers as they were rounded to be multiplied, which is what the pull
    has to be held against; negatives above the positive; negatives seen; NaN where something is wrong; t+.
    ``pulls`` (S, B, D). ``units`` (B, D): d loss / d query, maybe in place of their first part. ``kept`` (3, B): top;
    ``factor``, the share of key j being ``2^(c (t_j - top)) factor``; the sum of all shares.
    """
    b = tl.program_id(0).to(tl.int64)
    size = S.to(tl.int64) * B
    s = tl.arange(0, BLOCK_S)
    here = s < S
    at = parts + s.to(tl.int64) * B + b
    tops = tl.load(at, mask=here, other=float("-inf"))
    top = tl.max(tops, 0)
    inv = inverse(temperatures, temperature, b, b >= 0, STEP)
    c = inv * LOG2E
    shrink = tl.exp2(c * (tops - top))
    total = tl.sum(tl.load(at + size, mask=here, other=0.0) * shrink, 0)
    weighed = tl.sum(tl.load(at + 2 * size, mask=here, other=0.0) * shrink, 0)
    beaten = tl.sum(tl.load(at + 3 * size, mask=here, other=0.0), 0)
    seen = tl.sum(tl.load(at + 4 * size, mask=here, other=0.0), 0)
    raw = tl.load(parts + 6 * size + b)
    poison = tl.sum(tl.load(at + 5 * size, mask=here, other=0.0), 0) + raw * 0
    scale = 1.0
    if CORRECTED:
        scale = 1.0 / tl.maximum(seen, 1.0)
    sums = total * scale
    norm = tl.exp2(c * (raw - top)) + sums
    value = tl.where(top == raw, log1p(sums), inv * (top - raw) + tl.log(norm)) + poison
    factor = scale / norm + poison
    share = sums / norm + poison
    if PULL:
        d = tl.arange(0, BLOCK_D)
        width = d < D
        pull = tl.zeros((BLOCK_D,), tl.float32)
        for start in range(0, S, CHUNK):
            part = start + tl.arange(0, CHUNK).to(tl.int64)
            moved = tl.load(parts + part * B + b, mask=part < S, other=float("-inf"))
            moved = tl.exp2(c * (moved - top))
            tile = pulls + (part * B + b)[:, None] * D + d[None, :]
            tile = tl.load(tile, mask=(part < S)[:, None] & width[None, :], other=0.0)
            pull += tl.sum(tile * moved[:, None], 0)
        own = tl.load(positive + b * D + d, mask=width, other=0.0).to(tl.float32)
        unit = inv * factor * (pull - weighed * own)
        value += tl.sum(unit * 0, 0)
        tl.store(units + b * D + d, unit, mask=width)
    tl.store(loss + b, value)
    tl.store(wins + b, (seen - beaten).to(tl.float64))
    tl.store(pairs + b, seen.to(tl.int64))
    tl.store(kept + b, top)
    tl.store(kept + B.to(tl.int64) + b, factor)
    tl.store(kept + 2 * B.to(tl.int64) + b, share)
    bad = (value != value) | (tl.abs(value) == float("inf"))
    tl.store(notes + 1, b, mask=bad)
    tl.store(notes, 1, mask=bad)


@triton.jit(do_not_specialize=["B"])
def turn(
    query, units, grad, kept, temperatures, temperature, for_query, for_positive, rates, B,
    D: tl.constexpr, BLOCK_D: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Row b's gradients by query and positive; ``rates`` (B,): what a key's share of the row is multiplied by."""
    b = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK_D)
    width = d < D
    g = tl.load(grad + b).to(tl.float32)
    inv = inverse(temperatures, temperature, b, b >= 0, STEP)
    if for_query is not None:
        unit = tl.load(units + b * D + d, mask=width, other=0.0)
        tl.store(for_query + b * D + d, (g * unit).to(for_query.dtype.element_ty), mask=width)
    if for_positive is not None:
        share = tl.load(kept + 2 * B.to(tl.int64) + b)
        own = tl.load(query + b * D + d, mask=width, other=0.0).to(tl.float32)
        tl.store(for_positive + b * D + d, (-g * share * inv * own).to(for_positive.dtype.element_ty), mask=width)
    if rates is not None:
        tl.store(rates + b, g * inv * tl.load(kept + B.to(tl.int64) + b))
