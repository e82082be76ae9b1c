"""The whole job through the command line: killed twice it comes to the same; wrong requests are told apart."""

import json
import random
import signal
import subprocess
import sys
import time

import pytest

import negwise as nw
from negwise.files import lock_folder
from negwise.jobs.arms import parse_arm
from negwise.jobs.paper_job import _within_budget
from negwise.jobs.plan import plan_lengths, run_seconds
from negwise.jobs.preparation import Prepared
from negwise.records import PilotResult, StepTimes
from negwise.requests import RunRequest


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


def command(data, out, *more):
    words = ["run", "--data", data, "--out", out, "--steps", 12, "--batch-size", 16, "--queries", 24]
    return [*map(str, words), "--device", "cpu", *map(str, more)]


def heed_ctrl_c():
    """A shell that starts the tests in the background has SIGINT ignored in all that they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def strike_when(words, there, how=signal.SIGKILL):
    """Start a job and strike it, and nothing but it, once ``there()`` holds: its exit code and what it said."""
    command = [sys.executable, "-m", "negwise", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, preexec_fn=heed_ctrl_c) as job:
        while job.poll() is None and not there():
            time.sleep(0.02)
        job.send_signal(how)
        _, err = job.communicate()
    return job.returncode, err


def without_times(value):
    if isinstance(value, dict):
        return {name: without_times(part) for name, part in value.items() if name != "seconds"}
    return [without_times(part) for part in value] if isinstance(value, list) else value


def outcome(out):
    """All that a job came to: results, estimate, and the weights of every run."""
    results = without_times(json.loads((out / "results.json").read_text()))
    weights = {str(file.relative_to(out)): file.read_bytes() for file in sorted(out.glob("**/weights.safetensors"))}
    return results, (out / "estimate.json").read_text(), weights


def twice(negwise, words, struck, second):
    """Kill a job in its pilot, then strike it once it trains, then let it end: what the second stroke said."""
    code, _ = strike_when(words, lambda: len(list(struck.glob("pilot/seed-0/checkpoints/*"))) > 1)
    assert code == -signal.SIGKILL
    assert not (struck / "estimate.json").exists()
    code, said = strike_when(words, lambda: list(struck.glob("tuning/*/*/result.json")), second)
    again, _, err = negwise(*words)
    assert again == 0, err
    assert "resuming what is left" in err
    return code, said


@pytest.mark.slow
def test_a_job_on_texts_that_is_killed_twice_comes_to_the_same(cache, negwise):
    data = write_pairs(cache / "pairs.jsonl")
    whole, struck = cache / "whole", cache / "struck"
    beside = ("--jobs", 2, "--pool", 32, "--method", "paper", "--schedule", "fixed")
    code, text, err = negwise(*command(data, whole, *beside))
    assert code == 0, err
    assert twice(negwise, command(data, struck, *beside), struck, signal.SIGKILL)[0] == -signal.SIGKILL
    assert outcome(struck) == outcome(whole)

    results = json.loads((whole / "results.json").read_text())
    assert {arm["rule"] for arm in results["arms"]} >= {"1"}
    assert len(results["arms"]) >= 3
    assert all(seed["state"] == "done" for arm in results["arms"] for seed in arm["seeds"])
    assert {seed["steps"] for arm in results["arms"] for seed in arm["seeds"]} == {12}
    for each in results["arms"]:
        tried = each["tuning"]
        assert len({row["learning_rate"] for row in tried}) == 3
        best = max(tried, key=lambda row: row["val_auc"])
        assert best["learning_rate"] == each["learning_rate"]
        assert each["seeds"][0]["val"]["auc"] == best["val_auc"]
    assert f"{3 * len(results['arms'])} runs of 12 steps" in err
    page = (whole / "report.html").read_text()
    assert results["chosen"] in page
    assert nw.load(whole).score(["one", "two"], ["three", "four", "five"]).shape == (2, 3)
    assert f'model = nw.load("{whole}")' in text


@pytest.mark.slow
def test_a_job_on_interactions_that_is_killed_and_stopped_comes_to_the_same(cache, negwise):
    """The second stroke is Ctrl-C."""
    data = write_interactions(cache / "clicks.csv")
    whole, struck = cache / "whole", cache / "struck"
    alone = ("--method", "paper", "--compare", "none", "--schedule", "warm:5", "--jobs", 1, "--json")
    code, text, err = negwise(*command(data, whole, *alone))
    assert code == 0, err
    assert json.loads(text)["chosen"] == "warm:5"  # one object on standard output, and nothing else
    code, said = twice(negwise, command(data, struck, *alone), struck, signal.SIGINT)
    assert code == 130
    assert "Type the same command again" in said
    assert "Traceback" not in said
    assert outcome(struck) == outcome(whole)

    record = json.loads((whole / "job.json").read_text())
    del record["plan"]["times"]["pilot_step"]  # as if another version had written it
    (whole / "job.json").write_text(json.dumps(record))
    before = outcome(whole)
    said = wrong(negwise, *command(data, whole, *alone))
    assert "plan.times.pilot_step is missing" in said
    assert outcome(whole) == before


@pytest.mark.slow
def test_a_sweep_shows_a_failed_cell_as_failed_and_the_same_command_tries_it_again(cache, negwise):
    data, out = write_pairs(cache / "pairs.jsonl"), cache / "sweep"
    words = ["sweep", "--data", data, "--out", out, "--k", "1,8,warm:8", "--seeds", 2, "--steps", 6]
    words += ["--batch-size", 16, "--queries", 24, "--jobs", 1, "--device", "cpu"]
    blocked = out / "arms" / "8" / "seed-1"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file where a folder should be")
    code, text, err = negwise(*words)
    assert code == 0, err
    found = json.loads((out / "results.json").read_text())
    states = {(arm["rule"], seed["seed"]): seed["state"] for arm in found["arms"] for seed in arm["seeds"]}
    assert states == {(k, s): "done" for k in ("1", "8", "warm:8") for s in (0, 1)} | {("8", 1): "failed"}
    assert "1 done, 1 failed" in text
    assert "is a file" in err
    assert "failed" in (out / "report.html").read_text()
    blocked.unlink()
    code, text, err = negwise(*words, "--json")
    assert code == 0, err
    found = json.loads(text)
    assert all(seed["state"] == "done" for arm in found["arms"] for seed in arm["seeds"])
    assert {gap["arm"] for gap in found["differences"]} == {"8", "warm:8"}
    assert all(gap["seeds"] == 2 and gap["low"] <= gap["mean"] <= gap["high"] for gap in found["differences"])


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
    assert "cannot read K" in wrong(negwise, "run", "--data", pairs, "--out", out, "--k", "worm:20")
    assert "budget" in wrong(negwise, "run", "--data", pairs, "--out", out, "--budget", "soon")
    assert "seeds" in wrong(negwise, "run", "--data", pairs, "--out", out, "--seeds", 0)
    assert "each once" in wrong(negwise, "sweep", "--data", pairs, "--out", out, "--k", "1,4,1")
    assert "expected one of" in wrong(negwise, "run", "--data", pairs, "--out", out, "--model", "bert5rec")
    assert "lam: got 2" in wrong(negwise, "run", "--data", pairs, "--out", out, "--lam", 2)
    for name in ("steps", "batch-size", "pool"):
        assert "expected a whole number, 1 or more" in wrong(
            negwise, "run", "--data", pairs, "--out", out, f"--{name}", 0
        )
    for rate in (0, -1, "nan", "inf"):
        assert "above 0" in wrong(negwise, "run", "--data", pairs, "--out", out, "--learning-rate", rate)
    # Two cells of one folder would write over each other.
    said = wrong(negwise, "sweep", "--data", pairs, "--out", out, "--learning-rate", "0.1,0.1")
    assert "each once" in said
    assert "each once" in wrong(negwise, "sweep", "--data", pairs, "--out", out, "--k", "4,4.0")
    assert not (out / "job.json").exists()
    file = cache / "file"
    file.write_text("")
    assert "is a file" in wrong(negwise, "run", "--data", pairs, "--out", file)


def test_a_folder_that_cannot_be_written_to(cache, negwise):
    pairs = write_pairs(cache / "pairs.jsonl")
    # No rights stop the superuser; the folder of processes stops everybody.
    assert "cannot be written to" in wrong(negwise, "run", "--data", pairs, "--out", "/proc/negwise")


def test_one_user_and_equal_texts_and_one_negative(cache, negwise):
    words = ["--steps", 24, "--device", "cpu", "--out", cache / "out"]
    one = cache / "one.csv"
    one.write_text("user,item,time\n" + "".join(f"u,i{i},{i}\n" for i in range(30)))
    assert "user" in wrong(negwise, "run", "--data", one, *words)
    equal = cache / "equal.jsonl"
    equal.write_text('{"left": "the same title", "right": "the same body of text"}\n' * 50)
    assert "no positive has a single negative" in wrong(negwise, "run", "--data", equal, *words)
    few = cache / "few.csv"
    few.write_text("user,item,time\n" + "".join(f"u{u},i{u % 2 + i},{i}\n" for u in range(12) for i in range(5)))
    assert "K = 1 is all" in wrong(negwise, "run", "--data", few, "--method", "paper", *words)


@pytest.mark.parametrize("words", [("sweep", "--k", "1,100000"), ("run", "--k", "warm:100000")])
def test_a_k_beyond_the_catalogue_leaves_the_folder_free(cache, negwise, words):
    pairs = write_pairs(cache / "pairs.jsonl")
    said = wrong(negwise, *words, "--data", pairs, "--device", "cpu", "--out", cache / "out")
    assert "no row has more than 239" in said
    assert not (cache / "out" / "job.json").exists()


@pytest.mark.parametrize(("steps", "spent"), [(None, 10.0), (None, 200.0), (60, 10.0)])
def test_going_on_with_other_jobs_comes_to_the_same_steps(steps, spent):
    """Of a job with a budget, whose steps follow from the runs at a time that were planned with."""
    times = StepTimes(0.05, 0.4, 0.05, 1.5)
    lengths = plan_lengths(times, runs=9, jobs=2, steps=steps, budget=600)
    pilot = PilotResult("pilot", steps=240, seconds=50.0)
    roles = (("warm:8", "schedule", True), ("1", "K=1", False), ("8", "fixed K*", True), ("32", "extra", True))
    arms = [parse_arm(*each) for each in roles]
    job = RunRequest(budget="10m", steps=steps)
    made = [Prepared(None, 1e-3, ("auc", "hit@5"), 99.0, times, lengths, spent, jobs, 1, None) for jobs in (1, 2)]
    one, two = (_within_budget(arms, 3, each, job, pilot) for each in made)
    assert one == two
    kept, length, dropped = two
    assert length == steps or spent + 50 + run_seconds(times, 3 * len(kept), 2, length) <= 600
    assert (len(kept) == 4) != bool(dropped)


@pytest.mark.parametrize("verb", ["run", "sweep"])
def test_a_wrong_request_leaves_no_folder(cache, negwise, verb):
    assert "no such file" in wrong(negwise, verb, "--data", cache / "nowhere.csv", "--out", cache / "out")
    assert not (cache / "out").exists()


def test_a_folder_that_was_there_stays(tmp_path):
    with lock_folder(tmp_path, "job"):
        pass
    assert tmp_path.exists()
    with lock_folder(tmp_path / "new", "job"):
        (tmp_path / "new" / "kept").touch()
    assert (tmp_path / "new" / "kept").exists()


def test_a_job_of_its_own_is_not_overwritten(cache, negwise):
    pairs = write_pairs(cache / "pairs.jsonl")
    out = cache / "out"
    out.mkdir()
    lengths = {"pilot_steps": 1, "pilot_eval_every": 1, "steps": 1, "seconds": 1.0, "jobs": 1}
    times = {"step": 1.0, "evaluation": 1.0, "pilot_step": 1.0, "pilot_evaluation": 1.0}
    plan = {"lengths": lengths, "times": times, "spent": 1.0, "threads": 1, "training": {}}
    whole = {"kind": "sweep", "data": {"digest": "x"}, "request": {}, "machine": {"device": "cpu"}, "plan": plan}
    for broken, said in (("{", "not JSON"), ("{}", "kind is missing"), ("[]", "expected an object")):
        (out / "job.json").write_text(broken)
        assert said in wrong(negwise, "run", "--data", pairs, "--out", out)
    (out / "job.json").write_text(json.dumps(whole))
    assert "has a sweep, not a run" in wrong(negwise, "run", "--data", pairs, "--out", out)
    assert "the data changed" in wrong(negwise, "sweep", "--data", pairs, "--out", out)
    assert sorted(path.name for path in out.iterdir() if path.name != ".lock") == ["job.json"]
