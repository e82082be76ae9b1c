"""The InfoNCE loss (eq. 1): one door, several implementations.

==============  ==============================================  ===================================================
impl            memory beside inputs and gradients              supports
==============  ==============================================  ===================================================
``reference``   every score, several times over                 double backward, ``torch.compile``, ``torch.func.grad``
``streamed``    a few MB, whatever K                            first derivatives; ``torch.compile`` steps around it
``fused``       (B, D), and (B, K) ids for a table's gradient   the same, on CUDA with Triton, in float32 at most
``tallied``     (B, D), and (B, M) counts                       the same, for ids into a small table, in half precision
``auto``        ``fused`` or ``tallied`` on CUDA, else ``streamed``, unless `which_impl` says why not
==============  ==============================================  ===================================================

The kernels, ``fused`` and ``tallied``, do not wait for the GPU, so they cannot look at values before they compute.
What is wrong with them (a NaN, an id outside the table) makes the loss of that row NaN at once, and is named late: by
the next call of `info_nce` on the GPU or of its backward pass, or by ``negwise.losses.raise_late()`` once the GPU is
done. ``tallied`` may make rows beside it NaN, too, where a vector of the table is not finite. The others name it before
they return; compiled by ``torch.compile`` they cannot look either, and a NaN stays one.

Shapes: B rows (queries), K negatives per row, M rows of a shared set or a table, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from negwise.errors import InputError
from negwise.losses import fused, reference, streamed
from negwise.losses.checks import (
    check_scores,
    check_vectors,
    compute_dtype,
    name_the_bad,
    only_tensors,
    same_device,
    temperature_like,
)
from negwise.losses.layout import Drawn, Keys, Layout, Tallied
from negwise.losses.negatives import arrange, arrange_drawn, filled
from negwise.losses.result import LossResult, Rows, check_reduction, finish
from negwise.losses.visible import Visible, visible
from negwise.protocols import Draw

PLAIN: dict[str, Callable[[Tensor, Tensor, Layout, Visible, bool], Rows]] = {
    "reference": reference.rows,
    "streamed": torch.compiler.disable(streamed.rows),  # type: ignore[no-untyped-call]
}
KERNELS = ("fused", "tallied")
IMPLEMENTATIONS = (*PLAIN, *KERNELS)


MANY = 2**19
"""Numbers in memory from which on streaming is faster (measured on a CPU, where the cache ends) and saves memory."""


class Choice(NamedTuple):
    """An implementation and the reason for it."""

    impl: str
    why: str


def info_nce(
    query: Tensor,
    positive: Tensor,
    negatives: Tensor | None = None,
    *,
    ids: Tensor | Draw | None = None,
    mask: Tensor | None = None,
    log_q: Tensor | None = None,
    positive_ids: Tensor | None = None,
    temperature: float | Tensor = 1.0,
    weight: Tensor | None = None,
    reduction: str = "mean",
    stats: bool = True,
    impl: str = "auto",
) -> LossResult:
    """``-log(e^f(x+) / (e^f(x+) + sum_i e^f(x-_i)))`` with ``f = query . x / temperature`` (eq. 1).

    The plain lines it equals, for shared negatives::

        logits = torch.cat([(query * positive).sum(1, keepdim=True), query @ negatives.T], 1) / temperature
        loss = F.cross_entropy(logits, torch.zeros(len(query), dtype=torch.long))

    ``query`` and ``positive`` are (B, D). ``negatives`` and ``ids`` say where the negatives come from:

    - (M, D): shared by all rows. ``ids`` (M,) may name them for ``positive_ids``.
    - (M, D) with ``ids`` (B, K): a table, row b sees ``negatives[ids[b]]``.
    - (M, D) with a `Draw` as ``ids``, from a sampler's ``plan``: the same for the ids and the mask that it stands for.
      ``fused`` draws them while it looks them up, so that for a frozen table no (B, K) tensor exists.
    - (B, K, D): per row. ``ids`` (B, K) may name them for ``positive_ids``.
    - None: the other rows' positives. A row never sees its own, nor, with ``positive_ids``, its like.

    ``mask`` is bool (B, K), True where the negative is real; or integers (B,), row b sees the first
    ``mask[b]`` negatives, which costs no mask at all (floor or ceil of a real-valued K over a shared set). What is
    masked is not looked at: any id, any value. A row without negatives has loss 0, no pairs and no gradient.

    ``positive_ids`` (B,): a negative with the id of the row's positive is masked.

    ``log_q``, (B, K) or, for shared negatives, (M,): the log-probability with which the sampler draws that negative in
    one draw, given the row. Then ``f(x-_i)`` becomes ``f(x-_i) - log_q_i - log K_b`` in the sum, K_b being the row's
    number of negatives, so that the sum is the importance-sampling estimate of the sum over everything the
    sampler could have drawn. The positive's term is not corrected: it is there with certainty, not by a draw.
    The win rate is of the scores as they are. `mi_bound` refuses such a loss.

    ``temperature``: a number, or a tensor (one, or one per row) that may want a gradient.

    ``weight`` (B,), not negative; ``reduction``: ``mean`` is ``sum(w * loss) / sum(w)`` over all rows, those without
    negatives included; ``sum``; ``none`` gives (B,). Scores are computed in float32 for half precision inputs, which
    may be mixed with float32 (a queue kept in bfloat16, say), under autocast too; the loss is then float32.

    ``stats=False`` leaves the win rate out. ``impl``: see `which_impl`; ``result.impl`` says what was used.

    >>> loss, win_rate = info_nce(torch.eye(2), torch.eye(2), torch.zeros(3, 2))
    >>> round(float(loss), 4), float(win_rate)  # log(1 + 3 / e), and each positive wins each pair
    (0.7437, 1.0)
    """
    listed = None if isinstance(ids, Draw) else ids
    only_tensors({"ids": listed, "mask": mask, "log_q": log_q, "positive_ids": positive_ids, "weight": weight})
    dtype = check_vectors(query, positive, negatives)
    chosen, layout, seen = _plan(impl, query, positive, negatives, ids, mask, log_q, positive_ids, dtype)
    why = "log_q corrects its negatives" if log_q is not None else ""
    if isinstance(layout, Drawn | Tallied) or chosen.impl in KERNELS:
        temperature_like(temperature, query, dtype, look=False)
        rows = fused.rows(query, positive, temperature, layout, seen, stats)
        weight = check_reduction(reduction, weight, rows.loss, look=False)
        return finish(rows, weight, reduction, chosen.impl, why)
    with torch.autocast(query.device.type, enabled=False):
        scaled = query.to(dtype) / temperature_like(temperature, query, dtype)
        score = (scaled * positive.to(dtype)).sum(1)
        weight = check_reduction(reduction, weight, score)
        rows = PLAIN[chosen.impl](scaled, score, layout, seen, stats)
    vectors = {"query": query, "positive": positive, "negatives": negatives, "log_q": log_q}
    name_the_bad((score, rows.loss), vectors)
    return finish(rows, weight, reduction, chosen.impl, why)


def info_nce_scores(
    positive: Tensor,
    negatives: Tensor,
    mask: Tensor | None = None,
    *,
    log_q: Tensor | None = None,
    temperature: float | Tensor = 1.0,
    weight: Tensor | None = None,
    reduction: str = "mean",
    stats: bool = True,
) -> LossResult:
    """Eq. 1 from scores that something else computed, a cross-encoder say: ``positive`` (B,), ``negatives`` (B, K).

    The scores are divided by ``temperature``; the other arguments are those of `info_nce`.

    >>> loss, win_rate = info_nce_scores(torch.tensor([1.0]), torch.tensor([[0.0, 2.0]]))
    >>> round(float(loss), 4), float(win_rate)
    (1.4076, 0.5)
    """
    only_tensors({"mask": mask, "log_q": log_q, "weight": weight})
    given = {"positive": positive, "negatives": negatives}
    dtype = compute_dtype(given)
    same_device(given)
    check_scores(positive, negatives)
    like = positive.to(dtype)
    seen = visible(negatives.shape[0], negatives.shape[1], like, mask=mask, log_q=log_q)
    temperature = temperature_like(temperature, like, dtype)
    weight = check_reduction(reduction, weight, like)
    scores = negatives[:, : seen.width].to(dtype) / (
        temperature[:, None] if isinstance(temperature, Tensor) and temperature.dim() else temperature
    )
    rows = reference.score_rows(like / temperature, scores, seen, stats)
    name_the_bad((rows.loss,), given | {"log_q": log_q})
    return finish(rows, weight, reduction, "reference", why="log_q corrects its negatives" if log_q is not None else "")


def which_impl(
    query: Tensor,
    positive: Tensor,
    negatives: Tensor | None = None,
    *,
    ids: Tensor | Draw | None = None,
    mask: Tensor | None = None,
    log_q: Tensor | None = None,
    positive_ids: Tensor | None = None,
    impl: str = "auto",
) -> Choice:
    """Which implementation `info_nce` takes for these tensors, and why.

    >>> which_impl(torch.zeros(2, 8), torch.zeros(2, 8), torch.zeros(100_000, 8)).impl
    'streamed'
    """
    listed = None if isinstance(ids, Draw) else ids
    only_tensors({"ids": listed, "mask": mask, "log_q": log_q, "positive_ids": positive_ids})
    dtype = check_vectors(query, positive, negatives)
    return _plan(impl, query, positive, negatives, ids, mask, log_q, positive_ids, dtype)[0]


def _plan(
    impl: str,
    query: Tensor,
    positive: Tensor,
    negatives: Tensor | None,
    ids: Tensor | Draw | None,
    mask: Tensor | None,
    log_q: Tensor | None,
    positive_ids: Tensor | None,
    dtype: torch.dtype,
) -> tuple[Choice, Keys, Visible]:
    """An implementation, and its negatives arranged: without a look at values where the kernels take them."""
    if impl != "auto" and impl not in IMPLEMENTATIONS:
        raise InputError(f"impl={impl!r}; expected 'auto' or one of {', '.join(map(repr, IMPLEMENTATIONS))}")
    reason = fused.obstacle(query.device, dtype) if impl in ("auto", *KERNELS) else f"{impl} was asked for"
    if reason is None:
        layout, seen = (
            arrange_drawn(query, negatives, ids, mask, log_q, positive_ids, dtype)
            if isinstance(ids, Draw)
            else arrange(query, positive, negatives, ids, mask, log_q, positive_ids, dtype, look=False)
        )
        if impl == "auto" and fused.worth_counting(layout, query, seen):
            why = f"{seen.width:,} ids a row into a table of {len(layout.keys):,} are less work once counted"
            return Choice("tallied", why), fused.tallied(layout), seen
        if impl == "tallied":
            reason = fused.cannot_tally(layout, query, seen)
            if reason is None:
                return Choice(impl, "asked for"), fused.tallied(layout), seen
        else:
            reason = fused.too_large(layout, len(query), seen.width)
            if reason is None and impl == "auto":
                reason = fused.rather_not(layout, query)
            if reason is None:
                why = "asked for" if impl == "fused" else f"kernels for {query.device.type} that wait for nothing"
                return Choice("fused", why), layout, seen
    if impl in KERNELS:
        raise InputError(f"impl={impl!r}, but {reason}. Pass impl='auto'")
    ids, mask = filled(query, negatives, ids, mask, log_q)
    plain, seen = arrange(query, positive, negatives, ids, mask, log_q, positive_ids, dtype)
    return _choose(impl, plain, seen, len(query), dtype), plain, seen


def _choose(impl: str, layout: Layout, seen: Visible, rows: int, dtype: torch.dtype) -> Choice:
    if impl != "auto":
        return Choice(impl, "asked for")
    if torch.compiler.is_compiling():
        return Choice("reference", "torch.compile cannot look into the streamed pass")
    numbers = layout.copied(rows, seen.width, seen.partial, dtype)
    if numbers < MANY:
        return Choice("reference", f"it copies {numbers:,} numbers, too few to stream ({MANY:,})")
    return Choice("streamed", f"the reference would copy {numbers:,} numbers")
