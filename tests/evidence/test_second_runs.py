"""Runs of the second study: trained side by side within a limit, killed and resumed, kept and read again."""

import functools
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from second_jobs import act
from second_made_up import run_of

from evidence import second_cells, second_runs, second_study
from evidence.second_cells import Cell
from evidence.second_data import MINED
from negwise import InputError
from negwise.metrics import Ranks, ndcg

ROOT = Path(__file__).parents[2]


def of(*names):
    return [Cell("items", name, 10, 1) for name in names]


def together(tmp_path, jobs, **more):
    kept = []
    options = {"workers": 2, "limit": 1000.0, "ready": lambda _: True, "seconds": lambda _: 0.1} | more
    keep = lambda _job, found, _seconds: kept.append(found)  # noqa: E731
    return kept, second_runs.run_jobs(functools.partial(act, tmp_path), jobs, keep=keep, **options)


@pytest.mark.slow
def test_one_that_dies_or_fails_takes_no_other_with_it(tmp_path):
    kept, left = together(tmp_path, of("0.1", "dies", "0.2", "fails", "0.3"))
    assert sorted(kept) == ["0.1", "0.2", "0.3"]
    died, failed = sorted(left)
    assert "K = dies" in died and "BrokenProcessPool" in died
    assert "K = fails" in failed and "ValueError: as it should" in failed


@pytest.mark.slow
def test_what_cannot_end_in_time_is_not_begun_and_shorter_ones_are(tmp_path):
    seconds = {"5000": 5000.0, "0.1": 0.1, "0.2": 0.1}
    kept, left = together(tmp_path, of("5000", "0.1", "0.2"), seconds=lambda job: seconds[job.k], workers=1)
    assert kept[0] == "0.1" and "K = 5000" in left[0] and "more than is left" in left[0]


@pytest.mark.slow
def test_a_job_in_flight_at_the_limit_is_killed(tmp_path):
    began = time.monotonic()
    kept, left = together(tmp_path, of("900"), limit=5.0)
    assert kept == [] and left == ["items, K = 900, 1 steps, seed 10: the time is up"]
    assert time.monotonic() - began < 600 and not (tmp_path / "900 is done").exists()


@pytest.mark.slow
def test_a_job_waits_for_its_data_and_others_do_not(tmp_path):
    waits, goes = of("0.1", "0.2")
    ready = lambda job: job is not waits or (tmp_path / "0.2 is done").exists()  # noqa: E731
    assert together(tmp_path, [waits, goes], ready=ready, workers=1) == (["0.2", "0.1"], [])
    makes_data = "0.5"
    ready = lambda job: job is not waits or (tmp_path / "0.5 is done").exists()  # noqa: E731
    assert together(tmp_path, [makes_data, waits], ready=ready) == (["0.5", "0.1"], [])  # a process was free for it
    _, left = together(tmp_path, [waits], ready=lambda _: False)
    assert left == ["items, K = 0.1, 1 steps, seed 10: its data is not there"]


def test_what_is_saved_is_read(tmp_path):
    cells = [Cell("items", "1", 10, 100), Cell("simulated-100000", "20", 10, 100)]
    runs = [run_of(cells[0], 5), run_of(cells[1], 70_000, size=100_001)]
    tied = replace(runs[1]["ranks"], tied=runs[1]["ranks"].tied + 1)
    runs[1]["ranks"] = tied
    second_runs.save_runs(runs, tmp_path)
    found = second_runs.read(tmp_path)
    assert [second_runs.cell_of(run) for run in found] == cells
    for before, after in zip(runs, found, strict=True):
        assert after["curves"] == before["curves"]
        for name in second_runs.RANKS:
            assert np.array_equal(getattr(before["ranks"], name), getattr(after["ranks"], name))
    second_runs.save_runs(runs[:1], tmp_path / "..")  # a kill between the two files: ranks of a run that is not listed
    (tmp_path / "runs.json").write_text((tmp_path / ".." / "runs.json").read_text())
    assert len(second_runs.read(tmp_path)) == 1
    with pytest.raises(InputError, match=r"expected a folder with runs.json"):
        second_runs.read(tmp_path / "nothing")


