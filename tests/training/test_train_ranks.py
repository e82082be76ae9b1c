"""Two processes (gloo) are one process on the same global batch; torchrun starts them, or they are forks of one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close
from train_ranks import CASES

from negwise.records import read_run

SCRIPT = str(Path(__file__).parent / "train_ranks.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", SCRIPT]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def ranks():
    """``ranks(number, out, case, point, at)`` runs in so many processes, and tells what they said."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": ENVIRONMENT}
    with subprocess.Popen([sys.executable, SCRIPT], **pipes) as server:

        def ask(number, out, case=None, point="never", at=0):
            request = {"ranks": number, "out": str(out), "case": case, "point": point, "number": at}
            print(json.dumps(request), file=server.stdin, flush=True)
            answer = json.loads(server.stdout.readline())
            assert answer["codes"] == [0] * number, answer["said"]
            return answer["said"]

        yield ask
        server.stdin.close()


@pytest.fixture(scope="module")
def outs(ranks, tmp_path_factory):
    """Folders of the same runs by one process and by two, which torchrun starts."""
    found = {number: tmp_path_factory.mktemp(f"ranks-{number}") for number in (1, 2)}
    ranks(1, found[1])
    done = subprocess.run([*TORCHRUN, found[2]], capture_output=True, text=True, env=ENVIRONMENT, timeout=300)
    assert done.returncode == 0, done.stderr
    return found


@pytest.mark.slow
@pytest.mark.parametrize("case", list(CASES))
def test_two_ranks_are_one(case, outs):
    one, two = (read_run(outs[processes] / case) for processes in (1, 2))
    assert len(one.steps) == len(two.steps) > 3
    for mine, its in zip(two.steps, one.steps, strict=True):
        assert (mine.step, mine.k, mine.k_used, mine.win_rate) == (
            its.step, its.k, its.k_used, its.win_rate,
        )  # fmt: skip
        assert mine.loss == pytest.approx(its.loss, abs=1e-6)
        assert mine.mi_bound == pytest.approx(its.mi_bound, abs=1e-6)
    assert [(record.step, record.split) for record in two.evals] == [
        (record.step, record.split) for record in one.evals
    ]
    for mine, its in zip(two.evals, one.evals, strict=True):
        assert (mine.queries, mine.pairs) == (its.queries, its.pairs)
        assert mine.auc == pytest.approx(its.auc, abs=1e-6)
        assert mine.metrics == pytest.approx(its.metrics, abs=1e-6)
    # At the start the weights are the same bits, and so is all that is made of them.
    assert [record for record in two.evals if record.step == 0] == [record for record in one.evals if record.step == 0]


@pytest.mark.slow
@pytest.mark.parametrize(("point", "number", "step"), [("step", 4, 4), ("chunk", 13, 5)])
def test_ctrl_c_in_one_rank_stops_all(point, number, step, ranks, outs, tmp_path):
    """In a step, and between two chunks of an evaluation, of which an evaluation of two splits has ten."""
    said = ranks(2, tmp_path, "mean", point, number)
    for rank in (0, 1):
        assert f"rank {rank}: stopped after step {step} of 16, which is saved" in said
    assert [record.event for record in read_run(tmp_path / "mean").events] == ["start", "stop"]
    ranks(2, tmp_path, "mean")
    for name in ("weights", "optimizer"):
        again, whole = (
            load_file(out / "mean" / "checkpoints" / "16" / f"{name}.safetensors") for out in (tmp_path, outs[2])
        )
        assert all(torch.equal(again[key], whole[key]) for key in whole)
    assert read_run(tmp_path / "mean").evals == read_run(outs[2] / "mean").evals


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
        assert [record.event for record in log.events] == ["start", "end"]
        steps = [record.step for record in log.steps]
        assert steps == sorted(set(steps))
