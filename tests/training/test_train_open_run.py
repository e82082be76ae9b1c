"""A run that is advanced in parts, beside others and to another horizon, ends with the bits of an undisturbed one."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import torch
from train_world import Dot, open_world_run, run

from negwise import OnlineK
from negwise.errors import InputError
from negwise.files import read_json
from negwise.records import read_run

RULE = OnlineK(0.3, max_k=12)


def constant_then_falling(steps):
    """The same before the fall, whatever the number of steps."""
    return lambda fraction: min(1.0, (steps - round(fraction * (steps - 1))) / (0.5 * steps))


def weights(model):
    return torch.cat([value.flatten() for value in model.state_dict().values()])


def test_parts_in_memory_are_one_run(tmp_path):
    whole, parts = Dot(dropout=0.2), Dot(dropout=0.2)
    run(tmp_path / "whole", whole, rule=RULE, steps=20)
    with open_world_run(tmp_path / "parts", parts, rule=RULE, steps=20) as opened:
        assert [opened.advance(until).steps for until in (3, 3, 11, None)] == [3, 3, 11, 20]
        assert opened.advance().finished and opened.step == 20
    assert torch.equal(weights(whole), weights(parts))
    logs = [
        [(record.step, record.k, record.loss) for record in read_run(tmp_path / name).steps]
        for name in ("whole", "parts")
    ]
    assert logs[0] == logs[1]


def test_runs_side_by_side_do_not_touch_each_other(tmp_path):
    alone = [Dot(dropout=0.2), Dot(dropout=0.2, seed=1)]
    for number, model in enumerate(alone):
        run(tmp_path / f"alone-{number}", model, rule=RULE, steps=12)
    beside = [Dot(dropout=0.2), Dot(dropout=0.2, seed=1)]
    with ExitStack() as stack:
        runs = [
            stack.enter_context(open_world_run(tmp_path / f"beside-{number}", model, rule=RULE, steps=12))
            for number, model in enumerate(beside)
        ]
        for until in (2, 7, None):
            for opened in runs:
                opened.advance(until)
    assert all(torch.equal(weights(one), weights(other)) for one, other in zip(alone, beside, strict=True))


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("steps", [16, 36])
def test_a_paused_run_may_get_another_horizon(tmp_path, steps, killed):
    """It ends as if it had had that one from the start."""
    want, model = Dot(dropout=0.2), Dot(dropout=0.2)
    new = constant_then_falling(steps)
    run(tmp_path / "want", want, rule=RULE, steps=steps, eval_every=4, lr_scale=new)
    old = {"rule": RULE, "steps": 24, "eval_every": 4, "lr_scale": constant_then_falling(24)}
    with open_world_run(tmp_path / "run", model, **old) as opened:
        opened.advance(8)
        opened.set_horizon(steps, 4, new)
        if not killed:
            opened.advance()
    if killed:
        model = Dot(dropout=0.2)
        run(tmp_path / "run", model, rule=RULE, steps=steps, eval_every=4, lr_scale=new)
    assert torch.equal(weights(want), weights(model))
    assert read_json(tmp_path / "run" / "config.json")["training"]["steps"] == steps


def test_only_a_paused_run_may(tmp_path):
    with open_world_run(tmp_path / "run", Dot(), steps=20) as opened:
        with pytest.raises(InputError, match="steps=30: only a paused run"):
            opened.set_horizon(30, 5, None)
        opened.advance(10)
        with pytest.raises(
            InputError, match="steps=9: only a paused run can get another horizon, and none in its past"
        ):
            opened.set_horizon(9, 5, None)
    with pytest.raises(InputError, match=r"training\.batch_size was 10 and is 8"):
        run(tmp_path / "run", Dot(), steps=30, batch_size=8)
    run(tmp_path / "run", Dot(), steps=20)
    with pytest.raises(InputError, match=r"training\.steps was 20 and is 30"):
        run(tmp_path / "run", Dot(), steps=30)


def test_ranks_of_a_pause_are_those_of_its_evaluation(tmp_path):
    with open_world_run(tmp_path / "run", Dot(), steps=20, eval_every=5) as opened:
        opened.advance(10)
        ranks = opened.ranks("val")
    last = read_run(tmp_path / "run").of_split("val")[-1]
    below = ranks.sizes - 1 - ranks.above - ranks.tied + 1
    assert last.step == 10
    assert last.auc == pytest.approx(float(((below + (ranks.tied - 1) / 2) / (ranks.sizes - 1)).mean()))
