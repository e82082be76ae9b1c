"""The explorer in a real browser: what it shows is what `negwise.optimal_k` and `negwise.effectiveness` give."""

import math

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.optimize import brentq

import negwise as nw
from negwise.report.explore import write_explore
from negwise.theory.effectiveness import sample_kinds

CLOSE = 0.001  # of K*; over 300 random pairs of AUCs and lambdas the worst was 0.00013


@pytest.fixture(scope="module")
def explore(tmp_path_factory):
    return write_explore(tmp_path_factory.mktemp("explore") / "explore.html")


def values(page, *names):
    """The unrounded numbers behind what elements show."""
    read = "names => names.map(name => JSON.parse(document.getElementById(name).dataset.value))"
    return dict(zip(names, page.evaluate(read, names), strict=True))


def value(page, name):
    return values(page, name)[name]


def shown(page, name):
    return float(page.input_value(f"#{name}"))


def slide(page, **places):
    for name, place in places.items():
        page.fill(f"#{name}-slider", str(place))


def type_in(page, **values):
    for name, text in values.items():
        page.fill(f"#{name}", str(text))
        page.press(f"#{name}", "Enter")


def paste(page, text):
    """Text into the field at once, as a paste does; playwright's fill types it line by line."""
    page.check("input[value=curve]", force=True)
    page.evaluate(
        "text => { const field = document.querySelector('#curve');"
        " field.value = text; field.dispatchEvent(new Event('input', { bubbles: true })); }",
        text,
    )


def in_theory(estimate):
    """The headline of the page: that of the estimate, as what it is."""
    said = estimate.headline()
    if estimate.verdict == "ok":
        return said.replace("Train with K", "In theory K").replace(" negatives;", " is best for AUC, and")
    if estimate.verdict == "capped":
        return f"In theory K = {estimate.k_int:,} is the best found for AUC, but its size is not pinned down."
    return said


def same_range(found, expected):
    return all(
        (a is None) == (b is None) and (a is None or abs(a - b) <= max(1, CLOSE * b))
        for a, b in zip(found, expected, strict=True)
    )


# Sliders stand at separations: training, validation, then lambda.
POSITIONS = [
    (0.95, 0.9, 0.9),
    (2.33, 2.21, 0.9),
    (4.07, 3.87, 0.9),
    (4.5, 4.28, 0.95),
    (1.0, 0.95, 0.8),
    (1.0, 0.95, 0.85),
    (2.4, 2.28, 1.0),
    (3.0, 0.5, 0.95),
    (0.3, 0.2, 0.9),
    (0.0, 0.0, 0.9),  # noise
    (2.0, 1.9, 0.5),  # no K gains anything
    (6.0, 6.0, 0.9),  # both at the right end
    (6.0, 0.0, 0.99),  # a model that never learns
    (1.0, 3.0, 0.9),  # contradictory
]


def test_sliders_move_k_to_what_optimal_k_gives(open_page, explore):
    page = open_page(explore)
    verdicts = set()
    for train, val, lam in POSITIONS:
        slide(page, train=train, val=val, lam=lam)
        expected = nw.optimal_k(shown(page, "train"), shown(page, "val"), lam=shown(page, "lam"))
        assert float(nw.separation(shown(page, "train"))) == pytest.approx(train, abs=0.005)
        found = values(page, "best", "margin", "flat")
        assert found["best"] == pytest.approx(expected.k, rel=CLOSE), (train, val, lam)
        assert found["margin"] == pytest.approx(expected.margin, abs=1e-5)
        assert same_range(found["flat"], expected.flat), (train, val, lam)
        assert page.inner_text("#verdict") == expected.verdict
        verdicts.add(expected.verdict)
        if expected.verdict in ("vacuous", "inconsistent"):
            assert page.inner_text("#headline") == in_theory(expected)
            assert page.inner_text("#best") == "—"
        assert "NaN" not in page.inner_html("#results")
    assert verdicts == {"ok", "vacuous", "capped", "inconsistent"}


