"""A plan says all that its ids are a function of: Python loops that read nothing else draw the sampler's ids."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from negwise.draws import Key, Stream, block
from negwise.errors import InputError
from negwise.protocols import Draw, SamplingTables
from negwise.samplers import Exclusions, Lists, Popularity, Uniform

N_ITEMS = 37
RNG = np.random.default_rng(5)
KNOWN = [sorted(RNG.choice(N_ITEMS, m, replace=False).tolist()) for m in (0, 3, 20, 34, 35, 36, 37)]
POSITIVES = torch.from_numpy(RNG.integers(0, N_ITEMS, 21))
OWNERS = torch.arange(21) % 7
SEEN = torch.from_numpy(np.append(RNG.integers(0, 3, N_ITEMS - 1), 4))  # many were never seen: they have no mass


def samplers(on_shortage: str = "mask") -> dict[str, Any]:
    lists = Lists.of(KNOWN)
    made: dict[str, Any] = {"uniform": Uniform(N_ITEMS), "popularity": Popularity(SEEN)}
    for name, bitmap in (("bits", True), ("lists", False)):
        known = Exclusions.of(lists, N_ITEMS, bitmap=bitmap)
        made[f"uniform {name}"] = Uniform(N_ITEMS, known, on_shortage)  # type: ignore[arg-type]
        made[f"popularity {name}"] = Popularity(SEEN, 0.75, known, on_shortage)  # type: ignore[arg-type]
    return made


def knows(tables: SamplingTables, owner: int, item: int, n_items: int) -> bool:
    if tables.bits is not None:
        return bool(int(tables.bits[owner, item // 64]) >> item % 64 & 1)
    return owner * n_items + item in tables.keys[int(tables.offsets[owner]) : int(tables.offsets[owner + 1])].tolist()


def from_tables(tables: SamplingTables, hi: int, lo: int, n_items: int) -> int:
    if tables.columns is None:
        return ((hi << 32 | lo) * n_items) >> 64
    own = (hi * len(tables.columns)) >> 32
    column = int(tables.columns[own]) % 2**64
    return own if lo < column >> 32 else column % 2**32


def in_loops(draw: Draw) -> list[list[int]]:
    """The ids (B, K) from the fields of a draw, one after the other."""
    tables, n, rows = draw.tables(draw.device), draw.n_items, []
    mass = [1] * n if tables.starts is None else tables.starts.diff().tolist()
    for b in range(draw.rows):
        positive, owner = int(draw.positives[b]), int(draw.owners[b])
        key, number = Key(draw.seed, draw.step), np.array([int(draw.numbers[b])])

        def words(of: int, redraw: int, key: Key = key, number: Any = number) -> list[int]:
            return [int(word[0]) for word in block(key, number, np.array([of]), Stream(draw.stream), redraw)]

        barred = [i == positive or knows(tables, owner, i, n) for i in range(n)]
        ids = [0] * draw.width
        for j in range(int(draw.counts[b])):
            tries = [words(j // 2, 0)[2 * (j % 2) :][:2]]
            for redraw in range(1, draw.max_redraws + 1):
                four = words(j, redraw)
                tries += [four[:2], four[2:]]
            left = [i for i in (from_tables(tables, hi, lo, n) for hi, lo in tries) if not barred[i]]
            if left:
                ids[j] = left[0]
                continue
            hi, lo, *_ = words(j, draw.max_redraws + 1)
            unit = ((hi << 32 | lo) * int(draw.allowed[b])) >> 64
            for i in range(n):
                if not barred[i] and unit < mass[i]:
                    ids[j] = i
                    break
                unit -= 0 if barred[i] else mass[i]
        rows.append(ids)
    return rows


@pytest.mark.parametrize("name", samplers())
@pytest.mark.parametrize("k", [1, 2.5, 9])
def test_loops_over_the_fields_of_a_plan_draw_the_samplers_ids(name: str, k: float) -> None:
    sampler = samplers()[name]
    for key in (Key(3, 7), Key(2**64 - 1, 2**32 - 1, 2**43 + 2**33 + 5)):
        plan = sampler.plan(POSITIVES, k, key, owner=OWNERS)
        want = sampler(POSITIVES, k, key, owner=OWNERS)
        assert in_loops(plan) == want.ids.tolist()
        assert torch.equal(torch.arange(plan.width) < plan.counts[:, None], want.mask)
        for field in ("ids", "mask", "log_q", "removed"):
            assert torch.equal(getattr(plan.negatives(), field), getattr(want, field)), field


def test_the_last_draw_is_put_to_the_test() -> None:
    """Of the owners above, some know so much that redraws run out; else the loops would prove less than they say."""
    sampler = samplers()["uniform bits"]
    plan = sampler.plan(POSITIVES, 9, Key(3, 7), owner=OWNERS)
    fewer = dataclasses.replace(plan, max_redraws=0)
    assert in_loops(fewer) != plan.negatives().ids.tolist()
    more = dataclasses.replace(plan, max_redraws=40)
    assert in_loops(more) != plan.negatives().ids.tolist()


def test_a_plan_is_small_and_moves_without_its_tables() -> None:
    plan = samplers()["popularity bits"].plan(POSITIVES, 2.5, Key(0, 0), owner=OWNERS)
    assert (plan.rows, plan.width, plan.device.type) == (21, 3, "cpu")
    assert plan.tables(plan.device) is plan.tables(plan.device)
    moved = dataclasses.replace(plan, tables=lambda device: pytest.fail(f"tables went to {device}")).to("meta")
    parts = [value for value in vars(moved).values() if isinstance(value, torch.Tensor)]
    assert len(parts) == 5
    assert all(part.device.type == "meta" and part.shape == (21,) for part in parts)


def test_a_step_on_the_device_goes_before_the_plans_own() -> None:
    made = samplers()["uniform bits"]
    plan, other = (made.plan(POSITIVES, 9, Key(3, step), owner=OWNERS) for step in (7, 2**32 - 1))
    later = dataclasses.replace(plan, when=torch.tensor([2**32 - 1])).to("cpu")
    assert torch.equal(later.negatives().ids, other.negatives().ids)
    assert not torch.equal(plan.negatives().ids, other.negatives().ids)


def test_a_plan_is_checked_as_a_draw_is() -> None:
    sampler = samplers("error")["uniform bits"]
    with pytest.raises(InputError, match="row 6 of the batch wants 2 negatives and has 0"):
        sampler.plan(POSITIVES, 2, Key(0, 0), owner=OWNERS)
    with pytest.raises(InputError, match="owner=user_ids"):
        sampler.plan(POSITIVES, 2, Key(0, 0))
    with pytest.raises(InputError, match="positives holds"):
        sampler.plan(POSITIVES + N_ITEMS, 2, Key(0, 0), owner=OWNERS)
