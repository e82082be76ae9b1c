"""`StepControl`: K of the step that runs, its draws, what it saw, its state."""

import json
import math

import numpy as np
import pytest
import torch

from negwise.draws import Key, counts
from negwise.errors import InputError
from negwise.integrations import KInfoNCE, StepControl
from negwise.integrations.step_control import COUNTS, LAG
from negwise.integrations.step_draws import HOST_DRAWS, draw_on_device, draw_on_host, step_numbers
from negwise.protocols import Observation
from negwise.schedule import AnsK, ConstantK, FunctionK, OnlineK

CPU = torch.device("cpu")


def sums(wins=0.0, pairs=0.0, hits=0.0, rows=0.0, loss=0.0, log_k1=None):
    """What a batch without given negatives counts; all rows have the same number of them unless ``log_k1`` says."""
    log_k1 = rows * math.log1p(pairs / max(rows, 1)) if log_k1 is None else log_k1
    return torch.tensor([wins, pairs, wins, pairs, hits, rows, rows, log_k1, loss], dtype=torch.float64)


def test_k_of_each_step_is_the_rules():
    control = StepControl("ans:20", total_steps=101)
    for step in range(101):
        assert control.begin(step) == AnsK(20)(step / 100)
        assert control.begin(step) == control.k  # a micro-batch of the same step
        control.end()


def test_counts_are_those_of_the_draws_over_micro_batches():
    control = StepControl(ConstantK(2.3), total_steps=9, seed=2**40 + 7)
    for step in range(3):
        control.begin(step)
        drawn = torch.cat([control.draws(rows, 4, CPU)[0] for rows in (5, 8, 3)])
        assert drawn.tolist() == counts(2.3, 16, Key(2**40 + 7, step)).tolist()


def test_one_draw_for_a_batch_that_is_seen_several_times():
    control = StepControl("2.5", total_steps=9, by_call=False)
    control.begin(0)
    first, again = control.draws(8, 20, CPU), control.draws(8, 20, CPU)
    assert first[0].tolist() == again[0].tolist() and first[1].tolist() == again[1].tolist()
    control.add(sums(pairs=4, rows=8))
    control.add(sums(pairs=400, rows=800))
    control.next_batch()
    other = control.draws(8, 20, CPU)
    assert other[1].tolist() != first[1].tolist()
    assert other[0].tolist() == counts(2.5, 16, Key(0, 0)).tolist()[8:]
    control.end()
    assert control.logs()["k_used"] == 0.5  # the first of them counted


def test_order_is_a_fair_permutation():
    control = StepControl("1", total_steps=4000)
    seen = torch.zeros(5, 5)
    for step in range(4000):
        control.begin(step)
        order = control.draws(1, 5, CPU)[1]
        assert sorted(order.tolist()) == list(range(5))
        seen[torch.arange(5), order] += 1
    # Each place is first, second, ... with probability 1/5; chi-square with 16 degrees of freedom, 99.9% at 39.3.
    assert float(((seen - 800) ** 2 / 800).sum()) < 39.3


@pytest.mark.parametrize(
    ("step", "k", "base", "seed"), [(0, 2.5, 0, 0), (7, 3, 5, 2**40 + 7), (2**31 + 5, 0.3, 2**33, 2**64 - 1)]
)
def test_draws_on_the_host_are_those_on_a_device(step, k, base, seed):
    numbers = torch.tensor(step_numbers(step, k))
    numbers[1] = base
    on_host, on_device = (
        draw_on_host(numbers.numpy(), 64, 37, 91, seed),
        draw_on_device(numbers, 64, 37, 91, seed),
    )
    assert on_host[0].tolist() == on_device[0].tolist() == counts(k, 37, Key(seed, step, base + 64)).tolist()
    assert on_host[1].tolist() == on_device[1].tolist()


