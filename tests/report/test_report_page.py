"""The page as text: what it says, that it is whole and small, and that nothing from data is ever markup."""

import json
import math
import statistics
from pathlib import Path

import pytest
from report_folders import edit, estimate_of, job_record, write_job, write_json, write_run, write_sweep
from report_pages import Page, shown

from negwise.errors import InputError
from negwise.report.answer import make_answer
from negwise.report.comparison import compare
from negwise.report.from_run import run_report_data
from negwise.report.page import script_json, vega_bundle
from negwise.report.tables import results_table
from negwise.report.write_report import make_figures, read_report_data, render_page, write_report

EVIL = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=2>\"'{{7*7}}&amp;"
MOST_BYTES = 1_500_000


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return write_job(tmp_path_factory.mktemp("page") / "job")


@pytest.fixture(scope="module")
def page(job):
    return Page(write_report([job]).read_text())


def test_the_answer_comes_first(job, page):
    found = estimate_of(job / "pilot/seed-0")
    text = page.text
    assert text.index(found.headline()) < text.index("Results") < text.index("Figures")
    assert f"K = {found.k_int}" in text and f"{found.flat[0]} to {found.flat[1]} are as good" in text
    results = json.loads((job / "results.json").read_text())
    arms = {arm["name"]: [seed["test"] for seed in arm["seeds"]] for arm in results["arms"]}
    for name, of in (("AUC", lambda test: test["auc"]), ("HR@5", lambda test: test["metrics"]["hit@5"])):
        gaps = [of(a) - of(b) for a, b in zip(arms["warm:20"], arms["1"], strict=True)]
        se = statistics.stdev(gaps) / math.sqrt(3)
        assert f"gain in {name} over K = 1 {statistics.fmean(gaps):+.4f} ± {se:.4f}" in text
    assert f'import negwise as nw model = nw.load("{job}")' in text


def test_the_table_has_means_and_errors_of_all_arms(job, page):
    for arm in json.loads((job / "results.json").read_text())["arms"]:
        for of in (lambda t: t["auc"], lambda t: t["metrics"]["hit@5"], lambda t: t["metrics"]["ndcg@10"]):
            scores = [of(seed["test"]) for seed in arm["seeds"]]
            se = statistics.stdev(scores) / math.sqrt(3)
            assert f"{statistics.fmean(scores):.4f} ± {se:.4f}" in page.text
    assert page.text.count("3 of 3") == 3
    for words in ("pilot time", "learning rate", "Three seeds: error bars are wide.", "torch 2.13.0", "7,999"):
        assert words in page.text


def test_figures_stand_on_the_page_and_beside_it(job, page):
    figures = json.loads(page.scripts["figures-data"])
    names = [attrs["id"] for tag, attrs in page.tags if tag == "figure"]
    assert [figure["name"] for figure in figures] == names and len(names) == 9
    places = [(int(a["data-figure"]), int(a["data-panel"])) for _, a in page.tags if "data-panel" in a]
    assert places == [(i, j) for i, figure in enumerate(figures) for j in range(len(figure["panels"]))]
    for figure in figures:
        for ending in ("png", "svg", "csv"):
            assert (job / "figures" / f"{figure['name']}.{ending}").stat().st_size > 100
        assert figure["csv"] == (job / "figures" / f"{figure['name']}.csv").read_text()
        assert all("width" not in panel and "config" not in panel for panel in figure["panels"])


