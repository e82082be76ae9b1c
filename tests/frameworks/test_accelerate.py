"""K in a loop with accelerate, with the real framework."""

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate_world import summary, train
from two_processes import run_on_two

from negwise.draws import Key, counts
from negwise.errors import InputError
from negwise.integrations import KInfoNCE
from negwise.integrations.accelerate import attach
from negwise.schedule import AnsK


@pytest.fixture(autouse=True)
def fresh():
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


@pytest.mark.parametrize(("workers", "batch", "accumulation"), [(0, 32, 1), (2, 32, 1), (0, 8, 4)])
def test_k_is_that_of_the_very_step_over_its_micro_batches(workers, batch, accumulation):
    logs, *_ = train("ans:5", workers=workers, batch=batch, accumulation=accumulation)
    assert len(logs) == 20
    for step, entry in enumerate(logs):
        k = AnsK(5)(step / 19)
        assert entry["k"] == k and entry["k_used"] == counts(k, 32, Key(0, step)).mean()


@pytest.mark.filterwarnings("ignore:K is .* and a row has 31 negatives")
def test_online_follows_a_model_that_improves():
    logs, first, last, _ = train("online", epochs=6)
    assert logs[0]["k"] == 4.0 and logs[-1]["k"] > 10
    assert first.auc < 0.7 < 0.95 < last.auc and last.queries == 96 and last.pairs == 96 * 95


def test_resume_is_exact_and_another_rule_is_refused(tmp_path):
    whole, _, _, weights = train("online:0.3", folder=str(tmp_path / "state"), save_at=11)
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    again, _, _, same = train("online:0.3", resume=str(tmp_path / "state"))
    assert again == whole[11:]
    torch.testing.assert_close(same, weights)
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    with pytest.raises(InputError, match="Use the same rule to resume"):
        train("4", resume=str(tmp_path / "state"))


@pytest.mark.filterwarnings("ignore:K is .* and a row has 31 negatives")
def test_two_ranks_are_one(tmp_path):
    one, two = summary(32), run_on_two("accelerate_world.py", tmp_path / "two.json")
    for a, b in zip(one["logs"], two["logs"], strict=True):
        assert a == pytest.approx(b)
    assert one["weights"] == pytest.approx(two["weights"], rel=1e-3, abs=1e-5)
    # The candidates of an evaluation are those of all ranks, so it is the same evaluation.
    assert one["auc"] == pytest.approx(two["auc"], rel=1e-4) and one["auc"][1] > 0.9


def test_the_optimizer_must_be_the_prepared_one():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1)
    with pytest.raises(InputError, match=r"got a SGD, expected the optimizer that accelerator.prepare returns"):
        attach(Accelerator(cpu=True), KInfoNCE("4", 5), optimizer)
