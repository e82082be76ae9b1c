"""Checkpoints: whole or not there, bit for bit, the last two and the best, and clear words about what is broken."""

import json
import resource
import shutil
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from train_world import Dot, Mean, run

from negwise.training import checkpoint
from negwise.training.checkpoint import CheckpointError, load_weights

STATE = {"config": "abc", "threads": 1, "best": None}
OPTIMIZERS = {
    "adam": partial(torch.optim.Adam, lr=0.01),
    "adamw-amsgrad": partial(torch.optim.AdamW, lr=0.01, amsgrad=True),
    "sgd-momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "rmsprop": partial(torch.optim.RMSprop, lr=0.01),
    "plain-sgd": partial(torch.optim.SGD, lr=0.1),
}


def work(model, optimizer, steps):
    for step in range(steps):
        torch.manual_seed(step)
        loss = (model.encode_candidates(torch.arange(50)) * torch.randn(50, 8)).sum().square()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def bits(model):
    return {name: weight.detach().clone() for name, weight in model.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_goes_on_bit_for_bit(name, tmp_path):
    model = Mean()
    optimizer = OPTIMIZERS[name](model.parameters())
    work(model, optimizer, 3)
    checkpoint.write(tmp_path, 3, model, optimizer, STATE)
    other = Mean(seed=1)
    tuner = OPTIMIZERS[name](other.parameters())
    found = checkpoint.latest(tmp_path)
    assert found.step == 3
    checkpoint.restore(found, "abc", other, tuner)
    assert same(bits(model), bits(other))
    assert tuner.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]
    work(model, optimizer, 4)
    work(other, tuner, 4)
    assert same(bits(model), bits(other))


def test_files_are_plain(tmp_path):
    model = Dot()
    checkpoint.write(tmp_path, 0, model, torch.optim.Adam(model.parameters()), STATE)
    folder = tmp_path / "checkpoints" / "0"
    assert sorted(entry.name for entry in folder.iterdir()) == [
        "optimizer.safetensors",
        "state.json",
        "weights.safetensors",
    ]
    with safe_open(folder / "weights.safetensors", "pt") as file:
        assert sorted(file.keys()) == ["items.weight", "users.weight"]
    assert json.loads((folder / "state.json").read_text())["step"] == 0


def test_tied_weights(tmp_path):
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(3, 3), "b": torch.nn.Linear(3, 3)})
    model["b"].weight = model["a"].weight
    checkpoint.write(tmp_path, 0, model, torch.optim.SGD(model.parameters()), STATE)
    before = bits(model)
    with torch.no_grad():
        model["a"].weight.zero_()
    assert same(bits(load_weights(model, tmp_path)), before)
    assert model["b"].weight is model["a"].weight


def test_keeps_the_last_two_and_the_best(tmp_path):
    model = Dot()
    optimizer = torch.optim.SGD(model.parameters())
    best = {0: 0, 5: 5, 10: 5, 15: 5, 20: 20, 25: 20}
    kept = {}
    for step, chosen in best.items():
        checkpoint.write(tmp_path, step, model, optimizer, {**STATE, "best": {"step": chosen}})
        kept[step] = checkpoint.steps(tmp_path)
    # at 20 the best of 15 is still there: without 20 the run would go on from 15, and want it at its end
    assert kept == {0: [0], 5: [0, 5], 10: [5, 10], 15: [5, 10, 15], 20: [5, 15, 20], 25: [20, 25]}
    assert sorted(entry.name for entry in (tmp_path / "checkpoints").iterdir()) == ["20", "25"]


def test_written_again_it_is_never_away(tmp_path, monkeypatch):
    """The same weights with a new state: no moment at which a kill would leave no checkpoint of the step."""
    model = Dot()
    optimizer = torch.optim.SGD(model.parameters())
    checkpoint.write(tmp_path, 5, model, optimizer, STATE)
    seen, plain = [], Path.replace

    def replace(self, target):
        moved = plain(self, target)
        seen.append(checkpoint.latest(tmp_path).step)
        return moved

    monkeypatch.setattr(Path, "replace", replace)
    checkpoint.write(tmp_path, 5, model, optimizer, {**STATE, "best": {"step": 5}})
    assert seen == [5]
    assert checkpoint.latest(tmp_path).state["best"] == {"step": 5}
    assert [entry.name for entry in (tmp_path / "checkpoints").iterdir()] == ["5"]


def make_two(tmp_path):
    model = Dot()
    optimizer = torch.optim.Adam(model.parameters())
    work(model, optimizer, 1)
    for step in (5, 10):
        checkpoint.write(tmp_path, step, model, optimizer, STATE)
    return tmp_path / "checkpoints" / "10"


