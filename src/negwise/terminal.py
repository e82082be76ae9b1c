"""Results on a terminal, in colour and columns."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from negwise.theory.estimate import Estimate

_COLOURS = {"ok": "green", "capped": "yellow", "vacuous": "yellow", "inconsistent": "red"}


def show_estimate(found: Estimate, console: Console | None = None) -> None:
    """The headline, the numbers as a table, the reasons below."""
    console = console or Console()
    console.print(Text(found.headline(), style=f"bold {_COLOURS[found.verdict]}"))
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, value in found.facts():
        table.add_row(name, Text(value, style=_COLOURS[found.verdict] if name == "verdict" else ""))
    console.print(table)
    for reason in found.reasons:
        console.print(Text(f"- {reason}"))
