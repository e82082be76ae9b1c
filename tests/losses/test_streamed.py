"""The streamed pass is no less accurate than the reference in the same dtype, against float64; and it is bounded."""

from __future__ import annotations

import pytest
import torch
from loss_accuracy import NAMES, everything, no_less_accurate
from loss_loops import random_case, width_of
from torch import Tensor

from negwise.errors import InputError, NegwiseError
from negwise.losses import info_nce, streamed
from negwise.losses.layout import SharedKeys
from negwise.losses.masking import make_masking

LAYOUTS = ("shared", "rows", "table", "batch")
SHAPES = [(1, 1, 1), (2, 3, 17), (3, 2, 5), (17, 255, 3), (5, 1025, 17), (33, 40, 64)]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few numbers, so that small cases have many."""
    monkeypatch.setitem(streamed.BUDGET, "cpu", 64)
    monkeypatch.setattr(SharedKeys, "tile_shape", lambda _, rows, width, _budget: (min(rows, 4), min(width, 7)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_less_accurate_than_the_reference(layout: str, shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    no_less_accurate([random_case(layout, *shape, dtype, seed) for seed in range(6)], "streamed")


@pytest.mark.parametrize("scale", [1e-3, 30.0, 3e3])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.usefixtures("small_blocks")
def test_no_less_accurate_at_any_scale_of_the_scores(layout: str, scale: float) -> None:
    """Large scores make rows move their reference; many small blocks make them move it more than once."""
    cases = [random_case(layout, 9, 31, 4, torch.float32, seed) for seed in range(6)]
    no_less_accurate([case | {"query": case["query"] * scale} for case in cases], "streamed")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("hide", ["nothing", "mask", "counts"])
@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.usefixtures("small_blocks")
def test_many_blocks_give_the_reference(layout: str, hide: str, corrected: bool) -> None:
    case = random_case(layout, 10, 23, 5, torch.float64)
    width = width_of(case)
    make = torch.Generator().manual_seed(2)
    more: dict[str, object] = {"temperature": torch.linspace(0.2, 2, 10, dtype=torch.float64).requires_grad_()}
    if hide == "mask":
        more["mask"] = torch.rand(10, width, generator=make) < 0.5
    if hide == "counts":
        more["mask"] = torch.randint(0, width + 1, (10,), generator=make)
    if corrected:
        more["log_q"] = -2 * torch.randn(10, width, generator=make, dtype=torch.float64).abs()
    want, got = everything(case, "reference", **more), everything(case, "streamed", **more)
    for name in want:
        torch.testing.assert_close(got[name], want[name], rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.usefixtures("small_blocks")
def test_gradcheck(layout: str) -> None:
    case = random_case(layout, 5, 9, 3, torch.float64)
    leaves = [case[name].requires_grad_() for name in NAMES if name in case]
    mask = torch.arange(width_of(case)) < torch.tensor([0, 1, 4, 5, 5])[:, None]

    def loss(temperature: Tensor, *tensors: Tensor) -> Tensor:
        given = dict(zip(NAMES, tensors, strict=False)) | {k: v for k, v in case.items() if k == "ids"}
        return info_nce(**given, mask=mask, temperature=temperature, reduction="none", impl="streamed").loss

    temperature = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, (temperature, *leaves))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_more_rows_than_a_block_holds(dtype: torch.dtype) -> None:
    """Several blocks of rows push onto the same keys: in float32, whatever the keys are."""
    no_less_accurate([random_case("shared", 2100, 70, 8, dtype)], "streamed")


def test_counts_beyond_which_nothing_is_read() -> None:
    """Keys after the largest count are not touched, and their gradient is zero."""
    query, keys = torch.randn(3, 4), torch.randn(600, 4)
    keys[500:] = torch.nan
    keys.requires_grad_()
    loss = info_nce(query, query, keys, mask=torch.tensor([500, 7, 0]), impl="streamed").loss
    loss.backward()
    assert keys.grad is not None and bool(torch.isfinite(keys.grad).all()) and not keys.grad[500:].any()


def test_a_queue_may_be_overwritten_before_backward() -> None:
    query, queue = torch.randn(4, 3, requires_grad=True), torch.randn(50, 3)
    (want,) = torch.autograd.grad(info_nce(query, query.detach(), queue, impl="streamed").loss, query)
    loss = info_nce(query, query.detach(), queue, impl="streamed").loss
    queue.zero_()
    (got,) = torch.autograd.grad(loss, query)
    assert torch.equal(got, want)


def test_a_trainable_table_may_not() -> None:
    query, table = torch.randn(4, 3), torch.randn(50, 3, requires_grad=True)
    loss = info_nce(query, query, table, impl="streamed").loss
    with torch.no_grad():
        table.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("what", ["ids", "mask", "counts", "log_q", "positive_ids"])
def test_what_backward_reads_again_may_not_be_overwritten(what: str) -> None:
    """A buffer that is reused too early would give another gradient, silently."""
    query, table = torch.randn(4, 3), torch.randn(50, 3, requires_grad=True)
    ids = torch.randint(50, (4, 9))
    more = {
        "ids": {},
        "mask": {"mask": torch.rand(4, 9) < 0.5},
        "counts": {"mask": torch.tensor([9, 2, 3, 4])},
        "log_q": {"log_q": -torch.rand(4, 9)},
        "positive_ids": {"positive_ids": torch.arange(4)},
    }[what]
    (plain,) = torch.autograd.grad(info_nce(query, query, table, ids=ids, **more, impl="reference").loss, table)
    (same,) = torch.autograd.grad(info_nce(query, query, table, ids=ids, **more, impl="streamed").loss, table)
    torch.testing.assert_close(same, plain)
    loss = info_nce(query, query, table, ids=ids, **more, impl="streamed").loss
    next(iter([*more.values(), ids])).fill_(0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_no_grad_and_double_backward() -> None:
    query, keys = torch.randn(4, 3, requires_grad=True), torch.randn(9, 3)
    with torch.no_grad():
        assert not info_nce(query, query, keys, impl="streamed").loss.requires_grad
    with pytest.raises(NegwiseError, match="impl='reference'"):
        torch.autograd.grad(info_nce(query, query, keys, impl="streamed").loss, query, create_graph=True)
    (grad,) = torch.autograd.grad(info_nce(query, query, keys, impl="reference").loss, query, create_graph=True)
    grad.sum().backward()
    assert query.grad is not None


def test_torch_compile_and_torch_func() -> None:
    query, keys = torch.randn(4, 3), torch.randn(9, 3)
    plain = info_nce(query, query, keys).loss
    compiled = torch.compile(lambda q, k: info_nce(q, q, k).loss, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(query, keys), plain)
    around = torch.compile(lambda q, k: info_nce(q, q, k, impl="streamed").loss, backend="eager")
    torch.testing.assert_close(around(query, keys), plain)
    grad = torch.func.grad(lambda q: info_nce(q, q, keys, impl="reference").loss)(query)
    leaf = query.clone().requires_grad_()
    torch.testing.assert_close(grad, torch.autograd.grad(info_nce(leaf, leaf, keys, impl="streamed").loss, leaf)[0])


def test_no_tensor_as_large_as_the_scores() -> None:
    """Bounded memory, by what the pass asks the allocator for: a tenth of one (B, K) tensor, at the most."""
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, tuple | list) else [out]:
                if isinstance(tensor, Tensor) and tensor._base is None:
                    largest = max(largest, tensor.untyped_storage().nbytes())
            return out

    query, keys = torch.randn(64, 2, requires_grad=True), torch.randn(200_000, 2, requires_grad=True)
    with Watch():
        info_nce(query, query, keys, mask=torch.full((64,), 199_999), impl="streamed").loss.backward()
    assert 0 < largest < 0.1 * 64 * 200_000 * 4


def test_counts_need_no_mask_below_the_smallest() -> None:
    masking = make_masking(3, 100, torch.empty(0), mask=torch.tensor([40, 50, 60]))
    assert masking.width == 60
    assert masking.allowed(slice(None), slice(0, 40)) is None
    first = masking.allowed(slice(None), slice(0, 41))
    assert first is not None and first.sum(1).tolist() == [40, 41, 41]
    allowed = masking.allowed(slice(None), slice(38, 52))
    assert allowed is not None and allowed.sum(1).tolist() == [2, 12, 14]
    with pytest.raises(InputError, match="one per row"):
        make_masking(3, 100, torch.empty(0), mask=torch.tensor([1, 2]))
