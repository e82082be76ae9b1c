"""The report in a real browser: every figure is drawn, values come up, links work, nothing runs that should not."""

import csv
import io
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))

from report_folders import edit, write_job, write_run, write_sweep

from negwise.report.comparison import compare
from negwise.report.write_report import make_figures, read_report_data, render_page

EVIL = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=2'>"
FIGURES = 9


def write_page(path, *folders):
    """The page alone; its PNG and SVG files are other tests' matter."""
    reports = [read_report_data(folder) for folder in folders]
    data = reports[0] if len(reports) == 1 else compare(reports)
    path.write_text(render_page(data, make_figures(data)))
    return path


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    root = tmp_path_factory.mktemp("browser")
    return write_page(root / "report.html", write_job(root / "job", seeds=2))


def drawn(page):
    """Wait until all is drawn."""
    page.wait_for_selector("body[data-drawn]", timeout=30_000)
    return page


def marks(page):
    """How many shapes are in the marks of each panel (not in its axes and legends), by figure."""
    return page.evaluate(
        """() => [...document.querySelectorAll("figure")].map((figure) => [
            figure.id,
            [...figure.querySelectorAll(".panel")].map((panel) => panel.querySelectorAll("g.role-mark path[d]").length),
        ])"""
    )


# Lines or areas of the first panel of each figure; two seeds, three arms.
SHAPES = {
    "auc_curves": 2,  # training, validation
    "effectiveness": 1,
    "quality_against_k": 1,  # through fixed K
    "k_over_time": 6,  # scheduled and used
    "sample_shares": 3,  # good, bad, easy
    "loss": 6,  # loss and log(K+1)
    "throughput": 3,
    "quality_over_time": 6,  # a line and its band
}


def test_every_figure_is_drawn(open_page, report):
    page = drawn(open_page(report))
    found = marks(page)
    assert len(found) == FIGURES
    for name, panels in found:
        assert panels and all(count >= 2 for count in panels), name
    for name, count in SHAPES.items():
        paths = page.locator(f"#{name} .panel").first.locator("g.mark-line.role-mark path, g.mark-area.role-mark path")
        drawn_paths = [path for path in paths.evaluate_all("all => all.map((one) => one.getAttribute('d'))") if path]
        assert len([path for path in drawn_paths if len(path) > 20]) == count, name


def too_wide(page):
    """Panels that were drawn wider than their place, which the style sheet then shrinks: their text gets too small."""
    return page.evaluate(
        """() => [...document.querySelectorAll(".panel")]
            .filter((panel) => Number(panel.querySelector("svg").getAttribute("width")) > panel.clientWidth + 1)
            .map((panel) => panel.closest("figure").id)"""
    )


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 820, 1200])
def test_nothing_sticks_out(open_page, overflow, report, width, dark):
    page = drawn(open_page(report, width=width, dark=dark))
    assert overflow(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("document.querySelectorAll('.panel svg').length") == page.locator(".panel").count()
    assert too_wide(page) == []


def test_figures_follow_the_width_of_the_screen(open_page, overflow, report):
    page = drawn(open_page(report, width=1200))
    wide = page.evaluate("document.querySelector('#auc_curves svg').getBoundingClientRect().width")
    page.set_viewport_size({"width": 390, "height": 800})
    page.wait_for_function("document.querySelector('#auc_curves svg').getBoundingClientRect().width < 380")
    page.wait_for_timeout(300)
    assert wide > 900 and overflow(page) == [] and too_wide(page) == []


def test_the_colours_follow_the_scheme(open_page, report):
    def colours(page):
        return page.evaluate(
            """() => [getComputedStyle(document.body).backgroundColor,
                      getComputedStyle(document.querySelector('#auc_curves svg .role-axis-label text')).fill]"""
        )

    light, dark = (colours(drawn(open_page(report, dark=dark))) for dark in (False, True))
    assert light != dark and light[1] != dark[1]
    page = drawn(open_page(report))
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(
        f"getComputedStyle(document.querySelector('#auc_curves svg .role-axis-label text')).fill == '{dark[1]}'"
    )


@pytest.mark.parametrize(
    ("figure", "words"),
    [("auc_curves", ("curve", "step", "AUC")), ("effectiveness", ("K", "v(K)")), ("loss", ("arm", "nats"))],
)
def test_hover_shows_values(open_page, report, figure, words):
    page = drawn(open_page(report))
    svg = page.locator(f"#{figure} svg").first
    svg.scroll_into_view_if_needed()
    box = svg.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5)
    page.mouse.move(box["x"] + box["width"] * 0.52, box["y"] + box["height"] * 0.52)
    tip = page.locator("#vg-tooltip-element.visible")
    tip.wait_for()
    text = tip.inner_text()
    assert all(word in text for word in words) and any(letter.isdigit() for letter in text)


