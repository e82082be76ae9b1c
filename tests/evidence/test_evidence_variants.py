"""Variants of the tasks: records made up here go through tables and figures; loops and SciPy say what must be there."""

import json
import math
from dataclasses import replace

import pytest
from evidence_records import PACE, make, rows_of, says, scores_of, student
from scipy import stats

from evidence import variants
from evidence.analysis import load_analysis
from evidence.claims import _beaten, _fallen, _helped, _schedules, _turnings
from evidence.page import Evidence, drawn, filled, loaded, tabled
from evidence.tables import predictors, primary, provenance
from evidence.turning import points, turning, turning_figure
from negwise.errors import InputError


def test_models_by_scipy(tmp_path):
    found = {one.name: one for one in (make(tmp_path), make(tmp_path, "items-sas", of="items", variant="model"))}
    chosen = variants.other_models(found)
    assert [one.name for one in chosen] == ["items", "items-sas"]
    rows = rows_of(variants.models(chosen))
    assert len(rows) == 4 and {row[1] for row in rows} == {"BERT4Rec"} and {row[2] for row in rows} == {"3"}
    for row, (one, metric) in zip(rows, [(one, m) for one in chosen for m in ("auc", "ndcg@10")], strict=True):
        for cell, rule in zip(row[5:9], ("1", "5", "ans:5", "warm:5"), strict=True):
            assert says(cell, *student(scores_of(one, rule, metric)))
        for cell, rule, other in ((row[9], "5", "1"), (row[10], "ans:5", "5")):
            assert says(cell, *student(scores_of(one, rule, metric) - scores_of(one, other, metric)))


def test_an_arm_that_was_not_run_is_said_to_be_missing(tmp_path):
    one = make(tmp_path, "items-sas", of="items", variant="model", arms=("1", "100"), k_star=1)
    (row, _) = rows_of(variants.models([one]))
    assert row[7:] == ["not run"] * 4


def test_the_paper_beside_tuned_settings(tmp_path):
    own = make(tmp_path)
    printed = make(tmp_path, "items-paper", of="items", variant="paper", arms=("1", "5", "20", "ans:5", "warm:5"))
    lonely = make(tmp_path, "news-paper", of="news", variant="paper", model="nrms", arms=("1", "4", "5"))
    found = {one.name: one for one in (own, printed, lonely)}
    pairs = variants.published(found)
    assert pairs == [(own, printed), (None, lonely)]
    rows = rows_of(variants.paper(pairs))
    assert [row[1] for row in rows] == ["tuned", "tuned", *["the paper's"] * 4]
    theirs = scores_of(printed, "20")
    assert rows[2][6].endswith("(20)") and says(rows[2][6], theirs.mean(), stats.sem(theirs))
    assert rows[0][6].endswith("(5)") and rows[4][6].endswith("(4)")  # 20 is nearer to 5 than to 100; 4 in news
    assert rows[4][7] == "not run"


def test_longer_training_is_told_from_other_variants(tmp_path):
    own = make(tmp_path)
    more = make(tmp_path, "items-long", of="items", steps=96, arms=("1", "7", "100"), k_star=7)
    others = [
        make(tmp_path, "items-short", of="items", steps=12),
        make(tmp_path, "items-elsewhere", of="items", steps=96, data={"name": "y", "digest": "other"}),
        make(tmp_path, "items-paper", of="items", steps=96, variant="paper"),
    ]
    pairs = variants.longer({one.name: one for one in (own, more, *others)})
    assert pairs == [(own, more)]
    again = [make(tmp_path, f"items-{seeds}", of="items", seeds=seeds) for seeds in (6, 4)]
    assert variants.longer({one.name: one for one in (own, more, *again)}) == [(again[0], more)]
    rows = rows_of(variants.long(pairs))
    assert [row[1] for row in rows] == ["1", "**7**", "100"] and rows[0][2] == "24 and 96"
    assert rows[1][3] == "not run"
    seven = scores_of(more, "7")
    assert says(rows[1][4], seven.mean(), stats.sem(seven)) and rows[0][5:7] == ["", ""]
    for cell, one in zip(rows[2][5:7], (own, more), strict=True):
        assert says(cell, (scores_of(one, "100") - scores_of(one, "1")).mean(), *one.difference("100", "1").interval)