def test_the_answer_is_in_the_words_of_the_estimate(open_page, explore):
    page = open_page(explore)
    type_in(page, train=0.95, val=0.941)
    assert page.inner_text("#headline") == in_theory(nw.optimal_k(0.95, 0.941))
    type_in(page, train=0.99999, val=0.5, lam=1)
    expected = nw.optimal_k(0.99999, 0.5, lam=1)
    assert page.inner_text("#verdict") == expected.verdict
    type_in(page, train=0.55, val=0.54, lam=0.9)
    assert nw.optimal_k(0.55, 0.54).reasons[0] == page.inner_text("#notes li")


def test_presets(open_page, explore):
    page = open_page(explore)
    for preset, train in enumerate((0.75, 0.95, 0.998)):
        page.click(f"[data-preset='{preset}']")
        assert value(page, "best") == pytest.approx(nw.optimal_k(train).k, rel=0.02)  # its end, to four digits
    page.click("[data-preset='3']")
    assert page.inner_text("#headline").startswith("In theory K = 144 is best for AUC")  # negwise estimate --example
    assert value(page, "horizon-read") == 1600


def test_numbers_at_any_k_are_effectiveness_and_sample_kinds(open_page, explore):
    page = open_page(explore)
    ramp = np.linspace(0.0, 3.0, 4001)
    for train, val, lam, stage in [(0.75, 0.72, 0.9, 0.5), (0.95, 0.94, 0.8, 0.0), (0.998, 0.99, 1.0, 1.0)]:
        type_in(page, train=train, val=val, lam=lam, stage=stage)
        label, end = float(nw.separation(train)), float(nw.separation(val))
        way = end * np.expm1(-ramp) / math.expm1(-3)
        model = end * math.expm1(-3 * stage) / math.expm1(-3)
        for k in (1, 7, 123.4, 1e6):
            type_in(page, k=k)
            expected = {
                "at-k": k,
                "at-mean": float(trapezoid(nw.effectiveness(label, way, k, lam), ramp)) / 3,
                "at-stage": float(nw.effectiveness(label, model, k, lam)),
                "at-label": float(nw.reliability(label, k)),
                "at-now": float(nw.reliability(model, k)),
                **{f"at-{kind}": float(share) for kind, share in sample_kinds(label, model, k)._asdict().items()},
            }
            assert values(page, *expected) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("train", "val", "candidates"), [(0.95, 0.93, 3416), (0.75, 0.73, 500), (0.99, 0.98, 200000)])
def test_the_share_of_the_gain_and_online_k(open_page, explore, train, val, candidates):
    page = open_page(explore)
    type_in(page, train=train, val=val, candidates=candidates)
    estimate = nw.optimal_k(train, val)
    for k in (1, 4, 20, 100, 1000):
        type_in(page, k=k)
        found = values(page, "at-gain-auc", "at-gain-top")
        assert found["at-gain-auc"] == pytest.approx(nw.share_of_gain(k, estimate=estimate).share, abs=2e-3)
        top = nw.share_of_gain(k, metric="ndcg@10", candidates=candidates).share
        assert found["at-gain-top"] == pytest.approx(top, abs=1e-6)
    for stage in (0, 0.4, 1):
        type_in(page, stage=stage)
        model = float(nw.separation(val)) * math.expm1(-3 * stage) / math.expm1(-3)
        ks = [brentq(lambda k, mu, r: float(nw.reliability(mu, k)) - r, 1, 1e6, args=(model, r)) for r in (0.2, 0.1)]
        assert value(page, "online-auc") == pytest.approx(ks[0], rel=1e-3)
        bound = nw.OnlineK(metric="ndcg@10", candidates=candidates, max_k=candidates - 1).known_bound
        assert value(page, "online-top") == pytest.approx(min(ks[1], bound), rel=1e-3)
    enough = value(page, "plateau")  # the smallest K with nine tenths of the gain
    share = [nw.share_of_gain(k, metric="ndcg@10", candidates=candidates).share for k in (enough - 1, enough)]
    assert share[0] < 0.9 <= share[1] and f"K = {enough:,} has nine tenths" in page.inner_text("#plateau")
    assert "level or better" in page.inner_text("#plateau") and "plateau, no peak" in page.inner_text("main")
    order = page.locator(".charts h3").all_inner_texts()
    assert order.index("The share of the gain") < order.index("Training effectiveness against K")


