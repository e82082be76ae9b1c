"""The page of the main job in a real browser: an easy job, a hard one, a tiny one and one that was barely trained."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))

from report_folders import baseline_record, compared_record, edit, scores, share_records, write_model_job, write_run

from negwise.records import Candidate, Decision, RaceStart, append_race, encode, read_run
from negwise.report.answer import make_answer
from negwise.report.from_job import job_report_data
from negwise.report.write_report import make_figures, read_report_data, render_page

FIRST_SCREEN = 800
FIGURES = ("k_over_time", "quality_over_time")  # other tests draw all of them


def easy(folder):
    """A model that beats its baseline, after a race of two."""
    write_model_job(folder, caveats=["The model was not ranked among all texts.", "A second thing."])
    candidates = (Candidate("20", 0.001, 600, 30), Candidate("20", 0.003, 600, 30))
    values = {}
    for candidate, end in zip(candidates, (2.1, 1.9), strict=True):
        run = folder / "runs" / candidate.folder / "seed-0"
        write_run(run, "20", end=end)
        values[candidate.name] = next(one for one in read_run(run).of_split("val") if one.step == 150).value("hit@5")
    append_race(folder / "race.jsonl", RaceStart(candidates, "because"))
    one, other = values
    decision = Decision(150, "hit@5", values, (one,), (other,), f"{one} goes on, which no other is clearly ahead of")
    edit(folder / "results.json", lambda record: record.update(decisions=[encode(decision)]))
    return folder


def hard(folder):
    """A model that neither beats BM25 nor another K; all notices are there."""
    others = [baseline_record("BM25", -0.1, 0.02), compared_record(1, -0.2, 0.02), compared_record(1000, 0.1, 0.02)]
    return write_model_job(folder, baselines=others)


def tiny(folder):
    """60 pairs: six test queries, and hardly any candidates, so that no share of the gain is known."""
    shares = [row | {"share": None, "low": None, "high": None} for row in share_records((1, 0, 0.01), (5, 0, 0.011))]
    few = {"corpus": {"candidates": 60, "scores": scores(0.7, 0.3, 6)}, "candidates": 6.0, "shares": shares}
    write_model_job(folder, "5", baselines=[baseline_record("BM25", 0.0, 0.3, queries=6)], **few)
    edit(folder / "results.json", lambda record: record["arms"][0]["seeds"][0].update(test=scores(0.6, 0.5, 6)))
    return folder


def barely(folder):
    """A fraction of an epoch, whose first weights are its best."""
    write_model_job(folder, epoch=24_000)
    edit(folder / "results.json", lambda record: record["arms"][0]["seeds"][0].update(best_step=0))
    return folder


JOBS = {"easy": easy, "hard": hard, "tiny": tiny, "barely": barely}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Folder and page of each job, by its name."""
    root = tmp_path_factory.mktemp("model-pages")
    found = {}
    for name, make in JOBS.items():
        folder = make(root / name)
        data = read_report_data(folder)
        page = root / f"{name}.html"
        some = [figure for figure in make_figures(data) if figure.name in FIGURES]
        page.write_text(render_page(data, some))
        found[name] = folder, page
    return found


# Whether the titles of the axes have a colour: figures are drawn again where the colour scheme changes.
FILLED = """wanted => [...document.querySelectorAll('.panel svg .role-axis-title text')]
    .every(text => text.getAttribute('fill') == wanted)"""


def bottom(place):
    box = place.bounding_box()
    return box["y"] + box["height"]


def texts(places):
    """Without the spaces that keep "K = 4" on one line."""
    return [text.replace("\N{NO-BREAK SPACE}", " ") for text in places.all_inner_texts()]


def drawn(page):
    page.wait_for_selector("body[data-drawn]", timeout=30_000)
    return page


@pytest.mark.parametrize("name", JOBS)
def test_the_page_of_a_job(open_page, overflow, pages, name):
    """Wide, dark, narrow, light; the fixture fails the test on any error in the console."""
    folder, file = pages[name]
    answer = make_answer(job_report_data(folder))
    page = drawn(open_page(file, width=1280, height=FIRST_SCREEN))
    assert overflow(page) == []
    assert page.inner_text("h1") == answer.headline and bottom(page.locator("h1")) <= FIRST_SCREEN
    for stat in answer.stats[:2]:  # K and the score
        place = page.locator(".stat", has_text=stat.label).first
        assert stat.value in place.inner_text() and bottom(place) <= FIRST_SCREEN, stat.label
    assert bottom(page.locator("#load")) <= FIRST_SCREEN or name == "hard"
    assert texts(page.locator("#notices p")) == list(answer.notices)
    caveats = page.locator("#caveats")
    assert caveats.count() == (name == "easy")
    if caveats.count():
        assert not caveats.locator("li").first.is_visible()
        caveats.locator("summary").click()
        assert caveats.locator("li").first.is_visible()
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(FILLED, arg="#e6edf5")
    assert overflow(page) == []
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("[...document.querySelectorAll('.panel svg')].every(svg => svg.clientWidth < 380)")
    assert overflow(page) == []
    assert bottom(page.locator("#load")) <= 844 or name in ("hard", "tiny")  # which have several notices
    assert (
        bottom(page.locator("#load")) < bottom(page.locator(".stat", has_text="cost")) < bottom(page.locator("#advice"))
    )
    page.emulate_media(color_scheme="light")
    page.wait_for_function(FILLED, arg="#1f2937")
    assert overflow(page) == []


def test_the_page_shows_what_the_records_hold(open_page, pages):
    folder, file = pages["easy"]
    page = drawn(open_page(file, width=1280))
    rows = page.locator("#decisions tbody tr")
    assert rows.count() == 1 and "500" in rows.first.inner_text()
    answer = make_answer(job_report_data(folder))
    shown = [[cell.strip() for cell in row.split("\t")] for row in page.locator("#scores tbody tr").all_inner_texts()]
    wanted = [[cell or "–" for cell in row] for row in (*answer.scores.rows, *answer.shares.rows)]
    assert shown == wanted
    assert json.loads((folder / "results.json").read_text())["seconds"] == 90.0 and "1 min 30 s" in page.inner_text(
        "#answer"
    )