def test_a_task_again_with_more_seeds_and_tasks_of_their_own(tmp_path):
    own = make(tmp_path)
    more = make(tmp_path, "items-ten", of="items", seeds=6, data={"name": "renamed", "digest": "same"})
    docs = make(tmp_path, "docs", model="siamese-transformer", arms=("1", "5"))
    found = {one.name: one for one in (own, more, docs, make(tmp_path, "news", model="nrms"))}
    assert variants.again(found) == [own, more, docs]
    assert variants.again({"items": own}) == []
    rows = rows_of(variants.contrasts([own, more, docs], found))
    assert [(row[0], row[1], row[2]) for row in rows[::2]] == [
        *((one, seeds, what) for one, seeds in (("items", "3"), ("items-ten", "6"))
          for what in ("5 against 1", "ans:5 against 5")),
        ("docs", "3", "5 against 1"),
    ]  # fmt: skip
    gaps = scores_of(more, "ans:5", "ndcg@10") - scores_of(more, "5", "ndcg@10")
    mean, low, high = student(gaps)
    assert rows[7][3] == "nDCG@10" and says(rows[7][4], mean) and says(rows[7][6], low, high)


def test_seeds_that_gave_the_same_run_are_told_from_new_ones(tmp_path):
    own, more = make(tmp_path), make(tmp_path, "items-ten", of="items", seeds=6)
    arms = json.loads(json.dumps(more.record["arms"]))
    for run, same in zip(arms[0]["seeds"], own.record["arms"][0]["seeds"], strict=False):
        run["test"] = same["test"]
    more = replace(more, record=more.record | {"arms": arms})
    found = {"items": own, "items-ten": more}
    assert variants.new_seeds(more, found) == [3, 4, 5] and variants.new_seeds(own, found) == []
    rows = rows_of(variants.contrasts([own, more], found))
    assert [row[:2] for row in rows[::4]] == [["items", "3"], ["items-ten", "6"], ["items-ten, new seeds", "3"]]
    gaps = (scores_of(more, "ans:5", "ndcg@10") - scores_of(more, "5", "ndcg@10"))[3:]
    mean, low, high = student(gaps)
    assert says(rows[-1][4], mean) and says(rows[-1][6], low, high)


def test_every_k_with_fewer_and_with_more_seeds(tmp_path):
    own = make(tmp_path, arms=("1", "5", "100"))
    more = make(tmp_path, "items-ten", of="items", arms=("1", "7"), seeds=6, data={"name": "renamed", "digest": "same"})
    other = make(tmp_path, "items-other", of="items", seeds=6, data={"name": "items", "digest": "another"})
    pairs = variants.repeated({one.name: one for one in (more, own, other)})
    assert pairs == [(own, more)]
    rows = rows_of(variants.repeats(pairs))
    assert [row[:3] for row in rows] == [["items", k, "3, 6"] for k in ("1", "5", "7", "100")]
    for metric, cells in (("auc", rows[0][3:5]), ("ndcg@10", rows[0][5:7])):
        for cell, one in zip(cells, (own, more), strict=True):
            scores = scores_of(one, "1", metric)
            assert says(cell, scores.mean(), stats.sem(scores))
    assert rows[1][4] == rows[1][6] == rows[2][3] == rows[2][5] == "" and rows[1][3] and rows[2][4]


TURNS = ("1", "5", "100", "ans:5", "warm:5", "ans:5:0.3", "ans:5:0.01")


