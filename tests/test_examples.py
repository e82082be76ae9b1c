"""The examples are scripts that run as they stand."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name, *words):
    return subprocess.run(
        [sys.executable, str(EXAMPLES / name), *map(str, words)], capture_output=True, text=True, check=True
    ).stdout


def test_examples_are_short():
    for script in EXAMPLES.glob("*.py"):
        assert len(script.read_text().splitlines()) <= (39 if script.stem == "own_loop" else 75), script


def test_own_loop_trains_with_a_changing_k():
    lines = [line.split() for line in run("own_loop.py").splitlines()]
    ks, losses, aucs = ([float(line[at]) for line in lines] for at in (3, 5, -1))
    assert ks == [8.5] * 6  # the warm-up of a tenth is over
    assert losses[-1] < losses[0]
    assert aucs[-1] > 0.9


@pytest.mark.slow
def test_pilot_curve_makes_the_log_that_ships_with_the_package(tmp_path):
    text = run("pilot_curve.py", tmp_path / "curves.csv", 300)
    assert "K*" in text
    made = list(csv.DictReader((tmp_path / "curves.csv").read_text().splitlines()))
    from negwise.curves import read

    shipped = read(EXAMPLES.parent / "src" / "negwise" / "curves" / "example.csv")
    assert [float(row["step"]) for row in made] == shipped.val_steps[:4].tolist() == [0, 100, 200, 300]
    # Other versions of the libraries have other docstrings, so the curve is like the shipped one, not the same.
    for row, auc in zip(made, shipped.val_auc[:4], strict=True):
        assert abs(float(row["val_auc"]) - auc) < 0.05
