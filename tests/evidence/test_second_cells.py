"""The runs of the second study are those of its plan."""

import re
from pathlib import Path

import pytest

from evidence import second_cells as plan
from negwise import InputError

PLAN = (Path(__file__).parents[2] / "docs" / "evidence-plan.md").read_text().split("## The second study")[1]
CALL = 560
"""Seconds of one call: no run may take longer."""


def test_every_run_is_there_once():
    for block in plan.BLOCKS:
        cells = plan.cells_of(block)
        assert len(set(cells)) == len(cells) > 0
    every = plan.cells_in_order(plan.BLOCKS)
    assert len(set(every)) == len(every) < sum(len(plan.cells_of(block)) for block in plan.BLOCKS)
    assert min(cell.seed for cell in every) >= 10
    with pytest.raises(InputError, match="all: no such block; expected end-items"):
        plan.cells_of("all")


def test_the_plan_says_the_same():
    """Blocks in their order, the seeds of each, and its runs and seconds."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in PLAN.splitlines() if "| `" in line]
    assert [row[0].strip("`") for row in rows] == list(plan.BLOCKS)
    seen = set()
    for block, row in zip(plan.BLOCKS, rows, strict=True):
        cells = plan.cells_of(block)
        new = [cell for cell in cells if cell not in seen]
        seen |= set(new)
        seeds = re.findall(r"seeds? (\d+)(?: to (\d+))?", row[2])
        assert {(int(low), int(high or low)) for low, high in seeds} == {
            (min(cell.seed for cell in cells), max(cell.seed for cell in cells))
        }
        assert int(row[3].replace(",", "")) == len(new)
        assert int(row[4].replace(",", "")) == pytest.approx(sum(map(plan.seconds_of, new)) / 12, abs=10)


def test_no_run_is_longer_than_a_call():
    assert max(map(plan.seconds_of, plan.cells_in_order(plan.BLOCKS))) < CALL


def test_the_cells_of_the_blocks():
    rates = {}
    for cell in plan.cells_of("rates"):
        rates.setdefault((cell.task, cell.k), []).append(cell.scale)
    assert all(sorted(scales) == [0.25, 0.5, 1, 2, 4] for scales in rates.values()) and len(rates) == 10
    assert len({plan.DATA[cell.task]["model"] for cell in plan.cells_of("models")}) == 7
    drawn = {(cell.task, cell.negatives, cell.correct) for cell in plan.cells_of("negatives")}
    plain = {("items", "", False), ("matching", "", False)}
    assert drawn == plain | {("items", "popularity", False), ("items", "popularity", True), ("mined", "", False)}
    assert {cell.k for cell in plan.cells_of("negatives")} == {"1", "20", "100", "1000"}
    assert {cell.task for cell in plan.cells_of("sizes")} >= {"wide", "packages", "histories"}
    assert {cell.noise for cell in plan.cells_of("noise")} == {0, 0.05, 0.2, 0.4}
