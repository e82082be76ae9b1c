"""Each figure's numbers, worked out again from the files with plain loops, statistics and SciPy's quadrature."""

import csv
import io
import json
import math
import statistics

import pytest
from report_folders import LOG_EVERY, STEPS, edit, estimate_of, write_job, write_run, write_sweep
from report_pages import shown as shown_page
from scipy.integrate import quad
from scipy.stats import norm

from negwise.report.write_report import make_figures, read_report_data


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return write_job(tmp_path_factory.mktemp("figures") / "job")


@pytest.fixture(scope="module")
def shown(job):
    return {figure.name: figure for figure in make_figures(read_report_data(job))}


def log(job, rule, seed, kind):
    place = job / "arms" / rule.replace(":", "-") / f"seed-{seed}" / "run.jsonl"
    return [record for line in place.read_text().splitlines() if (record := json.loads(line))["kind"] == kind]


def rows_of(shown, name, **same):
    return [row for row in shown[name].rows if all(row[key] == value for key, value in same.items())]


def mean_over_window(job, rule, field, start, end):
    """The mean of a field over steps start < step <= end and over seeds; records are evenly spaced here."""
    values = [
        record[field] for seed in range(3) for record in log(job, rule, seed, "step") if start < record["step"] <= end
    ]
    return statistics.fmean(values)


def test_the_order_is_that_of_the_page(shown):
    assert list(shown) == [
        "auc_curves",
        "effectiveness",
        "quality_against_k",
        "quality_over_time",
        "k_over_time",
        "sample_shares",
        "loss",
        "throughput",
        "recommended",
    ]


def test_auc_curves_are_the_pilots(job, shown):
    pilot = [json.loads(line) for line in (job / "pilot/seed-0/run.jsonl").read_text().splitlines()]
    for curve, split in (("training", "train"), ("validation", "val")):
        wanted = [(record["step"], record["auc"]) for record in pilot if record.get("split") == split]
        assert [(row["step"], row["auc"]) for row in rows_of(shown, "auc_curves", curve=curve)] == wanted
    found = estimate_of(job / "pilot/seed-0")
    assert f"T = {found.horizon:g}" in shown["auc_curves"].svg()


def test_v_of_k_is_the_estimates(job, shown):
    found = estimate_of(job / "pilot/seed-0")
    drawn = [(row["k"], row["effectiveness"]) for row in shown["effectiveness"].rows]
    assert drawn == list(zip(found.curve.k, found.curve.v, strict=True))
    marks = json.dumps(shown["effectiveness"].panels)
    assert json.dumps({"values": [{"k": found.flat[0], "end": found.flat[1]}]}) in marks
    assert json.dumps({"values": [{"k": found.interval[0], "end": found.interval[1]}]}) in marks
    assert f"K* = {found.k:.3g}" in shown["effectiveness"].svg()


@pytest.mark.parametrize("metric", ["auc", "hit@5"])
def test_quality_against_k(job, shown, metric):
    for arm in json.loads((job / "results.json").read_text())["arms"]:
        scores = [s["test"]["auc"] if metric == "auc" else s["test"]["metrics"][metric] for s in arm["seeds"]]
        *seeds, mean = rows_of(shown, "quality_against_k", arm=arm["name"], metric=metric)
        assert [row["value"] for row in seeds] == pytest.approx(scores, rel=1e-5)
        se = statistics.stdev(scores) / math.sqrt(3)
        level = statistics.fmean(scores)
        assert (mean["value"], mean["low"], mean["high"]) == pytest.approx((level, level - se, level + se), rel=1e-5)
        assert (mean["k"], mean["how"]) == (arm["k"], "schedule" if ":" in arm["rule"] else "fixed K")


def test_one_seed_has_the_error_over_queries_and_one_k_no_figure(tmp_path):
    made = {one.name: one for one in make_figures(read_report_data(write_sweep(tmp_path / "a", ("1", "4"), seeds=1)))}
    means = [row for row in made["quality_against_k"].rows if row["of"] == "mean" and row["metric"] == "hit@5"]
    assert len(means) == 2 and all(row["queries"] == 500 for row in means)
    assert [row["high"] - row["low"] for row in means] == pytest.approx([0.02, 0.02], abs=1e-5)  # 2 x hit@5_se
    curve = [row for row in made["quality_over_time"].rows if row["metric"] == "auc"]
    assert all(row["queries"] == 500 for row in curve)
    assert all(row["high"] - row["low"] == pytest.approx(0.008, abs=1e-5) for row in curve)  # 2 x auc_se
    assert "(500 queries)" in made["quality_over_time"].caption and "over queries" in made["quality_over_time"].caption
    made = {one.name for one in make_figures(read_report_data(write_sweep(tmp_path / "b", ("4",), seeds=2)))}
    assert "quality_against_k" not in made and "sample_shares" not in made


