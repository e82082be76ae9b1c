"""The whole job through the command line: killed twice it comes to the same; wrong requests are told apart."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from negwise.experiments.training import load


def write_pairs(file, n=240):
    """A title and a body share what they are about and no word."""
    dice = random.Random(0)
    rows = []
    for _ in range(n):
        topic = dice.sample(range(80), 5)
        left = [f"a{t}" for t in dice.sample(topic, 4)]
        right = [f"b{t}" for t in dice.sample(topic, 4)] + [f"b{dice.randrange(80)}" for _ in range(3)]
        rows.append({"left": " ".join(left), "right": " ".join(right)})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def write_interactions(file, users=60, items=40):
    """Users who walk along the catalogue, now and then skipping an item."""
    dice = random.Random(0)
    lines = ["user,item,time"]
    for user in range(users):
        place = dice.randrange(items)
        for moment in range(10):
            place = (place + dice.choice([1, 1, 2])) % items
            lines.append(f"u{user},i{place},{moment}")
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


def command(data, out):
    words = ["run", "--data", data, "--out", out, "--steps", 24, "--batch-size", 16, "--queries", 24, "--jobs", 2]
    return [sys.executable, "-m", "negwise", *map(str, words), "--device", "cpu"]


def kill_when(words, there):
    """Start a job and kill it, and nothing but it, once ``there()`` holds; false where it ended before."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
        while job.poll() is None and not there():
            time.sleep(0.02)
        ended = job.poll() is not None
        if not ended:
            os.kill(job.pid, signal.SIGKILL)
        job.communicate()
    return not ended


def without_times(value):
    if isinstance(value, dict):
        return {name: without_times(part) for name, part in value.items() if name != "seconds"}
    return [without_times(part) for part in value] if isinstance(value, list) else value


def outcome(out):
    """All that a job came to: results, estimate, and the weights of every run."""
    results = without_times(json.loads((out / "results.json").read_text()))
    weights = {str(file.relative_to(out)): file.read_bytes() for file in sorted(out.glob("**/weights.safetensors"))}
    return results, (out / "estimate.json").read_text(), weights