@pytest.mark.parametrize("name", ["weights.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["cut", "empty", "gone", "flip"])
def test_a_damaged_checkpoint_is_told_and_nothing_is_lost(name, damage, tmp_path):
    folder = make_two(tmp_path)
    whole = (folder / name).read_bytes()
    if damage == "gone":
        (folder / name).unlink()
    elif damage == "flip":
        at = whole.index(b'"threads": 1') + 11 if name == "state.json" else len(whole) - 9
        (folder / name).write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    else:
        (folder / name).write_bytes(whole[: len(whole) // 2] if damage == "cut" else b"")
    with pytest.raises(CheckpointError, match=rf"10: {name}.*remove the folder: the run then resumes from step 5"):
        checkpoint.latest(tmp_path)
    with pytest.raises(
        CheckpointError, match="no checkpoint here" if (name, damage) == ("state.json", "gone") else name
    ):
        load_weights(Dot(), folder)
    assert checkpoint.steps(tmp_path) == [5, 10]
    shutil.rmtree(folder)
    assert checkpoint.latest(tmp_path).step == 5


def test_a_damaged_best_is_told_when_the_run_is_taken_up(tmp_path):
    """Not at its end."""
    model = Dot()
    optimizer = torch.optim.Adam(model.parameters())
    for step in (5, 10, 15):
        checkpoint.write(tmp_path, step, model, optimizer, {**STATE, "best": {"step": 5}})
    (tmp_path / "checkpoints" / "5" / "weights.safetensors").unlink()
    found = checkpoint.latest(tmp_path)
    with pytest.raises(CheckpointError, match=r"5: weights.*those after it \(10, 15\): the run then starts over"):
        checkpoint.restore(found, "abc", model, optimizer)


def test_a_copy_of_a_checkpoint_elsewhere(tmp_path):
    copy = shutil.copytree(make_two(tmp_path), tmp_path / "chosen")
    assert same(bits(load_weights(Dot(seed=3), copy)), bits(load_weights(Dot(seed=4), tmp_path)))
    (copy / "weights.safetensors").write_bytes(b"")
    with pytest.raises(
        CheckpointError, match=r"chosen: weights.safetensors \(0 bytes\) is cut off or changed. Restore"
    ):
        load_weights(Dot(), copy)


def test_loading_weights(tmp_path):
    with pytest.raises(CheckpointError, match="no checkpoint here"):
        load_weights(Dot(), tmp_path)
    first, last = Dot(seed=1), Dot(seed=2)
    for step, model in ((1, first), (2, last)):
        checkpoint.write(tmp_path, step, model, torch.optim.SGD(model.parameters()), {**STATE, "best": {"step": 1}})
    assert same(bits(load_weights(Dot(), tmp_path)), bits(first))
    assert same(bits(load_weights(Dot(), tmp_path / "checkpoints" / "2")), bits(last))
    with pytest.raises(CheckpointError, match=r"another model.*Mean"):
        load_weights(Mean(), tmp_path)
    with pytest.raises(CheckpointError, match="another run"):
        checkpoint.restore(checkpoint.latest(tmp_path), "xyz", last, torch.optim.SGD(last.parameters()))


@contextmanager
def no_file_beyond(size):
    """The disk is full, as the system says itself."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("room", [100, 2500, 3000])
def test_a_full_disk_loses_nothing(room, tmp_path):
    """In the weights, and in the optimizer's state."""
    model = Dot()
    optimizer = torch.optim.Adam(model.parameters())
    model.items(torch.arange(3)).sum().backward()
    optimizer.step()
    checkpoint.write(tmp_path, 1, model, optimizer, {"best": None})
    with no_file_beyond(room), pytest.raises(CheckpointError) as told:
        checkpoint.write(tmp_path, 2, model, optimizer, {"best": None})
    assert "could not write the checkpoint of step 2" in str(told.value) and "step 1 is safe" in str(told.value)
    assert "type the same command again" in str(told.value)
    assert [entry.name for entry in (tmp_path / "checkpoints").iterdir()] == ["1"]
    assert checkpoint.latest(tmp_path).step == 1


@pytest.mark.parametrize("optimizer", [True, False])
def test_a_run_that_ended_may_keep_its_best_weights_alone(tmp_path, optimizer):
    first = run(tmp_path, Mean(), steps=17, eval_every=5)
    best = bits(load_weights(Mean(seed=9), tmp_path))
    for _ in range(2):
        checkpoint.keep_best(tmp_path, optimizer=optimizer)
        assert checkpoint.steps(tmp_path) == [first.best.step]
        found = checkpoint.latest(tmp_path)  # each file is what its digest says
        names = {path.name for path in found.folder.iterdir()}
        assert names == {"weights.safetensors", "state.json", *(["optimizer.safetensors"] if optimizer else [])}
    assert same(bits(load_weights(Mean(seed=9), tmp_path)), best)
    again = Mean(seed=9)
    assert run(tmp_path, again, steps=17, eval_every=5) == first
    assert same(bits(again), best)


def test_a_run_that_goes_on_keeps_its_checkpoints(tmp_path):
    run(tmp_path, Mean(), until=5)
    with pytest.raises(CheckpointError, match=r"no result\.json here"):
        checkpoint.keep_best(tmp_path)
    assert checkpoint.latest(tmp_path).step == 5
