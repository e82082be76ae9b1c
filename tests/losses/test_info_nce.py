"""The door: every place negatives come from, every way to hide some, against eq. 1 in Python loops."""

from __future__ import annotations

import subprocess
import sys

import mpmath
import pytest
import torch
from loss_loops import dot, hit, info_nce_row, random_case, seen_by, vector, width_of, wins

from negwise.errors import InputError
from negwise.losses import info_nce, info_nce_scores, scores, which_impl

LAYOUTS = ("shared", "rows", "table", "batch")
IMPLS = ("reference", "streamed")


def masks(kind: str, rows: int, width: int) -> torch.Tensor | None:
    make = torch.Generator().manual_seed(1)
    if kind == "counts":
        return torch.randint(0, width + 1, (rows,), generator=make)
    if kind == "mask":
        mask = torch.rand(rows, width, generator=make) < 0.6
        mask[0] = False
        return mask
    return None


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("hide", ["nothing", "mask", "counts"])
@pytest.mark.parametrize("corrected", [False, True])
def test_equals_the_paper_in_loops(impl: str, layout: str, hide: str, corrected: bool) -> None:
    case = random_case(layout, 5, 11, 3, torch.float64)
    rows, width = 5, width_of(case)
    mask = masks(hide, rows, width)
    log_q = None
    if corrected:
        shared = layout in ("shared", "batch")
        log_q = torch.randn((width,) if shared else (rows, width), dtype=torch.float64).clamp(max=3) - 3
    got = info_nce(**case, mask=mask, log_q=log_q, temperature=0.7, reduction="none", impl=impl)
    for b in range(rows):
        seen = seen_by(case, b, mask)
        positive = dot(case["query"][b], case["positive"][b]) / 0.7
        negatives = [dot(case["query"][b], vector(case, b, j)) / 0.7 for j in seen]
        q = None if log_q is None else [float(log_q[j] if log_q.dim() == 1 else log_q[b, j]) for j in seen]
        assert float(got.loss[b]) == pytest.approx(float(info_nce_row(positive, negatives, q)), rel=1e-12, abs=1e-14)
        assert got.wins is not None and got.pairs is not None
        assert float(got.wins[b]) == wins(positive, negatives)
        assert int(got.pairs[b]) == len(seen)
        assert got.hits is not None and float(got.hits[b]) == hit(positive, negatives)


@pytest.mark.parametrize("impl", IMPLS)
def test_log_q_of_a_whole_catalogue_gives_the_full_softmax(impl: str) -> None:
    """All N other items drawn once, each with probability 1/N: the estimate is the sum itself."""
    case = random_case("shared", 4, 30, 5, torch.float64)
    plain = info_nce(**case, impl=impl)
    uniform = torch.full((30,), -mpmath.log(30).__float__(), dtype=torch.float64)
    torch.testing.assert_close(info_nce(**case, log_q=uniform, impl=impl).loss, plain.loss, rtol=1e-12, atol=0)


