"""A planned draw as ``ids``: drawn first on the plain paths, drawn inside the kernels on the fused one, the same bits.

The kernels' tests run on a GPU, or on demand through Triton's interpreter: ``make test-kernels``.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
import pytest
import torch
from kernel_world import DEVICE, INTERPRETED, THERE, kernels, no_deferred_errors, only_gpu, poisoned, quiet
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from negwise.draws import Key, Stream, block
from negwise.errors import InputError
from negwise.losses import info_nce, scores, which_impl
from negwise.losses.fused import draw_ids
from negwise.protocols import Draw, Negatives
from negwise.samplers import Exclusions, Lists, Popularity, Uniform

pytestmark = quiet
__all__ = ["no_deferred_errors"]  # the fixture that asks every test for what the kernels found late

N_ITEMS = 70
RNG = np.random.default_rng(1)
KNOWN = [sorted(RNG.choice(N_ITEMS, m, replace=False).tolist()) for m in (0, 4, 40, N_ITEMS - 3, N_ITEMS - 1, N_ITEMS)]
SEEN = torch.from_numpy(np.append(RNG.integers(0, 3, N_ITEMS - 1), 4))  # many were never seen: they have no mass
FAR = 2**43 + 2**33 + 5


def sampler(law: str, known: str) -> Any:
    exclude = None if known == "nothing" else Exclusions.of(Lists.of(KNOWN), N_ITEMS, bitmap=known == "bits")
    return Uniform(N_ITEMS, exclude) if law == "uniform" else Popularity(SEEN, exclude=exclude)


def planned(law: str, known: str, k: float, key: Key = Key(2**63 + 7, 3), rows: int = len(KNOWN)) -> Draw:  # noqa: B008
    """One row for each kind of owner, from one who knows nothing to one who knows everything, and round again."""
    positives = torch.from_numpy(np.random.default_rng(2).integers(0, N_ITEMS, rows))
    return sampler(law, known).plan(positives, k, key, owner=torch.arange(rows) % len(KNOWN))


def vectors(rows: int, depth: int = 6, items: int = N_ITEMS, seed: int = 0) -> list[Tensor]:
    """Query, positive, table, in float32."""
    make = torch.Generator().manual_seed(seed)
    return [torch.randn(n, depth, generator=make) for n in (rows, rows, items)]


def everything(
    given: list[Tensor], dtype: torch.dtype, device: torch.device | str = "cpu", **more: Any
) -> list[Tensor]:
    """Loss, wins and pairs of each row, and the gradients of query, positive and table under uneven weights."""
    leaves = [tensor.to(device, dtype).requires_grad_() for tensor in given]
    got = info_nce(*leaves, temperature=0.7, reduction="none", **more)
    weights = torch.linspace(-1, 2, len(given[0]), dtype=dtype, device=device)
    assert got.wins is not None and got.pairs is not None and got.hits is not None
    grads = torch.autograd.grad((weights * got.loss).sum(), leaves)
    return [tensor.detach().cpu() for tensor in (got.loss, got.wins, got.pairs, got.hits, *grads)]


@pytest.mark.parametrize("impl", ["reference", "streamed"])
@pytest.mark.parametrize("law", ["uniform", "popularity"])
def test_plain_paths_draw_first(impl: str, law: str) -> None:
    plan = planned(law, "bits", 4.5)
    neg, names = plan.negatives(), plan.positives.roll(1)
    for more in ({}, {"positive_ids": names}):
        got = everything(vectors(plan.rows), torch.float64, ids=plan, impl=impl, **more)
        want = everything(vectors(plan.rows), torch.float64, ids=neg.ids, mask=neg.mask, impl=impl, **more)
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    on_scores = zip(scores(*vectors(6), ids=plan), scores(*vectors(6), ids=neg.ids, mask=neg.mask), strict=True)
    assert all(torch.equal(a, b) for a, b in on_scores if a is not None and b is not None)


@pytest.mark.slow
def test_a_compiled_loss_draws_first() -> None:
    torch._dynamo.reset()
    plan = planned("uniform", "bits", 3)
    neg, (query, positive, table) = plan.negatives(), vectors(plan.rows)
    compiled = torch.compile(lambda q: info_nce(q, positive, table, ids=plan).loss, backend="eager")
    want = info_nce(query, positive, table, ids=neg.ids, mask=neg.mask, impl="reference").loss
    torch.testing.assert_close(compiled(query), want)
    torch._dynamo.reset()


@pytest.mark.parametrize("impl", ["reference", pytest.param("fused", marks=kernels)])
def test_wrong_use_is_named(impl: str) -> None:
    plan = planned("uniform", "bits", 3).to(DEVICE)
    query, positive, table = (tensor.to(DEVICE) for tensor in vectors(plan.rows))
    per_row, few = table[:18].view(6, 3, 6), table[:-1]
    wrong: list[tuple[tuple[Tensor, ...], dict[str, Any], str]] = [
        ((query, positive), {}, r"negatives are missing; expected a table \(70 or more, 6\)"),
        ((query, positive, per_row), {}, r"negatives has shape \(6, 3, 6\); expected a table"),
        ((query, positive, few), {}, r"negatives has shape \(69, 6\); expected a table \(70 or more"),
        ((query, positive, table[:, :5]), {}, r"negatives has shape \(70, 5\)"),
        ((query[1:], positive[1:], table), {}, "a Draw of 6 rows, query has 5"),
        ((query, positive, table), {"mask": plan.counts}, "mask came with a Draw"),
        ((query, positive, table), {"log_q": torch.zeros(6, 3, device=DEVICE)}, r"neg = draw.negatives\(\)"),
        ((query, positive, table), {"positive_ids": plan.positives[1:]}, r"positive_ids has shape \(5,\)"),
        ((query, positive, table), {"ids": plan.to("meta")}, re.escape(f"on meta, query on {DEVICE}")),
    ]
    for given, more, message in wrong:
        with pytest.raises(InputError, match=message):
            info_nce(*given, **{"ids": plan, "impl": impl} | more)


@pytest.mark.skipif(THERE and INTERPRETED, reason="the interpreter draws")
def test_no_kernels_no_drawn_ids() -> None:
    with pytest.raises(InputError, match=r"draw_ids: .*Type draw.negatives\(\).ids"):
        draw_ids(planned("uniform", "bits", 3))


@kernels
@pytest.mark.parametrize("law", ["uniform", "popularity"])
@pytest.mark.parametrize("known", ["nothing", "bits", "lists"])
@pytest.mark.parametrize(("k", "row"), [(1, 0), (2, FAR), (6.5, FAR), (17, 0)])
def test_the_kernel_draws_the_samplers_bits(law: str, known: str, k: float, row: int) -> None:
    """Owners who leave two ids, one and none included: redraws, the last draw, and a row with nothing to draw."""
    plan = planned(law, known, k, Key(2**64 - 5, 2**32 - 1, row))
    with poisoned():
        got = draw_ids(plan.to(DEVICE))
    assert got.dtype == torch.int64
    assert torch.equal(got.cpu(), plan.negatives().ids)
    if known != "nothing":
        assert plan.counts[-1] == 0


@kernels
@pytest.mark.parametrize("n_items", [1, 2, 3, 64, 65])
def test_small_catalogues(n_items: int) -> None:
    """One id and no other is left to draw, one column, the last bit of a word and the first of the next."""
    positives = torch.zeros(3, dtype=torch.int64)
    exclude = Exclusions.of(Lists.of([[], [n_items - 1]]), n_items)
    for made in (Uniform(n_items, exclude), Popularity(torch.arange(n_items) + 1, exclude=exclude)):
        plan = made.plan(positives, 5, Key(0, 1), owner=torch.tensor([0, 1, 1]))
        assert torch.equal(draw_ids(plan.to(DEVICE)).cpu(), plan.negatives().ids)


@kernels
@pytest.mark.parametrize(("above", "item"), [(0, 1), (1, 0)])
def test_a_coin_that_falls_on_the_edge_goes_to_the_alias(above: int, item: int) -> None:
    """A table whose threshold is the very word that slot 0 tosses, or one more: the words come from the counter."""
    plan = Popularity(torch.ones(3)).plan(torch.tensor([2]), 1, Key(8, 0)).to(DEVICE)
    column, coin, *_ = (int(word[0]) for word in block(Key(8, 0), np.array([0]), np.array([0]), Stream.ITEM))
    assert column < 2**30 and coin < 2**31 - 1  # column 0 of 4, and a threshold that fits a signed number
    edged = dataclasses.replace(plan.tables(DEVICE), columns=torch.full((4,), coin + above << 32 | 1, device=DEVICE))
    first = draw_ids(dataclasses.replace(plan, tables=lambda _: edged))
    assert first.tolist() == [[item]]


@kernels
def test_row_numbers_in_any_order_and_tensors_that_lie_apart() -> None:
    wide = torch.arange(24).view(6, 4)
    key = Key(1, 16, torch.tensor([[5, 0], [2**40, 0], [3, 0], [2**32, 0], [2**32 - 1, 0], [0, 0]])[:, 0])
    plan = sampler("uniform", "lists").plan(wide[:, 1], 3, key, owner=(wide[:, 2] // 4) % 6)
    assert not plan.numbers.is_contiguous()
    assert torch.equal(draw_ids(plan.to(DEVICE)).cpu(), plan.negatives().ids)


@kernels
@pytest.mark.parametrize("law", ["uniform", "popularity"])
@pytest.mark.parametrize("known", ["nothing", "bits", "lists"])
@pytest.mark.parametrize("k", [1, 5.5, 11])
def test_the_fused_loss_equals_float64_on_the_samplers_ids(law: str, known: str, k: float) -> None:
    plan, given = planned(law, known, k), vectors(len(KNOWN))
    neg = plan.negatives()
    with poisoned():
        got = everything(given, torch.float32, DEVICE, ids=plan.to(DEVICE), impl="fused")
    want = everything(given, torch.float64, ids=neg.ids, mask=neg.mask, impl="reference")
    for found, truth in zip(got, want, strict=True):
        torch.testing.assert_close(found.double(), truth.double(), rtol=1e-5, atol=1e-5)
    listed = everything(given, torch.float32, DEVICE, ids=neg.ids.to(DEVICE), mask=neg.mask.to(DEVICE), impl="fused")
    assert all(torch.equal(a, b) for a, b in zip(got, listed, strict=True))  # not a bit is lost by drawing inside


@kernels
def test_positive_ids_and_none_at_all() -> None:
    plan, given = planned("uniform", "nothing", 6), vectors(len(KNOWN))
    neg = plan.negatives()
    names = neg.ids[:, 2].clone()
    assert bool((neg.ids == names[:, None]).any())
    got = everything(given, torch.float32, DEVICE, ids=plan.to(DEVICE), positive_ids=names.to(DEVICE), impl="fused")
    want = everything(given, torch.float64, ids=neg.ids, mask=neg.ids != names[:, None], impl="reference")
    for found, truth in zip(got, want, strict=True):
        torch.testing.assert_close(found.double(), truth.double(), rtol=1e-5, atol=1e-5)
    for found in everything(given, torch.float32, DEVICE, ids=planned("uniform", "bits", 0).to(DEVICE), impl="fused"):
        assert not found.any()


@kernels
@pytest.mark.parametrize("step", [5, 2**32 - 1])
def test_the_step_may_lie_on_the_device(step: int) -> None:
    plan = planned("uniform", "bits", 4)
    later = dataclasses.replace(plan, when=torch.tensor(step)).to(DEVICE)
    want = planned("uniform", "bits", 4, Key(2**63 + 7, step)).negatives().ids
    assert not torch.equal(want, plan.negatives().ids)
    assert torch.equal(draw_ids(later).cpu(), want)


class Sizes(TorchDispatchMode):
    """The size of every tensor that torch makes, the bytes aside that Triton's interpreter copies to and fro."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        made = [t for t in tree_leaves(out) if isinstance(t, Tensor) and not (INTERPRETED and t.dtype == torch.uint8)]
        self.largest = max([self.largest, *(t.numel() for t in made)])
        return out