def test_many_draws_are_those_of_the_device():
    control = StepControl("2.5", total_steps=9, seed=3)
    control.begin(0)
    rows = HOST_DRAWS // 2
    many, (kept, order) = (
        control.draws(rows, rows + 1, CPU),
        draw_on_host(np.array(step_numbers(0, 2.5)), 0, rows, 9, 3),
    )
    assert many[0].tolist() == kept.tolist() and sorted(many[1].tolist()) == list(range(rows + 1))
    assert many[1][many[1] < 9].tolist() == order.tolist()  # each place has a number of its own


def test_online_sees_what_was_seen_a_lag_before():
    rule, state, control = OnlineK(0.2), OnlineK(0.2).init(), StepControl(OnlineK(0.2))
    ks = []
    for step in range(40):
        known = {} if step < LAG else {"wins": 90.0, "pairs": 100, "hits": 16.0, "rows": 20, "k": ks[step - LAG]}
        if known:  # ten rows with one negative, ten with nine
            known["log_k1"] = 10 * math.log(2) + 10 * math.log(10)
        expected, state = rule.update(Observation(step, step + 1, **known), state)
        ks.append(control.begin(step))
        assert ks[-1] == expected
        control.add(sums(90.0, 100.0, 16.0, 20.0, log_k1=10 * math.log(2) + 10 * math.log(10)))
    assert ks[-1] > ks[0] == 4.0
    assert control.log_values()["k_reason"].startswith("P(K) held at 0.2")


def test_validation_bounds_online_k():
    control = StepControl(OnlineK(0.2))
    control.evaluated(0.6, [0.4**i for i in range(1, 22)])
    for step in range(60):
        control.begin(step)
        control.add(sums(99.0, 100.0, 20.0, 20.0))
    assert control.log_values()["k_reason"] == "bounded by validation, far behind training"
    assert control.k < 8


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("rule", ["3", "online"])
def test_a_loss_that_is_not_finite_is_told_soon(rule, later):
    """On a GPU nothing else looks at the loss. It is told within two lags, and by the next log."""
    for logs in (False, True):
        control = StepControl(rule, total_steps=100)
        with pytest.raises(InputError, match="not finite: a vector is not finite, or the scores overflow") as told:
            for step in range(100):
                control.begin(step)
                seen = sums(wins=1, pairs=3, rows=1, loss=math.nan if step == 5 else 1.0)
                if later:
                    control.add_later(seen, sum)
                else:
                    control.add(seen)
                control.end()
                if logs:
                    control.logs()
        told_at = 5 if logs else 2 * LAG - 1 if rule == "3" else 5 + LAG
        assert f"up to step {told_at} is not finite" in str(told.value)


def test_a_loss_of_the_last_steps_that_is_not_finite_is_told_at_the_end():
    control = StepControl("3", total_steps=100)
    control.begin(0)
    control.add_later(sums(loss=math.nan), sum)
    control.end()
    with pytest.raises(InputError, match="up to step 0 is not finite"):
        control.check_losses()


@pytest.mark.parametrize("steps", [range(1), range(0, 202, 2)])
def test_few_batches_wait_whatever_the_steps_are(steps):
    control, most = StepControl("3", total_steps=1000), 0
    for step in steps:
        control.begin(step)
        for _ in range(100 if len(steps) == 1 else 1):
            control.add_later(sums(wins=1, pairs=3, rows=1, loss=1.0), sum)
            most = max(most, len(control._waiting))
        control.end()
    assert most <= LAG and control.log_values()["k_used"] == 3.0


def test_logs_are_means_since_the_last_ones():
    control = StepControl(FunctionK(lambda fraction: 2 + fraction), total_steps=3)
    assert control.logs() == {}
    for step in range(3):
        control.begin(step)
        control.add(sums(3.0, 4.0, 1.0, 2.0, loss=2.0))
        control.add(sums(1.0, 4.0, 1.0, 2.0, loss=6.0))
    control.end()
    assert control.logs() == {"k": 2.5, "k_used": 2.0, "win_rate": 0.5}
    assert control.logs() == {}


