"""The open-loop rules: one conformance suite over all of them, then each against its own plain definition."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from negwise.errors import InputError
from negwise.protocols import Observation, OpenLoopRule, Rule
from negwise.schedule import (
    ALL_SCHEDULES,
    AnsK,
    ConstantK,
    FunctionK,
    PiecewiseK,
    WarmK,
    parse_rule,
    training_fraction,
)


def double(fraction: float) -> float:
    return 2 * fraction


EXAMPLES = [
    ConstantK(4),
    ConstantK(0),
    ConstantK(2.5),
    AnsK(20),
    AnsK(20.6, turning_point=0.0),
    AnsK(3, turning_point=1.0),
    WarmK(20),
    WarmK(7.5, warmup=0.0),
    WarmK(7, warmup=1.0),
    PiecewiseK([(0.0, 1), (0.3, 9.5), (1.0, 0)]),
    PiecewiseK([(0.2, 1), (0.4, 1), (0.4, 20)]),
    FunctionK(double),
]
FRACTIONS = np.linspace(0, 1, 41)


@pytest.fixture(params=EXAMPLES, ids=repr)
def rule(request):
    return request.param


def test_the_examples_cover_every_schedule():
    assert {type(rule) for rule in EXAMPLES} == set(ALL_SCHEDULES)


def test_is_a_rule_by_protocol(rule):
    assert isinstance(rule, Rule)
    assert isinstance(rule, OpenLoopRule)


def test_k_is_a_finite_float_not_below_zero(rule):
    for fraction in FRACTIONS:
        k = rule(float(fraction))
        assert type(k) is float
        assert math.isfinite(k)
        assert k >= 0


def test_update_is_the_rule_at_the_fraction_of_the_step(rule):
    total, state = 17, rule.init()
    for step in range(total):
        k, state = rule.update(Observation(step, total, wins=3.5, pairs=7, val_auc=0.6), state)
        assert k == rule(step / 16)


def test_resume_from_json_gives_the_same_k_at_the_same_step(rule):
    total, state, whole = 23, rule.init(), []
    for step in range(total):
        k, state = rule.update(Observation(step, total), state)
        whole.append(k)
        if step == 9:
            saved = json.dumps(state)
    state = json.loads(saved)
    assert state == rule.init()
    resumed = []
    for step in range(10, total):
        k, state = rule.update(Observation(step, total), state)
        resumed.append(k)
    assert resumed == whole[10:]


def test_is_frozen_hashable_and_equal_by_value(rule):
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(rule, dataclasses.fields(rule)[0].name, 3)
    assert rule == dataclasses.replace(rule)
    assert hash(rule) == hash(dataclasses.replace(rule))


def test_repr_names_the_rule_and_holds_no_address(rule):
    assert repr(rule).startswith(type(rule).__name__ + "(")
    assert " at 0x" not in repr(rule)


@pytest.mark.parametrize("fraction", [-0.01, 1.01, math.nan, math.inf, "0.5", None, True])
def test_a_fraction_outside_training_is_refused(rule, fraction):
    with pytest.raises(InputError, match=r"must lie in \[0, 1\]"):
        rule(fraction)


@pytest.mark.parametrize(("step", "total"), [(-1, 10), (10, 10), (0, 0), (0, -3)])
def test_a_step_outside_training_is_refused(rule, step, total):
    with pytest.raises(InputError, match=f"step {step} of total_steps {total}"):
        rule.update(Observation(step, total), rule.init())


def test_one_step_of_training_is_its_start(rule):
    assert training_fraction(0, 1) == 0.0
    assert rule.update(Observation(0, 1), rule.init())[0] == rule(0.0)


def test_the_last_step_is_fraction_one():
    assert [training_fraction(step, 5) for step in range(5)] == [0, 0.25, 0.5, 0.75, 1]


def test_ans_is_the_paper_triangle_over_real_steps():
    """1 at the first step, the peak after 10% of the steps, 1 at the last, straight lines between."""
    total = 1001
    ks = np.array([AnsK(20)(training_fraction(step, total)) for step in range(total)])
    assert ks[0] == 1
    assert ks[100] == 20 == ks.max()
    assert ks[-1] == 1
    np.testing.assert_allclose(np.diff(ks[:101]), 19 / 100, rtol=1e-9)
    np.testing.assert_allclose(np.diff(ks[100:]), -19 / 900, rtol=1e-9)


def test_warm_climbs_like_ans_and_then_holds():
    total = 1001
    ks = np.array([WarmK(20)(training_fraction(step, total)) for step in range(total)])
    np.testing.assert_allclose(np.diff(ks[:101]), 19 / 100, rtol=1e-9)
    assert (ks[100:] == 20).all()


@pytest.mark.parametrize(
    ("rule", "points"),
    [
        (AnsK(20.6, 0.3), [(0, 1), (0.3, 20.6), (1, 1)]),
        (WarmK(20.6, 0.3), [(0, 1), (0.3, 20.6), (1, 20.6)]),
        (PiecewiseK([(0.2, 5), (0.5, 0), (0.9, 8)]), [(0.2, 5), (0.5, 0), (0.9, 8)]),
        (ConstantK(3.3), [(0.5, 3.3)]),
    ],
    ids=repr,
)
def test_straight_lines_agree_with_numpy(rule, points):
    np.testing.assert_allclose([rule(f) for f in FRACTIONS], np.interp(FRACTIONS, *zip(*points, strict=True)))


def test_edges_of_the_turning_point():
    assert AnsK(20, 0.0)(0.0) == 20
    assert AnsK(20, 0.0)(0.5) == 10.5
    assert AnsK(20, 1.0)(1.0) == 20
    assert WarmK(20, 0.0)(0.0) == 20
    assert WarmK(20, 1.0)(0.5) == 10.5


def test_two_points_at_one_fraction_are_a_jump():
    rule = PiecewiseK([(0, 1), (0.3, 1), (0.3, 20)])
    assert [rule(f) for f in (0.0, 0.2999, 0.3, 1.0)] == [1, 1, 20, 20]


def test_piecewise_keeps_its_own_copy_of_the_points():
    points = [(0, 1), (1, 2)]
    rule = PiecewiseK(points)
    points[0] = (0, 99)
    assert rule(0.0) == 1


@settings(max_examples=100, deadline=None)
@given(peak=st.floats(1, 1e6), turning_point=st.floats(0, 1), fraction=st.floats(0, 1))
def test_ans_and_warm_stay_between_one_and_the_peak(peak, turning_point, fraction):
    for rule in (AnsK(peak, turning_point), WarmK(peak, turning_point)):
        assert 1 <= rule(fraction) <= peak * (1 + 1e-12)


@pytest.mark.parametrize("k", [-1, -1e-9, math.nan, math.inf, "4", None, True])
@pytest.mark.parametrize(
    "make",
    [ConstantK, AnsK, WarmK, lambda k: PiecewiseK([(0, 1), (1, k)]), lambda k: FunctionK(lambda _: k)(0.5)],
    ids=["constant", "ans", "warm", "piecewise", "function"],
)
def test_an_impossible_k_is_refused_with_its_value(make, k):
    with pytest.raises(InputError, match="must be a finite number of negatives") as caught:
        make(k)
    assert repr(k) in str(caught.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AnsK(0.5), "at least"),
        (lambda: WarmK(0), "at least"),
        (lambda: AnsK(20, 1.5), r"AnsK\(turning_point\) must lie in \[0, 1\]"),
        (lambda: WarmK(20, math.nan), r"WarmK\(warmup\) must lie in \[0, 1\]"),
        (lambda: PiecewiseK([]), "got none"),
        (lambda: PiecewiseK(4), r"\(fraction, k\) pairs"),
        (lambda: PiecewiseK([(0, 1, 2)]), r"\(fraction, k\) pairs"),
        (lambda: PiecewiseK([(0.5, 1), (0.2, 2)]), "in order"),
        (lambda: PiecewiseK([(0, 1), (1.2, 2)]), "point 1 must lie in"),
        (lambda: PiecewiseK([(0, 1), (0, 2), (0, 3)]), "two points at one fraction"),
        (lambda: FunctionK(4), "ConstantK"),
    ],
)
def test_bad_values_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("4", ConstantK(4)),
        (" 2.5 ", ConstantK(2.5)),
        ("0", ConstantK(0)),
        ("ans:20", AnsK(20)),
        ("ANS:20.6:0.2", AnsK(20.6, 0.2)),
        ("warm:20", WarmK(20)),
        ("warm:1e3:0", WarmK(1000, 0)),
    ],
)
def test_rules_from_text(text, rule):
    assert parse_rule(text) == rule


def test_whole_numbers_read_back_as_typed():
    assert repr(parse_rule("ans:20")) == "AnsK(peak=20, turning_point=0.1)"


@pytest.mark.parametrize("text", ["", "ans", "ans:", "ans:x", "linear:3", "ans:20:0.1:3", "4:5", "ans 20"])
def test_unreadable_text_is_refused_with_what_to_type(text):
    with pytest.raises(InputError, match="ans:20 or warm:20") as caught:
        parse_rule(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["-1", "nan", "ans:0.5", "warm:20:2"])
def test_readable_text_with_bad_values_names_the_value_and_what_was_typed(text):
    with pytest.raises(InputError, match=f"cannot train with K '{text}': .*got"):
        parse_rule(text)


def test_rules_import_without_torch():
    code = "import sys, negwise.schedule as s; s.AnsK(20)(0.5); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
