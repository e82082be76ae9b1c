"""Records that are broken: the message names the file, what is wrong and what to do. Half-done ones make a page."""

import json
import shutil

import pytest
from report_folders import edit, job_record, write_job, write_json, write_run, write_sweep

from negwise.errors import InputError
from negwise.report.write_report import read_report_data, write_report


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return write_job(tmp_path_factory.mktemp("records") / "job", seeds=1)


@pytest.fixture
def job(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "job")


def set_arm(**values):
    return lambda results: results["arms"][0].update(values)


def set_seed(**values):
    return lambda results: results["arms"][0]["seeds"][0].update(values)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("job.json", lambda job: job.update(kind="walk"), r"job\.json: kind is 'walk', expected 'run' or 'sweep'"),
        ("job.json", lambda job: job.pop("kind"), r"job\.json: kind is missing, expected a value\. Restore the file"),
        ("job.json", lambda job: job.update(data=[1]), r"data is \[1\], expected an object"),
        ("job.json", lambda job: job["data"].pop("digest"), r"job\.json, data: digest is missing"),
        ("job.json", lambda job: job["plan"].update(threads="two"), r"plan\.threads is 'two', expected a whole number"),
        ("job.json", lambda job: job.update(format=99), r"job\.json: written by a newer negwise"),
        ("results.json", set_arm(name=None), r"results\.json: arms\[0\]\.name is None, expected text"),
        ("results.json", set_arm(k="many"), r"arms\[0\]\.k is 'many', expected a number"),
        ("results.json", set_arm(seeds={}), r"arms\[0\]\.seeds is \{\}, expected a list"),
        ("results.json", set_arm(seeds=[3]), r"arms\[0\]\.seeds\[0\] is 3, expected an object"),
        ("results.json", set_arm(uses_pilot=1), r"uses_pilot is 1, expected true or false"),
        ("results.json", set_arm(name="1"), r"two arms are called '1'"),
        ("results.json", set_seed(state="lost"), r"seeds\[0\]\.state is 'lost', expected 'done' or 'failed' or"),
        ("results.json", set_seed(run=None), r"seeds\[0\]\.run is None, expected text"),
        ("results.json", set_seed(test={"auc": "high"}), r"seeds\[0\]\.test\.auc is 'high', expected a number"),
        ("results.json", lambda r: r.update(caveats=["ok", 3]), r"caveats\[1\] is 3, expected text"),
        ("estimate.json", lambda e: e.pop("lam"), r"estimate\.json: lam is missing"),
        ("estimate.json", lambda e: e.update(k="20"), r"estimate\.json: k is '20', expected a number"),
        ("estimate.json", lambda e: e.update(verdict="fine"), r"verdict is 'fine', expected 'ok' or 'capped'"),
        ("estimate.json", lambda e: e["curve"].update(v=[1]), r"curve has lists of .* expected one length"),
        ("arms/1/seed-0/config.json", lambda c: c.clear(), None),
    ],
)
def test_a_wrong_field_is_named(job, file, change, message):
    edit(job / file, change)
    if message is None:  # a file that the page of a job does not need
        assert read_report_data(job).kind == "run"
        return
    with pytest.raises(InputError, match=message) as told:
        read_report_data(job)
    assert str(job) in str(told.value)


