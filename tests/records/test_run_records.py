"""The run log: what is appended is there, what was cut off is not, what was taken back is dropped."""

import json
import math
import subprocess
import sys

import pytest

from negwise import curves
from negwise.errors import InputError
from negwise.records import EvalRecord, EventRecord, RunLogWriter, StepRecord, read_run


def step(number, **more):
    return StepRecord(number, **more)


def evaluated(number, split="val", auc=0.5):
    return EvalRecord(step=number, split=split, auc=auc, auc_se=0.01, queries=10, pairs=20, metrics={"mrr": 0.25})


def resumed(number):
    return EventRecord("resume", number)


def write(path, *records):
    with RunLogWriter(path) as log:
        for record in records:
            log.append(record)


def test_reads_what_was_written(tmp_path):
    records = [step(1, loss=0.1 + 0.2), evaluated(1, "train"), evaluated(1), step(2, loss=None)]
    write(tmp_path / "run.jsonl", *records)
    run = read_run(tmp_path)
    assert list(run.steps) == [records[0], records[3]]
    assert list(run.evals) == records[1:3]
    assert run.of_split("val") == (records[2],)
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert [(line["kind"], line["step"]) for line in lines] == [("step", 1), ("eval", 1), ("eval", 1), ("step", 2)]
    assert lines[0]["loss"] == 0.1 + 0.2 and lines[3]["loss"] is None
    assert (lines[1]["split"], lines[1]["metrics"]) == ("train", {"mrr": 0.25})
    assert "k_reason" not in lines[0]  # what a run never has takes no room


def test_a_record_is_on_file_at_once(tmp_path):
    log = RunLogWriter(tmp_path / "run.jsonl")
    log.append(step(1))
    assert read_run(tmp_path).steps == (step(1),)
    log.close()


def test_any_cut_of_the_last_line(tmp_path):
    """However much of the last line was written, readers see the lines before it and a writer goes on after them."""
    path = tmp_path / "run.jsonl"
    write(path, step(1), step(2, k_reason="é"))
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole)):
        path.write_bytes(whole[:cut])
        assert read_run(path).steps == (step(1),), cut
        write(path, step(3))
        assert read_run(path).steps == (step(1), step(3)), cut
    path.write_bytes(whole[: first - 1])
    assert read_run(path).steps == ()


def test_a_long_half_line_is_cut(tmp_path):
    path = tmp_path / "run.jsonl"
    write(path, step(1))
    with path.open("a") as file:
        file.write('{"kind": "step", "text": "' + "x" * 200_000)
    write(path, step(2))
    assert read_run(path).steps == (step(1), step(2))


def test_a_resume_takes_back_later_records(tmp_path):
    path = tmp_path / "run.jsonl"
    write(path, evaluated(0), step(1), step(2), evaluated(2, auc=0.6), step(3))
    write(path, resumed(1), step(2), evaluated(2, auc=0.7), step(3), evaluated(4, auc=0.8))
    write(path, resumed(2), step(3))
    run = read_run(path)
    assert [record.step for record in run.steps] == [1, 2, 3]
    assert [(record.step, record.auc) for record in run.evals] == [(0, 0.5), (2, 0.7)]
    assert [record.step for record in run.events] == [1, 2]


def test_curves_read_the_same(tmp_path):
    """`negwise.curves` has a reader of its own."""
    path = tmp_path / "run.jsonl"
    for number, auc in ((0, 0.5), (2, 0.6), (4, 0.65)):
        write(path, evaluated(number, "train", auc + 0.1), evaluated(number, "val", auc))
    write(path, resumed(2), evaluated(4, "train", 0.9), evaluated(4, "val", 0.7))
    found = curves.read(path)
    run = read_run(path)
    assert list(found.val_auc) == [record.auc for record in run.of_split("val")] == [0.5, 0.6, 0.7]
    assert list(found.val_steps) == [record.step for record in run.of_split("val")]


def test_refusals(tmp_path):
    path = tmp_path / "run.jsonl"
    with RunLogWriter(path) as log, pytest.raises(InputError, match="JSON has none"):
        log.append(step(1, loss=math.nan))
    assert path.read_bytes() == b""
    with pytest.raises(InputError, match="no such file"):
        read_run(tmp_path / "elsewhere")
    path.write_text('{"kind": "step", "step": 1}\nnonsense\n{"kind": "step", "step": 2}\n')
    with pytest.raises(InputError, match=r"line 2: not JSON"):
        read_run(path)
    for line, said in (
        ('{"kind": "eval", "step": 1}', r"line 1: auc is missing"),
        ('{"step": 1}', r"line 1: .* is no record"),
        ("[1]", r"line 1: .* is no record"),
        ('{"kind": "step", "step": "one"}', r"line 1: step is 'one', expected a whole number"),
        ('{"kind": "step", "step": 1, "loss": true}', r"line 1: loss is True, expected a number"),
        ('{"kind": "eval", "step": 1, "split": "val", "auc": 0.5, "metrics": {"mrr": "x"}}', r"metrics\.mrr is 'x'"),
    ):
        path.write_text(line + "\n")
        with pytest.raises(InputError, match=said):
            read_run(path)
    path.write_text('{"kind": "step", "step": 2}\n{"kind": "step", "step": 2}\n')
    with pytest.raises(InputError, match=r"line 2: step 2 comes after step 2 with no resume"):
        read_run(path)


def test_what_a_newer_version_adds_is_ignored(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text('{"kind": "step", "step": 1, "hue": "red"}\n{"kind": "race", "rung": 3}\n')
    assert read_run(path).steps == (step(1),)


FULL = """
import resource, sys
from negwise.records import RunLogWriter, StepRecord
log = RunLogWriter(sys.argv[1])
log.append(StepRecord(1))
size = log.path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, size + 10))
try:
    log.append(StepRecord(2, k_reason="x" * 100))
except OSError as error:
    print(error)
"""


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path):
    path = tmp_path / "run.jsonl"
    out = subprocess.run([sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=True)
    assert "the log stays as it was" in out.stdout and str(path) in out.stdout
    assert read_run(path).steps == (step(1),) and path.read_text().count("\n") == 1