def test_hover_shows_values_and_a_click_keeps_them(open_page, explore):
    page = open_page(explore)
    label, model = (float(nw.separation(shown(page, name))) for name in ("train", "val"))
    now = model * math.expm1(-1.5) / math.expm1(-3)
    best = value(page, "at-k")
    assert best == value(page, "best")
    page.locator("#v-chart").scroll_into_view_if_needed()
    box = page.locator("#v-chart").bounding_box()
    seen = []
    for share in (0.2, 0.5, 0.8):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + 0.5 * box["height"])
        k = value(page, "at-k")
        seen.append(k)
        rows = dict(row.split("\n") for row in page.locator("#v-chart .tip div").all_inner_texts())
        assert float(rows["v at this stage"]) == pytest.approx(float(nw.effectiveness(label, now, k)), abs=1e-4)
        kinds = dict(row.split("\n") for row in page.locator("#kinds-chart .tip div").all_inner_texts())
        for name, part in sample_kinds(label, now, k)._asdict().items():
            assert float(kinds[name].rstrip("%")) / 100 == pytest.approx(float(part), abs=1e-3)
    assert seen == sorted(seen) and seen[-1] > 100 * seen[0]
    page.mouse.click(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
    page.mouse.move(5, 5)
    assert not page.locator(".tip:visible").count()
    assert value(page, "at-k") == pytest.approx(seen[1], rel=1e-3)
    page.click("#follow")
    assert value(page, "at-k") == best
    training = page.locator("#training-chart").bounding_box()
    page.locator("#training-chart").hover(position={"x": training["width"] - 5, "y": 80})
    assert f"validation AUC\n{shown(page, 'val'):.4f}" in page.inner_text("#training-chart .tip")


def test_the_stage_moves_the_samples_and_not_the_answer(open_page, explore):
    page = open_page(explore)
    best, shares = value(page, "best"), []
    for stage in (0, 0.3, 1):
        slide(page, stage=stage)
        assert value(page, "best") == best
        shares.append(value(page, "at-good"))
    assert shares == sorted(shares, reverse=True) and shares[0] > shares[-1] + 0.1


def a_curve(seed, n, first, noise, overfits=False):
    """A pilot as it comes out of a log: uneven steps, noise, training above validation."""
    draw = np.random.default_rng(seed)
    gaps = draw.uniform(0.5, 1.5, n)
    steps = np.round(first + 100 * (np.cumsum(gaps) - gaps[0]))
    rise = -np.expm1(-4 * steps / steps[-1])
    label, model = draw.uniform(0.8, 4.2), draw.uniform(0.5, 0.95)
    fall = 0.25 * (steps / steps[-1]) ** 3 if overfits else 0.0
    train = nw.auc(label * (rise + (0.1 * steps / steps[-1] if overfits else 0.0)) + draw.normal(0, noise, n) + 0.1)
    val = nw.auc(model * label * (rise - fall) + draw.normal(0, noise, n) + 0.1)
    return steps, np.round(train, 5), np.round(val, 5)


CURVES = [
    a_curve(0, 12, 50, 0.0),
    a_curve(1, 12, 0, 0.02),
    a_curve(2, 40, 10, 0.05),
    a_curve(3, 200, 10, 0.05),
    a_curve(4, 30, 25, 0.02, overfits=True),
    a_curve(5, 3, 100, 0.0),
    a_curve(6, 5, 0, 0.01),
    a_curve(7, 64, 1, 0.1, overfits=True),
    a_curve(8, 25, 400, 0.01),
    tuple(np.array(row) for row in ([0, 100, 200, 300], [0.46, 0.85, 0.88, 0.88], [0.44, 0.8, 0.84, 0.84])),
]


@pytest.mark.parametrize("columns", ["both", "validation"])
def test_a_pasted_curve_gives_the_k_of_optimal_k(open_page, explore, columns):
    page = open_page(explore)
    ok = 0
    for number, (steps, train, val) in enumerate(CURVES):
        if columns == "both":
            paste(page, "".join(f"{step:g}, {a}, {b}\n" for step, a, b in zip(steps, train, val, strict=True)))
            expected = nw.optimal_k(train, val, steps=steps)
            assert not page.is_visible("#train-control")
        else:
            paste(page, "".join(f"{step:g}\t{b}\n" for step, b in zip(steps, val, strict=True)))
            label = round(min(float(train.max()), 0.999), 4)
            type_in(page, train=label)
            expected = nw.optimal_k(label, val, steps=steps)
        assert page.inner_text("#curve-wrong") == ""
        # the page reads what was measured; a forecast is the estimate's own
        measured = expected.rising.k_measured if expected.rising else expected.k
        assert value(page, "best") == pytest.approx(measured, rel=CLOSE), number
        if expected.basis == "forecast":
            assert "crept up" in page.inner_text("#notes")
            continue
        assert page.inner_text("#verdict") == expected.verdict, number
        assert value(page, "horizon-read") == expected.horizon
        assert value(page, "label-read") == pytest.approx(expected.label_separation, abs=1e-5)
        assert value(page, "margin") == pytest.approx(expected.margin, abs=1e-5)
        assert same_range(value(page, "flat"), expected.flat)
        ok += expected.verdict == "ok"
    assert ok >= 4


def test_curves_that_contradict_themselves(open_page, explore):
    page = open_page(explore)
    cases = [
        ([0.4, 0.6, 0.7], [0.5, 0.6, 0.65], [1, 2, 3]),
        ([0.6, 0.65, 0.66], [0.6, 0.7, 0.8], [1, 2, 3]),
        ([0.6, 0.65, 0.66], [0.6, 0.65, 0.679], [1, 2, 3]),  # above by less than noise
        ([0.6, 0.65, 0.66], [0.6, 0.65, 0.683], [1, 2, 3]),  # and by more
        ([0.481, 0.65, 0.7], [0.5, 0.6, 0.65], [1, 2, 3]),  # below chance by less than noise
        ([0.5, 0.65, 0.7], [0.477, 0.6, 0.65], [1, 2, 3]),  # and by more
        ([0.7, 0.8, 0.8], [0.7, 0.7, 0.7], [0, 2, 3]),  # at its peak before training starts
    ]
    for train, val, steps in cases:
        paste(page, "\n".join(f"{s} {a} {b}" for s, a, b in zip(steps, train, val, strict=True)))
        expected = nw.optimal_k(train, val, steps=steps)
        assert page.inner_text("#verdict") == expected.verdict, (train, val)
        if expected.basis == "measured":
            assert page.inner_text("#headline") == in_theory(expected)
        else:
            assert "crept up" in page.inner_text("#notes")
    paste(page, "step,train_auc,val_auc\n1,0.6,\n2,0.7,\n3,0.75,\n400,,0.6\n500,,0.7\n600,,0.7\n")
    expected = nw.optimal_k([0.6, 0.7, 0.75], [0.6, 0.7, 0.7], steps=[400, 500, 600], train_steps=[1, 2, 3])
    assert page.inner_text("#verdict") == expected.verdict == "inconsistent"


def test_names_decide_which_column_is_which(open_page, explore):
    page = open_page(explore)
    steps, train, val = CURVES[1]
    rows = zip(steps, train, val, strict=True)
    head = 'epoch;"val/AUC";val_auc_std;trainAUC;global_step;loss\n'
    paste(page, head + "".join(f"{i};{b};0.01;{a};{step:g};1.5\n" for i, (step, a, b) in enumerate(rows)))
    assert page.inner_text("#curve-wrong") == ""
    assert value(page, "best") == pytest.approx(nw.optimal_k(train, val, steps=steps).k, rel=CLOSE)


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "Nothing pasted yet"),
        ("0,.5,.5\n10,75,.6", "Line 2: got AUC 75, expected a number between 0 and 1. Divide a percentage by 100"),
        ("0,.5,.5\n\n10,1,.6", "Line 3: got AUC 1, expected"),
        ("0,.5,.5\n10,.6,nan", 'Line 2: AUC: got "nan", expected a number'),
        ("0,.5,.5\n10,.6", "Line 2: got 2 cells, expected 3"),
        ("0,.5,.5\n10,.6,.6\n10,.7,.7", "Line 3: got step 10 after 10, expected rising steps"),
        ("-5,.5,.5\n10,.6,.6", "Line 1: got step -5, expected numbers from 0 up"),
        (",.5,.5\n10,.6,.6", "Line 1: step: got nothing, expected a number"),
        (".5\n.6\n.7", "Line 1: got 1 column, expected 2"),
        ("1,2,3,4\n1,2,3,4", "Line 1: got 4 columns, expected 2"),
        ("10,.6,.6", "got 1 validation AUC, expected at least 2"),
        ("step,auc\n1,.6\n2,.7", "Line 1: found no validation AUC among step, auc"),
        ("train_auc,val_auc\n.5,.6\n.6,.7", "Line 1: found no step among"),
        ("step,val_auc,dev_auc\n1,.6,.6", "Line 1: val_auc and dev_auc could both be the validation AUC"),
        ("1,.5,.01\n2,.5,.6", "Line 1: got AUC 0.01; this page's table holds"),
        ("step,<img src=x onerror=alert(1)>\n1,.5\n2,.6", "found no validation AUC among step, <img src=x"),
    ],
)
def test_a_bad_paste_says_the_line_and_what_was_expected(open_page, explore, text, said):
    page = open_page(explore)
    paste(page, text)
    assert said in page.inner_text("#curve-wrong")
    assert page.inner_text("#headline") == "No answer yet: the curve cannot be read."
    assert not page.locator("main img").count()
    paste(page, "1,.6,.6\n2,.7,.65\n")
    assert page.inner_text("#curve-wrong") == ""
    assert page.inner_text("#headline") == in_theory(nw.optimal_k([0.6, 0.7], [0.6, 0.65], steps=[1, 2]))