def test_state_is_json_and_resumes_exactly():
    def run(control, start, stop):
        ks = []
        for step in range(start, stop):
            ks.append(control.begin(step))
            control.add(sums(90.0 + step, 100.0, 10.0 + step % 7, 20.0))
            if step == 11:
                control.evaluated(0.9, [0.9**i for i in range(1, 22)])
            control.end()
        return ks

    whole = run(StepControl("online:0.3", seed=5), 0, 40)
    control = StepControl("online:0.3", seed=5)
    first = run(control, 0, 15)
    state = json.loads(json.dumps(control.state_dict()))
    again = StepControl("online:0.3", seed=5)
    again.load_state_dict(state)
    assert first + run(again, 15, 40) == whole
    control.begin(15)  # a checkpoint in the middle of a step: the step begins again
    control.add(sums(1.0, 1.0, 1.0, 1.0))
    again = StepControl("online:0.3", seed=5)
    again.load_state_dict(json.loads(json.dumps(control.state_dict())))
    assert first + run(again, 15, 40) == whole


def test_another_rule_or_seed_is_refused():
    control = StepControl("ans:20", total_steps=5, seed=1)
    control.begin(0)
    state = control.state_dict()
    with pytest.raises(
        InputError, match=r"made with rule AnsK\(peak=20.*this run has ConstantK\(k=4\).*Use the same rule"
    ):
        StepControl("4", 5, seed=1).load_state_dict(state)
    with pytest.raises(InputError, match="made with seed 1, and this run has 2"):
        StepControl("ans:20", 5, seed=2).load_state_dict(state)


class Doubling:
    """A rule of one's own without a text: K doubles over training, from ``start``."""

    def __init__(self, start):
        self.start = start

    def __call__(self, fraction):
        return self.start * 2**fraction

    def init(self):
        return {}

    def update(self, observation, state):
        return self(observation.step / max(observation.total_steps - 1, 1)), state


class Follows:
    """A closed-loop rule of one's own that asks ``function`` for K."""

    def __init__(self, function, start=3):
        self.function, self.start = function, start

    def init(self):
        return {}

    def update(self, observation, state):
        return self.function(self.start + observation.wins), state


def resumed(before, after, total=20, new_total=20):
    """A controller with rule ``after`` that goes on from a checkpoint of ``before``."""
    control = StepControl(before, total)
    for step in range(3):
        control.begin(step)
    control.end()
    state = json.loads(json.dumps(control.state_dict()))
    again = StepControl(after, new_total)
    again.load_state_dict(state)
    return again


def test_a_rule_is_told_by_its_fields_and_by_what_it_gives():
    assert resumed(Doubling(3), Doubling(3)).begin(3) == 3 * 2 ** (3 / 19)
    with pytest.raises(InputError, match=r"rule Doubling\(start=3\), and this run has Doubling\(start=4\)"):
        resumed(Doubling(3), Doubling(4))
    same = FunctionK(lambda fraction: 4 + fraction)
    assert resumed(same, FunctionK(lambda other: other + 4)).begin(3) == 4 + 3 / 19
    with pytest.raises(InputError, match=r"\(K at 50% of training was 4.5, and is 5.5\). Use the same rule"):
        resumed(same, FunctionK(lambda fraction: 4 + fraction + (fraction == 0.5)))
    with pytest.raises(InputError, match="rule FunctionK"):
        resumed(same, ConstantK(4))


def test_what_cannot_be_told_is_said_once():
    with pytest.warns(UserWarning, match=r"Follows\(start=3\) is this one cannot be told: function") as said:
        resumed(Follows(lambda k: k), Follows(lambda k: 2 * k))
    assert len(said) == 1
    with pytest.raises(InputError, match=r"Follows\(start=3\), and this run has Follows\(start=4\)"):
        resumed(Follows(abs), Follows(abs, 4))


