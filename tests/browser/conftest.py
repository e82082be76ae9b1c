"""A real browser for the pages that negwise writes: what they ask for and complain about is watched.

`open_page(path)` opens a page. When the test ends, a console error, an uncaught exception, or a request for anything
but the file itself fails it.
"""

import os
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OWN = {"file", "data", "blob", "about"}  # schemes that ask no host


def find_browser():
    """The browser to test with: NEGWISE_BROWSER, or the first of `NAMES` on the path; None where there is none."""
    named = os.environ.get("NEGWISE_BROWSER")
    if named:
        assert shutil.which(named), f"NEGWISE_BROWSER is {named!r}, which is not a program"
        return shutil.which(named)
    return next(filter(None, map(shutil.which, NAMES)), None)


# One browser a module, not one a session: while it runs, so does its event loop, and other tests may want their own.
@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'negwise[dev]'")
    program = find_browser()
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} on the path; install one or set NEGWISE_BROWSER")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser):
    """``open_page(path, width=1200, dark=False)`` -> a playwright page, watched until the test ends.

    ``path`` is a file, or an address with a fragment. The machine counts as offline, and downloads are kept.
    ``open_page.trouble`` lists what was seen so far.
    """
    contexts, trouble = [], []

    def open_(path, *, width=1200, height=900, dark=False):
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            offline=True,
            accept_downloads=True,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: message.type == "error" and trouble.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: trouble.append(f"uncaught: {error}"))
        page.on("request", lambda asked: urlsplit(asked.url).scheme in OWN or trouble.append(f"request: {asked.url}"))
        page.goto(Path(path).resolve().as_uri() if isinstance(path, Path) else path)
        return page

    open_.trouble = trouble
    yield open_
    for context in contexts:
        context.close()
    assert not trouble, "\n".join(trouble)


@pytest.fixture
def overflow():
    """``overflow(page)`` -> what sticks out of the page's width: tag, class and how far, in pixels."""

    def measure(page):
        return page.evaluate(
            """() => {
                const width = document.documentElement.clientWidth;
                const own = (e) => /auto|scroll/.test(getComputedStyle(e).overflowX);
                const scrolls = (e) => e && (own(e) || scrolls(e.parentElement));
                const out = [...document.querySelectorAll("body *")]
                    .filter((e) => e.getBoundingClientRect().right > width + 1 && !scrolls(e.parentElement))
                    .map((e) => `${e.tagName}.${e.className.baseVal ?? e.className} by ${
                        Math.round(e.getBoundingClientRect().right - width)}`);
                const wide = document.documentElement.scrollWidth - width;
                return wide > 0 ? [`the page by ${wide}`, ...out] : out;
            }"""
        )

    return measure