def test_a_number_out_of_range_is_refused_and_said(open_page, explore):
    page = open_page(explore)
    best = value(page, "best")
    for name, text, said in [
        (
            "train",
            "95",
            "Got 95, expected a number from 0.5 to 0.99999. Divide a percentage by 100. Still at 0.9500.",
        ),
        ("val", "x", "Got x, expected a number from 0.5 to 0.99999. Still at"),
        ("lam", "0.4", "Got 0.4, expected a number from 0.5 to 1."),
        ("k", "", "Got nothing, expected a number from 1 to 1000000."),
    ]:
        type_in(page, **{name: text})
        assert said in page.inner_text(f"#{name}-wrong")
        assert page.get_attribute(f"#{name}", "aria-invalid") == "true"
        assert value(page, "best") == best
    type_in(page, train="0.9", val="0.85")
    assert page.inner_text("#train-wrong") == ""
    assert value(page, "best") == pytest.approx(nw.optimal_k(0.9, 0.85).k, rel=CLOSE)


def test_sliders_work_from_the_keyboard_and_have_names(open_page, explore):
    page = open_page(explore)
    for name in ("k", "stage", "lam", "val", "train"):
        slider = page.locator(f"#{name}-slider")
        assert slider.get_attribute("aria-label") and page.locator(f"label[for={name}]").inner_text()
        assert len(page.inner_text(f"#{name}-hint")) > 40
        slider.focus()
        before = shown(page, name)
        page.keyboard.press("ArrowRight")
        assert before < shown(page, name)
        assert slider.get_attribute("aria-valuetext") == page.input_value(f"#{name}")
        page.keyboard.press("Home")
        assert shown(page, name) == {"train": 0.5, "val": 0.5, "lam": 0.5, "stage": 0, "k": 1}[name]
        page.keyboard.press("End")
        assert shown(page, name) == pytest.approx(
            {"train": 0.999989, "val": 0.999989}.get(name, 1e6 if name == "k" else 1)
        )


