"""The loop on a GPU: the run of a CPU within rounding, bfloat16, and a run taken up again."""

import shutil

import pytest
import torch
from train_ranks import CASES
from train_world import Mean, make_world, run

from negwise.records import read_run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("name", list(CASES))
def test_gpu_agrees_with_cpu(name, tmp_path):
    case = dict(CASES[name])
    kind = case.pop("model")
    for device in ("cpu", "cuda"):
        run(tmp_path / device, kind(), device=device, batch_size=12, steps=16, **case)
    ours, theirs = (read_run(tmp_path / device) for device in ("cuda", "cpu"))
    for mine, its in zip(ours.steps, theirs.steps, strict=True):
        assert (mine.k, mine.k_used) == (its.k, its.k_used)
        assert mine.loss == pytest.approx(its.loss, abs=1e-3)
    for mine, its in zip(ours.evals, theirs.evals, strict=True):
        assert mine.auc == pytest.approx(its.auc, abs=0.01)


def test_bfloat16_learns(tmp_path):
    result = run(tmp_path, Mean(), make_world(n=400), device="cuda", precision="bf16-mixed", steps=300, eval_every=300)
    assert result.device == "cuda" and result.best.auc > 0.62


def test_a_run_is_taken_up_on_the_gpu(tmp_path):
    whole = run(tmp_path, Mean(dropout=0.3), device="cuda")
    (tmp_path / "result.json").unlink()
    shutil.rmtree(tmp_path / "checkpoints" / "17")
    again = run(tmp_path, Mean(dropout=0.3), device="cuda")
    assert again.best.auc == pytest.approx(whole.best.auc, abs=0.02)
    assert [record.step for record in read_run(tmp_path).steps] == list(range(1, 18))
