"""``impl="counted"``: ids counted before they are looked up. Referees: float64, the paper in loops, NumPy's counts.

On a GPU, or on demand through Triton's interpreter: ``make test-kernels``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from kernel_world import (
    DEVICE,
    DRAWS,
    SLACK,
    fused,
    here,
    kernels,
    no_deferred_errors,
    only_gpu,
    poisoned,
    quiet,
    settle,
    waiting_for_nothing,
)
from loss_accuracy import everything, no_less_accurate
from loss_loops import as_in_loops, random_case
from test_losses_drawn_ids import KNOWN, N_ITEMS, sampler
from torch import Tensor

from negwise.draws import Key
from negwise.errors import InputError
from negwise.losses import info_nce, raise_deferred_errors, which_impl

pytestmark = [pytest.mark.gpu, quiet, kernels]
__all__ = ["no_deferred_errors"]
HALF = (torch.float16, pytest.param(torch.bfloat16, marks=only_gpu))  # the interpreter has no bfloat16 products


def case_of(rows: int, width: int, depth: int, dtype: torch.dtype = torch.float16, seed: int = 0) -> dict[str, Tensor]:
    return here(random_case("table", rows, width, depth, dtype, seed))


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 17), (17, 33, 3), (5, 130, 33), (70, 300, 40)])
def test_no_less_accurate_than_the_reference(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    cases = [case_of(*shape, dtype, seed) for seed in DRAWS]
    no_less_accurate(cases, "counted", lambda case, impl: fused(case, impl), SLACK)


@only_gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [51, 3416, 20_001])
def test_no_less_accurate_on_large_tables(size: int, dtype: torch.dtype) -> None:
    make = torch.Generator(DEVICE).manual_seed(0)
    cases = []
    for _ in range(3):
        query, positive, table = (
            torch.randn(n, 128, generator=make, device=DEVICE, dtype=torch.float32) for n in (300, 300, size)
        )
        ids = torch.randint(0, size, (300, 1024), generator=make, device=DEVICE)
        given = {"query": query / 128**0.5, "positive": positive, "negatives": table}
        cases.append({name: value.to(dtype) for name, value in given.items()} | {"ids": ids})
    no_less_accurate(cases, "counted", lambda case, impl: fused(case, impl), SLACK)


@pytest.mark.parametrize("hide", ["nothing", "mask", "counts", "names"])
def test_equals_the_paper_in_loops(hide: str) -> None:
    rows, width, make = 5, 21, torch.Generator().manual_seed(7)
    case = random_case("table", rows, width, 3, torch.float16)
    mask, more = None, {}
    if hide == "mask":
        mask = torch.rand(rows, width, generator=make) < 0.6
        mask[0] = False
    elif hide == "counts":
        mask = torch.tensor([0, 21, 5, 1, 13])
    elif hide == "names":
        more = {"positive_ids": case["ids"][:, 0].contiguous()}
        mask = case["ids"] != case["ids"][:, :1]
    sent = more if more else {"mask": mask}
    sent = {name: None if tensor is None else tensor.to(DEVICE) for name, tensor in sent.items()}
    with poisoned():
        got = info_nce(**here(case), **sent, temperature=0.7, reduction="none", impl="counted")
    as_in_loops(got, case, mask, 0.7)


def test_counts_are_numpys() -> None:
    from negwise.losses.fused.arguments import NO_MASK
    from negwise.losses.fused.counted import count_ids  # which needs Triton

    size, rows, width = 37, 6, 1500  # more ids than are counted at once
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, size, (rows, width))).to(DEVICE)
    found = count_ids(torch.zeros(size, 4, device=DEVICE), ids, NO_MASK, rows, width)
    want = np.stack([np.bincount(row, minlength=size) for row in ids.cpu().numpy()])
    assert np.array_equal(found.cpu().numpy(), want)


@pytest.mark.parametrize("law", ["uniform", "popularity"])
def test_a_plan_is_drawn_as_it_is_counted(law: str) -> None:
    owners = torch.arange(len(KNOWN), device=DEVICE)
    plan = sampler(law, "bits").plan((7 * owners) % N_ITEMS, 7.5, Key(2**63 + 7, 3), owner=owners)
    drawn = plan.negatives()
    make = torch.Generator().manual_seed(3)
    case = case_of(plan.rows, 3, 6) | {"negatives": torch.randn(N_ITEMS, 6, generator=make).to(DEVICE, torch.float16)}
    got = fused(case | {"ids": plan}, "counted")
    want = fused(case | {"ids": drawn.ids}, "counted", mask=drawn.mask)
    assert all(torch.equal(got[name], want[name]) for name in want)


def test_a_wrong_id_or_count_is_nan_in_its_row_and_named_late() -> None:
    case = case_of(4, 7, 3)
    wrong = case | {"ids": case["ids"].clone()}
    wrong["ids"][2, 5] = 1_000
    got = info_nce(**wrong, reduction="none", impl="counted")
    assert got.loss.isnan().tolist() == [False, False, True, False]
    assert got.pairs is not None and got.pairs.tolist() == [7, 7, 0, 7]
    settle()
    with pytest.raises(InputError, match=r"ids\[2\] holds 1000"):
        raise_deferred_errors()
    counts = torch.tensor([3, 8, 0, 7], device=DEVICE)
    got = info_nce(**case, mask=counts, reduction="none", impl="counted").loss
    assert got.isnan().tolist() == [False, True, False, False]
    settle()
    with pytest.raises(InputError, match="has 8 in row 1"):
        raise_deferred_errors()


def test_what_it_cannot_take_is_said() -> None:
    case = case_of(4, 7, 3)
    width = case["ids"].shape[1]
    refused: list[tuple[str, dict[str, Any]]] = [
        ("bfloat16 or float16, not torch.float32", case_of(4, 7, 3, torch.float32)),
        ("the table is empty", case | {"negatives": case["negatives"][:0]}),
        ("there are no ids", {k: v for k, v in case.items() if k != "ids"}),
        ("log_q corrects single draws", case | {"log_q": torch.zeros(4, width, device=DEVICE)}),
        ("a row has 40,000 negatives", case | {"ids": case["ids"].new_zeros(4, 40_000)}),
    ]
    for message, given in refused:
        with pytest.raises(InputError, match=message):
            info_nce(**given, impl="counted")
    assert which_impl(**case, impl="counted").impl == "counted"


def test_auto_counts_first_where_the_table_is_small() -> None:
    """And learns, and is narrow, and no draw is corrected. The words that say so name both sizes."""

    def learning(rows: int, depth: int = 3, dtype: torch.dtype = torch.float16) -> dict[str, Tensor]:
        table = torch.zeros(rows, depth, dtype=dtype, device=DEVICE, requires_grad=True)
        return case_of(4, 20, depth, dtype) | {"negatives": table}

    small = learning(16 * 20)
    assert which_impl(**small) == ("counted", "20 ids per row into a table of 320: counting them first is less work")
    frozen = small | {"negatives": small["negatives"].detach()}
    log_q = torch.zeros(4, small["ids"].shape[1], device=DEVICE)
    for other in (learning(16 * 20 + 1), learning(320, 257), learning(320, dtype=torch.float32), frozen):
        assert which_impl(**other).impl == "fused"
    assert which_impl(**small, log_q=log_q).impl == "fused"
    assert which_impl(**small, impl="fused").impl == "fused"
    with torch.no_grad():
        assert which_impl(**small).impl == "fused"


def test_counts_of_a_frozen_table_are_not_kept() -> None:
    case = case_of(7, 33, 8)
    case["query"].requires_grad_()
    shapes: list[tuple[int, ...]] = []
    for learns in (True, False):
        shapes.clear()
        table = case["negatives"].detach().requires_grad_(learns)
        pack = torch.autograd.graph.saved_tensors_hooks(lambda t: shapes.append(tuple(t.shape)) or t, lambda t: t)
        with pack:
            info_nce(**case | {"negatives": table}, impl="counted")
        assert ((7, len(table)) in shapes) == learns


def test_equal_to_looking_up() -> None:
    """The same numbers as the kernels that look each id up, weights and temperature included."""
    case = case_of(9, 60, 24)
    temperature = torch.linspace(0.5, 2, 9, device=DEVICE)
    ours, theirs = (
        everything(case, impl, temperature=temperature.clone().requires_grad_()) for impl in ("counted", "fused")
    )
    for name, want in theirs.items():
        torch.testing.assert_close(ours[name].float(), want.float(), rtol=4e-3, atol=4e-3 * float(want.abs().max()))


@only_gpu
@pytest.mark.parametrize("hide", ["nothing", "mask", "counts"])
def test_nothing_waits_for_the_gpu(hide: str) -> None:
    case = case_of(20, 70, 32, torch.bfloat16)
    width = case["ids"].shape[1]
    mask = {"nothing": None, "mask": torch.ones(20, width, dtype=torch.bool), "counts": torch.full((20,), width)}[hide]
    more = {"mask": None if mask is None else mask.to(DEVICE), "temperature": torch.ones(20, device=DEVICE)}
    leaves = [case[name].requires_grad_() for name in ("query", "positive", "negatives")]
    with waiting_for_nothing():
        torch.autograd.grad(info_nce(**case, **more, impl="counted").loss, leaves)  # type: ignore[arg-type]


@only_gpu
def test_k_and_the_table_change_without_compiling_anew() -> None:
    from negwise.losses.fused.counted import count_kernel

    counts = []
    for rows, width in ((33, 600), (64, 513), (128, 1000), (48, 1024), (47, 999), (1, 777)):
        everything(case_of(rows, width, 32), "counted")
        counts.append(sum(len(caches[0]) for caches in count_kernel.device_caches.values()))
    assert counts[-1] == counts[0], counts
