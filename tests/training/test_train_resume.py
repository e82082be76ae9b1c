"""Killed at any point and started again, a run ends with the same bits; stopped, it says how to go on."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from train_world import Dot, run

from negwise.errors import InputError
from negwise.records import read_run
from negwise.training import CheckpointError, checkpoint

HERE = Path(__file__).parent
STEPS = 17


@pytest.fixture(scope="module")
def child():
    """``child(out, point, number, case, threads)`` runs, perhaps to its death, and tells how it ended."""
    command = [sys.executable, str(HERE / "train_child.py")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as server:

        def ask(out, point="never", number=1, case="open", threads=1):
            request = {"out": str(out), "point": point, "number": number, "case": case, "threads": threads}
            print(json.dumps(request), file=server.stdin, flush=True)
            return SimpleNamespace(**json.loads(server.stdout.readline()))

        yield ask
        server.stdin.close()


def finals(out):
    folder = Path(out) / "checkpoints" / str(STEPS)
    return load_file(folder / "weights.safetensors") | load_file(folder / "optimizer.safetensors")


def story(out):
    """All that a reader sees of a run, without the clock."""
    seen = read_run(out)
    steps = [replace(record, time=None) for record in seen.steps]
    result = json.loads((Path(out) / "result.json").read_text())
    return steps, list(seen.evals), {name: value for name, value in result.items() if name != "seconds"}


@pytest.fixture(scope="module")
def undisturbed(child, tmp_path_factory):
    """A run of each case that nothing happens to."""
    outs = {}
    for case in ("open", "closed", "online", "queue", "hardest"):
        out = tmp_path_factory.mktemp(case)
        done = child(out, case=case)
        assert done.code == 0, done.said
        outs[case] = out
    return outs


def check(out, wanted, windows=True):
    ours, theirs = finals(out), finals(wanted)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    mine, its = story(out), story(wanted)
    assert mine[1:] == its[1:]
    if windows:  # a stop closes a window of steps early, and says the same in two records
        assert mine[0] == its[0]


POINTS = [
    ("batch", 1, "open"),  # before the first step, after the first checkpoint
    ("batch", 9, "open"),  # between two checkpoints
    ("log", 2, "open"),  # in the first evaluation's record
    ("log", 12, "open"),
    ("file", 1, "open"),  # in the first checkpoint's weights: nothing is there yet
    ("file", 5, "open"),  # in the optimizer of the second
    ("file", 6, "open"),  # in its state
    ("rename", 3, "open"),  # written and not in place
    ("prune", 3, "open"),  # in place, the old ones still there
    ("result", 1, "open"),
    ("batch", 12, "closed"),
    ("file", 14, "closed"),
    ("log", 6, "closed"),
    ("batch", 6, "online"),  # counts of earlier steps and the validation ranks are on their way to the rule
    ("file", 14, "online"),
    ("batch", 15, "online"),
    ("batch", 3, "online"),  # nothing was seen yet: the lag is 3
    ("batch", 11, "online"),
    ("log", 4, "online"),
    ("log", 13, "online"),
    ("rename", 4, "online"),
    ("prune", 5, "online"),
    ("result", 1, "online"),
    ("batch", 6, "queue"),  # the queue is that of an older checkpoint
    ("file", 11, "queue"),  # in the middle of the samplers' file
    ("batch", 15, "queue"),
    ("batch", 8, "hardest"),
    ("log", 11, "hardest"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("point", "number", "case"), POINTS)
def test_kill_minus_nine(point, number, case, child, undisturbed, tmp_path):
    killed = child(tmp_path, point, number, case)
    assert killed.code == -9, killed.said
    assert not (tmp_path / "result.json").exists()
    again = child(tmp_path, case=case)
    assert again.code == 0, again.said
    check(tmp_path, undisturbed[case])
    assert [entry.name for entry in (tmp_path / "checkpoints").iterdir() if entry.name.startswith(".")] == []


@pytest.mark.slow
def test_killed_again_and_again(child, undisturbed, tmp_path):
    for point, number in (("file", 2), ("batch", 4), ("log", 5), ("batch", 3), ("file", 1), ("batch", 2)):
        assert child(tmp_path, point, number).code == -9
    assert child(tmp_path).code == 0
    check(tmp_path, undisturbed["open"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "number", "case", "step"),
    [("interrupt", 7, "open", 7), ("judge", 3, "open", 5), ("judge", 9, "open", 17), ("interrupt", 8, "closed", 8)],
)
def test_ctrl_c_saves_and_says_how_to_go_on(point, number, case, step, child, undisturbed, tmp_path):
    stopped = child(tmp_path, point, number, case)
    assert stopped.code == 130, stopped.said
    assert f"stopped after step {step} of 17" in stopped.said
    assert "same command again" in stopped.said
    assert checkpoint.latest(tmp_path).step == step
    assert child(tmp_path, case=case).code == 0
    check(tmp_path, undisturbed[case], windows=case == "open")


ROOMS = [
    (100, 0, "config.json"),
    (2500, 0, "the checkpoint of step 0"),
    (100, 9, "run.jsonl"),  # the config is there already
]


@pytest.mark.slow
@pytest.mark.parametrize(("room", "batch", "what"), ROOMS)
def test_a_full_disk_is_told_and_loses_nothing(room, batch, what, child, undisturbed, tmp_path):
    """No file may grow beyond ``room`` bytes, from the start or from a kill at ``batch`` on."""
    if batch:
        assert child(tmp_path, "batch", batch).code == -9
    full = child(tmp_path, "room", room)
    assert full.code == 1
    assert re.search(rf"Error: could not write .*{what}", full.said), full.said
    assert "Nothing is lost" in full.said and "Make room and type the same command again" in full.said
    assert child(tmp_path).code == 0
    check(tmp_path, undisturbed["open"])


@pytest.mark.slow
def test_the_number_of_threads_is_kept(child, undisturbed, tmp_path):
    assert child(tmp_path, "batch", 9).code == -9
    assert child(tmp_path, threads=2).code == 0
    check(tmp_path, undisturbed["open"])


def stopped_run(out):
    """A run with a checkpoint and without an end."""
    run(out, data_digest="d1", threads=1)
    (out / "result.json").unlink()
    shutil.rmtree(out / "checkpoints" / str(STEPS))
    return {path: path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


CHANGES = {
    "the config changed since: training.seed was 3 and is 4": {"seed": 4},
    "training.batch_size was 10 and is 11": {"batch_size": 11},
    "optimizer.lr was 0.02 and is 0.5": {"optimizer": lambda weights: torch.optim.Adam(weights, lr=0.5)},
    "color was 'not there' and is 'red'": {"config": {"color": "red"}},
    "the data changed since: data_digest was 'd1' and is 'd2'": {"data_digest": "d2"},
    "threads=3, but this run began with 1": {"threads": 3},
}


@pytest.mark.parametrize("message", list(CHANGES))
def test_a_changed_request_is_refused_and_touches_nothing(message, tmp_path):
    before = stopped_run(tmp_path)
    with pytest.raises(InputError, match=message):
        run(tmp_path, **{"data_digest": "d1", **CHANGES[message]})
    assert {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()} == before


def test_a_truncated_checkpoint_is_refused_and_touches_nothing(tmp_path):
    stopped_run(tmp_path)
    last = checkpoint.latest(tmp_path).folder / "weights.safetensors"
    last.write_bytes(last.read_bytes()[:-10])
    before = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    with pytest.raises(CheckpointError, match="cut off or changed"):
        run(tmp_path, data_digest="d1")
    assert {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()} == before


def test_a_finished_run_is_not_run_again(tmp_path):
    model, again = Dot(), Dot()
    first = run(tmp_path, model)
    log = (tmp_path / "run.jsonl").read_bytes()
    assert run(tmp_path, again) == first
    assert (tmp_path / "run.jsonl").read_bytes() == log
    assert torch.equal(model.items.weight, again.items.weight)


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(InputError, match="is a file"):
        run(tmp_path / "out")