def refuses(draw: Draw) -> Negatives:
    pytest.fail(f"all {draw.rows} x {draw.width} ids were drawn at once")


@kernels
def test_no_tensor_of_ids_exists_for_a_frozen_table() -> None:
    plan = dataclasses.replace(planned("uniform", "bits", 300, rows=3).to(DEVICE), fill=refuses)
    query, positive, table = (tensor.to(DEVICE) for tensor in vectors(3, depth=2))
    query.requires_grad_()
    with Sizes() as made:
        got = info_nce(query, positive, table, ids=plan, impl="fused")
        torch.autograd.grad(got.loss, query)
    assert which_impl(query, positive, table, ids=plan).impl == "fused"
    assert got.pairs is not None and got.pairs.tolist() == [300] * 3
    assert 0 < made.largest < 300  # less than one row of ids
    with Sizes() as made:  # the referee does see what is there: with a gradient for the table, the ids are kept
        info_nce(query, positive, table.requires_grad_(), ids=plan, impl="fused")
    assert made.largest == 3 * 300


@kernels
@only_gpu
@pytest.mark.parametrize("law", ["uniform", "popularity"])
@pytest.mark.parametrize("known", ["nothing", "bits", "lists"])
def test_many_rows_and_tiles(law: str, known: str) -> None:
    for rows, k, depth in ((300, 1025, 64), (1000, 33.5, 128), (7, 5000, 32)):
        plan, given = planned(law, known, k, rows=rows), vectors(rows, depth)
        given[0] /= depth**0.5
        neg = plan.negatives()
        assert torch.equal(draw_ids(plan.to(DEVICE)).cpu(), neg.ids)
        got = everything(given, torch.float32, DEVICE, ids=plan.to(DEVICE), impl="fused")
        want = everything(given, torch.float64, ids=neg.ids, mask=neg.mask, impl="streamed")
        for found, truth in zip(got, want, strict=True):
            torch.testing.assert_close(found.double(), truth.double(), rtol=1e-4, atol=1e-5)


@kernels
@only_gpu
def test_nothing_waits_and_no_step_compiles_anew() -> None:
    from negwise.losses.fused.lookup_kernels import lookup_forward_kernel

    def compiled() -> int:
        return sum(len(caches[0]) for caches in lookup_forward_kernel.device_caches.values())

    query, positive, table = (tensor.to(DEVICE) for tensor in vectors(6))
    numbers = torch.arange(6, device=DEVICE)
    made, positives, owner = sampler("uniform", "bits"), numbers + 3, numbers % 6
    info_nce(query, positive, table, ids=made.plan(positives, 9, Key(0, 0, numbers), owner=owner), impl="fused")
    before = compiled()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for key in (Key(1, 1, numbers), Key(16, 16, numbers), Key(2**64 - 1, 2**32 - 1, numbers)):
            info_nce(query, positive, table, ids=made.plan(positives, 9, key, owner=owner), impl="fused")
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert compiled() == before
