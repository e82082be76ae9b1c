"""`negwise schedule`: K for each step, against the rules themselves and against the formula by hand."""

import csv
import io
import json

import pytest

import negwise as nw
from negwise.schedule import k_by_step


def test_csv_of_every_step(negwise):
    code, out, err = negwise("schedule", "--peak", 20, "--steps", 10000, "--format", "csv")
    assert (code, err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [int(row["step"]) for row in rows] == list(range(10000))
    by_hand = [1 + 19 * min(1, step / 9999 / 0.1) for step in range(10000)]
    assert [float(row["k"]) for row in rows] == pytest.approx(by_hand, rel=1e-12)


def test_json_of_the_papers_schedule(negwise):
    words = ["schedule", "--peak", 20, "--steps", 101, "--shape", "ans", "--turn", 0.2]
    code, out, err = negwise(*words, "--format", "json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["rule"] == "AnsK(peak=20.0, turning_point=0.2)"
    assert found["steps"] == 101
    assert found["k"] == list(k_by_step(nw.AnsK(20, 0.2), 101))
    assert (found["k"][0], found["k"][20], found["k"][100]) == (1, 20, 1)
    assert negwise(*words, "--json") == (0, out, "")


def test_both_formats_say_the_same(negwise):
    words = ["schedule", "--peak", 7.3, "--steps", 13]
    rows = negwise(*words)[1].splitlines()[1:]
    assert [float(row.split(",")[1]) for row in rows] == json.loads(negwise(*words, "--format", "json")[1])["k"]


def test_one_step(negwise):
    assert negwise("schedule", "--peak", 5, "--steps", 1)[1] == "step,k\n0,1.0\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps", 10], "Missing option"),
        (["--peak", 20], "Missing option"),
        (["--peak", 0.5, "--steps", 10], "--peak 0.5 --turn 0.1: WarmK(peak) must be at least 1"),
        (["--peak", "nan", "--steps", 10], "must be a finite number of negatives"),
        (["--peak", 20, "--steps", 0], "steps: got 0, expected a whole number, 1 or more"),
        (["--peak", 20, "--steps", 10, "--turn", 1.5], "--turn 1.5: WarmK(warmup) must lie in [0, 1]; got 1.5"),
        (["--peak", 20, "--steps", 10, "--shape", "flat"], "shape: got 'flat', expected one of warm, ans"),
        (["--peak", 20, "--steps", 10, "--format", "xml"], "format: got 'xml', expected one of csv, json"),
        (["--peak", 20, "--steps", "many"], "--steps"),
        (["--peak", 20, "--steps", 10, "--format", "csv", "--json"], "--format csv and --json: got both, expected one"),
    ],
)
def test_wrong_requests(negwise, words, message):
    code, out, err = negwise("schedule", *words)
    assert code == 2
    assert out == ""
    assert message in err
    assert "Traceback" not in err
