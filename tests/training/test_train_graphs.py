"""Which runs have CUDA graphs, and on a GPU: what such a run comes to is what one without them comes to."""

import gc
import weakref
from types import SimpleNamespace

import pytest
import torch
from graph_world import N_ITEMS, SMALL, Sequences, bert4rec, world
from train_world import Dot, run

from negwise.errors import InputError
from negwise.losses import fused, info_nce
from negwise.records import read_result, read_run
from negwise.samplers import Uniform
from negwise.schedule import AnsK
from negwise.training.cuda_graphs import no_garbage_collection, resolve_graphs, use_graphs
from negwise.training.loop import Run
from negwise.training.settings import Settings

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
CPU = torch.device("cpu")


def test_graphs_are_refused_where_they_cannot_be(tmp_path):
    with pytest.raises(InputError, match="one CUDA device is recorded, and this run has 1 process"):
        run(tmp_path / "run", graphs=True)
    assert not (tmp_path / "run" / "checkpoints").exists()


ONE_GPU = SimpleNamespace(device=torch.device("cuda"), world_size=1)  # as much of Fabric as is inputs here


@pytest.mark.parametrize(
    ("dtype", "triton", "message"),
    [
        (torch.float64, True, "float32, not in float64, and a loss without them waits"),
        (torch.float32, False, "'triton' is not installed"),
    ],
)
def test_a_loss_that_waits_for_the_gpu_is_not_recorded(monkeypatch, dtype, triton, message):
    """Else the first step runs, and the second one ends with an error of CUDA's that names nothing."""
    monkeypatch.setattr(fused, "_installed", lambda: triton)
    model = bert4rec().to(dtype)
    adam = torch.optim.Adam(model.parameters())
    with pytest.raises(InputError, match=message):
        use_graphs(True, ONE_GPU, model, adam, info_nce, moving=False)
    assert not use_graphs(None, ONE_GPU, model, adam, info_nce, moving=False)
    assert adam.param_groups[0]["capturable"] is False


def test_the_optimizer_is_made_fit_to_be_recorded(monkeypatch):
    monkeypatch.setattr(fused, "_installed", lambda: True)
    model = bert4rec()
    adam = torch.optim.Adam(model.parameters())
    assert use_graphs(None, ONE_GPU, model, adam, info_nce, moving=False)
    assert adam.param_groups[0]["capturable"] is True
    with pytest.raises(InputError, match=r"SGD cannot be recorded; torch\.optim\.Adam can"):
        use_graphs(True, ONE_GPU, model, torch.optim.SGD(model.parameters()), info_nce, moving=False)
    assert not use_graphs(None, ONE_GPU, model, torch.optim.SGD(model.parameters()), info_nce, moving=False)


class Mine(torch.optim.Adam):
    """A step with Python of its own."""

    def step(self, closure=None):
        return super().step(closure)


def test_an_optimizer_whose_python_a_replay_would_leave_out_is_not_recorded(monkeypatch):
    monkeypatch.setattr(fused, "_installed", lambda: True)
    model = bert4rec()
    hooked = torch.optim.Adam(model.parameters())
    hooked.register_step_post_hook(lambda *_: None)
    for adam in (Mine(model.parameters()), hooked):
        assert not use_graphs(None, ONE_GPU, model, adam, info_nce, moving=False)
        with pytest.raises(InputError, match="hooks or a step of its own"):
            use_graphs(True, ONE_GPU, model, adam, info_nce, moving=False)


def test_a_run_that_had_graphs_goes_on_where_there_are_none():
    """Its checkpoint says capturable, which on a CPU torch refuses."""
    model = bert4rec()
    adam = torch.optim.Adam(model.parameters())
    adam.param_groups[0]["capturable"] = True
    here = SimpleNamespace(device=CPU, world_size=1)
    assert not use_graphs(None, here, model, adam, info_nce, moving=False)
    sum(weight.sum() for weight in model.parameters()).backward()
    adam.step()


@pytest.mark.parametrize(
    ("inputs", "saved", "found"),
    [(None, None, None), (True, None, True), (False, None, False), (None, True, None), (None, False, False)],
)
def test_a_run_keeps_to_what_it_began_with(inputs, saved, found):
    assert resolve_graphs(inputs, saved) is found
    if saved is not None:
        with pytest.raises(InputError, match="this run began with"):
            resolve_graphs(not saved, saved)


def test_graphs_of_a_run_are_read_from_its_checkpoint(tmp_path, monkeypatch):
    """One that began without them, or before there were any, does not take them up half-way."""
    words = {"lr_scale": strike_at(0.6), "steps": 20, "save_every": 2}
    with pytest.raises(RuntimeError, match="struck"):
        run(tmp_path / "run", **words)
    inputs = []

    def note(wanted, *_, **__):
        inputs.append(wanted)
        return False

    monkeypatch.setattr("negwise.training.trainer.use_graphs", note)
    with pytest.raises(RuntimeError, match="struck"):
        run(tmp_path / "run", **words | {"lr_scale": strike_at(0.8)})  # nothing said: what it began with
    run(tmp_path / "run", **words | {"lr_scale": strike_at(2), "graphs": False})
    assert inputs == [False, False]


@pytest.mark.parametrize("wrong", [0, 1, "no"])
def test_graphs_is_yes_no_or_nothing(wrong):
    with pytest.raises(InputError, match="graphs="):
        Settings(steps=1, batch_size=1, graphs=wrong)


