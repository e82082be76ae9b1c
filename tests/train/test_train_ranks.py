"""Two processes (gloo, started by torchrun) are one process on the same global batch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch.testing import assert_close
from train_ranks import CASES

from negwise.records import read_run

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def outs(tmp_path_factory):
    """Folders of the same runs by one process and by two."""
    script = str(HERE / "train_ranks.py")
    commands = {
        1: [sys.executable, script],
        2: [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script],
    }
    found = {}
    for processes, command in commands.items():
        found[processes] = tmp_path_factory.mktemp(f"ranks-{processes}")
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [*command, str(found[processes])], capture_output=True, text=True, env=environment, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
    return found


@pytest.mark.slow
@pytest.mark.parametrize("case", list(CASES))
def test_two_ranks_are_one(case, outs):
    one, two = (read_run(outs[processes] / case) for processes in (1, 2))
    assert len(one.steps) == len(two.steps) > 3
    for mine, its in zip(two.steps, one.steps, strict=True):
        assert (mine["step"], mine["k"], mine["k_used"], mine["win_rate"]) == (
            its["step"], its["k"], its["k_used"], its["win_rate"],
        )  # fmt: skip
        assert mine["loss"] == pytest.approx(its["loss"], abs=1e-6)
        assert mine["mi_bound"] == pytest.approx(its["mi_bound"], abs=1e-6)
    assert [(record["step"], record["split"]) for record in two.evals] == [
        (record["step"], record["split"]) for record in one.evals
    ]
    for mine, its in zip(two.evals, one.evals, strict=True):
        assert (mine["queries"], mine["pairs"]) == (its["queries"], its["pairs"])
        assert mine["auc"] == pytest.approx(its["auc"], abs=1e-6)
        assert mine["metrics"] == pytest.approx(its["metrics"], abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("case", list(CASES))
def test_two_ranks_end_with_the_weights_of_one(case, outs):
    """Sixteen steps of Adam on: its second moments hold the squares of all gradients on the way."""
    for name in ("weights", "optimizer"):
        one, two = (load_file(outs[n] / case / "checkpoints" / "16" / f"{name}.safetensors") for n in (1, 2))
        assert one.keys() == two.keys()
        for key in one:
            assert_close(two[key], one[key], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_only_one_rank_writes(outs):
    for case in CASES:
        log = read_run(outs[2] / case)
        assert [record["event"] for record in log.events] == ["start", "end"]
        steps = [record["step"] for record in log.steps]
        assert steps == sorted(set(steps))
