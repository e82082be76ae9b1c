"""``impl="counted"`` in plain torch: each row's ids are counted, and the table is shared.

Referees: float64, the paper in loops, and the streamed pass.
"""

from __future__ import annotations

import pytest
import torch
from loss_accuracy import everything, no_less_accurate
from loss_loops import as_in_loops, random_case
from torch import Tensor

from negwise.errors import InputError, NegwiseError
from negwise.losses import info_nce, table_counts, which_impl


def hidden(hide: str, rows: int, width: int) -> Tensor | None:
    make = torch.Generator().manual_seed(7)
    if hide == "mask":
        return torch.rand(rows, width, generator=make) < 0.6
    return torch.randint(0, width + 1, (rows,), generator=make) if hide == "counts" else None


@pytest.mark.parametrize("blocks", ["one", "many"])
@pytest.mark.parametrize("hide", ["nothing", "mask", "counts", "names"])
def test_equals_the_paper_in_loops(hide: str, blocks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if blocks == "many":
        monkeypatch.setattr(table_counts, "BUDGET", 2 * 29)
    case = random_case("table", 5, 41, 3, torch.float64)
    mask = hidden(hide, 5, 41)
    more = {} if mask is None else {"mask": mask}
    if hide == "names":
        more["positive_ids"] = case["ids"][:, 0].clone()
        mask = case["ids"] != case["ids"][:, :1]
    got = info_nce(**case, **more, temperature=0.7, reduction="none", impl="counted")
    as_in_loops(got, case, mask, 0.7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 17), (17, 33, 3), (70, 300, 40)])
def test_no_less_accurate_than_the_reference(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    no_less_accurate([random_case("table", *shape, dtype, seed) for seed in range(6)], "counted")


@pytest.mark.parametrize("hide", ["nothing", "mask", "counts"])
def test_gradients_are_those_of_the_streamed_pass(hide: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_counts, "BUDGET", 3 * 29)
    case, mask = random_case("table", 13, 57, 6, torch.float64), hidden(hide, 13, 57)
    more = {} if mask is None else {"mask": mask}
    mine, other = (everything(case, impl, **more) for impl in ("counted", "streamed"))
    for name, want in other.items():
        torch.testing.assert_close(mine[name], want, rtol=1e-10, atol=1e-12)


def test_scores_that_overflow_an_exponential() -> None:
    table = torch.tensor([[1e4], [-1e4], [0.0]])
    ids = torch.tensor([[0, 0, 1], [1, 1, 1], [2, 2, 2]])
    got = info_nce(torch.ones(3, 1), torch.zeros(3, 1), table, ids=ids, reduction="none", impl="counted")
    assert got.loss.tolist() == pytest.approx([1e4 + 0.6931, 0.0, 1.3863], rel=1e-4)
    assert got.wins is not None and got.wins.tolist() == [1.0, 3.0, 1.5]
    assert got.hits is not None and got.hits.tolist() == [0.0, 1.0, 0.25]


def test_rows_without_negatives_and_without_a_graph() -> None:
    case = random_case("table", 3, 9, 4, torch.float32)
    with torch.no_grad():
        got = info_nce(**case, mask=torch.tensor([0, 9, 0]), reduction="none", impl="counted")
    assert not got.loss.requires_grad
    assert got.loss[0] == 0 and got.loss[2] == 0 and got.loss[1] > 0
    assert got.pairs is not None and got.pairs.tolist() == [0, 9, 0]
    assert got.rows is not None and got.rows.tolist() == [0, 1, 0]
    assert info_nce(**case, impl="counted", stats=False).wins is None


def test_when_it_is_chosen() -> None:
    wide = {"query": torch.randn(4, 64), "positive": torch.randn(4, 64), "negatives": torch.randn(1000, 64)}
    many, few = torch.randint(0, 1000, (4, 800)), torch.randint(0, 1000, (4, 20))
    assert which_impl(**wide, ids=many).impl == "counted"
    assert "800 ids per row" in which_impl(**wide, ids=many).why
    assert which_impl(**wide, ids=few).impl != "counted"
    # A vector that is not finite would reach every row, so rows that do not have it are looked up.
    wide["negatives"][999] = torch.nan
    few = torch.randint(0, 999, (4, 800))
    assert which_impl(**wide, ids=few).impl != "counted"
    assert torch.isfinite(info_nce(**wide, ids=few).loss)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"ids": None}, "there are no ids"),
        ({"log_q": torch.zeros(3, 9)}, "log_q corrects single draws"),
        ({"negatives": torch.full((29, 4), torch.inf)}, "not finite"),
    ],
)
def test_what_it_refuses(change: dict[str, Tensor | None], match: str) -> None:
    with pytest.raises(InputError, match=f"{match}.*Pass impl='auto'"):
        info_nce(**{**random_case("table", 3, 9, 4, torch.float32), **change}, impl="counted")  # type: ignore[arg-type]


def test_no_second_derivative() -> None:
    case = random_case("table", 3, 9, 4, torch.float32)
    query = case.pop("query").requires_grad_()
    with pytest.raises(NegwiseError, match="impl='reference'"):
        torch.autograd.grad(info_nce(query, **case, impl="counted").loss, query, create_graph=True)