@pytest.mark.filterwarnings("ignore:whether the checkpoint's Follows")
def test_another_number_of_steps_is_refused_where_k_depends_on_it():
    with pytest.raises(InputError, match=r"made with total_steps 20, and this run has 40. Use the same total_steps"):
        resumed("ans:20", "ans:20", new_total=40)
    assert resumed("4", "4", new_total=40).begin(3) == 4
    resumed("online", "online", new_total=40)
    with pytest.warns(UserWarning, match=r"made with total_steps 20, and this run has 40: Follows.* the new number"):
        resumed(Follows(abs), Follows(abs), new_total=40)


def test_past_the_end_k_holds_with_one_warning():
    control = StepControl("warm:20", total_steps=3)
    ks = [control.begin(step) for step in range(3)]
    with pytest.warns(UserWarning, match="step 3 is past total_steps=3: K holds") as said:
        ks += [control.begin(step) for step in (3, 4, 5)]
    assert ks[2:] == [20.0] * 4 and len(said) == 1


def test_steps_that_are_not_known():
    with pytest.raises(InputError, match=r"AnsK\(peak=20.*needs the number of optimizer steps.*total_steps"):
        StepControl("ans:20").begin(0)
    assert StepControl("online").begin(0) == 4.0
    control = StepControl("online")
    control.begin(0)
    control.begin(1)
    with pytest.raises(InputError, match="step 0 began after step 1; expected steps in order"):
        control.begin(0)


def test_a_resume_without_state_is_said():
    with pytest.warns(UserWarning, match=r"goes on at step 7 without the state of OnlineK.*K starts anew"):
        StepControl("online").begin(7)
    with pytest.warns(UserWarning, match=r"step 7 without the state of AnsK.*the rule was the same cannot be told"):
        StepControl("ans:20", 9).begin(7)


def test_bad_rules():
    with pytest.raises(InputError, match="cannot read K from 'onlin'"):
        StepControl("onlin")
    with pytest.raises(InputError, match="got 4 for a rule, expected its text"):
        StepControl(4)
    with pytest.raises(InputError, match="OnlineK'> for a rule, expected its text, as 'online', 'ans:20' or '8'"):
        StepControl(OnlineK)
    for steps in (0, "100", 2.5, True):
        with pytest.raises(InputError, match=r"total_steps=.*expected the number of optimizer steps"):
            StepControl("ans:20", steps)
    for seed in (-1, 1.5, "a"):
        with pytest.raises(InputError, match=r"seed=.*expected an integer from 0 to"):
            StepControl("ans:20", 5, seed)
    for state in ({}, None, {"step": 3}):
        with pytest.raises(InputError, match=r"got .* for a state, expected what state_dict\(\) gave"):
            StepControl("ans:20", 5).load_state_dict(state)
    with pytest.raises(InputError, match="called before its first step began"):
        KInfoNCE("online")(torch.eye(2), torch.eye(2))
    with pytest.raises(InputError, match=r"KInfoNCE\(\) has no rule for K"):
        KInfoNCE()(torch.eye(2), torch.eye(2))


def test_steps_whose_k_nobody_used_are_told_once():
    control = StepControl("4", total_steps=9)
    for step in range(3):
        control.begin(step)
    control.end()
    with pytest.warns(UserWarning, match="no loss used K in 3 steps up to step 2: what trains the model is another"):
        assert control.logs() == {"k": 4.0}
    control.begin(3)
    control.end()
    assert control.logs() == {"k": 4.0}


def test_counts_have_names():
    assert len(COUNTS) == len(sums()) and math.isnan(StepControl().k)


def test_a_loop_that_says_when_it_updated_weights():
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    loss = KInfoNCE("warm:20:1", total_steps=3, optimizer=optimizer)
    ks = []
    for _ in range(3):  # no warning after the last update
        ks.append(loss.control.k)
        optimizer.step()
    assert ks == [1.0, 10.5, 20.0]
    with pytest.warns(UserWarning, match="step 4 is past total_steps=3: K holds"):
        optimizer.step()
    with pytest.raises(InputError, match="follows an optimizer already, and would count each step twice"):
        loss.follow_optimizer(optimizer)
    with pytest.raises(InputError, match="got int for optimizer"):
        KInfoNCE("4", total_steps=3, optimizer=4)
