"""The answer of the main job: the same on the page, on a terminal of any width, in a notebook and in JSON."""

import io
import json

import pytest
from report_folders import (
    baseline_record,
    compared_record,
    edit,
    job_record,
    scores,
    share_records,
    write_json,
    write_model_job,
    write_run,
)
from report_pages import shown
from rich.console import Console

from negwise import terminal
from negwise.jobs.results import JobResult
from negwise.records import (
    Candidate,
    Decision,
    RaceStart,
    Results,
    append_race,
    encode,
    read_record,
    read_run,
)
from negwise.report.answer import make_answer
from negwise.report.from_job import job_report_data
from negwise.report.tables import decision_rows
from negwise.report.write_report import read_report_data, render_page

EVIL = "<script>window.hacked=1</script>"


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return write_model_job(tmp_path_factory.mktemp("answer") / "job")


def result_of(folder):
    return JobResult(folder, read_record(Results, folder / "results.json"))


def printed(folder, width=80):
    out = io.StringIO()
    terminal.show_results(result_of(folder), Console(file=out, width=width, force_terminal=True, color_system=None))
    return out.getvalue()


def test_a_good_model(job):
    answer = make_answer(job_report_data(job))
    test = json.loads((job / "results.json").read_text())["arms"][0]["seeds"][0]["test"]
    assert answer.notices == ()
    assert answer.headline == f"HR@5 {test['metrics']['hit@5']:.3f} with K = 20"
    k, score, ahead, cost = answer.stats
    assert (k.value, k.note) == ("K = 20", "K was typed.")
    assert (score.value, score.error) == (f"{test['metrics']['hit@5']:.4f}", "± 0.0100")
    assert score.note == "500 test queries, each among 2,283 candidates; 0.3000 among all 22,839 texts"
    assert (ahead.value, ahead.tone) == ("+0.2000", "up") and "+0.1800 to +0.2200" in ahead.note
    assert cost.value == "1 min 30 s"
    assert cost.note == "2.5 s reading and timing, 1 min 22 s training the model, 5.5 s loading and this page"
    assert answer.lead == "siamese-cnn on docs: 600 steps (6.0 epochs) at learning rate 0.001."
    assert "of the gain of K = 1,000, and a step takes 99% of the time. Take K = 1,000: type --k" in answer.advice
    assert answer.load == f'import negwise as nw\nmodel = nw.load("{job}")'
    assert "No other K was trained on this data." in answer.forecast


def test_page_terminal_notebook_and_json_say_the_same(job):
    answer = make_answer(job_report_data(job))
    page = shown(job).text.replace(" .", ".")  # a command at the end of a sentence is an element of its own
    notebook, lines = result_of(job)._repr_html_(), " ".join(printed(job, 400).split())
    record = result_of(job).to_dict()
    for text in (
        answer.headline,
        answer.advice,
        answer.stats[1].note,
        answer.stats[2].value,
        answer.scores.rows[1][-1],
    ):
        assert text in page and text in notebook and text in lines
        assert text in json.dumps(record, ensure_ascii=False)
    assert 'model = nw.load("' in page and 'model = nw.load("' in lines
    assert [row["k"] for row in record["shares"]] == [1, 20, 100, 1000]
    assert [row.k for row in result_of(job).shares] == [1, 20, 100, 1000]


def test_the_answer_stands_above_everything_else(job):
    page = shown(job)
    order = [
        page.text.index(words) for words in ("with K = 20 ", "nw.load", "How good it is", "What each K", "Figures")
    ]
    assert order == sorted(order)
    assert "The pilot" not in page.text and "no estimate" not in page.text.lower()


@pytest.mark.parametrize(
    ("mean", "reach", "headline", "words"),
    [
        (-0.1, 0.02, "The model does not beat BM25.", "HR@5 is 0."),
        (0.01, 0.02, "The model is level with BM25.", "HR@5 is 0."),
        (0.01, 0.0, "HR@5", None),
    ],
)
def test_a_model_that_beats_no_baseline_says_so_first(tmp_path, mean, reach, headline, words):
    others = [baseline_record("other", 0.3, 0.02), baseline_record("BM25", mean, reach)]
    write_model_job(tmp_path / "job", baselines=others)
    answer = make_answer(job_report_data(tmp_path / "job"))
    assert answer.headline.startswith(headline)
    lines = printed(tmp_path / "job").splitlines()
    assert lines[0].startswith(headline)
    if words is None:
        assert answer.notices == ()
    else:
        assert answer.notices[0].startswith(words)  # the headline is not said again
        assert "500 queries). BM25 needs no training." in answer.notices[0]
        assert lines[1].startswith(f"! {words}")
        text = shown(tmp_path / "job").text
        assert text.index(answer.notices[0]) < text.index("negatives per positive")


