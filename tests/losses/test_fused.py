"""The kernels are no less accurate than the reference in the same dtype, against float64; they wait for nothing.

On a GPU, or on demand through Triton's interpreter: ``make test-kernels``.
"""

from __future__ import annotations

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
    waiting_for_nothing,
)
from loss_accuracy import NAMES, Results, everything, no_less_accurate
from loss_loops import as_in_loops, info_nce_row, random_case, width_of
from torch import Tensor

from negwise.errors import InputError, NegwiseError
from negwise.losses import info_nce, which_impl

pytestmark = [pytest.mark.gpu, quiet, kernels]
__all__ = ["no_deferred_errors"]

LAYOUTS = ("shared", "rows", "table", "batch")
SHAPES = [(1, 1, 1), (2, 3, 17), (17, 33, 3), (5, 130, 33), (3, 300, 40), (4, 20, 300)]
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def skip_what_the_interpreter_cannot(layout: str, dtype: torch.dtype) -> None:
    if DEVICE.type == "cpu" and dtype == torch.bfloat16 and layout in ("shared", "batch"):
        pytest.skip("the interpreter multiplies the bits of bfloat16 matrices as integers")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_less_accurate_than_the_reference(layout: str, shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    skip_what_the_interpreter_cannot(layout, dtype)
    no_less_accurate([here(random_case(layout, *shape, dtype, seed)) for seed in DRAWS], "fused", fused, SLACK)


@only_gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape",
    [(33, 1025, 64), (130, 257, 100), (300, 64, 256), (1, 5000, 128), (2000, 1, 32), (70, 200, 512), (40, 300, 1000)],
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_less_accurate_where_tiles_are_many(layout: str, shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    cases = [here(random_case(layout, *shape, dtype, seed)) for seed in range(3)]
    shrunk = [case | {"query": case["query"] / shape[2] ** 0.5} for case in cases]  # so that scores are of order 1
    no_less_accurate(shrunk, "fused", fused, SLACK)


@pytest.mark.parametrize("scale", [1e-3, 30.0, 3e3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_less_accurate_at_any_scale_of_the_scores(layout: str, scale: float) -> None:
    cases = [here(random_case(layout, 9, 70, 4, torch.float32, seed)) for seed in DRAWS]
    no_less_accurate([case | {"query": case["query"] * scale} for case in cases], "fused", fused, SLACK)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("hide", ["nothing", "mask", "counts"])
@pytest.mark.parametrize("corrected", [False, True])
def test_equals_the_paper_in_loops(layout: str, hide: str, corrected: bool) -> None:
    rows, seed = 5, torch.Generator().manual_seed(7)
    case = random_case(layout, rows, 21, 3, torch.float32)
    width = width_of(case)
    mask = log_q = None
    if hide == "mask":
        mask = torch.rand(rows, width, generator=seed) < 0.6
        mask[0] = False
    elif hide == "counts":
        mask = torch.randint(0, width + 1, (rows,), generator=seed)
    if corrected:
        log_q = (
            torch.randn((width,) if layout in ("shared", "batch") else (rows, width), generator=seed).clamp(max=3) - 3
        )
    more = {"mask": mask, "log_q": log_q}
    sent = {name: None if tensor is None else tensor.to(DEVICE) for name, tensor in more.items()}
    with poisoned():
        got = info_nce(**here(case), **sent, temperature=0.7, reduction="none", impl="fused")
    as_in_loops(got, case, mask, 0.7, log_q)
    heat = {"temperature": torch.linspace(0.5, 2, rows, device=DEVICE).requires_grad_()}
    exact = {name: t.double() if t is not None and t.is_floating_point() else t for name, t in sent.items()}
    truth = everything({k: v.double() if v.is_floating_point() else v for k, v in here(case).items()}, "reference",
                       **exact, temperature=heat["temperature"].detach().double().requires_grad_())  # fmt: skip
    for name, found in fused(here(case), **sent, **heat).items():
        torch.testing.assert_close(found.double(), truth[name], rtol=1e-5, atol=1e-5 * float(truth[name].abs().max()))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_positive_ids_mask_the_like(layout: str) -> None:
    case = random_case(layout, 6, 9, 4, torch.float32)
    names = torch.tensor([3, 1, 3, 2, 7, 1])
    if layout == "shared":
        case["ids"] = torch.arange(9) % 4
    elif layout == "rows":
        case["ids"] = torch.arange(54).view(6, 9) % 5
    mask = (names if layout == "batch" else case["ids"]) != names[:, None]
    assert mask.sum() < mask.numel()
    got = fused(here(case), positive_ids=names.to(DEVICE))
    if layout in ("shared", "rows"):
        del case["ids"]
    want = everything({k: v.double() if v.is_floating_point() else v for k, v in case.items()}, "reference", mask=mask)
    for name, found in got.items():
        torch.testing.assert_close(found.double().cpu(), want[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", ["shared", "rows", "table"])
@pytest.mark.parametrize("hide", ["mask", "counts"])
def test_what_is_masked_is_not_looked_at(layout: str, hide: str) -> None:
    case = random_case(layout, 4, 7, 3, torch.float32)
    counts = torch.tensor([0, 2, 3, 3])
    mask = (counts if hide == "counts" else torch.arange(7) < counts[:, None]).to(DEVICE)
    dirty = {name: tensor.clone() for name, tensor in case.items()}
    clean_q, dirty_q = torch.zeros(4, 7), torch.zeros(4, 7)
    dirty_q[:, 3:] = torch.nan
    if layout == "table":
        dirty["ids"][:, 3:] = -7
    else:
        dirty["negatives"][..., 3:, :] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    want = fused(here(case), mask=mask, log_q=clean_q.to(DEVICE))
    got = fused(here(dirty), mask=mask, log_q=dirty_q.to(DEVICE))
    for name in want:
        torch.testing.assert_close(got[name], want[name], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_negatives_no_loss_no_pairs_no_gradient(layout: str) -> None:
    case = here(random_case(layout, 3, 4, 2, torch.float32))
    for mask in (torch.zeros(3, width_of(case), dtype=torch.bool), torch.zeros(3, dtype=torch.int64)):
        for found in fused(case, mask=mask.to(DEVICE)).values():
            assert not found.any()
        got = info_nce(**case, mask=mask.to(DEVICE), impl="fused")
        assert got.pairs is not None and not got.pairs.any() and got.win_rate is not None and got.win_rate.isnan()


def test_k_zero() -> None:
    query = torch.ones(2, 3, device=DEVICE, requires_grad=True)
    for shape in ((0, 3), (2, 0, 3)):
        negatives = torch.ones(shape, device=DEVICE, requires_grad=True)
        loss = info_nce(query, torch.ones(2, 3, device=DEVICE), negatives, impl="fused").loss
        loss.backward()
        assert loss.item() == 0 and negatives.grad is not None and negatives.grad.shape == shape
    assert query.grad is not None and not query.grad.any()


@pytest.mark.parametrize(("up", "down"), [(1e4, -1e4), (-1e4, 1e4), (1e4, 1e4), (-1e4, -1e4), (0.0, 1e4)])
@pytest.mark.parametrize("layout", ["shared", "rows", "table"])
def test_logits_of_ten_thousand(layout: str, up: float, down: float) -> None:
    keys = torch.tensor([[down], [down], [0.0]])
    case = {"query": torch.ones(1, 1), "positive": torch.tensor([[up]]), "negatives": keys}
    if layout == "rows":
        case["negatives"] = keys[None]
    if layout == "table":
        case["ids"] = torch.arange(3)[None]
    got = fused(here(case), temperature=torch.ones((), device=DEVICE).requires_grad_())
    assert got["loss"].item() == pytest.approx(float(info_nce_row(up, [down, down, 0.0])), rel=1e-6)
    want = everything({k: v.double() if v.is_floating_point() else v for k, v in case.items()}, "reference",
                      temperature=torch.ones((), dtype=torch.float64).requires_grad_())  # fmt: skip
    for name in NAMES:
        slack = 1e4 * torch.finfo(torch.float32).eps if name == "query" else 1e-12
        torch.testing.assert_close(got[name].double().cpu(), want[name], rtol=1e-5, atol=slack)


@pytest.mark.parametrize("layout", ["rows", "table"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_key_that_equals_the_positive_is_half_a_win(layout: str, dtype: torch.dtype) -> None:
    """Whatever its numbers: both are added up in the same order."""
    case = random_case(layout, 8, 5, 67, dtype)
    if layout == "rows":
        case["negatives"][:] = case["positive"][:, None]
    else:
        case["negatives"] = case["positive"].clone()
        case["ids"] = torch.arange(8)[:, None].expand(8, 5)
    got = info_nce(**here(case), impl="fused")
    assert got.wins is not None and got.wins.tolist() == [2.5] * 8
    assert got.hits is not None and got.hits.tolist() == [1 / 6] * 8


@pytest.mark.parametrize("dtype", DTYPES)
def test_ids_that_everyone_drew(dtype: torch.dtype) -> None:
    """Runs of many parts, of exactly one, and none: the table's gradient is the sum in float64, the same each time."""
    case = random_case("table", 9, 400, 6, dtype)
    case["ids"] = torch.zeros(9, 400, dtype=torch.int64) + 28
    case["ids"][0, :256] = 0
    case["ids"][1, :100], case["ids"][1, 100] = 3, 4
    found: list[Results] = []

    def keep(case: dict[str, Tensor], impl: str) -> Results:
        found.append(fused(case, impl))
        return found[-1]

    no_less_accurate([here(case)], "fused", keep, SLACK)
    assert torch.equal(found[0]["negatives"], fused(here(case))["negatives"])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("types", [(torch.float32, torch.bfloat16), (torch.float16, torch.float32)])
def test_types_may_be_mixed(layout: str, types: tuple[torch.dtype, torch.dtype]) -> None:
    case = here(random_case(layout, 6, 40, 20, torch.float32))
    case["query"], case["positive"] = case["query"].to(types[0]), case["positive"].to(types[1])
    if "negatives" in case:
        case["negatives"] = case["negatives"].to(types[1])
    no_less_accurate([case], "fused", fused, SLACK)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tensors_that_lie_apart(layout: str) -> None:
    """Columns of something wider, one row expanded, ids of another integer type."""
    case = here(random_case(layout, 6, 11, 5, torch.float32))
    plain = fused(case)
    apart = dict(case)
    for name in NAMES:
        if name in apart:
            wide = torch.full((*apart[name].shape, 2), torch.nan, device=DEVICE)
            wide[..., 0] = apart[name]
            apart[name] = wide[..., 0]
    if "ids" in apart:
        apart["ids"] = apart["ids"].int().t().contiguous().t()
    for name, found in fused(apart).items():
        assert torch.equal(found, plain[name]), name
    one = case["query"][:1].expand(6, 5)
    want = info_nce(**(case | {"query": one.contiguous()}), impl="fused").loss
    assert torch.equal(info_nce(**(case | {"query": one}), impl="fused").loss, want)


def test_a_queue_may_be_overwritten_before_backward_and_a_table_may_not() -> None:
    for layout in ("shared", "table"):
        case = here(random_case(layout, 4, 50, 3, torch.float32))
        query, keys = case.pop("query").requires_grad_(), case.pop("negatives")
        (want,) = torch.autograd.grad(info_nce(query, negatives=keys, impl="fused", **case).loss, query)
        loss = info_nce(query, negatives=keys, impl="fused", **case).loss
        keys.zero_()
        (got,) = torch.autograd.grad(loss, query)
        assert torch.equal(got, want)
        loss = info_nce(query, negatives=keys.requires_grad_(), impl="fused", **case).loss
        with torch.no_grad():
            keys.zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@pytest.mark.parametrize("what", ["mask", "counts", "log_q", "ids"])
def test_what_backward_reads_again_may_not_be_overwritten(what: str) -> None:
    case = here(random_case("shared", 4, 9, 3, torch.float32))
    case["negatives"].requires_grad_()
    more = {
        "mask": {"mask": torch.arange(9).expand(4, 9) > 3},
        "counts": {"mask": torch.tensor([9, 2, 3, 4])},
        "log_q": {"log_q": -torch.ones(4, 9)},
        "ids": {"positive_ids": torch.arange(4), "ids": torch.arange(9)},
    }[what]
    given = here({name: tensor.clone() for name, tensor in more.items()})
    loss = info_nce(**case, **given, impl="fused").loss
    next(iter(given.values())).fill_(0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_names_of_different_types_are_compared_as_numbers() -> None:
    case = here(random_case("shared", 2, 3, 3, torch.float32))
    names = torch.tensor([200, 1, 2], dtype=torch.uint8, device=DEVICE)
    own = torch.tensor([-56, 1], dtype=torch.int8, device=DEVICE)
    found = [info_nce(**case, ids=names, positive_ids=own, impl=impl).pairs for impl in ("reference", "fused")]
    assert [pairs.tolist() for pairs in found] == [[3, 2], [3, 2]]


def test_no_grad_stats_and_double_backward() -> None:
    case = here(random_case("shared", 4, 9, 3, torch.float32))
    query = case.pop("query").requires_grad_()
    with torch.no_grad():
        assert not info_nce(query, **case, impl="fused").loss.requires_grad
    without = info_nce(query, **case, impl="fused", stats=False)
    assert without.win_rate is None and torch.equal(without.loss, info_nce(query, **case, impl="fused").loss)
    with pytest.raises(NegwiseError, match="impl='reference'"):
        torch.autograd.grad(without.loss, query, create_graph=True)


def test_who_is_chosen() -> None:
    case = here(random_case("table", 4, 9, 3, torch.float32))
    assert which_impl(**case).impl == "fused" and "wait" in which_impl(**case).why
    shared = here(random_case("shared", 4, 9, 3, torch.float32))
    assert which_impl(**shared).impl == "reference"
    assert which_impl(**{name: tensor.half() for name, tensor in shared.items()}).impl == "fused"
    assert which_impl(**here(random_case("shared", 4, 9, 700, torch.float16))).impl == "fused"
    assert which_impl(**here(random_case("shared", 4, 9, 1025, torch.float16))).impl == "reference"
    doubled = {k: v.double() if v.is_floating_point() else v for k, v in case.items()}
    assert which_impl(**doubled).impl == "reference"
    with pytest.raises(InputError, match="float64"):
        info_nce(**doubled, impl="fused")


@only_gpu
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("hide", ["nothing", "mask", "counts"])
def test_nothing_waits_for_the_gpu(layout: str, hide: str) -> None:
    case = here(random_case(layout, 20, 70, 32, torch.bfloat16))
    width = width_of(case)
    mask = {
        "nothing": None,
        "mask": torch.ones(20, width, dtype=torch.bool, device=DEVICE),
        "counts": torch.full((20,), width, device=DEVICE),
    }[hide]
    more = {"mask": mask, "weight": torch.ones(20, device=DEVICE), "temperature": torch.ones(20, device=DEVICE)}
    leaves = [case[name].requires_grad_() for name in NAMES if name in case]
    with waiting_for_nothing():
        torch.autograd.grad(info_nce(**case, **more, impl="fused").loss, leaves)  # type: ignore[arg-type]


@only_gpu
def test_k_and_b_change_without_compiling_anew() -> None:
    from negwise.losses.fused.lookup_kernels import lookup_forward_kernel, table_gradient_kernel

    def compiled() -> int:
        return sum(
            len(caches[0])
            for kernel in (lookup_forward_kernel, table_gradient_kernel)
            for caches in kernel.device_caches.values()
        )

    counts = []
    for rows, width in ((33, 64), (64, 65), (128, 100), (48, 1024), (47, 999), (1, 128)):
        everything(here(random_case("table", rows, width, 32, torch.float32)), "fused")
        counts.append(compiled())
    assert counts[-1] - counts[0] <= 4, counts  # how many keys are added up at once goes by powers of two, to 16


@only_gpu
def test_memory_is_bounded() -> None:
    """Neither the scores of a batch of 16,384 nor the keys of 4,096 x 512 ids are ever there, whatever is chosen."""
    query, positive = (torch.randn(16_384, 64, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for _ in "qp")
    table = torch.randn(10_000, 64, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    few, many = (torch.randint(0, 10_000, (4096, width), device=DEVICE) for width in (512, 1024))

    batch = {"query": query, "positive": positive}
    looked_up = {"query": query[:4096], "positive": positive[:4096], "negatives": table}
    for impl, allowed, given in (
        ("fused", 40e6, batch),  # scores: 537 MB in bfloat16
        ("fused", 90e6, looked_up | {"ids": few}),  # keys: 268 MB
        ("counted", 130e6, looked_up | {"ids": many}),  # counts: 82 MB; keys: 537 MB
    ):
        assert which_impl(**given).impl == impl
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        got = info_nce(**given, temperature=8.0)
        torch.autograd.grad(got.loss, [query, positive, table], allow_unused=True)
        assert torch.cuda.max_memory_allocated() - before < allowed