def fragment(page, wanted):
    page.wait_for_function("part => location.hash.includes(part)", arg=wanted)
    return page.evaluate("location.href")  # page.url may be one event behind


def test_the_address_carries_the_view(open_page, explore):
    page = open_page(explore)
    type_in(page, train=0.97123456, val=0.9, lam=0.85, stage=0.25, k=33)
    again = open_page(fragment(page, "k=33"))
    assert [shown(again, name) for name in ("train", "val", "lam", "stage", "k")] == [0.97123456, 0.9, 0.85, 0.25, 33]
    for name in ("best", "at-mean", "at-good"):
        assert value(again, name) == value(page, name)

    paste(page, "step,val_auc\n1,0.7\n2,0.8\n5,0.82\n")
    other = open_page(fragment(page, "curve="))
    assert other.input_value("#curve") == page.input_value("#curve")
    assert (
        value(other, "best")
        == value(page, "best")
        == pytest.approx(nw.optimal_k(0.97123456, [0.7, 0.8, 0.82], steps=[1, 2, 5], lam=0.85).k, rel=CLOSE)
    )
    page.click("text=How it works")  # a place on the page, which is no view
    assert page.input_value("#curve") == other.input_value("#curve") and not page.is_visible("#link-wrong")


def test_a_broken_address_is_said(open_page, explore):
    page = open_page(f"{explore.as_uri()}#train=0.9&lam=7&size=%3Cscript%3E")
    said = page.inner_text("#link-wrong")
    assert 'lam: got "7", expected a number from 0.5 to 1.' in said and '"size" is not known to this page' in said
    assert (shown(page, "train"), shown(page, "lam")) == (0.9, 0.9)
    page = open_page(f"{explore.as_uri()}#curve=1%2C75")
    assert "Line 1: got AUC 75" in page.inner_text("#curve-wrong")


