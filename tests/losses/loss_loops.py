"""The losses once more: in Python loops, in 40 digits, with nothing of the library in them."""

from __future__ import annotations

from collections.abc import Sequence

import mpmath
import pytest
import torch
from torch import Tensor

from negwise.losses import LossResult

mpmath.mp.dps = 40
Numbers = Sequence[float]


def info_nce_row(positive: float, negatives: Numbers, log_q: Numbers | None = None) -> mpmath.mpf:
    """-log(e^f+ / (e^f+ + sum_i e^f-_i)), eq. 1."""
    if not len(negatives):
        return mpmath.mpf(0)
    total = mpmath.mpf(0)
    for i, score in enumerate(negatives):
        corrected = mpmath.mpf(score)
        if log_q is not None:
            corrected -= mpmath.mpf(log_q[i]) + mpmath.log(len(negatives))
        total += mpmath.exp(corrected)
    above = mpmath.exp(mpmath.mpf(positive))
    return -mpmath.log(above / (above + total))


def bpr_row(positive: float, negatives: Numbers) -> mpmath.mpf:
    terms = [mpmath.log(1 / (1 + mpmath.exp(-(mpmath.mpf(positive) - n)))) for n in negatives]
    return -sum(terms, mpmath.mpf(0)) / len(terms) if terms else mpmath.mpf(0)


def gbce_row(positive: float, negatives: Numbers, catalogue: int, t: float) -> mpmath.mpf:
    if not len(negatives):
        return mpmath.mpf(0)
    alpha = mpmath.mpf(len(negatives)) / (catalogue - 1)
    beta = alpha * (mpmath.mpf(t) * (1 - 1 / alpha) + 1 / alpha)
    sigmoid = [1 / (1 + mpmath.exp(-mpmath.mpf(s))) for s in negatives]
    won = (1 / (1 + mpmath.exp(-mpmath.mpf(positive)))) ** beta
    return -(mpmath.log(won) + sum(mpmath.log(1 - s) for s in sigmoid)) / (len(negatives) + 1)


def bce_row(positive: float, negatives: Numbers) -> mpmath.mpf:
    if not len(negatives):
        return mpmath.mpf(0)
    loss = -mpmath.log(1 / (1 + mpmath.exp(-mpmath.mpf(positive))))
    for score in negatives:
        loss -= mpmath.log(1 - 1 / (1 + mpmath.exp(-mpmath.mpf(score))))
    return loss / (len(negatives) + 1)


def decoupled_row(positive: float, negatives: Numbers) -> mpmath.mpf:
    if not len(negatives):
        return mpmath.mpf(0)
    return -mpmath.log(mpmath.exp(mpmath.mpf(positive)) / sum(mpmath.exp(mpmath.mpf(n)) for n in negatives))


def debiased_row(positive: float, negatives: Numbers, tau_plus: float, min_score: float) -> mpmath.mpf:
    count = len(negatives)
    if not count:
        return mpmath.mpf(0)
    above = mpmath.exp(mpmath.mpf(positive))
    mean = sum(mpmath.exp(mpmath.mpf(n)) for n in negatives) / count
    g = max((mean - tau_plus * above) / (1 - mpmath.mpf(tau_plus)), mpmath.exp(mpmath.mpf(min_score)))
    return -mpmath.log(above / (above + count * g))


def wins(positive: float, negatives: Numbers) -> float:
    won = 0.0
    for score in negatives:
        won += 1.0 if score < positive else 0.5 if score == positive else 0.0
    return won


def hit(positive: float, negatives: Numbers) -> float:
    """The chance that the positive comes first, ties in random order; 0 without negatives."""
    if not len(negatives) or max(negatives) > positive:
        return 0.0
    return 1 / (1 + list(negatives).count(positive))


def dot(a: Tensor, b: Tensor) -> float:
    """In float64, term by term."""
    return sum(x * y for x, y in zip(a.double().tolist(), b.double().tolist(), strict=True))


def random_case(layout: str, rows: int, width: int, depth: int, dtype: torch.dtype, seed: int = 0) -> dict[str, Tensor]:
    """Arguments of `info_nce` for one place that negatives come from."""
    make = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=make, dtype=torch.float64).to(dtype)

    case = {"query": normal(rows, depth), "positive": normal(rows, depth)}
    if layout == "shared":
        case["negatives"] = normal(width, depth)
    elif layout == "rows":
        case["negatives"] = normal(rows, width, depth)
    elif layout == "table":
        case["negatives"] = normal(29, depth)
        case["ids"] = torch.randint(0, 29, (rows, width), generator=make)
    return case


def width_of(case: dict[str, Tensor]) -> int:
    if "ids" in case:
        return case["ids"].shape[1]
    if "negatives" not in case:
        return len(case["query"])
    return case["negatives"].shape[-2]


def seen_by(case: dict[str, Tensor], row: int, mask: Tensor | None = None) -> list[int]:
    """Which columns the row sees, by the words of the documentation."""
    columns = []
    for j in range(width_of(case)):
        if mask is not None and mask.dim() == 1 and j >= int(mask[row]):
            continue
        if mask is not None and mask.dim() == 2 and not bool(mask[row, j]):
            continue
        if "negatives" not in case and j == row:
            continue
        columns.append(j)
    return columns


def vector(case: dict[str, Tensor], row: int, column: int) -> Tensor:
    if "negatives" not in case:
        return case["positive"][column]
    if "ids" in case:
        return case["negatives"][int(case["ids"][row, column])]
    negatives = case["negatives"]
    return negatives[row, column] if negatives.dim() == 3 else negatives[column]


def as_in_loops(
    got: LossResult, case: dict[str, Tensor], mask: Tensor | None, temperature: float, log_q: Tensor | None = None
) -> None:
    """Loss, wins, pairs and hits of every row are those of the paper, one negative after the other."""
    assert got.wins is not None and got.pairs is not None
    for b in range(len(case["query"])):
        seen = seen_by(case, b, mask)
        positive = dot(case["query"][b], case["positive"][b]) / temperature
        negatives = [dot(case["query"][b], vector(case, b, j)) / temperature for j in seen]
        q = None if log_q is None else [float(log_q[j] if log_q.dim() == 1 else log_q[b, j]) for j in seen]
        assert float(got.loss[b]) == pytest.approx(float(info_nce_row(positive, negatives, q)), rel=2e-6, abs=1e-6)
        assert float(got.wins[b]) == wins(positive, negatives)
        assert int(got.pairs[b]) == len(seen)
        assert got.hits is not None and float(got.hits[b]) == hit(positive, negatives)
        assert got.rows is not None and int(got.rows[b]) == (len(seen) > 0)