@pytest.mark.parametrize("file", ["job.json", "results.json", "estimate.json"])
def test_half_a_file(job, file):
    text = json.dumps(json.loads((job / file).read_text()), indent=1)
    (job / file).write_text(text[: len(text) // 2])
    with pytest.raises(InputError, match=rf"{file}, line \d+: not JSON .*Restore the file, or remove it"):
        read_report_data(job)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[]", r"its content is \[\], expected an object"),
        (b'{"kind": NaN}', "NaN is no number in JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"", r"line 1: not JSON"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_a_job_that_is_no_job(job, content, message):
    (job / "job.json").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_report_data(job)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"kind": "step", "st', r"run\.jsonl, line 9: not JSON"),
        ('{"step": 3}', r"run\.jsonl, line 9: .* is no record"),
        ('{"kind": "step", "step": 700, "loss": "low"}', r"line 9: loss is 'low', expected a number"),
        ('{"kind": "step", "step": 1e999}', r"line 9: step is inf, expected a whole number"),
        ('{"kind": "step", "step": 1}', r"step 1 comes after step \d+ with no resume between them"),
        ('{"kind": "eval", "step": 700, "split": "val", "auc": true}', r"line 9: auc is True, expected a number"),
        (
            '{"kind": "eval", "step": 700, "split": "val", "auc": 0.5, "metrics": 3}',
            r"metrics is 3, expected an object",
        ),
        (
            '{"kind": "eval", "step": 7, "split": "val", "auc": 0.5, "metrics": {"hit@5": "x"}}',
            r"metrics\.hit@5 is 'x', expected a number",
        ),
    ],
)
def test_a_broken_line_of_a_log(job, line, message):
    log = job / "arms/1/seed-0/run.jsonl"
    lines = log.read_text().splitlines()
    log.write_text("\n".join([*lines[:8], line, *lines[8:]]) + "\n")
    with pytest.raises(InputError, match=message):
        read_report_data(job)


def test_a_run_without_its_parts(tmp_path):
    run = tmp_path / "run"
    write_run(run)
    edit(run / "result.json", lambda result: result.pop("evaluations"))
    with pytest.raises(InputError, match=r"result\.json: evaluations is missing"):
        read_report_data(run)
    (run / "run.jsonl").unlink()
    with pytest.raises(InputError, match=r"a run that has not started.*Train first"):
        read_report_data(run)
    write_json(run / "config.json", {"run": {"k": 4}})
    (run / "run.jsonl").write_text("")
    with pytest.raises(InputError, match=r"config\.json, run: k is 4, expected text"):
        read_report_data(run)


def test_places_without_records(tmp_path):
    with pytest.raises(InputError, match=r"got no folder.*Type: negwise report DIR"):
        write_report([])
    with pytest.raises(InputError, match=r"nowhere: no such file or folder\. Pass the folder of a job or a run"):
        write_report([tmp_path / "nowhere"])
    with pytest.raises(InputError, match=r"no log in this folder .*Nor is it a job \(job.json\) or a run"):
        write_report([tmp_path])
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(InputError, match=r"empty\.csv: the file is empty"):
        write_report([tmp_path / "empty.csv"])
    write_json(tmp_path / "results.json", {})
    with pytest.raises(InputError, match=r"has a results\.json and no job\.json"):
        write_report([tmp_path])


def test_a_page_that_cannot_be_written(tmp_path):
    run = tmp_path / "run"
    write_run(run)
    (tmp_path / "taken").write_text("a file, where a folder is needed")
    with pytest.raises(InputError, match=r"cannot be written .*--out PAGE"):
        write_report([run], out=tmp_path / "taken" / "x.html")


def test_a_job_that_has_just_begun(tmp_path):
    write_json(tmp_path / "job.json", job_record())
    report = read_report_data(tmp_path)
    assert report.missing[0] == "The pilot has not started."
    assert "There is no results.json yet" in report.missing[1]
    assert "This is not finished." in write_report([tmp_path]).read_text()


def test_a_job_without_results_shows_its_runs(job):
    (job / "results.json").unlink()
    write_run(job / "arms/20/seed-0", "20", ended=False)
    (job / "arms/20/seed-0/result.json").unlink()
    report = read_report_data(job)
    assert [arm.name for arm in report.arms] == ["1", "20", "warm:20"]
    assert [arm.seeds[0].state for arm in report.arms] == ["done", "waiting", "done"]
    assert "Not finished yet: 20 (seed 0)." in report.missing
    assert report.pilot.seconds == json.loads((job / "pilot/seed-0/result.json").read_text())["seconds"]
    assert report.estimate is not None


def test_a_waiting_seed_and_a_lost_log_are_said(job):
    edit(job / "results.json", set_seed(state="waiting", test=None, val=None, seconds=None))
    (job / "arms/20/seed-0/run.jsonl").unlink()
    missing = read_report_data(job).missing
    assert missing == (
        "Not finished yet: warm:20 (seed 0).",
        "No log was found, so the curves leave out: 20 (seed 0).",
    )
    write_report([job])


def test_a_half_written_last_line_is_nothing(job):
    with (job / "arms/1/seed-0/run.jsonl").open("a") as log:
        log.write('{"kind": "step", "step": 60')
    assert read_report_data(job).missing == ()


def test_a_sweep_needs_neither_pilot_nor_estimate(tmp_path):
    report = read_report_data(write_sweep(tmp_path / "sweep", ("1", "4"), seeds=1))
    assert report.missing == () and report.estimates == () and report.pilot is None