def test_log_q_is_unbiased_for_the_partition_sum() -> None:
    """Monte-Carlo: the mean of e^loss - 1 over draws from q is the sum over the catalogue, over e^f+."""
    make = torch.Generator().manual_seed(0)
    catalogue, depth, k, draws = 12, 3, 4, 40_000
    table = torch.randn(catalogue, depth, generator=make, dtype=torch.float64)
    query = torch.randn(1, depth, generator=make, dtype=torch.float64).expand(draws, depth)
    positive = torch.randn(1, depth, generator=make, dtype=torch.float64).expand(draws, depth)
    q = torch.rand(catalogue, generator=make, dtype=torch.float64) + 0.2
    q /= q.sum()
    ids = torch.multinomial(q, draws * k, replacement=True, generator=make).view(draws, k)
    got = info_nce(query, positive, table, ids=ids, log_q=q.log()[ids], reduction="none").loss
    ratio = torch.expm1(got)
    truth = (query[0] @ table.T - query[0] @ positive[0]).exp().sum()
    error = ratio.std() / draws**0.5
    assert abs(ratio.mean() - truth) < 4 * error
    assert error < 0.02 * truth


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_positive_ids_mask_the_like(impl: str, layout: str) -> None:
    case = random_case(layout, 6, 9, 4, torch.float64)
    width = width_of(case)
    names = torch.tensor([3, 1, 3, 2, 7, 1])
    if layout == "shared":
        case["ids"] = torch.arange(9) % 4
        mask = case["ids"] != names[:, None]
    elif layout == "rows":
        case["ids"] = torch.arange(54).view(6, 9) % 5
        mask = case["ids"] != names[:, None]
    elif layout == "table":
        mask = case["ids"] != names[:, None]
    else:
        mask = names != names[:, None]
    got = info_nce(**case, positive_ids=names, impl=impl)
    if layout in ("shared", "rows"):
        del case["ids"]
    want = info_nce(**case, mask=mask, impl=impl)
    assert mask.sum() < 6 * width
    assert torch.equal(got.loss, want.loss)
    assert got.pairs is not None and want.pairs is not None and torch.equal(got.pairs, want.pairs)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_phantom_zero_logits_of_ragged_rows(impl: str, layout: str) -> None:
    """A padded row has the loss of the row without its padding: no e^0 of a padded place stays in the sum."""
    case = random_case(layout, 6, 9, 4, torch.float64)
    width = width_of(case)
    counts = torch.tensor([0, 1, 2, 3, 4, 5])
    dense = torch.arange(width) < counts[:, None]
    ragged = info_nce(**case, mask=dense, reduction="none", impl=impl)
    by_count = info_nce(**case, mask=counts, reduction="none", impl=impl)
    for b, count in enumerate(counts.tolist()):
        alone = [dot(case["query"][b], vector(case, b, j)) for j in seen_by(case, b, counts)]
        assert len(alone) in (count, count - 1)  # one less where a row of the batch would see itself
        want = float(info_nce_row(dot(case["query"][b], case["positive"][b]), alone))
        assert float(ragged.loss[b]) == pytest.approx(want, abs=1e-13)
        assert float(by_count.loss[b]) == pytest.approx(want, abs=1e-13)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("layout", ["shared", "rows", "table"])
