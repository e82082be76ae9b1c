"""What is trained after an estimate, and what an odd estimate changes."""

from dataclasses import replace

import pytest

from negwise.datasets import inspect
from negwise.errors import InputError
from negwise.jobs.arms import arms_of, check_ceiling, explain_schedule, parse_arm
from negwise.jobs.preparation import ceiling_of
from negwise.requests import RunRequest
from negwise.theory.optimal_k import optimal_k
from tests.datasets.data_files import mind_behaviors, mind_news, write_mind

OK = optimal_k(train_auc=0.9552)


def rules(found):
    return [each.rule for each in found]


def test_the_usual_four():
    arms, notes = arms_of(OK, "warm", 1000)
    assert rules(arms) == ["warm:21", "1", "21", "100"]
    assert [each.role for each in arms] == ["schedule", "K=1", "fixed K*", "extra"]
    assert [each.uses_pilot for each in arms] == [True, False, True, False]
    assert len(notes) == 1 and notes[0].startswith("K = 100 is tried too")


@pytest.mark.parametrize(
    ("k_star", "ceiling", "tried"),
    [(99, 1000, ["99", "1", "100"]), (100, 1000, ["100", "1"]), (158, 500, ["158", "1"]), (4, 30, ["4", "1", "30"])],
)
def test_the_k_that_needs_no_pilot_is_tried_where_it_is_more(k_star, ceiling, tried):
    arms, notes = arms_of(replace(OK, k_int=k_star), "fixed", ceiling)
    assert rules(arms) == tried
    assert bool(notes) == (len(tried) == 3)
    assert ceiling >= 100 or notes[0].startswith("K = 30, all that there are, is tried too")


def test_a_fixed_schedule_is_its_own_comparison():
    assert rules(arms_of(OK, "fixed", 1000)[0]) == ["21", "1", "100"]


@pytest.mark.parametrize(
    ("schedule", "verdict", "start"),
    [
        ("fixed", "ok", "Schedule: K* throughout"),
        ("ans", "capped", "Schedule: the paper's ANS"),
        ("warm:20", "ok", None),
        ("fixed", "vacuous", None),
    ],
)
def test_a_schedule_is_explained_where_there_is_a_k_for_it(schedule, verdict, start):
    said = explain_schedule(schedule, replace(OK, verdict=verdict))
    assert said == () if start is None else said[0].startswith(start)


def test_without_comparison_one_arm():
    assert rules(arms_of(OK, "ans", 1000, compare=False)[0]) == ["ans:21"]


def test_a_rule_of_ones_own_did_not_need_the_pilot():
    found = arms_of(OK, "warm:7", 1000)[0]
    assert (found[0].rule, found[0].uses_pilot) == ("warm:7", False)


def test_no_k_above_what_there_is():
    arms, notes = arms_of(OK, "warm", 10)
    assert rules(arms) == ["warm:10", "1", "10"]
    assert "at most 10" in notes[0]
    with pytest.raises(InputError, match="no row has more than 10"):
        arms_of(OK, "warm:11", 10)
    with pytest.raises(InputError, match=r"K = 100000.*--pool"):
        check_ceiling(parse_arm("ans:1e5"), 512)


@pytest.mark.parametrize("verdict", ["vacuous", "inconsistent"])
def test_where_the_curves_say_nothing_k_is_measured(verdict):
    arms, notes = arms_of(replace(OK, verdict=verdict), "warm", 50)
    assert rules(arms) == ["warm:50", "1", "4", "20", "50"]
    assert not any(each.uses_pilot for each in arms)
    assert verdict in notes[0]
    assert "K = 1, 4, 20, 50." in notes[0]
    assert rules(arms_of(replace(OK, verdict=verdict), "fixed", 1000)[0]) == ["100", "1", "4", "20"]
    assert rules(arms_of(replace(OK, verdict=verdict), "fixed", 3)[0]) == ["3", "1"]
    arms, notes = arms_of(replace(OK, verdict=verdict), "warm", 50, compare=False)
    assert rules(arms) == ["warm:50"]
    assert "warm:50 is a guess" in notes[0]
    assert "warm:5 is what was asked for" in arms_of(replace(OK, verdict=verdict), "warm:5", 50, compare=False)[1][0]


def test_a_capped_estimate_tries_the_ends_of_its_interval():
    arms, notes = arms_of(replace(OK, verdict="capped", interval=(3.2, 340.0)), "warm", 200)
    assert rules(arms) == ["warm:21", "1", "21", "3", "200"]
    assert "interval" in notes[0]
    assert rules(arms_of(replace(OK, verdict="capped", k_int=100), "warm", 200)[0]) == ["warm:100", "1", "100", "10"]


def test_a_pilot_that_says_something_else_when_cut_short_changes_no_arm():
    large = replace(OK, k_int=158, flat=(100, 250))
    moved = replace(large, k_by_pilot={"0.5": 20.0, "0.75": 60.0})
    assert large.settled and not moved.settled
    assert arms_of(moved, "fixed", 1000) == arms_of(large, "fixed", 1000)


def test_a_lower_bound_tries_more():
    arms, notes = arms_of(replace(OK, basis="lower bound"), "warm", 1000)
    assert rules(arms) == ["warm:21", "1", "21", "100"]  # which is more than 4 x 21, and needs no pilot
    assert "K = 100" in notes[0] and len(notes) == 1 and not arms[-1].uses_pilot
    arms, notes = arms_of(replace(OK, basis="lower bound", k_int=30), "fixed", 1000)
    assert rules(arms) == ["30", "1", "120"] and arms[-1].uses_pilot
    assert "lower bound" in notes[0] and "K = 120" in notes[0]
    assert rules(arms_of(replace(OK, basis="forecast", k_int=30), "fixed", 1000)[0]) == ["30", "1", "100"]
    assert arms_of(replace(OK, basis="lower bound"), "warm", 21)[1] == ()  # there is no more to try


@pytest.mark.parametrize("rule", ["0", "warm:0", "0.0"])
def test_no_negatives_at_all_are_refused(rule):
    with pytest.raises(InputError, match=r"more than 0|at least 1"):
        parse_arm(rule)


def test_what_is_no_rule_is_refused():
    with pytest.raises(InputError, match="cannot read K"):
        arms_of(OK, "wram", 1000)


def test_a_large_k_keeps_its_digits():
    found, _ = arms_of(replace(OK, k=5e6, k_int=5_000_000), "fixed", 1_234_567)
    assert rules(found) == ["1234567", "1"] and found[0].k == 1_234_567


@pytest.mark.parametrize(("negatives", "most"), [(None, 5), ("impression", 5), ("uniform", 39)])
def test_the_ceiling_is_that_of_the_negatives_that_were_asked_for(negatives, most, tmp_path):
    """Of impressions that show six of forty news, of which one is clicked."""
    news = mind_news(40)
    shown = [(f"N{number}", int(number == 0)) for number in range(6)]
    rows = [(*row[:-1], shown) for row in mind_behaviors(30, news, days=range(9, 20))]
    report = inspect(write_mind(tmp_path / "MIND", news, rows), cache=tmp_path / "cache")
    assert ceiling_of(RunRequest(data="MIND", negatives=negatives), report) == most
