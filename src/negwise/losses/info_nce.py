"""The InfoNCE loss (eq. 1): one function, several implementations.

==============  ==============================================  ===================================================
impl            memory beside inputs and gradients              supports
==============  ==============================================  ===================================================
``reference``   every score, several copies                     double backward, ``torch.compile``, ``torch.func.grad``
``streamed``    a few MB, whatever K                            first derivatives; not inside ``torch.compile``
``fused``       (B, D), and (B, K) ids for a table's gradient   the same, on CUDA with Triton, in float32 at most
``counted``     (B, D), and (B, M) counts; a few MB on a CPU    ids into a small table; on CUDA in half precision
``auto``        chooses one: a kernel on CUDA, else one of the others; `which_impl` says which and why
==============  ==============================================  ===================================================

The kernels, ``fused`` and on CUDA ``counted``, do not wait for the GPU, so they cannot check values before they
compute. A bad value (a NaN, an id outside the table) makes the loss of its row NaN at once. The error is raised later:
by the next call of `info_nce` on the GPU or of its backward pass, or by ``negwise.losses.raise_deferred_errors()``
after the GPU has finished. With ``counted`` on CUDA, a vector of the table that is not finite may also make other rows
NaN. The other implementations raise the error before they return. Inside ``torch.compile`` they cannot check values,
and a NaN stays. There a call is one graph at any K, as long as its tensors keep their shapes: a fixed width, with K in
``mask``.

Shapes: B rows (queries), K negatives per row, M rows of a shared set or a table, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from negwise.errors import InputError
from negwise.losses import fused, reference, streamed, table_counts
from negwise.losses.arrange import arrange, arrange_draw, resolve_draw
from negwise.losses.checks import (
    check_finite,
    check_same_device,
    check_scores,
    check_temperature,
    check_tensors,
    check_vectors,
    compute_dtype,
)
from negwise.losses.layout import CountedKeys, DrawnKeys, Keys, Layout
from negwise.losses.masking import Masking, make_masking
from negwise.losses.result import LossResult, LossWithoutBound, RowLosses, check_reduction, make_result
from negwise.protocols import Draw

TORCH_IMPLS: dict[str, Callable[[Tensor, Tensor, Layout, Masking, bool], RowLosses]] = {
    "reference": reference.reference_losses,
    "streamed": torch.compiler.disable(streamed.streamed_losses),  # type: ignore[no-untyped-call]
    "counted": torch.compiler.disable(table_counts.counted_losses),  # type: ignore[no-untyped-call]
}
"""In plain torch, on any device."""
KERNEL_IMPLS = ("fused", "counted")
IMPLEMENTATIONS = ("reference", "streamed", *KERNEL_IMPLS)


STREAM_THRESHOLD = 2**19
"""From this many numbers on, streaming is faster (measured on a CPU, where the cache ends) and saves memory."""


class ChosenImpl(NamedTuple):
    """An implementation and the reason for the choice."""

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
) -> LossResult | LossWithoutBound:
    """The InfoNCE loss, eq. 1: ``-log(e^f(x+) / (e^f(x+) + sum_i e^f(x-_i)))`` with ``f = query . x / temperature``.

    For shared negatives it equals::

        logits = torch.cat([(query * positive).sum(1, keepdim=True), query @ negatives.T], 1) / temperature
        loss = F.cross_entropy(logits, torch.zeros(len(query), dtype=torch.long))

    ``query`` and ``positive`` are (B, D). ``negatives`` and ``ids`` give the negatives:

    - (M, D): shared by all rows. ``ids`` (M,) are their ids, for ``positive_ids``.
    - (M, D) with ``ids`` (B, K): a table. The negatives of row b are ``negatives[ids[b]]``.
    - (M, D) with a `Draw` as ``ids``, from a sampler's ``plan``: a table with the ids and the mask of that draw.
      ``fused`` draws each id where it reads its vector, so that no (B, K) tensor exists for a frozen table.
    - (B, K, D): per row. ``ids`` (B, K) are their ids, for ``positive_ids``.
    - None: the other rows' positives. A row's own positive is masked, with ``positive_ids`` also those of the same id.

    ``mask`` is bool (B, K), True where the negative is real. Or it is integers (B,): row b has the first ``mask[b]``
    negatives. Integers need no mask in memory (use them for floor or ceil of a real-valued K over a shared set). Masked
    ids and vectors are never read, so they may hold any value. A row without negatives has loss 0, no pairs and no
    gradient.

    ``positive_ids`` (B,): a negative with the id of the row's positive is masked.

    ``log_q`` (B, K), or (M,) for shared negatives: the log-probability that one draw of the sampler for this row gives
    that negative. Then ``f(x-_i)`` becomes ``f(x-_i) - log_q_i - log K_b`` in the sum, with the row's own number of
    negatives K_b. So the sum is the importance-sampling estimate of the sum over all ids that the sampler could draw.
    The positive's term is not corrected, because the positive is not drawn. The win rate uses the uncorrected scores.
    `mi_bound` refuses such a loss.

    ``temperature``: a number, or a tensor (one value, or one per row) that may require a gradient.

    ``weight`` (B,) must not be negative. ``reduction``: ``mean`` is ``sum(w * loss) / sum(w)`` over all rows, also
    those without negatives; ``sum``; ``none`` returns (B,). Half precision inputs may be mixed with float32 (such as a
    queue in bfloat16). Scores and loss are then float32, also under autocast.

    ``stats=False`` skips the win rate. ``impl``: see `which_impl`, which says what is used.

    >>> result = info_nce(torch.eye(2), torch.eye(2), torch.zeros(3, 2))
    >>> round(float(result.loss), 4), float(result.win_rate)  # log(1 + 3 / e), and each positive wins each pair
    (0.7437, 1.0)
    """
    id_tensor = None if isinstance(ids, Draw) else ids
    check_tensors({"ids": id_tensor, "mask": mask, "log_q": log_q, "positive_ids": positive_ids, "weight": weight})
    dtype = check_vectors(query, positive, negatives)
    chosen, layout, masking = _plan(impl, query, positive, negatives, ids, mask, log_q, positive_ids, dtype)
    if isinstance(layout, DrawnKeys | CountedKeys) or chosen.impl == "fused":
        check_temperature(temperature, query, dtype, check_values=False)
        rows = fused.fused_losses(query, positive, temperature, layout, masking, stats)
        weight = check_reduction(reduction, weight, rows.loss, check_values=False)
        return make_result(rows, weight, reduction, corrected=log_q is not None)
    with torch.autocast(query.device.type, enabled=False):
        read = not torch.compiler.is_compiling()
        scaled = query.to(dtype) / check_temperature(temperature, query, dtype, check_values=read)
        score = (scaled * positive.to(dtype)).sum(1)
        weight = check_reduction(reduction, weight, score, check_values=read)
        rows = TORCH_IMPLS[chosen.impl](scaled, score, layout, masking, stats)
    vectors = {"query": query, "positive": positive, "negatives": negatives, "log_q": log_q}
    check_finite((score, rows.loss), vectors)
    return make_result(rows, weight, reduction, corrected=log_q is not None)


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
) -> LossResult | LossWithoutBound:
    """The InfoNCE loss (eq. 1) from scores, such as those of a cross-encoder: ``positive`` (B,), ``negatives`` (B, K).

    The scores are divided by ``temperature``. The other arguments are those of `info_nce`.

    >>> result = info_nce_scores(torch.tensor([1.0]), torch.tensor([[0.0, 2.0]]))
    >>> round(float(result.loss), 4), float(result.win_rate)
    (1.4076, 0.5)
    """
    check_tensors({"mask": mask, "log_q": log_q, "weight": weight})
    given = {"positive": positive, "negatives": negatives}
    dtype = compute_dtype(given)
    check_same_device(given)
    check_scores(positive, negatives)
    like = positive.to(dtype)
    read = not torch.compiler.is_compiling()
    masking = make_masking(negatives.shape[0], negatives.shape[1], like, mask=mask, log_q=log_q, check_values=read)
    temperature = check_temperature(temperature, like, dtype, check_values=read)
    weight = check_reduction(reduction, weight, like, check_values=read)
    scores = negatives[:, : masking.width].to(dtype) / (
        temperature[:, None] if isinstance(temperature, Tensor) and temperature.dim() else temperature
    )
    rows = reference.losses_from_scores(like / temperature, scores, masking, stats)
    check_finite((rows.loss,), given | {"log_q": log_q})
    return make_result(rows, weight, reduction, corrected=log_q is not None)


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
) -> ChosenImpl:
    """The implementation that `info_nce` uses for these tensors, and why.

    >>> which_impl(torch.zeros(2, 8), torch.zeros(2, 8), torch.zeros(100_000, 8)).impl
    'streamed'
    """
    id_tensor = None if isinstance(ids, Draw) else ids
    check_tensors({"ids": id_tensor, "mask": mask, "log_q": log_q, "positive_ids": positive_ids})
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
) -> tuple[ChosenImpl, Keys, Masking]:
    """The implementation, and the negatives arranged for it. Values are not checked if a kernel is chosen."""
    if impl != "auto" and impl not in IMPLEMENTATIONS:
        raise InputError(f"impl={impl!r}; expected 'auto' or one of {', '.join(map(repr, IMPLEMENTATIONS))}")
    reason = fused.obstacle(query.device, dtype) if impl in ("auto", *KERNEL_IMPLS) else f"impl={impl!r} was requested"
    if reason is None:
        layout, masking = (
            arrange_draw(query, negatives, ids, mask, log_q, positive_ids, dtype)
            if isinstance(ids, Draw)
            else arrange(query, positive, negatives, ids, mask, log_q, positive_ids, dtype, check_values=False)
        )
        if impl == "auto" and fused.worth_counting(layout, query, masking):
            why = (
                f"{masking.width:,} ids per row into a table of {len(layout.keys):,}: counting them first is less work"
            )
            return ChosenImpl("counted", why), fused.as_counted(layout), masking
        if impl == "counted":
            reason = fused.cannot_count(layout, query, masking)
            if reason is not None:
                raise InputError(f"impl={impl!r}, but {reason}. Pass impl='auto'")
            return ChosenImpl(impl, "as requested"), fused.as_counted(layout), masking
        reason = fused.too_large(layout, len(query), masking.width)
        if reason is None and impl == "auto":
            reason = fused.better_elsewhere(layout, query)
        if reason is None:
            why = "as requested" if impl == "fused" else f"kernels for {query.device.type} that do not wait for the GPU"
            return ChosenImpl("fused", why), layout, masking
    if impl == "fused":
        raise InputError(f"impl={impl!r}, but {reason}. Pass impl='auto'")
    ids, mask = resolve_draw(query, negatives, ids, mask, log_q)
    layout, masking = arrange(query, positive, negatives, ids, mask, log_q, positive_ids, dtype)
    return _choose(impl, layout, masking, len(query), dtype), layout, masking


def _choose(impl: str, layout: Layout, masking: Masking, rows: int, dtype: torch.dtype) -> ChosenImpl:
    if impl == "counted" and (reason := table_counts.cannot_count_here(layout, masking)) is not None:
        raise InputError(f"impl={impl!r}, but {reason}. Pass impl='auto'")
    if impl != "auto":
        return ChosenImpl(impl, "as requested")
    if torch.compiler.is_compiling():
        return ChosenImpl("reference", "torch.compile cannot trace the streamed pass")
    if table_counts.worth_counting_here(layout, masking):
        size = len(layout.keys)
        return ChosenImpl("counted", f"{masking.width:,} ids per row into a table of {size:,}: counting is less work")
    numbers = layout.copied_size(rows, masking.width, masking.partial, dtype)
    if numbers < STREAM_THRESHOLD:
        return ChosenImpl(
            "reference", f"it copies {numbers:,} numbers; streaming pays off from {STREAM_THRESHOLD:,} on"
        )
    return ChosenImpl("streamed", f"the reference would copy {numbers:,} numbers")