@pytest.mark.parametrize("hide", ["mask", "counts"])
def test_what_is_masked_is_not_looked_at(impl: str, layout: str, hide: str) -> None:
    case = random_case(layout, 4, 7, 3, torch.float64)
    counts = torch.tensor([0, 2, 3, 3])
    mask = counts if hide == "counts" else torch.arange(7) < counts[:, None]
    dirty = {name: tensor.clone() for name, tensor in case.items()}
    log_q = torch.zeros(4, 7, dtype=torch.float64)
    dirty_q = log_q.clone()
    dirty_q[:, 3:] = torch.nan
    if layout == "table":
        dirty["ids"][:, 3:] = -7
    else:
        dirty["negatives"][..., 3:, :] = torch.tensor([torch.nan, torch.inf, -torch.inf], dtype=torch.float64)
    results = []
    for given, q in ((case, log_q), (dirty, dirty_q)):
        query = given["query"].clone().requires_grad_()
        negatives = given["negatives"].clone().requires_grad_()
        rest = {name: given[name] for name in given if name not in ("query", "negatives")}
        loss = info_nce(query, negatives=negatives, mask=mask, log_q=q, impl=impl, **rest).loss
        results.append((loss, *torch.autograd.grad(loss, [query, negatives])))
    for clean, seen_dirty in zip(*results, strict=True):
        torch.testing.assert_close(seen_dirty, clean, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_no_negatives_no_loss_no_pairs_no_gradient(impl: str, layout: str, dtype: torch.dtype) -> None:
    case = random_case(layout, 3, 4, 2, dtype)
    width = width_of(case)
    for mask in (torch.zeros(3, width, dtype=torch.bool), torch.zeros(3, dtype=torch.int64)):
        query, positive = case["query"].clone().requires_grad_(), case["positive"].clone().requires_grad_()
        rest = {name: case[name] for name in case if name not in ("query", "positive")}
        got = info_nce(query, positive, mask=mask, impl=impl, **rest)
        got.loss.backward()
        assert got.loss.item() == 0 and got.pairs is not None and int(got.pairs.sum()) == 0
        assert query.grad is not None and not query.grad.any()
        assert positive.grad is not None and not positive.grad.any()
        assert got.win_rate is not None and got.win_rate.isnan()


@pytest.mark.parametrize("impl", IMPLS)
def test_k_zero_and_a_batch_of_one(impl: str) -> None:
    query = torch.ones(2, 3, requires_grad=True)
    for negatives in (torch.ones(0, 3), torch.ones(2, 0, 3)):
        got = info_nce(query, torch.ones(2, 3), negatives, impl=impl)
        got.loss.backward()
        assert got.loss.item() == 0
    assert query.grad is not None and not query.grad.any()
    assert info_nce(torch.ones(1, 3), torch.ones(1, 3), impl=impl).loss.item() == 0


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("up", "down"), [(1e4, -1e4), (-1e4, 1e4), (1e4, 1e4), (-1e4, -1e4), (0.0, 1e4)])
def test_logits_of_ten_thousand(impl: str, dtype: torch.dtype, up: float, down: float) -> None:
    query = torch.ones(1, 1, dtype=dtype, requires_grad=True)
    negatives = torch.tensor([[down], [down], [0.0]], dtype=dtype, requires_grad=True)
    loss = info_nce(query, torch.tensor([[up]], dtype=dtype), negatives, impl=impl).loss
    with mpmath.workdps(60):
        want = float(info_nce_row(up, [down, down, 0.0]))
    assert loss.item() == pytest.approx(want, rel=1e-6)
    grads = torch.autograd.grad(loss, [query, negatives])
    total = 2 * mpmath.exp(down) + 1 + mpmath.exp(up)
    shares = [float(mpmath.exp(down) / total), float(mpmath.exp(down) / total), float(1 / total)]
    torch.testing.assert_close(grads[1][:, 0], torch.tensor(shares, dtype=dtype), rtol=1e-5, atol=1e-12)
    slope = float(2 * mpmath.exp(down) / total * (down - up) + (0 - up) / total)
    assert grads[0].item() == pytest.approx(slope, rel=1e-5, abs=1e4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("impl", IMPLS)
def test_ties_are_half_a_win(impl: str) -> None:
    query = torch.tensor([[1.0, 2.0]])
    got = info_nce(query, torch.tensor([[1.0, 1.0]]), torch.tensor([[3.0, 0.0], [0.0, 1.0], [9.0, 9.0]]), impl=impl)
    assert got.wins is not None and got.wins.tolist() == [1.5]
    assert got.win_rate is not None and got.win_rate.item() == 0.5
    assert got.hits is not None and got.hits.tolist() == [0]


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("impl", IMPLS)
def test_hits_are_shared_among_ties(impl: str, corrected: bool) -> None:
    """Scores 3 with K scores of 3, 2 or 9: first, first by lot, beaten; and a row without negatives."""
    keys = torch.tensor([[[2.0], [1.0]], [[3.0], [2.0]], [[3.0], [3.0]], [[3.0], [9.0]], [[9.0], [9.0]]])
    mask = torch.ones(5, 2, dtype=torch.bool)
    mask[4] = False
    log_q = torch.tensor([[-9.0, -1.0]]).expand(5, 2) if corrected else None  # changes the loss and no order of scores
    got = info_nce(torch.ones(5, 1), torch.full((5, 1), 3.0), keys, mask=mask, log_q=log_q, impl=impl)
    assert got.hits is not None and got.rows is not None and got.hit_rate is not None
    assert got.hits.tolist() == [1, 1 / 2, 1 / 3, 0, 0] and got.rows.tolist() == [1, 1, 1, 1, 0]
    assert got.hit_rate.item() == pytest.approx((1 + 1 / 2 + 1 / 3) / 4)


@pytest.mark.parametrize("impl", IMPLS)
def test_an_untrained_model_hits_one_in_k_plus_one(impl: str) -> None:
    torch.manual_seed(0)
    for k in (1, 4, 19):
        got = info_nce(torch.randn(20_000, 8), torch.randn(20_000, 8), torch.randn(20_000, k, 8), impl=impl)
        assert got.hit_rate is not None
        assert got.hit_rate.item() == pytest.approx(1 / (k + 1), abs=4 * (k / 20_000) ** 0.5 / (k + 1))


@pytest.mark.parametrize("impl", IMPLS)
def test_a_temperature_of_another_type_does_not_change_the_loss(impl: str) -> None:
    case = random_case("shared", 3, 5, 2, torch.float32)
    want = info_nce(**case, temperature=0.1, impl=impl).loss
    for heat in (torch.tensor([0.1]), torch.tensor(0.1), torch.full((3, 1), 0.1)):
        found = info_nce(**case, temperature=heat.double(), impl=impl).loss
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, want)


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("value", [8.0, float("inf")])
def test_a_probability_above_one_is_named_unless_hidden(impl: str, value: float) -> None:
    case = random_case("rows", 3, 5, 2, torch.float32)
    log_q = torch.full((3, 5), -2.0)
    log_q[1, 3] = value
    with pytest.raises(InputError, match=r"log_q\[1, 3\] is (8|inf); expected logs of probabilities"):
        info_nce(**case, log_q=log_q, impl=impl)
    mask = log_q < 0
    hidden = info_nce(**case, log_q=log_q, mask=mask, impl=impl).loss
    torch.testing.assert_close(hidden, info_nce(**case, log_q=log_q.clamp(max=-2), mask=mask, impl=impl).loss)