def test_a_run_and_its_graphs_are_freed_when_it_ends(tmp_path, monkeypatch):
    """Without waiting for garbage to be collected."""
    kept = []
    usual = Run.go

    def go(self, *parts):
        kept.append(weakref.ref(self))
        return usual(self, *parts)

    monkeypatch.setattr(Run, "go", go)
    with no_garbage_collection():
        run(tmp_path / "run")
        assert kept[0]() is None


@GPU
def test_a_model_that_does_not_say_so_is_not_recorded(tmp_path):
    with pytest.raises(InputError, match=r"Dot does not say .*graph_safe"):
        run(tmp_path / "run", Dot(), graphs=True, device="cuda")


CASES = {
    "drawn in the loss": {},
    "a rate that moves": {"lr_scale": lambda fraction: 1 - 0.5 * fraction},
    "listed and corrected": {"correct": True},
    "bfloat16": {"precision": "bf16-mixed"},
    **{name: {"name": name} for name in SMALL},
    **{f"bfloat16 {name}": {"name": name, "precision": "bf16-mixed"} for name in ("nrms", "lstur", "siamese-lstm")},
}


@GPU
@pytest.mark.parametrize("case", list(CASES))
def test_graphs_train_as_plain_steps_do(tmp_path, case):
    """On one GPU, from the same weights, with K that changes: the same losses to rounding, and the same bits twice.

    Not the same weights to rounding: the loss does not depend on the bias of an attention's keys, so that Adam makes
    steps of what is rounding alone. In bfloat16 the losses drift apart, too, after some tens of steps.
    """
    losses, ends = [], []
    for name, graphs in (("plain", False), ("graphs", True), ("again", True)):
        model = trained(tmp_path / name, graphs=graphs, **CASES[case])
        steps = read_run(tmp_path / name).steps
        losses.append(torch.tensor([(step.loss, step.k_used) for step in steps]))
        ends.append([weight.detach().cpu() for weight in model.parameters()])
    plain, recorded, again = losses
    for first, near in ((30, 2e-2), (60, 1e-1)) if "bfloat16" in case else ((60, 1e-3),):
        torch.testing.assert_close(plain[:first, 0], recorded[:first, 0], rtol=near, atol=near)
    assert torch.equal(plain[:, 1], recorded[:, 1])
    assert len(plain) == 60 and torch.equal(recorded, again)
    assert all(torch.equal(*pair) for pair in zip(ends[1], ends[2], strict=True))


def trained(out, *, graphs, device="cuda", name="bert4rec", **changes):
    """A model after 60 steps of a K that rises and falls; what it learns is not judged here."""
    model, examples, sampler, mask_items = world(name)
    words = {"examples": examples, "sampler": sampler, "mask_items": mask_items, "splits": {}} | changes
    run(out, model.float(), rule=AnsK(9), steps=60, batch_size=16, device=device, graphs=graphs, **words)
    return model


@pytest.mark.parametrize("case", [case for case in CASES if "bfloat16" not in case])
def test_what_the_gpu_is_asked_is_asked_rightly(tmp_path, case):
    """The runs of the test before, without graphs on a CPU, so that it does not fail for a wrong word."""
    first, second = (
        trained(tmp_path / name, graphs=False, device="cpu", **CASES[case]).state_dict() for name in ("one", "two")
    )
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_nothing_is_collected_while_a_step_is_recorded():
    assert gc.isenabled()
    with pytest.raises(RuntimeError, match="struck"), no_garbage_collection():
        assert not gc.isenabled()
        raise RuntimeError("struck")
    assert gc.isenabled()


@GPU
def test_runs_one_after_the_other_leave_no_graph_to_be_freed_within_a_recording(tmp_path):
    trained(tmp_path / "before", graphs=True)
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()  # what is there already is looked at no more, which would take minutes
    gc.set_threshold(1, 1, 1)  # garbage is collected as soon as there is some
    try:
        for turn in range(2):
            trained(tmp_path / str(turn), graphs=True)
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@GPU
def test_graphs_are_taken_where_they_can_be(tmp_path):
    trained(tmp_path / "run", graphs=None)
    assert read_result(tmp_path / "run").graphs is True


@GPU
def test_a_stopped_run_with_graphs_goes_on_to_the_same_weights(tmp_path):
    ends = []
    for name in ("whole", "stopped"):
        model = bert4rec(dropout=0.3)
        words = {
            "examples": Sequences(), "sampler": Uniform(N_ITEMS), "rule": AnsK(9), "steps": 40, "batch_size": 16,
            "mask_items": model.mask_items, "device": "cuda", "graphs": True, "eval_every": 10,
        }  # fmt: skip
        if name == "stopped":
            with pytest.raises(RuntimeError, match="struck"):
                run(tmp_path / name, model, **words, lr_scale=strike_at(0.6))
            model = bert4rec(dropout=0.3)
            words["mask_items"] = model.mask_items
        run(tmp_path / name, model, **words, lr_scale=strike_at(2))
        ends.append([weight.detach().cpu() for weight in model.parameters()])
    assert all(torch.equal(*pair) for pair in zip(*ends, strict=True))


def strike_at(when):
    """A learning rate that falls to a half, and fails once."""

    def scale(fraction):
        if fraction > when:
            raise RuntimeError("struck")
        return 1 - 0.5 * fraction

    return scale
