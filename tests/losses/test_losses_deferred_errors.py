"""What is wrong with a value makes its row NaN at once, since the kernels wait for nothing, and is named late."""

from __future__ import annotations

import pytest
import torch
from kernel_world import DEVICE, here, kernels, no_deferred_errors, quiet
from loss_loops import random_case

from negwise.errors import InputError
from negwise.losses import info_nce, raise_deferred_errors

pytestmark = [pytest.mark.gpu, quiet, kernels]
__all__ = ["no_deferred_errors"]


def bad(device: torch.device) -> dict[str, tuple[dict[str, object], str]]:
    case = {name: tensor.to(device) for name, tensor in random_case("table", 4, 6, 3, torch.float32).items()}
    spoilt = {name: tensor.clone() for name, tensor in case.items()}
    spoilt["query"][2, 1] = torch.nan
    spoilt["positive"][2] = torch.inf
    spoilt["ids"][2, 3] = 29
    below = case["ids"].clone()
    below[2, 0] = -1
    sunk = case["negatives"].clone()
    sunk[case["ids"][2, 0]] = -torch.inf
    heat = torch.tensor([1.0, 1.0, 0.0, 1.0], device=device)
    log_q = torch.zeros(4, 6, device=device)
    log_q[2, 2] = -torch.inf
    return {
        "query": (case | {"query": spoilt["query"]}, "loss of row 2 is not finite"),
        "positive": (case | {"positive": spoilt["positive"]}, "loss of row 2 is not finite"),
        "key": (case | {"negatives": sunk}, "loss of row . is not finite"),
        "id": (case | {"ids": spoilt["ids"]}, r"ids\[2\] holds 29; expected 0..28"),
        "id below": (case | {"ids": below}, r"ids\[2\] holds -1; expected 0..28"),
        "counts": (case | {"mask": torch.tensor([1, 2, 7, 0], device=device)}, "has 7 in row 2; expected 0..6"),
        "temperature": (case | {"temperature": heat}, "loss of row 2 is not finite"),
        "log_q": (case | {"log_q": log_q}, "loss of row 2 is not finite"),
        "overflow": (case | {"query": case["query"] * 1e30, "positive": case["positive"] * 1e30}, "not finite"),
    }


@pytest.mark.parametrize("name", bad(torch.device("cpu")))
@pytest.mark.parametrize("graph", [False, True])
def test_a_bad_value_is_nan_at_once_and_named_late(name: str, graph: bool) -> None:
    given, message = bad(DEVICE)[name]
    given["query"] = given["query"].clone().requires_grad_(graph)  # type: ignore[attr-defined]
    got = info_nce(**given, reduction="none", impl="fused").loss.detach()  # type: ignore[arg-type]
    assert not bool(torch.isfinite(got[2]))
    if name not in ("key", "overflow"):
        assert bool(torch.isfinite(got[[0, 1, 3]]).all())
    with pytest.raises(InputError, match=message):
        info_nce(torch.ones(1, 2, device=DEVICE), torch.ones(1, 2, device=DEVICE), impl="fused")
    raise_deferred_errors()


@pytest.mark.parametrize("layout", ["shared", "batch"])
def test_bad_counts_and_keys_of_a_shared_set(layout: str) -> None:
    case = here(random_case(layout, 4, 6, 3, torch.float32))
    counts = torch.tensor([1, 2, 40, 0], device=DEVICE)
    loss = info_nce(**case, mask=counts, reduction="none", impl="fused").loss
    assert loss.isnan().tolist() == [False, False, True, False]
    with pytest.raises(InputError, match="has 40 in row 2"):
        raise_deferred_errors()
    case["query"] = case["query"].abs()
    key = "negatives" if layout == "shared" else "positive"
    case[key][1] = -torch.inf  # a share of 0, and still nothing to be silent about
    for graph in (False, True):
        case["query"] = case["query"].detach().requires_grad_(graph)
        assert not bool(torch.isfinite(info_nce(**case, reduction="none", impl="fused").loss[0]))
        with pytest.raises(InputError, match="is not finite"):
            raise_deferred_errors()


def test_a_bad_weight_makes_the_loss_nan() -> None:
    case = here(random_case("table", 3, 6, 3, torch.float32))
    for weight in ([1.0, -1.0, 0.0], [1.0, torch.inf, 0.0], [0.0, 0.0, 0.0]):
        assert info_nce(**case, weight=torch.tensor(weight, device=DEVICE), impl="fused").loss.isnan()