def test_turning_points(tmp_path):
    one = make(tmp_path, arms=TURNS)
    assert list(points(one).items()) == [(0.01, "ans:5:0.01"), (0.1, "ans:5"), (0.3, "ans:5:0.3")]
    rows = rows_of(turning([one]))
    for row, rule in zip(rows, points(one).values(), strict=True):
        for cell, metric in zip(row[3:5], ("auc", "ndcg@10"), strict=True):
            gap = (scores_of(one, rule, metric) - scores_of(one, "5", metric)).mean()
            assert says(cell, gap, *one.difference(rule, "5", metric).interval)
        for cell, metric in zip(row[5:7], ("auc", "ndcg@10"), strict=True):
            gap = (scores_of(one, rule, metric) - scores_of(one, "ans:5", metric)).mean()
            assert cell == "" if rule == "ans:5" else says(cell, gap, *one.difference(rule, "ans:5", metric).interval)
    figure = turning_figure([one])
    assert figure.name == "turning" and len(figure.rows) == 2 * (3 + 1)
    for row in figure.rows:
        rule = "5" if row["of"] == "fixed" else points(one)[row["turning"]]
        values = scores_of(one, rule, row["metric"])
        error = values.std(ddof=1) / math.sqrt(3)
        assert row["value"] == pytest.approx(values.mean(), rel=1e-5)
        assert row["high"] - row["low"] == pytest.approx(2 * error, rel=1e-3)
    assert figure.svg().startswith("<svg")


@pytest.mark.parametrize("best", ["ans:5", "ans:5:0.3"])
def test_the_best_turning_point(tmp_path, best):
    one = make(tmp_path, arms=TURNS, places={rule: 10 if rule == best else 30 for rule in TURNS})
    if best == "ans:5":  # nothing is said to be better than itself
        assert _turnings([one]) == "On test AUC items is best at 0.1"
    else:
        told = _turnings([one])
        assert told.startswith("On test AUC items is best at 0.3: +0.2") and told.endswith("against 0.1")


@pytest.mark.parametrize(("half", "captured"), [(30, 0.5), (10, 1.0), (50, 0.0)])
def test_captured_gain_of_a_known_world(tmp_path, half, captured):
    """K = 1 has 50 of 100 above the positive, the best K 10, K* so many between."""
    one = make(tmp_path, places={"1": 50, "5": half, "100": 10, "ans:5": 30, "warm:5": 30})
    share, (low, high) = one.captured()
    assert share == pytest.approx(captured, abs=0.01) and low <= captured <= high and high - low < 0.05
    assert one.regret(5).mean == pytest.approx((half - 10) / 100, abs=0.005)


def test_captured_gain_means_nothing_where_there_is_none(tmp_path):
    assert make(tmp_path, places=dict.fromkeys(("1", "5", "100", "ans:5", "warm:5"), 30)).captured() is None


def test_the_words_of_the_claims_follow_from_the_records(tmp_path):
    better = make(tmp_path, "news", places={"1": 50, "5": 9, "100": 9, "ans:5": 40, "warm:5": 30})
    worse = make(tmp_path, "items", places={"1": 9, "5": 50, "100": 70, "ans:5": 5, "warm:5": 30}, k_best=5)
    plain = make(tmp_path, "docs", arms=("1", "100"), k_star=1)
    assert _beaten({"news": better}) == "Yes, on AUC and top n"
    assert _beaten({"news": better, "items": worse}).startswith("Not clearly everywhere")
    assert _helped({"news": better}) == [] and _helped({"news": better, "items": worse, "docs": plain}) == ["items"]
    assert _fallen({"news": better}) == "is flat" and _fallen({"news": better, "items": worse}) == "falls in items"
    assert "docs" not in _schedules({"items": worse, "docs": plain})


def test_tables_of_one_task_alone(tmp_path):
    """No other task has a constant, and K* = 1 has nothing to be compared with."""
    one = make(tmp_path)
    assert [row[0] for row in rows_of(predictors({"items": one}))][-1] == "always 100"
    assert len(rows_of(primary({"items": one}))) == 2
    assert rows_of(primary({"items": make(tmp_path, arms=("1", "100"), k_star=1)})) == []


def test_every_record_says_where_it_comes_from(tmp_path):
    """With the paper's settings no learning rate was tried."""
    whence = {"machine": {"name": "here"}, "versions": {"torch": "2"}, "code": {"source": "abc"}}
    one = make(tmp_path, **whence, tuning={"1": {"tried": []}, "100": None})
    assert rows_of(provenance({"items": one}))[0][2] == "15 + 0 for tuning"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"seeds": 1}, "it has one seed, and an interval needs two"),
        ({"k_best": 20}, r"not every seed of K = 20 is done. Type the command that made it again"),
        ({"k_star": 7, "k_best": 20}, "not every seed of K = 7, 20 is done"),
    ],
)
def test_a_record_that_no_table_can_be_made_of(tmp_path, wrong, message):
    make(tmp_path, **wrong)
    with pytest.raises(InputError, match=rf"items\.json: {message}"):
        loaded(tmp_path)