def test_the_page_is_whole_and_small(job, page):
    assert (job / "report.html").stat().st_size < MOST_BYTES
    for tag, attrs in page.tags:
        assert "src" not in attrs and tag != "iframe"
        assert tag != "link" or attrs["href"].startswith("data:")
        assert not attrs.get("href", "").startswith(("http", "//"))
    policy = next(a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv"))
    assert policy.startswith("default-src 'none'") and "connect-src" not in policy


def test_a_large_sweep_stays_small(tmp_path):
    rules = [f"{kind}{k}" for kind in ("", "warm:", "ans:") for k in (1, 2, 4, 8, 16, 32, 64, 128)]
    report = read_report_data(write_sweep(tmp_path / "sweep", rules, seeds=1))
    text = render_page(report, make_figures(report))
    assert len(text.encode()) < MOST_BYTES
    assert all(len(figure.rows) < 6000 for figure in make_figures(report))


def test_a_sweep_counts_its_runs_not_its_arms(tmp_path):
    found = make_answer(read_report_data(write_sweep(tmp_path / "sweep", ("1", "4", "20"), seeds=2)))
    assert {stat.label: stat.value for stat in found.stats}["runs trained"] == "6"


def test_a_k_outside_the_range_as_good_is_the_heading_where_it_was_best(tmp_path):
    job = write_job(tmp_path / "job", seeds=1)
    edit(job / "results.json", lambda results: results["arms"][2].update(role="extra", k=5000.0, name="5000"))
    edit(job / "results.json", lambda results: results.update(chosen="5000"))
    report = read_report_data(job)
    said = f"K = 5000 was best on validation; the curves said {report.estimate.k_int}."
    assert make_answer(report).headline == said
    edit(job / "estimate.json", lambda estimate: estimate.update(basis="lower bound"))
    found = make_answer(read_report_data(job))
    assert "The curves so far determine K" in found.verdict and "the curves said at least" in found.headline


def test_a_fixed_schedule_is_called_what_it_is(tmp_path):
    job = write_job(tmp_path / "job", seeds=1)
    edit(job / "results.json", lambda results: results.update(arms=results["arms"][1:], chosen="20"))
    edit(job / "results.json", lambda results: results["arms"][1].update(role="schedule"))
    rows = results_table(read_report_data(job)).rows
    assert [(row.name, row.role) for row in rows] == [("1", "K=1"), ("20", "fixed K*")]


@pytest.mark.parametrize(
    ("kept", "says"),
    [
        ("warm:20", "warm:20 was best on validation and is kept as the model."),
        (
            "20",
            "K = 20 was best on validation and is kept as the model. "
            "The gain and the cost below are those of this model.",
        ),
        ("1", "K = 1 was best on validation and is kept as the model. The numbers below compare warm:20 with it."),
    ],
)
def test_whose_numbers_stand_beside_the_answer(tmp_path, kept, says):
    """The headline is K*; where another arm was best on validation, the page says whose gain it shows."""
    job = write_job(tmp_path / "job", seeds=2, chosen=kept)
    edit(job / "results.json", lambda results: results["arms"][2].update(role="extra"))
    report = read_report_data(job)
    found = make_answer(report)
    assert found.lead.endswith(says)
    assert found.headline == report.estimate.headline()  # 20 is in the range as good
    shown = next(stat for stat in found.stats if stat.label == "gain in AUC over K = 1")
    arm = next(each for each in report.arms if each.name == ("warm:20" if kept == "1" else kept))
    assert f"{arm.test('auc').value:.4f} against" in shown.note


def test_the_same_records_give_the_same_page(job, page):
    assert shown(job).scripts == page.scripts and shown(job).text == page.text


def test_nothing_from_data_is_markup(tmp_path):
    folder = tmp_path / '"><img src=x onerror=window.hacked=3>'
    job = write_job(folder, seeds=1)
    edit(job / "job.json", lambda record: poison(record, skip=("kind",)))

    def change(results):
        results["arms"][0]["name"] = results["chosen"] = EVIL
        results["arms"][1]["role"] = EVIL
        results["arms"][1]["tuning"][0]["error"] = EVIL
        results["arms"][2]["seeds"][0] |= {"state": "failed", "error": EVIL, "test": None}
        results["caveats"] = [EVIL]
        results["pilot"]["why"] = EVIL
        results["metrics"] = ["auc", EVIL]
        parts = {"values": {EVIL: 0.5}, "kept": [EVIL], "dropped": [EVIL], "reason": EVIL}
        results["decisions"] = [{"step": 1, "metric": EVIL, **parts}]
        for arm in results["arms"][:2]:
            arm["seeds"][0]["test"]["metrics"][EVIL] = 0.5

    edit(job / "results.json", change)
    edit(job / "estimate.json", lambda estimate: estimate.update(reasons=[EVIL]))
    plain = shown(write_job(tmp_path / "plain", seeds=1))
    text = write_report([job]).read_text()
    page = Page(text)
    assert page.text.count("window.hacked=1") > 15  # all of it is shown, as text
    assert not any(tag == "img" for tag, _ in page.tags)
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    count = sum(tag == "script" for tag, _ in page.tags)
    assert count == sum(tag == "script" for tag, _ in plain.tags) == 5
    assert "hacked" in page.scripts["figures-data"] and "<" not in page.scripts["figures-data"]
    assert "{{7*7}}" in page.text and "49" not in page.text.split("{{7*7}}")[0][-20:]
    svg = (job / "figures/k_over_time.svg").read_text()
    assert "<script" not in svg and "<img" not in svg


def poison(value, skip=()):
    """Every text in a record, in place, becomes hostile."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        if isinstance(value[key], str) and key not in skip:
            value[key] = EVIL
        elif isinstance(value[key], dict | list):
            poison(value[key])


def test_json_in_a_script_cannot_end_it():
    text = script_json({"title": "</script><!-- & \u2028"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"title": "</script><!-- & \u2028"}
    with pytest.raises(InputError, match="a number that JSON cannot hold"):
        script_json(math.inf)


def test_the_library_cannot_end_its_script():
    assert "</script" not in vega_bundle().lower() and "<!--" not in vega_bundle()
    assert "vegaEmbed" in vega_bundle()


def test_failed_cells_are_shown_as_failed(tmp_path):
    sweep = write_sweep(tmp_path / "sweep", ("1", "4"), seeds=2)

    def change(results):
        for seed in results["arms"][1]["seeds"]:
            seed |= {"state": "failed", "error": "CUDA out of memory", "val": None, "test": None, "seconds": None}

    edit(sweep / "results.json", change)
    text = shown(sweep).text
    assert "seed 0 failed: CUDA out of memory" in text and "0 of 2" in text
    assert "K = 1 is best on validation AUC." in text


def test_a_sweep_names_its_best_on_validation_not_on_test(tmp_path):
    sweep = write_sweep(tmp_path / "sweep", ("1", "4", "20"), seeds=2)

    def change(results):
        for arm, val, test in zip(results["arms"], (0.90, 0.95, 0.92), (0.91, 0.93, 0.99), strict=True):
            for seed in arm["seeds"]:
                seed["val"]["auc"], seed["test"]["auc"] = val, test

    edit(sweep / "results.json", change)
    text = shown(sweep).text
    assert text.startswith("K = 4 is best on validation AUC") or "K = 4 is best on validation AUC." in text
    assert "test 0.9300 ± 0.0000, 2 seeds" in text


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        ("vacuous", "The curves do not determine K: no K is better"),
        ("capped", "Take it as a direction, not as a number."),
        ("inconsistent", "The curves contradict each other, so no K should be read"),
    ],
)
def test_a_verdict_in_plain_words(tmp_path, verdict, words):
    job = write_job(tmp_path / "job", seeds=1)
    edit(job / "estimate.json", lambda found: found.update(verdict=verdict, reasons=["Because."]))
    text = shown(job).text
    assert words in text and "Because." in text
    assert ("K = ?" in text) == (verdict != "capped")


def test_a_gain_within_noise_is_said_so(tmp_path):
    job = write_job(tmp_path / "job", seeds=2)
    edit(job / "results.json", lambda r: [d.update(mean=0.001, se=0.002) for d in r["differences"]])
    assert "within noise" in shown(job).text
    edit(job / "results.json", lambda r: [d.update(mean=-0.01, se=None, seeds=1) for d in r["differences"]])
    text = shown(job).text
    assert "−0.0100" in text and "one seed, no error bar" in text


def test_decisions_of_a_race_are_listed(tmp_path):
    decision = {
        "step": 1200,
        "metric": "hit@5",
        "values": {"1": 0.5, "20": 0.61234},
        "kept": ["20"],
        "dropped": ["1", "warm:20"],
        "reason": "1 is behind by more than its error",
    }
    assert "Decisions of the race" not in shown(write_job(tmp_path / "plain", seeds=1)).text
    text = shown(write_job(tmp_path / "job", seeds=1, decisions=[decision])).text
    start = text.index("Decisions of the race step metric validation queries kept dropped why")
    assert "1,200 HR@5 – 20 (0.6123) 1 (0.5000) warm:20 1 is behind by more than its error" in text[start:]


def test_an_unfinished_job_says_so_at_the_top(tmp_path):
    job = write_job(tmp_path / "job", seeds=1)
    edit(job / "results.json", lambda r: r["arms"][2]["seeds"][0].update(state="waiting", test=None, val=None))
    text = shown(job).text
    assert text.index("This is not finished.") < text.rindex("Train with K")
    assert "20 (seed 0)" in text
    write_json(tmp_path / "new/job.json", job_record())
    assert "The pilot has not started." in shown(tmp_path / "new").text


def test_a_run_has_a_page_and_with_k_of_one_an_estimate(tmp_path):
    result = write_run(tmp_path / "one", "1")
    write_run(tmp_path / "four", "4")
    page = shown(tmp_path / "one")
    text = page.text
    found = estimate_of(tmp_path / "one")
    assert "siamese-cnn trained with K = 1" in text
    assert "K = K" not in page.scripts["figures-data"]
    assert f"what this run suggests K = {found.k_int}" in text
    assert f"{result['evaluations']['test']['auc']:.4f} ± 0.0040" in text
    other = shown(tmp_path / "four")
    assert "suggests" not in other.text and "auc_curves" not in other.scripts["figures-data"]


def test_a_run_shows_the_metric_that_chose_its_weights(tmp_path):
    write_run(tmp_path / "run", "4")
    assert run_report_data(tmp_path / "run").metrics == ("auc", "hit@5", "ndcg@10")
    edit(tmp_path / "run/result.json", lambda result: result["best"].update(metric="ndcg@10"))
    assert run_report_data(tmp_path / "run").metrics == ("auc", "ndcg@10", "hit@5")


@pytest.mark.slow
def test_folders_side_by_side(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job, sweep = write_job(tmp_path / "a/job", seeds=1), write_sweep(tmp_path / "b/job", ("1", "60"), seeds=1)
    write_run(tmp_path / "run", "4", steps=300)
    assert write_report([job, sweep, tmp_path / "run"]) == Path("report.html")
    page = Page((tmp_path / "report.html").read_text())
    for words in (
        "Comparison of 3 folders",
        "a/job: warm:20",
        "b/job: 60",
        "page",
        "different numbers of steps (300, 600)",
    ):
        assert words in page.text
    rows = next(f for f in json.loads(page.scripts["figures-data"]) if f["name"] == "quality_against_k")["csv"]
    assert "a/job: warm:20" in rows and "b/job" in rows
    assert (tmp_path / "figures/quality_against_k.png").exists()
    write_run(tmp_path / "other", "1")
    named = write_report([tmp_path / "run", tmp_path / "other"], out=tmp_path / "both.html")
    assert named.exists() and (tmp_path / "both-figures/loss.svg").exists()


def test_other_data_cannot_be_compared(tmp_path):
    write_run(tmp_path / "x", "1")
    write_run(tmp_path / "y", "4")
    both = [tmp_path / "x", tmp_path / "y"]
    alike = compare([read_report_data(run) for run in both])
    assert alike.caveats == ()
    assert make_answer(alike).stats
    edit(tmp_path / "y/config.json", lambda config: config.update(data_digest="other"))
    other = compare([read_report_data(run) for run in both])
    (caveat,) = other.caveats
    assert "content hashes differ" in caveat
    assert make_answer(other).stats == ()  # no highest score of what cannot be compared


def test_a_log_of_another_framework(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    aucs = [(0.7, 0.65), (0.8, 0.74), (0.83, 0.77), (0.84, 0.78), (0.845, 0.78)]
    lines = ["epoch,step,train_auc,val_auc", *(f"{i},{100 * i},{t},{v}" for i, (t, v) in enumerate(aucs, start=1))]
    log = tmp_path / "lightning_logs/version_0/metrics.csv"
    log.parent.mkdir(parents=True)
    log.write_text("\n".join(lines))
    page = Page(write_report([tmp_path / "lightning_logs"]).read_text())
    assert "A log does not say which K it was trained with." in page.text
    assert "Pass n_queries" in page.text
    names = [figure["name"] for figure in json.loads(page.scripts["figures-data"])]
    assert names == ["auc_curves", "effectiveness", "quality_over_time"]
    assert (tmp_path / "report.html").exists() and not (log.parent / "report.html").exists()
    log.write_text("step,val_auc\n1,0.6\n2,0.7\n")
    assert "No estimate: the log has no training AUC" in shown(log).text
    write_run(tmp_path / "run", "1")
    assert [arm.name for arm in compare([read_report_data(log), read_report_data(tmp_path / "run")]).arms] == [
        "metrics.csv",
        "run",
    ]


def test_a_number_of_the_log_that_theory_refuses_is_named(tmp_path):
    log = tmp_path / "x.csv"
    log.write_text("step,train_auc,val_auc\n1,0.6,0.6\n2,1.0,0.7\n")
    with pytest.raises(InputError, match=r"x\.csv: train_auc: got 1\.0"):
        write_report([log])
