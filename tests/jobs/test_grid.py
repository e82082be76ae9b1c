"""Which learning rate an arm keeps, from folders as runs leave them: done, failed for good, or open."""

from dataclasses import replace

import pytest
from job_world import finished

from negwise.jobs.arms import parse_arm
from negwise.jobs.grid import Grid, choose_rate
from negwise.jobs.results import caveats_of, collect_results
from negwise.records import Failure, write_record
from negwise.requests import TrainRequest

RATES = (1e-3, 3e-3, 9e-3)


@pytest.fixture
def grid(tmp_path):
    base = TrainRequest(data="docs", model="siamese-cnn", steps=8)
    return Grid(tmp_path, (parse_arm("8"), parse_arm("1")), base, RATES, (0, 1))


def done(cell, auc):
    (cell.folder / "failed.json").unlink(missing_ok=True)
    write_record(cell.folder / "result.json", finished(auc, steps=8))


def failed(cell, error, *, wrong):
    write_record(cell.folder / "failed.json", Failure(error, wrong))


def arm_of(grid, name="8"):
    found = collect_results(grid, kind="run", metrics=("auc",), pilot=None)
    return next(each for each in found.arms if each.name == name), found


def test_the_best_on_validation_is_kept_and_becomes_the_first_seed(grid):
    slow, middle, fast = cells = grid.tuning_runs(grid.arms[0])
    for cell, auc in zip(cells, (0.7, 0.9, 0.8), strict=True):
        done(cell, auc)
    for _ in range(2):  # killed after the choice, before the move: the same again
        choose_rate(grid, grid.arms[0])
        assert grid.choice(grid.arms[0]).learning_rate == 3e-3
    assert not middle.folder.exists()
    assert slow.folder.exists()
    assert fast.folder.exists()
    found, _ = arm_of(grid)
    assert [seed.state for seed in found.seeds] == ["done", "waiting"]
    assert found.seeds[0].val.auc == 0.9
    assert [cell.request.learning_rate for cell in grid.runs(grid.arms[0])] == [3e-3, 3e-3]


def test_several_seeds_may_choose_together(grid):
    """The rate that is best for the first seed alone loses by its mean; one that a seed cannot train is out."""
    grid = replace(grid, seeds=(0, 1, 2), tuning_seeds=2)
    cells = grid.tuning_runs(grid.arms[0])
    assert [(cell.request.seed, cell.request.learning_rate) for cell in cells] == [
        (seed, rate) for seed in (0, 1) for rate in RATES
    ]
    assert len({cell.folder for cell in cells}) == 6
    for cell, auc in zip(cells[:-1], (0.95, 0.9, 0.99, 0.7, 0.88), strict=True):
        done(cell, auc)
    choose_rate(grid, grid.arms[0])
    assert grid.choice(grid.arms[0]) is None  # the last one is still to come
    failed(cells[-1], "a record holds a number that JSON has none for", wrong=True)
    choose_rate(grid, grid.arms[0])
    assert grid.choice(grid.arms[0]).learning_rate == 3e-3
    found, _ = arm_of(grid)
    assert [seed.state for seed in found.seeds] == ["done", "done", "waiting"]
    assert [seed.val.auc for seed in found.seeds[:2]] == [0.9, 0.88]


def test_a_rate_that_may_work_next_time_keeps_the_choice_open(grid):
    slow, middle, fast = grid.tuning_runs(grid.arms[0])
    done(slow, 0.7)
    done(middle, 0.8)
    failed(fast, "could not write: No space left on device", wrong=False)
    choose_rate(grid, grid.arms[0])
    assert grid.choice(grid.arms[0]) is None
    assert grid.runs(grid.arms[0]) == []
    found, all_of_it = arm_of(grid)
    assert [row.state for row in found.tuning] == ["done", "done", "failed"]
    assert all("0.009 failed" in seed.error and "No space" in seed.error for seed in found.seeds)
    assert any("The same command tries them again" in caveat for caveat in caveats_of(all_of_it, None))
    done(fast, 0.9)  # the same command again
    choose_rate(grid, grid.arms[0])
    assert grid.choice(grid.arms[0]).learning_rate == 9e-3
    assert arm_of(grid)[0].seeds[0].error is None


def test_a_rate_that_cannot_be_trained_is_out_and_said(grid):
    slow, middle, fast = grid.tuning_runs(grid.arms[0])
    done(slow, 0.7)
    done(middle, 0.8)
    failed(fast, "a record holds a number that JSON has none for", wrong=True)
    choose_rate(grid, grid.arms[0])
    assert grid.choice(grid.arms[0]).learning_rate == 3e-3
    said = caveats_of(arm_of(grid)[1], None)
    assert any("0.009 could not be trained for 8" in caveat for caveat in said)


@pytest.mark.parametrize("wrong", [True, False])
def test_where_no_rate_was_trained_nothing_is_settled(grid, wrong):
    for cell in grid.tuning_runs(grid.arms[0]):
        failed(cell, "no luck", wrong=wrong)
    choose_rate(grid, grid.arms[0])
    assert grid.choice(grid.arms[0]) is None  # so that the same command tries again
    assert {seed.state for seed in arm_of(grid)[0].seeds} == {"failed"}
    assert {seed.state for seed in arm_of(grid, "1")[0].seeds} == {"waiting"}
    assert arm_of(grid, "1")[0].tuning == ()


def test_a_file_in_the_place_of_a_run_is_a_failed_seed(grid):
    one = Grid(grid.out, grid.arms, grid.base, RATES[:1], (0,))
    place = one.folder(one.arms[0], 0)
    place.parent.mkdir(parents=True)
    place.write_text("")
    assert "is a file" in arm_of(one)[0].seeds[0].error