def test_papers_settings_may_lack_what_was_not_run(tmp_path):
    make(tmp_path)
    make(tmp_path, "items-paper", of="items", variant="paper", k_star=7, k_best=7)
    found = loaded(tmp_path)
    assert "not run (7)" in variants.paper(variants.published(found.every))


def test_a_record_without_its_standings(tmp_path):
    make(tmp_path)
    (tmp_path / "items.safetensors").unlink()
    with pytest.raises(InputError, match=r"items\.safetensors is missing beside it"):
        loaded(tmp_path)


def test_records_of_no_task(tmp_path):
    make(tmp_path, "docs")
    with pytest.raises(InputError, match="expected the record of news, matching, items, found docs"):
        loaded(tmp_path)


def test_a_record_without_turning_points_has_none(tmp_path):
    one = make(tmp_path)
    assert points(one) == {} and _turnings([one]) == "not run"


def test_the_page_takes_what_records_there_are(tmp_path, monkeypatch):
    """Tables of variants appear with their records, and a marker without one names the command that makes it."""
    monkeypatch.setattr("evidence.page.all_tables", lambda *_: {})
    for name in ("estimates", "tuning"):  # these records have none
        monkeypatch.setattr(f"evidence.page.{name}", list)
    make(tmp_path)
    assert set(tabled(loaded(tmp_path))) == {"hundred"}  # which is of any record with K = 100
    for name, command in (("long", "--name items-long"), ("seconds", "evidence seconds"), ("models", "--model naml")):
        with pytest.raises(InputError, match=f"table '{name}', and the records have nothing for it.*{command}"):
            filled(f"<!-- table {name} -->\n\n<!-- end -->", tabled(loaded(tmp_path)))
    make(tmp_path, "items-long", of="items", steps=48)
    make(tmp_path, "items-paper", of="items", variant="paper")
    make(tmp_path, "items-sas", of="items", variant="model", pace=PACE)
    make(tmp_path, "items-ten", of="items", seeds=4)
    make(tmp_path, "matching-cnn", of="matching", variant="model", model="siamese-cnn", arms=TURNS)
    (tmp_path / "pace.json").write_text("{}")  # of the folder that a record was made in
    found = loaded(tmp_path)
    assert list(found.tasks) == ["items"]
    others = {f"{name}-others" for name in ("estimates", "endpoints", "schedules", "tuning")}
    made = tabled(found)
    assert set(made) == {"long", "paper", "models", "turning", "seconds", "contrasts", "repeats", "hundred", *others}
    assert made["estimates-others"] == list(found.variants) and "| matching-cnn | AUC |" in made["endpoints-others"]
    monkeypatch.setattr("evidence.page.figures", _NoFigures)
    assert [figure.name for figure in drawn(found) if figure] == ["turning", "items-sas-seconds"]


class _NoFigures:
    """The tasks' own figures, which need more than these records have."""

    three_panels = schedules = scores = recommended = staticmethod(lambda _: None)


def test_old_records_need_no_new_field(tmp_path):
    make(tmp_path)
    path = tmp_path / "items.json"
    record = json.loads(path.read_bytes())
    for name in ("of", "variant"):
        del record[name]
    path.write_text(json.dumps(record))
    one = load_analysis(tmp_path, "items")
    assert (one.of, one.variant, one.max_k) == ("items", "", 100.0)
    assert Evidence({"items": one}).turned == [] and Evidence({"items": one}).timed == []


def test_a_record_under_another_name_is_refused(tmp_path):
    make(tmp_path)
    (tmp_path / "items.json").rename(tmp_path / "items-long.json")
    with pytest.raises(InputError, match="expected the record 'items-long', found 'items'"):
        load_analysis(tmp_path, "items-long")
