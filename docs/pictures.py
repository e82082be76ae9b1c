"""The pictures of the README, from a job that was run: ``python docs/pictures.py JOB FOLDER`` (or ``make pictures``).

``terminal.png`` is what the command shows on a terminal when the job is there already; ``report.png`` and
``report-phone.png`` are the top of its page, light and dark. Needs a browser: NEGWISE_BROWSER, or chromium.
"""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from rich.console import Console
from rich.text import Text

COLUMNS = 118
PLAIN = "<body style='margin:0'>{svg}</body>"


def main() -> None:
    job, folder = Path(sys.argv[1]), Path(sys.argv[2])
    request = json.loads((job / "job.json").read_text())["request"]
    words = ["run", "--out", str(job)] + (["--budget", request["budget"]] if request["budget"] else [])
    program = os.environ.get("NEGWISE_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        sys.exit("no browser: set NEGWISE_BROWSER to one")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        picture_of_terminal(browser, words, folder / "terminal.png")
        picture_of_page(browser, job / "report.html", folder / "report.png", width=1100, height=1000)
        picture_of_page(browser, job / "report.html", folder / "report-phone.png", width=390, height=844, dark=True)
        browser.close()


def picture_of_terminal(browser: Browser, words: list[str], out: Path) -> None:
    """Run the command on a terminal of its own and draw what it shows."""
    console = Console(record=True, width=COLUMNS, file=Path(os.devnull).open("w"))  # noqa: SIM115
    console.print(Text(f"$ negwise {' '.join(words)}", style="bold"))
    console.print(Text.from_ansi(on_a_terminal([sys.executable, "-m", "negwise", *words])))
    # rich's own frame asks the network for a font; a terminal has one.
    svg = console.export_svg(title="negwise run")
    start, end = svg.find("@font-face"), svg.rfind("font-weight: 700;")
    svg = svg[:start] + svg[svg.find("}", end) + 1 :] if start >= 0 else svg
    page = browser.new_page(viewport={"width": 1100, "height": 700}, device_scale_factor=1.5)
    page.set_content(PLAIN.format(svg=svg.replace("Fira Code", "DejaVu Sans Mono")))
    page.locator("svg").screenshot(path=str(out))
    page.close()


def on_a_terminal(words: list[str]) -> str:
    """Everything that a command shows where both its outputs are a terminal."""
    parent, child = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "LINES": "60", "TERM": "xterm-256color"}
    process = subprocess.Popen(words, stdin=child, stdout=child, stderr=child, env=environment)
    os.close(child)
    parts = []
    while True:
        try:
            part = os.read(parent, 65536)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        parts.append(part)
    if process.wait() != 0:
        sys.exit(b"".join(parts).decode())
    return b"".join(parts).decode().replace("\r\n", "\n")


def picture_of_page(browser: Browser, page_file: Path, out: Path, width: int, height: int, dark: bool = False) -> None:
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light")
    page.goto(page_file.resolve().as_uri())
    page.wait_for_selector("svg.marks, canvas.marks")
    page.screenshot(path=str(out))
    page.close()


if __name__ == "__main__":
    main()