@pytest.mark.slow
@pytest.mark.parametrize(("write", "name"), [(write_pairs, "pairs.jsonl"), (write_interactions, "clicks.csv")])
def test_a_job_that_is_killed_twice_comes_to_the_same(cache, write, name):
    data = write(cache / name)
    whole, struck = cache / "whole", cache / "struck"
    done = subprocess.run(command(data, whole), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    words = command(data, struck)
    assert kill_when(words, lambda: len(list(struck.glob("pilot/seed-0/checkpoints/*"))) > 1)
    assert not (struck / "estimate.json").exists()
    assert kill_when(words, lambda: len(list(struck.glob("tuning/*/*/result.json"))) > 2)
    again = subprocess.run(words, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert "going on" in again.stderr
    assert outcome(struck) == outcome(whole)

    results = json.loads((whole / "results.json").read_text())
    assert {arm["rule"] for arm in results["arms"]} >= {"1"}
    assert all(seed["state"] == "done" for arm in results["arms"] for seed in arm["seeds"])
    steps = {seed["steps"] for arm in results["arms"] for seed in arm["seeds"]}
    assert steps == {24}
    for arm in results["arms"]:
        tried = arm["tuning"]
        assert len({row["learning_rate"] for row in tried}) == 3
        best = max(tried, key=lambda row: row["val_auc"])
        assert best["learning_rate"] == arm["learning_rate"]
        assert arm["seeds"][0]["val"]["auc"] == best["val_auc"]
    page = (whole / "report.html").read_text()
    assert results["chosen"] in page
    assert (whole / results["model"]).is_dir()
    trained = load(whole / results["model"])
    assert trained.score([0, 1], [0, 1, 2]).shape == (2, 3)
    assert f'load("{whole / results["model"]}")' in done.stdout


@pytest.mark.slow
def test_a_sweep_shows_a_failed_cell_as_failed_and_the_same_command_tries_it_again(cache, negwise):
    data, out = write_pairs(cache / "pairs.jsonl"), cache / "sweep"
    words = ["sweep", "--data", data, "--out", out, "--k", "1,8,warm:8", "--seeds", 2, "--steps", 24]
    words += ["--batch-size", 16, "--queries", 24, "--jobs", 2, "--device", "cpu"]
    blocked = out / "arms" / "8" / "seed-1"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file where a folder should be")
    code, text, err = negwise(*words)
    assert code == 0, err
    found = json.loads((out / "results.json").read_text())
    states = {(arm["rule"], seed["seed"]): seed["state"] for arm in found["arms"] for seed in arm["seeds"]}
    assert states == {(k, s): "done" for k in ("1", "8", "warm:8") for s in (0, 1)} | {("8", 1): "failed"}
    assert "1 done, 1 failed" in text
    assert "failed" in (out / "report.html").read_text()
    blocked.unlink()
    code, text, err = negwise(*words, "--json")
    assert code == 0, err
    found = json.loads(text)
    assert all(seed["state"] == "done" for arm in found["arms"] for seed in arm["seeds"])
    assert {gap["arm"] for gap in found["differences"]} == {"8", "warm:8"}
    assert all(gap["seeds"] == 2 and gap["low"] <= gap["mean"] <= gap["high"] for gap in found["differences"])


@pytest.mark.slow
def test_ctrl_c_saves_and_says_how_to_go_on(cache):
    data, out = write_pairs(cache / "pairs.jsonl"), cache / "out"
    words = command(data, out)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        while job.poll() is None and not list(out.glob("tuning/*/*/run.jsonl")):
            time.sleep(0.02)
        job.send_signal(signal.SIGINT)
        _, err = job.communicate()
    assert job.returncode == 130
    assert "Type the same command again" in err
    assert "Traceback" not in err
    half = json.loads((out / "results.json").read_text())
    assert any(seed["state"] == "waiting" for arm in half["arms"] for seed in arm["seeds"])


def wrong(negwise, *words):
    code, _, err = negwise(*words)
    assert code == 2, err
    return err


def test_requests_that_cannot_be_met(cache, negwise):
    pairs = write_pairs(cache / "pairs.jsonl")
    out = cache / "out"
    assert "no such" in wrong(negwise, "run", "--data", cache / "nowhere", "--out", out)
    empty = cache / "empty.jsonl"
    empty.write_text("")
    assert "empty" in wrong(negwise, "run", "--data", empty, "--out", out)
    assert "cannot read K" in wrong(negwise, "run", "--data", pairs, "--out", out, "--schedule", "worm:20")
    assert "budget" in wrong(negwise, "run", "--data", pairs, "--out", out, "--budget", "soon")
    assert "seeds" in wrong(negwise, "run", "--data", pairs, "--out", out, "--seeds", 0)
    assert "each once" in wrong(negwise, "sweep", "--data", pairs, "--out", out, "--k", "1,4,1")
    assert "expected one of" in wrong(negwise, "run", "--data", pairs, "--out", out, "--model", "bert5rec")
    file = cache / "file"
    file.write_text("")
    assert "is a file" in wrong(negwise, "run", "--data", pairs, "--out", file)


def test_a_folder_that_cannot_be_written_to(cache, negwise):
    pairs = write_pairs(cache / "pairs.jsonl")
    # No rights stop the superuser; the folder of processes stops everybody.
    assert "cannot be written to" in wrong(negwise, "run", "--data", pairs, "--out", "/proc/negwise")


@pytest.mark.slow
def test_one_user_and_equal_texts_and_a_k_beyond_the_catalogue(cache, negwise):
    one = cache / "one.csv"
    one.write_text("user,item,time\n" + "".join(f"u,i{i},{i}\n" for i in range(30)))
    words = ["--steps", 24, "--device", "cpu", "--out", cache / "out"]
    assert "user" in wrong(negwise, "run", "--data", one, *words)
    equal = cache / "equal.jsonl"
    equal.write_text('{"left": "the same title", "right": "the same body of text"}\n' * 50)
    said = wrong(negwise, "run", "--data", equal, *words)
    assert "bod" in said or "distinct" in said
    pairs = write_pairs(cache / "pairs.jsonl")
    said = wrong(negwise, "sweep", "--data", pairs, *words, "--k", "1,100000")
    assert "no row has more than" in said


def test_a_job_of_its_own_is_not_overwritten(cache, negwise):
    pairs = write_pairs(cache / "pairs.jsonl")
    out = cache / "out"
    out.mkdir()
    (out / "job.json").write_text(json.dumps({"kind": "sweep", "data": {"digest": "x"}, "request": {}}))
    assert "has a sweep, not a run" in wrong(negwise, "run", "--data", pairs, "--out", out)
    assert "the data changed" in wrong(negwise, "sweep", "--data", pairs, "--out", out)
    assert sorted(path.name for path in out.iterdir() if path.name != ".lock") == ["job.json"]