def test_what_the_model_is_ahead_in_is_told_too(tmp_path):
    behind = baseline_record("BM25", -0.1, 0.02)
    behind["differences"][1] |= {"mean": 0.1, "low": 0.05, "high": 0.15}
    write_model_job(tmp_path / "job", baselines=[behind])
    answer = make_answer(job_report_data(tmp_path / "job"))
    assert answer.headline == "The model does not beat BM25."
    auc = json.loads((tmp_path / "job/results.json").read_text())["arms"][0]["seeds"][0]["test"]["auc"]
    assert answer.notices[0].endswith(f"The model is ahead in AUC ({auc:.4f} against 0.8000).")


def test_most_popular_items_are_called_so(tmp_path):
    write_model_job(tmp_path / "job", baselines=[baseline_record("most popular", -0.1, 0.02)], corpus=None)
    answer = make_answer(job_report_data(tmp_path / "job"))
    assert answer.headline == "The model does not beat the most popular items."
    assert answer.stats[2].label == "HR@5 above the most popular items"
    assert "texts" not in " ".join(answer.scores.columns)


def test_a_model_that_saw_less_than_an_epoch(tmp_path):
    write_model_job(tmp_path / "job", epoch=2400)
    edit(tmp_path / "job/job.json", lambda record: record["request"].update(budget="90s"))
    answer = make_answer(job_report_data(tmp_path / "job"))
    assert answer.headline == "The model is hardly trained."
    # 600 steps of some 33 s: three times as many more, on top of the 90 s of the job
    seconds = json.loads((tmp_path / "job/results.json").read_text())["arms"][0]["seeds"][0]["seconds"]
    minutes = -(-(90 + 3 * seconds) // 60)
    assert answer.notices[0].startswith("600 steps are 0.25 of an epoch (2,400 steps).")
    assert f"--budget {minutes:.0f}m here" in answer.notices[0]
    assert ("code", {}) in shown(tmp_path / "job").tags


def test_training_that_changed_nothing_and_few_queries(tmp_path):
    folder = write_model_job(tmp_path / "job")

    def change(record):
        record["arms"][0]["seeds"][0] |= {"best_step": 0, "test": scores(0.9, 0.6, queries=6)}

    edit(folder / "results.json", change)
    first, second = make_answer(job_report_data(folder)).notices
    assert first.startswith("Training did not improve the validation score.") and second.startswith(
        "There are only 6 test queries"
    )


@pytest.mark.parametrize(
    ("metric", "value", "error", "told"),
    [
        ("hit@5", 0.05, 0.01, "HR@5 is 0.0500 ± 0.0100, and a random order of 100 candidates has 0.0500."),  # 5 of 100
        ("hit@5", 0.069, 0.01, "has 0.0500."),
        ("hit@5", 0.071, 0.01, None),
        ("ndcg@10", 0.04, 0.001, "nDCG@10 is 0.0400 ± 0.0010, and a random order of 100 candidates has 0.0454."),
        ("hit@5", 0.05, None, None),
    ],
)
def test_a_model_that_knows_nothing_says_so_first(tmp_path, metric, value, error, told):
    """By hand: the first five of 100 places, and the sum of 1 / log2(rank + 1) over the first ten, 4.54."""
    folder = write_model_job(tmp_path / "job", candidates=100.0, baselines=[baseline_record("BM25", -0.1, 0.02)])

    def change(record):
        record["metrics"] = [metric]
        test = scores(0.5, value)
        test["metrics"] = {metric: value} | ({} if error is None else {f"{metric}_se": error})
        record["arms"][0]["seeds"][0]["test"] = test

    edit(folder / "results.json", change)
    answer = make_answer(job_report_data(folder))
    if told is None:
        assert "random" not in " ".join((answer.headline, *answer.notices))
    else:
        assert answer.headline == "The model is no better than a random order."
        assert answer.notices[0].endswith(told)
        if metric == "hit@5":
            assert answer.notices[1].startswith("The model does not beat BM25: ")


def test_several_seeds_have_a_mean_and_its_error(tmp_path):
    folder = write_model_job(tmp_path / "job")

    def change(record):
        seeds = record["arms"][0]["seeds"]
        seeds[0]["test"] = scores(0.9, 0.6)
        seeds.append(seeds[0] | {"seed": 1, "test": scores(0.9, 0.7)})

    edit(folder / "results.json", change)
    stat = make_answer(job_report_data(folder)).stats[2]
    assert (stat.label, stat.value, stat.error) == ("mean of 2 seeds", "0.6500", "± 0.0500")  # .1 / sqrt 2 / sqrt 2
    assert stat.note == "± is over seeds. The model is seed 0."


@pytest.mark.parametrize(("candidates", "chance"), [(6.0, "0.83"), (4.0, "1.00"), (11.0, None), (None, None)])
def test_a_hit_rate_that_any_order_has(tmp_path, candidates, chance):
    folder = write_model_job(tmp_path / "job", candidates=candidates)
    told = [text for text in make_answer(job_report_data(folder)).notices if "even a random order" in text]
    assert len(told) == (chance is not None) and all(f"has HR@5 {chance} or more." in text for text in told)


FREE = share_records((1, 0.0, 0.05), (20, 0.6, 0.05), (1000, 1.0, 0.05))  # forecast: take K = 1,000


def test_another_k_that_is_better_is_what_notice_advice_and_forecast_say(tmp_path):
    others = [baseline_record("BM25", 0.2, 0.02), compared_record(1, -0.2, 0.02), compared_record(4, -0.1, 0.02)]
    folder = write_model_job(tmp_path / "job", shares=FREE, baselines=others)
    answer = make_answer(job_report_data(folder))
    assert answer.notices[0].startswith("K = 1, trained for the same time, is better: HR@5 +0.2000")
    assert "Measured on this data, K = 1 is ahead by 0.2000" in answer.forecast
    assert answer.forecast.endswith("The measurement counts.")
    assert answer.advice == (
        "K = 1 was trained here for the same time and is better than the model's K = 20. Take K = 1."
    )
    page, lines = shown(folder).text, " ".join(printed(folder, 400).split())
    for text in (page, lines):
        assert answer.advice in text and "The measurement counts." in text and "Take K = 1,000" not in text
        assert "K = 1, same time" in text  # its scores, beside those of the model


@pytest.mark.parametrize(
    ("k", "mean", "advice", "forecast"),
    [
        (1, 0.2, "Take K = 1,000: type --k 1000 and another --out.", "agree with them."),
        (1, 0.001, "Take K = 1,000: type --k 1000 and another --out.", "so they test no forecast."),
        (1000, 0.2, "is worse than the model's K = 20. Keep K = 20.", "The measurement counts."),
        (1000, 0.001, "is level with the model's K = 20. Keep K = 20.", "so they test no forecast."),
    ],
)
def test_what_was_compared_beside_what_was_forecast(tmp_path, k, mean, advice, forecast):
    folder = write_model_job(tmp_path / "job", shares=FREE, baselines=[compared_record(k, mean, 0.02)])
    answer = make_answer(job_report_data(folder))
    assert answer.notices == ()
    assert answer.advice.endswith(advice) and answer.forecast.endswith(forecast)


def test_what_was_compared_is_not_to_be_compared_again(tmp_path):
    """An impression has no forecast: there the advice was to sweep the very K that had just been trained."""
    shares = [row | {"share": None, "low": None, "high": None} for row in share_records((1, 0, 0.05), (36, 0, 0.2))]
    folder = write_model_job(tmp_path / "job", shares=shares)
    assert "--compare 1,36" in make_answer(job_report_data(folder)).advice
    assert ">--compare 1,36</code>" in render_page(job_report_data(folder), [])
    others = [compared_record(1, 0.1, 0.02), compared_record(36, 0.0, 0.02)]
    folder = write_model_job(tmp_path / "compared", shares=shares, baselines=others)
    answer = make_answer(job_report_data(folder))
    assert answer.advice == (
        "K = 1 and 36 were trained here for the same time, and none is better than the model's K = 20. Keep it."
    )
    assert answer.forecast == "The times were measured on this machine. The K were compared on this data."


def test_a_time_that_lies_between_those_timed_is_called_so(tmp_path):
    shares = [row | {"interpolated": row["k"] == 20} for row in FREE]
    folder = write_model_job(tmp_path / "job", shares=shares)
    answer = make_answer(job_report_data(folder))
    assert [row[3] for row in answer.shares.rows] == ["50 ms", "about 50 ms", "50 ms"]
    note = '"About" marks a K that was not timed. Its time is read off a line between those of two K that were.'
    record = result_of(folder).to_dict()
    assert [row["interpolated"] for row in record["shares"]] == [False, True, False]
    for text in (shown(folder).text, printed(folder, 400)):
        assert "about 50 ms" in text and note in text
    assert "about 50 ms" in result_of(folder)._repr_html_()
    assert '"About"' not in make_answer(job_report_data(write_model_job(tmp_path / "all", shares=FREE))).shares.note


def test_no_share_is_known_for_impressions(tmp_path):
    shares = [row | {"share": None, "low": None, "high": None} for row in share_records((1, 0, 0.05), (36, 0, 0.2))]
    write_model_job(tmp_path / "job", shares=shares)
    answer = make_answer(job_report_data(tmp_path / "job"))
    assert answer.advice.startswith("How much of the gain each K brings is not known for HR@5 here.")
    assert answer.shares.columns == ("K", "time of a step") and answer.shares.rows[1] == ("36", "200 ms")
    assert answer.shares.note == ""  # the advice has said it
    assert answer.forecast == "The times were measured on this machine."


def test_the_race_has_queries_and_errors(tmp_path):
    """They are those of the evaluations that the candidates logged, each at its own step."""
    folder = write_model_job(tmp_path / "job")
    candidates = (Candidate("20", 0.001, 600, 30), Candidate("20", 0.003, 600, 30, max_k=4))
    logs = []
    for candidate, end in zip(candidates, (2.1, 1.9), strict=True):
        write_run(folder / "runs" / candidate.folder / "seed-0", "20", end=end)
        logs.append(read_run(folder / "runs" / candidate.folder / "seed-0"))
    append_race(folder / "race.jsonl", RaceStart(candidates, "because"))
    at = [
        next(one for one in log.of_split("val") if one.step == step) for log, step in zip(logs, (150, 90), strict=True)
    ]
    values = {one.name: found.value("hit@5") for one, found in zip(candidates, at, strict=True)}
    names = tuple(values)
    decision = Decision(150, "hit@5", values, names[:1], names[1:], "it is behind")
    edit(folder / "results.json", lambda record: record.update(decisions=[encode(decision)]))
    rows = decision_rows(job_report_data(folder))
    first, second = (f"{name} ({value:.4f} ± 0.0100)" for name, value in values.items())
    assert rows == [("150", "HR@5", "500", first, second, "it is behind")]
    for text in (shown(folder).text, " ".join(printed(folder, 400).split()), " ".join(printed(folder, 60).split())):
        assert first in text and "validation queries" in text and "standard error over queries. Candidates" in text
    assert f"kept {first} dropped {second}" in " ".join(printed(folder, 60).split())


def test_a_decision_that_adds_nothing_has_no_row(tmp_path):
    one = {"step": 8, "metric": "hit@5", "values": {"a": 0.5, "b": 0.4}, "kept": ["a", "b"], "dropped": []}
    later = one | {"step": 16, "reason": "all go on"}
    last = one | {"step": 16, "kept": ["a"], "dropped": ["b"], "reason": "a goes on"}
    decisions = [one | {"reason": "nobody joins"}, one | {"reason": "all go on"}, later, last]
    rows = decision_rows(job_report_data(write_model_job(tmp_path / "job", decisions=decisions)))
    assert [(row[0], row[-1]) for row in rows] == [("8", "nobody joins"), ("16", "all go on"), ("16", "a goes on")]


def test_decisions_and_caveats(tmp_path):
    decision = {
        "step": 100,
        "metric": "hit@5",
        "values": {"online": 0.5, "100": 0.4},
        "kept": ["online"],
        "dropped": ["100"],
        "reason": "the better half goes on",
    }
    folder = write_model_job(tmp_path / "job", decisions=[decision], caveats=["A caveat."])
    page = shown(folder)
    assert "online (0.5000)" in page.text and "the better half goes on" in page.text
    assert ("details", {"class": "card", "id": "caveats"}) in page.tags
    lines = printed(folder, 120)
    assert "online (0.5000)" in lines and "- A caveat." in lines


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_terminal_of_any_width(tmp_path, width):
    folder = write_model_job(tmp_path / "job", baselines=[baseline_record("BM25", -0.1, 0.02)], epoch=2400)
    lines = printed(folder, width).splitlines()
    assert max(len(line) for line in lines if "nw.load" not in line) <= width
    whole = " ".join(printed(folder, width).split())
    assert "0.4000 ± 0.0100" in whole and "--steps" in whole


def test_a_job_that_has_not_ended(tmp_path):
    record = job_record()
    record["request"] |= {"method": None}
    write_json(tmp_path / "job.json", record)
    answer = make_answer(read_report_data(tmp_path))
    assert answer.headline == "The model is not trained yet." and answer.load is None
    assert "pilot" not in shown(tmp_path).text.split("Settings")[0].lower()


def test_nothing_from_data_is_markup(tmp_path):
    folder = write_model_job(tmp_path / "job", baselines=[baseline_record(EVIL, -0.1, 0.02)])
    assert EVIL not in result_of(folder)._repr_html_() and EVIL in shown(folder).text
    assert not any("hacked" in text for text in shown(folder).scripts.values())


def test_a_record_without_the_new_facts_still_has_a_page(tmp_path):
    folder = write_model_job(tmp_path / "job", baselines=[], corpus=None, candidates=None, shares=[], seconds=None)
    answer = make_answer(job_report_data(folder))
    assert [stat.label for stat in answer.stats] == ["negatives per positive", "test HR@5", "time of training"]
    assert answer.advice is None and "500 test queries" in shown(folder).text
