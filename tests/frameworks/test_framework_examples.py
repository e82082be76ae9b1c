"""The examples of the frameworks run as they stand; here in one process, which has the frameworks imported."""

import runpy
import sys
import warnings
from pathlib import Path

import pytest
from accelerate.state import AcceleratorState, GradientState, PartialState
from tiny_bert import text_pairs

EXAMPLES = Path(__file__).parents[2] / "examples" / "frameworks"


@pytest.fixture
def run(monkeypatch, capsys):
    """Run an example and return the lines that it prints, without those of a trainer."""

    def run_example(name, *words):
        for state in (AcceleratorState, GradientState, PartialState):
            state._reset_state()
        monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
        capsys.readouterr()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return [line for line in capsys.readouterr().out.splitlines() if not line.startswith("{")]

    return run_example


@pytest.fixture
def pairs(tmp_path):
    text_pairs(1000, 1).to_pandas().to_csv(tmp_path / "pairs.csv", index=False)
    return tmp_path / "pairs.csv"


def test_examples_are_short():
    scripts = list(EXAMPLES.glob("*.py"))
    assert len(scripts) == 6
    for script in scripts:
        assert len(script.read_text().splitlines()) < 60, script


def test_sentence_encoder(run, tiny_bert, pairs, tmp_path):
    lines = run("sentence_encoder.py", tiny_bert, pairs, tmp_path / "out", 120)
    assert lines[0].startswith("step 0 {'eval_auc'") and lines[-1].startswith("step 120 {'eval_auc'")
    assert (tmp_path / "out" / "run" / "run.jsonl").exists()


def test_cross_encoder(run, tiny_bert, pairs, tmp_path):
    lines = run("cross_encoder.py", tiny_bert, pairs, tmp_path / "out", 10)
    assert lines[0].startswith("step 0 {'eval_auc'") and "'k_used'" in lines[1]


def test_hugging_face_trainer(run, tmp_path):
    lines = run("hugging_face_trainer.py", tmp_path)
    assert lines[0].startswith("step 0 ") and float(lines[-1].split("'eval_auc': ")[1].rstrip("}")) > 0.9


def test_lightning_module(run, tmp_path):
    lines = run("lightning_module.py", tmp_path)
    assert lines[0].startswith("K* ") and float(lines[-1].split()[-1]) > 0.9


def test_accelerate_loop(run):
    lines = run("accelerate_loop.py")
    assert len(lines) == 5 and float(lines[-1].split("AUC ")[1].split("±")[0]) > 0.9


def test_torch_loop(run, tmp_path):
    lines = run("torch_loop.py", tmp_path)
    assert len(lines) == 4 and float(lines[-1].split()[-1]) > 0.9
    assert (tmp_path / "run" / "result.json").exists()