def test_a_curve_too_long_for_an_address_stays_out_of_it(open_page, explore):
    page = open_page(explore)
    text = "".join(f"{step},0.80001,0.7{step % 7}123\n" for step in range(1, 1000))
    page.check("input[value=curve]", force=True)
    page.evaluate(
        "text => { const field = document.body.appendChild(document.createElement('textarea'));"
        " field.value = text; field.select(); document.execCommand('copy'); field.remove(); }",
        text,
    )
    page.focus("#curve")
    page.keyboard.press("Control+V")
    assert page.input_value("#curve") == text
    fragment(page, "lam=")
    page.wait_for_selector("#link-long", state="visible")
    assert "curve=" not in page.url and page.inner_text("#curve-wrong") == ""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nothing_sticks_out_of_a_phone(open_page, overflow, explore, dark):
    page = open_page(explore, width=390, height=844, dark=dark)
    assert overflow(page) == []
    type_in(page, train=0.6, val=0.9)
    assert page.inner_text("#verdict") == "inconsistent" and overflow(page) == []
    type_in(page, train=0.99999, val=0.6)
    assert overflow(page) == []
    page.click("[data-preset='3']")
    assert overflow(page) == []
    page.locator("#v-chart").hover(position={"x": 200, "y": 100})
    assert overflow(page) == []
    page.set_viewport_size({"width": 1200, "height": 900})
    page.wait_for_function("document.querySelector('#v-chart svg').clientWidth > 500")
    assert overflow(page) == []


def test_colours_follow_the_scheme(open_page, explore):
    style = "([id, of]) => getComputedStyle(document.querySelector(id))[of]"
    seen = {}
    for dark in (False, True):
        page = open_page(explore, dark=dark)
        seen[dark] = [
            page.evaluate(style, part)
            for part in (
                ["body", "backgroundColor"],
                ["body", "color"],
                ["#v-chart path.mean", "stroke"],
                [".plot text", "fill"],
            )
        ]
        page.emulate_media(color_scheme="light" if dark else "dark")
        assert page.evaluate(style, ["body", "backgroundColor"]) != seen[dark][0]
    assert not set(seen[False]) & set(seen[True])
