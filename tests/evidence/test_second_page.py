"""The page of the evidence with and without the second study."""

import re
from pathlib import Path

import pytest
from second_made_up import whole_study

from evidence.page import filled, loaded, stated, tabled, words_of
from evidence.second_runs import save_runs
from evidence.second_tables import NOT_RUN, QUESTIONS, sentences

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "evidence.md").read_text()
SECOND = (ROOT / "docs" / "evidence-sweeps.md").read_text()
WORDS = 900


def found_in(text, kind):
    return dict(re.findall(rf"<!-- {kind} ([\w-]+) -->\n?(.*?)\n?<!-- end -->", text, re.DOTALL))


def test_every_question_has_a_place_for_its_sentence_and_its_table():
    names = {f"second-{name}" for name in QUESTIONS}
    assert names == {name for name in found_in(PAGE, "fact") if name.startswith("second-")}
    assert names == {name for name in found_in(SECOND, "table") if name.startswith("second-")}


def test_the_page_is_one_screen_with_all_its_sentences_too():
    told = sentences(whole_study(lambda cell: 30 if cell.k == "1" else 10, spread=True, separation=2.5))
    whole = filled(PAGE, found_in(PAGE, "table"), found_in(PAGE, "fact") | told)
    assert NOT_RUN not in whole and words_of(PAGE) < words_of(whole) <= WORDS


@pytest.mark.slow
def test_the_page_follows_when_runs_come(tmp_path):
    """The records as they are, and beside them runs of one question after the other."""
    (tmp_path / "records").symlink_to(ROOT / "evidence" / "records")
    before = loaded(tmp_path / "records")
    assert before.second == []
    runs = whole_study(lambda cell: 30 if cell.k == "1" else 10, spread=True, separation=2.5)
    (tmp_path / "second").mkdir()
    save_runs([run for run in runs if run["steps"] == 7500], tmp_path / "second")
    after = loaded(tmp_path / "records")
    page = filled(PAGE, tabled(after), stated(after))
    told = found_in(page, "fact")
    assert {name for name, text in told.items() if text == NOT_RUN} == {
        f"second-{name}" for name in QUESTIONS if name not in ("ends", "lengths")
    }
    assert told["second-ends"].startswith("less K = 1, top n: items: K = 1 still rises, K = 1,000 +")
    assert re.sub(r"<!-- fact second-.*?<!-- end -->", "", page) == re.sub(
        r"<!-- fact second-.*?<!-- end -->", "", PAGE
    )
