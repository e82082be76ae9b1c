"""A figure of the page: its title, a sentence on what to see, its panels and the one table of numbers behind them.

A panel is a Vega-Lite view without width, data and colours: those are set by where it is shown. On the page each
panel is as wide as its place; in PNG and SVG files they stand side by side at a fixed width. The table travels as the
very CSV text that the link on the page hands out.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

from negwise.report.figure import Figure, Rows, as_csv
from negwise.report.style import config

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
DIGITS = 6
_FILE_WIDTHS = {1: 640, 2: 400, 3: 300}

Spec = dict[str, Any]


@dataclass(frozen=True)
class Exhibit:
    """``columns`` panels stand in a row where there is room."""

    name: str
    title: str
    caption: str
    panels: tuple[Spec, ...]
    rows: Rows
    columns: int = 1

    def figure(self, subtitle: str | None = None) -> Figure:
        """The figure for files, with its title and caption in the picture."""
        width = _FILE_WIDTHS[self.columns]
        across = self.columns * width + (self.columns - 1) * 60
        note = textwrap.wrap(self.caption if subtitle is None else subtitle, across // 6)
        return Figure(
            self.name,
            {
                "$schema": SCHEMA,
                "title": {"text": self.title, "subtitle": note},
                "datasets": {"rows": as_csv(self.rows)},
                "data": self.data,
                "concat": [{**panel, "width": width} for panel in self.panels],
                "columns": self.columns,
                "spacing": 36,
                "config": config(),
            },
            self.rows,
        )

    @property
    def data(self) -> Spec:
        """How the panels read the table. Types are said, so that an arm called "20" stays a name."""
        columns = dict.fromkeys(column for row in self.rows for column in row)
        texts = {column for row in self.rows for column, value in row.items() if isinstance(value, str)}
        parse = {column: "string" if column in texts else "number" for column in columns}
        return {"name": "rows", "format": {"type": "csv", "parse": parse}}

    def for_page(self) -> Spec:
        """What the page's script draws from."""
        panels = [{"$schema": SCHEMA, "description": self.caption, "data": self.data, **panel} for panel in self.panels]
        return {"name": self.name, "csv": as_csv(self.rows), "panels": panels}


def short(value: float | None) -> float | None:
    """To six significant digits: more cannot be seen and would double the size of the page."""
    return None if value is None else float(f"{value:.{DIGITS}g}")
