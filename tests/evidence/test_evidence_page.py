"""The page of the evidence says what the records say: every table, every figure, every number of its prose."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evidence import tables
from evidence.page import drawn, filled, loaded, loose_numbers, pages_of, stated, tabled, words_of
from evidence.record import ranks_of
from negwise.errors import InputError
from negwise.metrics import evaluate

ROOT = Path(__file__).parents[2]
RECORDS, PAGE, PICTURES = ROOT / "evidence" / "records", ROOT / "docs" / "evidence.md", ROOT / "docs" / "evidence"
PAGES = pages_of(ROOT / "docs")
WORDS = 900
"""What a person reads in a minute or two, tables among them."""


@pytest.fixture(scope="module")
def records():
    return loaded(RECORDS)


@pytest.mark.slow
def test_every_table_and_number_follows_from_the_records(records):
    tables, facts = tabled(records), stated(records)
    texts = {page: page.read_text() for page in PAGES}
    for page, text in texts.items():
        assert filled(text, tables, facts) == text, f"{page.name} and the records differ; type: python -m evidence page"
    for name in tables:
        assert any(f"<!-- table {name} -->" in text for text in texts.values()), f"no page shows {name}"


def texts(svg):
    """Titles, labels and legends; where they stand goes with the fonts that there are."""
    return set(re.findall(r">([^<>]+)</text>", svg))


@pytest.mark.slow
def test_every_figure_follows_from_the_records(records):
    made = drawn(records)
    shown = "".join(page.read_text() for page in PAGES)
    for figure, svg in made:
        assert (PICTURES / f"{figure.name}.csv").read_text() == figure.csv(), "type: python -m evidence page"
        assert texts((PICTURES / f"{figure.name}.svg").read_text()) == texts(svg), "type: python -m evidence page"
        assert f"evidence/{figure.name}.svg" in shown
    assert {path.stem for path in PICTURES.iterdir()} == {figure.name for figure, _ in made}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_prose_has_no_number_of_its_own(page):
    assert loose_numbers(page.read_text()) == []


def test_the_page_is_one_screen_and_the_appendices_are_few():
    assert words_of(PAGE.read_text()) <= WORDS
    assert len(PAGES) <= 5


def test_words_are_counted_as_they_are_read():
    text = "# One\n![two](two.svg)\n| three | +.04 |\n|---|---|\n<!-- fact a -->five<!-- end --> [six](seven.md) - K\\*"
    assert words_of(text) == 6  # One, three, .04, five, six, K


def test_a_number_that_no_table_has_is_found():
    table, exempt = "<!-- table a -->\n| 0.7064 |\n<!-- end -->", "<!-- rule -->0.5<!-- end -->"
    known = "<!-- fact a -->0.9<!-- end --> [x](https://x/0.8.html) `0.6`"
    text = f"Quality is 0.71.\n{table}\nand 0.7064, .71, 71%, 0.72, 73% {exempt} {known}"
    assert loose_numbers(text) == ["0.72", "73%"]


def test_a_table_takes_its_own_place_and_no_other():
    empty = "one\n<!-- table a -->\n<!-- end -->\ntwo\n<!-- table b -->\nold\n<!-- end -->\nthree\n"
    once = filled(empty, {"a": "| A |", "b": "| B |"}, {})
    assert once == "one\n<!-- table a -->\n| A |\n<!-- end -->\ntwo\n<!-- table b -->\n| B |\n<!-- end -->\nthree\n"
    assert filled(once, {"a": "| A |", "b": "| B |"}, {}) == once
    assert filled("<!-- fact c -->old<!-- end -->", {}, {"c": ".04"}) == "<!-- fact c -->.04<!-- end -->"


def test_a_table_that_nobody_makes_is_refused():
    with pytest.raises(InputError, match="a table 'b'; the records have a"):
        filled("<!-- table b -->\n\n<!-- end -->", {"a": ""}, {})


@pytest.mark.parametrize("task", ["news", "matching", "items"])
def test_scores_of_every_run_follow_from_its_standings(task):
    """Two ways from the test split to a number: the metrics that training wrote, and the ranks beside them."""
    record = json.loads((RECORDS / f"{task}.json").read_bytes())
    ranks = ranks_of(RECORDS, task)
    runs = [(arm["rule"], run) for arm in record["arms"] for run in arm["seeds"]]
    assert len(runs) == len(ranks)
    for rule, run in runs:
        told = evaluate(ranks[rule, run["seed"]]).record()
        assert run["test"]["auc"] == pytest.approx(told["auc"], abs=1e-6)
        assert run["test"][record["top_n"]] == pytest.approx(told["metrics"][record["top_n"]], abs=1e-6)


@pytest.mark.parametrize("task", ["news", "matching", "items"])
def test_what_was_chosen_was_chosen_on_validation(task):
    record = json.loads((RECORDS / f"{task}.json").read_bytes())
    fixed = [arm for arm in record["arms"] if arm["role"] == "fixed"]
    means = {int(arm["rule"]): np.mean([run["val"]["auc"] for run in arm["seeds"]]) for arm in fixed}
    assert max(means, key=means.get) == record["k_best"]
    assert {1, record["k_star"], *record["ks"]} == set(means) and len(record["ks"]) >= 8
    for choice in record["tuning"].values():
        best = max(choice["tried"], key=lambda row: row["val_auc"])
        assert best["learning_rate"] == choice["learning_rate"]
    for arm in record["arms"]:
        assert len(arm["seeds"]) == 5
        for run in arm["seeds"]:
            curve = run["curve"]["val"]
            assert curve["step"][int(np.argmax(curve["auc"]))] == run["best_step"]
            assert max(curve["auc"]) == pytest.approx(run["val"]["auc"], abs=1e-6)


def test_records_say_where_they_come_from():
    for path in RECORDS.glob("*.json"):
        record = json.loads(path.read_bytes())
        assert record["code"]["source"] and record["versions"]["torch"] and record["machine"]["name"]
        assert record["seeds"] and record["steps"]
        assert path.stat().st_size < 2**20


def test_a_changed_record_changes_the_page(records):
    """The check itself can fail: one choice on validation moved by a hundredth is seen."""
    items = records.tasks["items"]
    record = json.loads(json.dumps(items.record))
    for run in record["arms"][0]["seeds"]:
        run["val"]["auc"] += 0.1
    changed = replace(records, tasks={**records.tasks, "items": replace(items, record=record)})
    assert tables.worth(changed.every) != tables.worth(records.every)
    assert tables.worth(records.every) in "".join(page.read_text() for page in PAGES)