@pytest.mark.parametrize(("which", "field"), [("scheduled", "k"), ("used", "k_used")])
def test_k_over_time(job, shown, which, field):
    rows = rows_of(shown, "k_over_time", arm="warm:20", which=which)
    start = 0
    for row in rows:
        assert row["k"] == pytest.approx(mean_over_window(job, "warm:20", field, start, row["step"]), rel=1e-5)
        start = row["step"]
    assert start == STEPS and len(rows) > 40


def test_reasons_for_k_stand_under_the_figure(tmp_path):
    run = tmp_path / "run"
    write_run(run)
    records = [json.loads(line) for line in (run / "run.jsonl").read_text().splitlines()]
    for record in records:
        if record["kind"] == "step" and record["step"] > 300:
            record["k_reason"] = "memory" if record["step"] > 400 else "win rate 0.9"
    (run / "run.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    made = {one.name: one for one in make_figures(read_report_data(run))}["k_over_time"]
    said = "What set or bounded K: win rate 0.9 (K = 1, from step 305); memory (K = 1, from step 405)."
    assert made.caption.endswith(said) and said in shown_page(run).text


def reliability(separation, k):
    """P(mu, K) of eq. 3 by SciPy's quadrature."""
    return quad(lambda x: norm.pdf(x - separation) * norm.cdf(x) ** k, -9, 9 + separation, epsabs=1e-11)[0]


@pytest.mark.parametrize("rule", ["warm:20", "1"])
def test_sample_shares_are_eq_5(job, shown, rule):
    label = estimate_of(job / "pilot/seed-0").label_separation
    logs = [log(job, rule, seed, "eval") for seed in range(3)]
    used = {record["step"]: record["k_used"] for record in log(job, rule, 0, "step")}
    rows = rows_of(shown, "sample_shares", arm=rule)
    for step in (0, 30, 300, 600):
        auc = statistics.fmean(
            r["auc"] for records in logs for r in records if (r["step"], r["split"]) == (step, "val")
        )
        k = used[step or LOG_EVERY]
        a, b = reliability(label, k), reliability(math.sqrt(2) * norm.ppf(auc), k)
        wanted = {"good": a * (1 - b), "bad": b * (1 - a), "easy": a * b + (1 - a) * (1 - b)}
        found = {row["kind"]: row["share"] for row in rows if row["step"] == step}
        assert found == pytest.approx(wanted, abs=2e-6)


def test_an_auc_of_one_has_shares_too(tmp_path):
    job = write_job(tmp_path / "job", seeds=1)
    place = job / "arms/1/seed-0/run.jsonl"
    records = [json.loads(line) for line in place.read_text().splitlines()]
    for record in records:
        if record.get("split") == "val" and record["step"] == STEPS:
            record["auc"] = 1.0
    place.write_text("".join(json.dumps(record) + "\n" for record in records))
    made = {one.name: one for one in make_figures(read_report_data(job))}
    last = {
        row["kind"]: row["share"] for row in made["sample_shares"].rows if (row["arm"], row["step"]) == ("1", STEPS)
    }
    a = reliability(estimate_of(job / "pilot/seed-0").label_separation, 1.0)
    assert last == pytest.approx({"good": 0.0, "bad": 1 - a, "easy": a}, abs=2e-6)


def test_loss_and_bound(job, shown):
    by_line = {which: rows_of(shown, "loss", arm="20", which=which) for which in ("loss", "log(K+1)", "MI bound")}
    start = 0
    for loss, top, bound in zip(*by_line.values(), strict=True):
        assert loss["step"] == top["step"] == bound["step"]
        assert loss["nats"] == pytest.approx(mean_over_window(job, "20", "loss", start, loss["step"]), rel=1e-5)
        assert top["nats"] - loss["nats"] == pytest.approx(bound["nats"], abs=2e-5)
        assert top["nats"] == pytest.approx(math.log(16), rel=1e-5)  # 20 asked, 15 had
        start = loss["step"]


def test_a_loss_that_bounds_nothing_has_one_panel(tmp_path):
    run = tmp_path / "run"
    write_run(run)
    records = [json.loads(line) for line in (run / "run.jsonl").read_text().splitlines()]
    corrected = [record | ({"mi_bound": None} if record["kind"] == "step" else {}) for record in records]
    (run / "run.jsonl").write_text("".join(json.dumps(record) + "\n" for record in corrected))
    made = {one.name: one for one in make_figures(read_report_data(run))}["loss"]
    assert len(made.panels) == 1 and {row["which"] for row in made.rows} == {"loss", "log(K+1)"}


def test_throughput_adds_up_to_the_time_it_took(job, shown):
    for rule in ("warm:20", "1"):
        rows, start, seconds = rows_of(shown, "throughput", arm=rule), 0, 0.0
        for row in rows:
            seconds += (row["step"] - start) / row["steps_per_s"]
            start = row["step"]
        last = statistics.fmean(log(job, rule, seed, "step")[-1]["time"] for seed in range(3))
        assert seconds == pytest.approx(last, rel=1e-4)


def test_quality_over_time_charges_the_pilot(job, shown):
    pilot = json.loads((job / "results.json").read_text())["pilot"]["seconds"]
    for rule, charged in (("warm:20", pilot), ("1", 0.0)):
        rows = rows_of(shown, "quality_over_time", arm=rule, metric="hit@5")
        logs = [log(job, rule, seed, "eval") for seed in range(3)]
        clock = {record["step"]: record["time"] for record in log(job, rule, 0, "step")} | {0: 0.0}
        assert len(rows) == STEPS // 30 + 1
        for row in rows:
            scores = [
                r["metrics"]["hit@5"] for rs in logs for r in rs if (r["step"], r["split"]) == (row["step"], "val")
            ]
            assert row["value"] == pytest.approx(statistics.fmean(scores), rel=1e-5)
            se = statistics.stdev(scores) / math.sqrt(3)
            assert row["se"] == pytest.approx(se, rel=1e-4, abs=1e-12)
            assert (row["low"], row["high"]) == pytest.approx((row["value"] - se, row["value"] + se), rel=1e-5)
            assert row["seconds"] == pytest.approx(clock[row["step"]] + charged, rel=1e-5)


def test_recommended(job, shown):
    for arm in json.loads((job / "results.json").read_text())["arms"]:
        rows = rows_of(shown, "recommended", arm=arm["name"])
        for field in ("coverage", "popularity", "positives_popularity"):
            wanted = [seed["recommended"][field] for seed in arm["seeds"]]
            assert [row[field] for row in rows] == pytest.approx(wanted, rel=1e-5)


def test_a_seed_that_stopped_early_does_not_cut_the_others(tmp_path):
    job = write_job(tmp_path / "job", seeds=2)
    write_run(job / "arms/1/seed-1", "1", 1, ended=False)

    def fail(results):
        results["arms"][1]["seeds"][1] |= {"state": "failed", "error": "out of memory", "test": None, "val": None}

    edit(job / "results.json", fail)
    made = {one.name: one for one in make_figures(read_report_data(job))}
    assert max(row["step"] for row in made["k_over_time"].rows if row["arm"] == "1") == STEPS
    assert {row["seeds"] for row in made["quality_over_time"].rows if row["arm"] == "1"} == {1}


def test_the_csv_is_what_is_drawn(shown):
    for figure in shown.values():
        text = figure.for_page()["csv"]
        assert text == figure.csv()
        read = list(csv.DictReader(io.StringIO(text)))
        assert len(read) == len(figure.rows)
        parse = figure.data["format"]["parse"]
        for row, wanted in zip(read, figure.rows, strict=True):
            for name, value in row.items():
                typed = None if value == "" else float(value) if parse[name] == "number" else value
                assert typed == wanted.get(name)


def test_every_figure_becomes_a_picture(shown):
    for figure in shown.values():
        svg = figure.svg()
        assert figure.title in svg
        assert svg.count("<path") > 5, figure.name
