"""A figure: a title, a caption, panels, and one table with the numbers of all panels; for the page and for files.

A panel is a Vega-Lite view without width, data and colours, which depend on where it is shown. On the page each panel
fills its column; in PNG and SVG files the panels have a fixed width. The table is CSV text, the same that the page
offers for download.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from negwise.errors import InputError, require
from negwise.files import write_atomically
from negwise.report.style import config

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
DIGITS = 6
KEPT = 16
"""Pictures that are kept in memory: a job draws those of its page before it says what it cost, and then writes them."""
_FILE_WIDTHS = {1: 640, 2: 400, 3: 300}

Value = float | int | str | None
Row = dict[str, Value]
Rows = Sequence[Mapping[str, Value]]
Spec = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """``columns`` panels share a row if there is room. ``resolve`` is the property of Vega-Lite, for files."""

    name: str
    title: str
    caption: str
    panels: tuple[Spec, ...]
    rows: Rows
    columns: int = 1
    resolve: Spec = field(default_factory=dict)

    @property
    def data(self) -> Spec:
        """The ``data`` of each panel. It names the types, so that an arm called "20" stays a name."""
        columns = dict.fromkeys(column for row in self.rows for column in row)
        texts = {column for row in self.rows for column, value in row.items() if isinstance(value, str)}
        parse = {column: "string" if column in texts else "number" for column in columns}
        return {"name": "rows", "format": {"type": "csv", "parse": parse}}

    def for_page(self) -> Spec:
        """The table and the panels for the script of the page."""
        panels = [{"$schema": SCHEMA, "description": self.caption, "data": self.data, **panel} for panel in self.panels]
        return {"name": self.name, "csv": self.csv(), "panels": panels}

    def for_file(self) -> Spec:
        """The whole Vega-Lite specification of the picture, with title and caption."""
        width = _FILE_WIDTHS[self.columns]
        across = self.columns * width + (self.columns - 1) * 60
        return {
            "$schema": SCHEMA,
            "title": {"text": self.title, "subtitle": textwrap.wrap(self.caption, across // 6)},
            "datasets": {"rows": self.csv()},
            "data": self.data,
            "concat": [{**panel, "width": width} for panel in self.panels],
            "columns": self.columns,
            "spacing": 36,
            "resolve": self.resolve,
            "config": config(),
        }

    def svg(self) -> str:
        return _drawn(json.dumps(self.for_file()))

    def png(self) -> bytes:
        return _svg_to_png(self.svg())

    def csv(self) -> str:
        """The table. A row without a column has an empty cell there."""
        text = io.StringIO()
        columns = list(dict.fromkeys(column for row in self.rows for column in row))
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()

    def save_all(self, folder: Path) -> list[Path]:
        """Write PNG, SVG and the CSV of the numbers to ``folder``."""
        svg = self.svg()
        return [
            write_atomically(folder / f"{self.name}.png", _svg_to_png(svg)),
            write_atomically(folder / f"{self.name}.svg", svg),
            write_atomically(folder / f"{self.name}.csv", self.csv()),
        ]

    def save_as(self, path: Path) -> Path:
        """Write one file. Its ending says which: .png, .svg, .csv (the numbers) or .json (the specification)."""
        match path.suffix.lower():
            case ".png":
                return write_atomically(path, self.png())
            case ".svg":
                return write_atomically(path, self.svg())
            case ".csv":
                return write_atomically(path, self.csv())
            case ".json":
                return write_atomically(path, json.dumps(self.for_file(), indent=1))
            case other:
                raise InputError(
                    f"plot: got {path.name!r} (ending {other!r}), expected a name that ends in .png, .svg, .csv or "
                    ".json."
                )


def round_digits(value: float | None) -> float | None:
    """``value`` to six significant digits: more cannot be seen and would double the size of the page."""
    return None if value is None else float(f"{value:.{DIGITS}g}")


@functools.lru_cache(KEPT)
def _drawn(spec: str) -> str:
    return require("vl_convert", extra="plot").vegalite_to_svg(spec)


@functools.lru_cache(KEPT)
def _svg_to_png(svg: str) -> bytes:
    return require("vl_convert", extra="plot").svg_to_png(svg, scale=2.0)