@pytest.mark.parametrize("impl", IMPLS)
def test_an_empty_table_has_nothing_to_look_up(impl: str) -> None:
    """A queue before the first push."""
    query, table = torch.randn(2, 4, requires_grad=True), torch.zeros(0, 4, requires_grad=True)
    ids, mask = torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 3, dtype=torch.bool)
    result = info_nce(query, query.detach(), table, ids=ids, mask=mask, impl=impl)
    result.loss.backward()
    assert result.loss == 0 and result.pairs.tolist() == [0, 0] and not query.grad.any() and table.grad.shape == (0, 4)
    mask[1, 2] = True
    with pytest.raises(InputError, match=r"ids\[1, 2\] is 0; expected no id at all, since the table has no rows"):
        info_nce(query, query.detach(), table, ids=ids, mask=mask, impl=impl)


def test_auto_says_which() -> None:
    small, large = torch.zeros(4, 8), torch.zeros(300_000, 8)
    assert which_impl(small, small, small).impl == "reference"
    choice = which_impl(small, small, large)
    assert choice.impl == "streamed" and "copy" in choice.why
    assert which_impl(small, small, large, impl="reference") == ("reference", "as requested")
    per_row = torch.zeros(4, 20_000, 8)
    assert which_impl(small, small, per_row).impl == "reference"
    assert which_impl(small, small, per_row.half()).impl == "streamed"


def test_losses_import_no_kernels() -> None:
    """They are for CUDA alone, and Triton with them; where torch brings Triton along, torch has loaded it itself."""
    code = "import sys, negwise.losses; sys.exit('negwise.losses.fused.function' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_scores_equal_vectors() -> None:
    case = random_case("rows", 4, 6, 3, torch.float64)
    mask = torch.rand(4, 6) < 0.7
    want = info_nce(**case, mask=mask, temperature=0.5)
    positive = (case["query"] * case["positive"]).sum(1)
    negatives = (case["query"][:, None] * case["negatives"]).sum(2)
    got = info_nce_scores(positive, negatives, mask, temperature=0.5)
    torch.testing.assert_close(got.loss, want.loss)
    assert got.wins is not None and want.wins is not None and torch.equal(got.wins, want.wins)
    made = scores(**case, mask=mask, temperature=0.5)
    torch.testing.assert_close(info_nce_scores(*made).loss, want.loss)
    rows = torch.tensor([0.5, 1.0, 2.0, 3.0], dtype=torch.float64)
    torch.testing.assert_close(
        info_nce_scores(positive, negatives, mask, temperature=rows).loss,
        info_nce(**case, mask=mask, temperature=rows).loss,
    )


