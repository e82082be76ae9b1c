"""K in a loop with accelerate, with the real framework."""

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate_world import pairs, summary, train
from boards import read_board
from torch.utils.data import TensorDataset
from two_processes import run_on_two

import negwise.curves
from negwise.draws import Key, counts
from negwise.errors import InputError
from negwise.integrations import KInfoNCE, StepControl
from negwise.integrations.accelerate import attach
from negwise.integrations.column_choice import keep_mask
from negwise.losses import info_nce
from negwise.schedule import AnsK


@pytest.fixture(autouse=True)
def reset_before():
    reset()


def reset():
    """Accelerate keeps its state for the whole process."""
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
    reset()
    again, _, _, same = train("online:0.3", resume=str(tmp_path / "state"))
    assert again == whole[11:]
    torch.testing.assert_close(same, weights)
    reset()
    with pytest.raises(InputError, match="Use the same rule to resume"):
        train("4", resume=str(tmp_path / "state"))


def test_loss_is_info_nce_over_the_kept_negatives():
    seen = []

    def call(loss, query, positive):
        seen.append((query.detach(), positive, loss(query, positive)))
        return seen[-1][-1]

    train("2.5", data=pairs(64), call=call)
    control = StepControl("2.5", 2)
    for step, (query, positive, found) in enumerate(seen):
        control.begin(step)
        rows, order = control.draws(32, 31, torch.device("cpu"))
        mask = keep_mask(order, rows, 0, 1, 32)[:, 0]
        torch.testing.assert_close(found, info_nce(query, positive, mask=mask, temperature=0.25).loss)
    assert len(seen) == 2


def test_accumulated_gradients_are_a_mean():
    once = train("15", data=pairs(16), batch=16)
    reset()
    twice = TensorDataset(*(torch.cat([part, part]) for part in pairs(16).tensors))
    again = train("15", data=twice, batch=16, accumulation=2)
    torch.testing.assert_close(once[3], again[3])
    assert len(once[0]) == len(again[0]) == 1


def test_rows_with_fewer_negatives_than_k():
    there = torch.arange(16)[:, None] % 3 > torch.arange(2)

    def call(loss, query, positive):
        given, same = positive[:, None].roll(1, 0).expand(-1, 2, -1), torch.zeros(16, dtype=torch.long)
        return loss(query, positive, given, there, same, 1 + torch.arange(32).view(16, 2))

    # All rows have the same positive, so given negatives are all there is: 15 of 32.
    with pytest.warns(UserWarning, match=r"a row has 47 negatives to draw from"):
        logs, *_, weights = train("50", data=pairs(16), batch=16, call=call)
    assert logs[0]["k_used"] == int(there.sum()) == 15 and torch.isfinite(weights[0]).all()


def test_trackers_and_the_page(tmp_path):
    logs, first, last, _ = train("ans:5", log_with="tensorboard", project_dir=tmp_path, run=tmp_path / "run")
    board = read_board(tmp_path / "run_logs" if (tmp_path / "run_logs").exists() else tmp_path)
    for name in ("k", "k_used", "win_rate"):
        assert [value for _, value in board[name]] == pytest.approx([entry[name] for entry in logs])
    assert board["val_auc"][0][1] == pytest.approx(last.auc)
    curves = negwise.curves.read(tmp_path / "run")
    assert curves.val_steps.tolist() == [0, 20] and curves.val_auc.tolist() == [first.auc, last.auc]
    from negwise.report.write_report import write_report

    assert "ans:5" in write_report([tmp_path / "run"]).read_text()


def test_what_attach_does_not_take():
    accelerator, layer = Accelerator(cpu=True), torch.nn.Linear(2, 2)
    bare = torch.optim.SGD(layer.parameters(), lr=0.1)
    _, prepared = accelerator.prepare(layer, bare)
    loss = KInfoNCE("online")
    for arguments, message in (
        ((layer, loss, prepared), "attach got a Linear, expected the Accelerator"),
        ((accelerator, torch.nn.CrossEntropyLoss(), prepared), "got a CrossEntropyLoss, expected a KInfoNCE or"),
        ((accelerator, loss, bare), "attach got a SGD, expected the optimizer that accelerator.prepare returns"),
        ((accelerator, KInfoNCE(), prepared), r"KInfoNCE\(\) has no rule for K"),
        ((accelerator, KInfoNCE("online", optimizer=bare), prepared), "follows an optimizer already"),
    ):
        with pytest.raises(InputError, match=message):
            attach(*arguments)


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
