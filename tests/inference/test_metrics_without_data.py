"""What a model is worth can be recomputed by public functions, in a new process, where its data never was."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.inference.inference_world import MODELS


@pytest.fixture(scope="module")
def recomputed(world):
    script = Path(__file__).parent / "recompute.py"
    elsewhere = {**os.environ, "NEGWISE_CACHE": str(world / "none")}
    command = [sys.executable, str(script), str(world), *MODELS]
    done = subprocess.run(command, capture_output=True, text=True, cwd=world, env=elsewhere)
    assert done.returncode == 0, done.stderr
    assert not (world / "none").exists()
    return json.loads(done.stdout)


@pytest.mark.parametrize("model", MODELS)
def test_metrics_are_those_of_the_run(model, world, recomputed):
    test = json.loads((world / "runs" / model / "result.json").read_text())["evaluations"]["test"]
    expected = {"auc": test["auc"], **{name: test["metrics"][name] for name in recomputed[model] if name != "auc"}}
    assert recomputed[model] == pytest.approx(expected, abs=1e-6)