def test_links_hand_out_the_numbers(open_page, report):
    page = drawn(open_page(report))
    links = page.locator("figure a.numbers")
    assert links.count() == FIGURES
    for index in range(links.count()):
        with page.expect_download() as asked:
            links.nth(index).click()
        name = asked.value.suggested_filename
        rows = list(csv.DictReader(io.StringIO(Path(asked.value.path()).read_text())))
        assert name == f"{page.locator('figure').nth(index).get_attribute('id')}.csv" and len(rows) > 5
        if name == "effectiveness.csv":
            assert float(rows[0]["k"]) == 1.0


def test_text_from_data_never_runs(open_page, tmp_path):
    job = write_job(tmp_path / "job", seeds=1)

    def change(results):
        results["arms"][0]["name"] = results["chosen"] = EVIL
        results["arms"][1]["seeds"][0] |= {"state": "failed", "error": EVIL}
        results["caveats"] = [EVIL]

    edit(job / "results.json", change)
    edit(job / "job.json", lambda record: record["data"].update(path=EVIL, examples=[{"title": EVIL}]))
    page = drawn(open_page(write_page(tmp_path / "report.html", job)))
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert EVIL in page.locator("#caveats").text_content()
    svg = page.locator("#sample_shares svg").first
    assert EVIL[:20] in svg.inner_html().replace("&lt;", "<").replace("&gt;", ">")
    svg.scroll_into_view_if_needed()
    svg.hover()
    page.locator("#quality_over_time svg").first.scroll_into_view_if_needed()
    page.locator("#quality_over_time svg").first.hover()
    page.locator("#vg-tooltip-element.visible").wait_for()
    assert page.evaluate("window.hacked") is None


@pytest.mark.parametrize("width", [390, 1200])
def test_a_comparison_of_everything(open_page, overflow, tmp_path, width):
    write_run(tmp_path / "run", "4", steps=300)
    rules = ("1", "2", "4", "8", "16", "32", "64", "128")
    sweep = write_sweep(tmp_path / "a-sweep-with-a-long-name", rules, seeds=1)
    log = tmp_path / "log.csv"
    log.write_text("step,train_auc,val_auc\n" + "".join(f"{i},{0.6 + i / 40},{0.58 + i / 45}\n" for i in range(1, 11)))
    page = drawn(open_page(write_page(tmp_path / "report.html", tmp_path / "run", sweep, log), width=width))
    assert all(count >= 2 for _, panels in marks(page) for count in panels)
    assert overflow(page) == [] and too_wide(page) == []
    page.set_viewport_size({"width": 1590 - width, "height": 900})  # the other of the two
    page.wait_for_timeout(2500)
    assert overflow(page) == [] and too_wide(page) == []


@pytest.mark.parametrize("kind", ["sweep", "run", "log", "unfinished"])
def test_the_other_pages(open_page, overflow, tmp_path, kind):
    folder = tmp_path / kind
    if kind == "sweep":
        write_sweep(folder, ("1", "4", "20"), seeds=2)
    elif kind == "run":
        write_run(folder, "1")
    elif kind == "log":
        folder = tmp_path / "log.csv"
        folder.write_text("step,train_auc,val_auc\n1,0.7,0.65\n2,0.8,0.74\n3,0.83,0.77\n4,0.84,0.78\n")
    else:
        write_job(folder, seeds=1)
        (folder / "results.json").unlink()
    page = drawn(open_page(write_page(tmp_path / "report.html", folder), width=390))
    assert all(count >= 2 for _, panels in marks(page) for count in panels)
    assert overflow(page) == [] and too_wide(page) == []
    assert page.locator("#unfinished").count() == (kind == "unfinished")