def bad_calls() -> dict[str, tuple[dict[str, object], str]]:
    v, n = torch.ones(4, 3), torch.ones(5, 3)
    base: dict[str, object] = {"query": v, "positive": v, "negatives": n}
    ids = torch.zeros(4, 2, dtype=torch.int64)
    return {
        "one dimension": (base | {"query": torch.ones(3)}, "query has shape"),
        "no rows": (base | {"query": torch.ones(0, 3), "positive": torch.ones(0, 3)}, "query has shape"),
        "other positive": (base | {"positive": torch.ones(3, 3)}, "positive has shape"),
        "other width": (base | {"negatives": torch.ones(5, 2)}, "expected width 3"),
        "other rows": (base | {"negatives": torch.ones(5, 2, 3)}, "negatives has 5 rows"),
        "integers": (base | {"query": v.long()}, r"query.float\(\)"),
        "not a tensor": (base | {"query": [1.0]}, "query is a list"),
        "mixed doubles": (base | {"negatives": n.double()}, "float64 does not mix"),
        "other device": (base | {"negatives": torch.ones(5, 3, device="meta")}, "negatives is on meta"),
        "mask shape": (base | {"mask": torch.ones(4, 4, dtype=torch.bool)}, r"expected \(4, 5\)"),
        "mask dtype": (base | {"mask": torch.ones(4, 5)}, r"mask.bool\(\)"),
        "too many": (base | {"mask": torch.tensor([1, 6, 0, 0])}, "has 6 in row 1"),
        "table ids": (base | {"ids": ids + 5}, r"ids\[0, 0\] is 5; expected 0..4"),
        "ids dtype": (base | {"ids": ids.float()}, r"ids.long\(\)"),
        "ids alone": (base | {"ids": torch.zeros(5, dtype=torch.int64)}, "ids came without positive_ids"),
        "names alone": (base | {"positive_ids": torch.arange(4)}, "positive_ids came without ids"),
        "batch ids": ({"query": v, "positive": v, "ids": ids}, "ids came without negatives"),
        "names shape": (base | {"positive_ids": torch.arange(3)}, "positive_ids has shape"),
        "log_q shape": (base | {"log_q": torch.zeros(4)}, r"expected \(5,\) or \(4, 5\)"),
        "log_q gradient": (base | {"log_q": torch.zeros(5, requires_grad=True)}, r"log_q.detach\(\)"),
        "temperature": (base | {"temperature": 0.0}, "temperature=0.0"),
        "temperature tensor": (base | {"temperature": torch.tensor(-1.0)}, "finite numbers above 0"),
        "temperature shape": (base | {"temperature": torch.ones(2)}, "one per row"),
        "reduction": (base | {"reduction": "avg"}, "'mean', 'sum' or 'none'"),
        "weight shape": (base | {"weight": torch.ones(3)}, "one per row"),
        "weight sign": (base | {"weight": torch.tensor([1.0, -1.0, 0.0, 0.0])}, r"weight\[1\] is -1.0"),
        "weight zero": (base | {"weight": torch.zeros(4)}, "all weights are 0"),
        "impl": (base | {"impl": "fast"}, "'reference', 'streamed', 'fused'"),
        "fused in float64": (
            {k: t.double() for k, t in base.items()} | {"impl": "fused"},
            "impl='fused', but the kernels",
        ),
    }


@pytest.mark.parametrize("name", bad_calls())
def test_bad_input_is_told_what_to_type(name: str) -> None:
    arguments, message = bad_calls()[name]
    with pytest.raises(InputError, match=message):
        info_nce(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", ["query", "positive", "negatives"])
def test_a_number_that_is_none_is_named(impl: str, value: float, name: str) -> None:
    case = random_case("shared", 4, 6, 3, torch.float32)
    case[name][2, 1] = value
    with pytest.raises(InputError, match=rf"{name} is not finite: {value} first in row 2"):
        info_nce(**case, impl=impl)


@pytest.mark.parametrize("impl", IMPLS)
def test_overflow_and_impossible_draws_are_named(impl: str) -> None:
    huge = torch.full((2, 2), 1e30)
    with pytest.raises(InputError, match="scores overflow"):
        info_nce(huge, huge, huge, impl=impl)
    with pytest.raises(InputError, match="log_q is not finite: -inf"):
        info_nce(torch.ones(2, 2), torch.ones(2, 2), torch.ones(1, 2), log_q=torch.tensor([-torch.inf]), impl=impl)
    with pytest.raises(InputError, match="negatives is not finite"):
        info_nce_scores(torch.zeros(2), torch.tensor([[0.0], [torch.nan]]))


@pytest.mark.parametrize("impl", IMPLS)
def test_autocast_does_not_round_the_scores(impl: str) -> None:
    case = random_case("shared", 5, 40, 64, torch.float32)
    want = info_nce(**case, impl=impl).loss
    leaf = case["negatives"].requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = info_nce(**case, impl=impl).loss
    (grad,) = torch.autograd.grad(got, leaf)
    (plain,) = torch.autograd.grad(info_nce(**case, impl=impl).loss, leaf)
    assert got.dtype == torch.float32 and torch.equal(got.detach(), want) and torch.equal(grad, plain)


@pytest.mark.parametrize("impl", ["reference", "streamed"])
@pytest.mark.parametrize("bad", [float("inf"), -float("inf"), float("nan")])
def test_a_key_that_only_the_gradient_would_feel_is_named(impl, bad):
    query = torch.rand(4, 3).requires_grad_()  # all positive, so that every score of the key is -inf
    negatives = torch.rand(6, 3)
    negatives[2, 1] = bad
    with pytest.raises(InputError, match="negatives is not finite"):
        info_nce(query, torch.rand(4, 3), negatives, impl=impl)
    # Where it is masked it is not looked at.
    mask = torch.ones(4, 6, dtype=torch.bool)
    mask[:, 2] = False
    info_nce(query, torch.rand(4, 3), negatives, mask=mask, impl=impl).loss.backward()
    assert bool(torch.isfinite(query.grad).all())