def test_the_same_run_counts_once_and_other_data_is_refused(tmp_path):
    cells = [Cell("docs", "1", 10, 100), Cell("docs", "20", 10, 100)]
    for name, some in (("a", cells[:1]), ("b", cells)):
        (tmp_path / name).mkdir()
        second_runs.save_runs([run_of(cell, 5) for cell in some], tmp_path / name)
    assert len(second_runs.read_all([tmp_path / "a", tmp_path / "b"])) == 2
    second_runs.save_runs([run_of(cells[1], 5, digest="other")], tmp_path / "b")
    with pytest.raises(InputError, match=r"docs have the data other, those of .*a docs; they cannot be compared"):
        second_runs.read_all([tmp_path / "a", tmp_path / "b"])


def test_a_whole_study_is_small(tmp_path):
    """With as many queries as the data has, no file is over 16 MiB."""
    queries = {"items": 6040, "matching": 1869, "docs": 1700, "simulated-100000": 10_000}
    runs = []
    for cell in second_cells.cells_in_order(second_cells.BLOCKS):
        many = queries.get(cell.task, 6040)
        run = run_of(cell, 5)
        above = np.random.default_rng(0).integers(0, 100_000 if cell.task == "simulated-100000" else 3400, many)
        run["ranks"] = Ranks(above, np.ones(many, int), np.ones(many, int), np.full(many, 3400))
        path = {name: [0.123456] * 51 for name in ("step", "time", "k", "win_rate", "hit_rate")}
        runs.append(run | {"path": path})
    second_runs.save_runs(runs, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    assert max(path.stat().st_size for path in tmp_path.iterdir()) < 16 * 2**20


TINY = """
import sys
from pathlib import Path
from evidence import second_cells, second_runs, second_study
from evidence.second_cells import Cell
from evidence.second_data import MINED
second_cells.DATA["clicks"] |= {"queries": 60, "batch_size": 16, "title_words": 6, "history": 5}
CELLS = [Cell("clicks", k, seed, 6) for seed in (10, 11) for k in ("1", "2")]
second_study.cells_in_order = lambda blocks: CELLS
if __name__ == "__main__":
    sys.exit(second_study.main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_killed_in_the_middle_and_resumed(tmp_path):
    """The command is killed when it has a run; the next call trains what is left, and only that."""
    (tmp_path / "tiny.py").write_text(TINY)
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "NEGWISE_CACHE": str(tmp_path / "cache"), "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}

    def start(out, *done):
        words = ["run", "--data", "data", "--out", out, "--workers", "1", "--done", *done]
        pipe = subprocess.PIPE
        words = [sys.executable, "tiny.py", *words]
        return subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True)

    first = start("one")
    for _ in range(2400):
        if (tmp_path / "one" / "runs.json").exists() or first.poll() is not None:
            break
        time.sleep(0.05)
    assert first.poll() is None, first.communicate()
    first.kill()
    first.communicate()
    there = [second_runs.cell_of(run) for run in second_runs.read(tmp_path / "one")]
    assert 0 < len(there) < 4
    second = start("two", "one")
    told, errors = second.communicate(timeout=500)
    assert second.returncode == 0 and errors.endswith("0 left\n"), errors
    runs = second_runs.read_all([tmp_path / "one", tmp_path / "two"])
    cells = [second_runs.cell_of(run) for run in runs]
    assert len(set(cells)) == len(cells) == 4 and not set(there) & set(cells[len(there) :])
    assert len(told.splitlines()) == 4 - len(there)
    one = runs[0]
    assert (one["k"], len(one["curves"]["val"]["auc"]), len(one["curves"]["train"]["auc"])) == ("1", 7, 7)
    assert {len(values) for values in one["path"].values()} == {6} and one["path"]["k"] == [1.0] * 6
    assert all(0 <= value <= 1 for name in ("win_rate", "hit_rate") for value in one["path"][name])
    assert np.nanmean(ndcg(one["ranks"], 10)) == pytest.approx(one["test"]["ndcg@10"], abs=1e-5)
    assert str(tmp_path) not in json.dumps([{**run, "ranks": ""} for run in runs])


MADE = """
import json, sys
from pathlib import Path
import numpy as np
from evidence import second_data, second_study
from evidence.second_cells import DATA, Cell
SMALL = {"model": "siamese-cnn", "batch_size": 16, "title_words": 4, "body_words": 8}
for name in ("matching", "wide"):
    DATA[name] = {"data": "pairs.jsonl", **SMALL}
for name in ("mined", "packages"):
    DATA[name] |= SMALL
second_data.PACKAGES = ("made_package",)
second_data.MINER = {"k": "2", "seed": 100, "steps": 4}
plain = second_data.read
second_data.read = lambda name, **more: plain("data/known.jsonl" if name == "docs" else name, **more)
CELLS = [Cell("wide", "metric", 10, 4), Cell("mined", "20", 10, 4), Cell("packages", "4", 10, 4)]
if Path("one").exists():
    CELLS.append(Cell("mined", "20", 11, 4))
second_study.cells_in_order = lambda blocks: CELLS
if __name__ == "__main__":
    sys.exit(second_study.main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_the_new_kinds_of_run_from_end_to_end(tmp_path):
    """All bodies, docstrings of a package and mined negatives: made, trained, and mined no second time."""
    (tmp_path / "made.py").write_text(MADE)
    (tmp_path / "data").mkdir()
    (tmp_path / "made_package").mkdir()
    rows = [
        {"title": f"topic{at % 2} name{at} word{at}", "body": f"topic{at % 2} name{at} text{at} more{at}"}
        for at in range(150)
    ]
    (tmp_path / "data" / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "data" / "known.jsonl").write_text(json.dumps({"title": "known by all", "body": "known it is"}) + "\n")
    body = 'def f{0}():\n    """Makes thing number {0} of all.\n\n    The {0} is for {1}.\n    """\n'
    (tmp_path / "made_package" / "__init__.py").write_text("".join(body.format(at, at + 1000) for at in range(120)))
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "NEGWISE_CACHE": str(tmp_path / "cache"), "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}

    def call(*words):
        words = [sys.executable, "made.py", "run", "--data", "data", "--workers", "1", *words]
        return subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)

    done = call("--out", "one")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "one").iterdir()} == {*("runs.json", "runs.safetensors"), MINED}
    runs = {run["task"]: run for run in second_runs.read(tmp_path / "one")}
    assert runs["wide"]["candidates"] == 150 and len(runs["wide"]["ranks"].above) == 15
    assert runs["wide"]["path"]["k"][-1] == 64  # at least, and hit@5 among 150 asks for 30
    assert runs["packages"]["candidates"] == len(runs["packages"]["ranks"].above) == 12
    assert runs["mined"]["candidates"] == len(runs["mined"]["ranks"].above) == 15

    for path in (tmp_path / "data" / "made").iterdir():
        path.unlink()
    done = call("--out", "two", "--done", "one")
    assert done.returncode == 0 and "mined" in done.stdout and "wide" not in done.stdout, done.stderr
    first, second = (load_file(tmp_path / name / MINED)["rows"] for name in ("one", "two"))
    assert np.array_equal(first, second) and first.shape == (150, 10) and (first >= 0).any()
    assert len(second_runs.read_all([tmp_path / "one", tmp_path / "two"])) == 4  # of the same data


def test_the_command_says_what_is_wrong_with_a_request(tmp_path, capsys):
    assert second_study.main(["run", "end-item", "--out", str(tmp_path / "out")]) == 2
    assert "end-item: no such block; expected end-items" in capsys.readouterr().err
    assert second_study.main(["tables", str(tmp_path)]) == 2
    assert second_study.main(["plan"]) == 0
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == list(second_cells.BLOCKS)


def test_what_is_there_is_merged_and_told(tmp_path, capsys):
    for name, seeds in (("a", (10, 11)), ("b", (12, 13, 14))):
        cells = [cell for cell in second_cells.cells_of("end-items") if cell.seed in seeds]
        (tmp_path / name).mkdir()
        second_runs.save_runs([run_of(cell, 5 if cell.k == "1000" else 30) for cell in cells], tmp_path / name)
    assert second_study.main(["merge", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "c")]) == 0
    assert second_study.main(["tables", str(tmp_path / "c")]) == 0
    told = capsys.readouterr().out
    assert "second-ends: less K = 1, top n: items: " in told and "second-noise: not run yet" in told
