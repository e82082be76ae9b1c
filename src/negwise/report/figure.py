"""A figure: one declaration with its numbers, saved as PNG, SVG and CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from negwise.errors import InputError, require
from negwise.files import write_atomically

Value = float | int | str | None
Rows = Sequence[Mapping[str, Value]]

# Distinguishable in greyscale and with the common colour-vision deficiencies (Okabe and Ito).
BLUE, ORANGE, GREEN, PINK, SKY, RED, GREY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#6b7280",
)
PALETTE = [BLUE, ORANGE, GREEN, PINK, SKY, RED, GREY]

_STYLE: dict[str, Any] = {
    "background": "white",
    "font": "DejaVu Sans, Helvetica, Arial, sans-serif",
    "padding": 12,
    "view": {"stroke": None},
    "axis": {
        "grid": True,
        "gridColor": "#e5e7eb",
        "domainColor": "#9ca3af",
        "tickColor": "#9ca3af",
        "labelFontSize": 11,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
    },
    "legend": {
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "symbolStrokeWidth": 3,
        "labelLimit": 320,
    },
    "title": {
        "anchor": "start",
        "fontSize": 14,
        "subtitleFontSize": 12,
        "subtitleColor": "#4b5563",
        "subtitlePadding": 6,
        "offset": 12,
    },
    "header": {"labelFontSize": 12, "title": None},
    "range": {"category": PALETTE},
}


@dataclass(frozen=True)
class Figure:
    """``spec`` is the whole declaration (Vega-Lite); ``rows`` are the numbers that it shows."""

    name: str
    spec: dict[str, Any]
    rows: Rows

    def png(self, scale: float = 2.0) -> bytes:
        return require("vl_convert", extra="plot").vegalite_to_png(json.dumps(self.spec), scale=scale)

    def svg(self) -> str:
        return require("vl_convert", extra="plot").vegalite_to_svg(json.dumps(self.spec))

    def csv(self) -> str:
        text = io.StringIO()
        columns = list(dict.fromkeys(column for row in self.rows for column in row))
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()


def figure(name: str, chart: Any, rows: Rows) -> Figure:
    """A figure from an Altair chart, with the project's one style on it."""
    return Figure(name, chart.configure(**_STYLE).to_dict(), rows)


def inline(rows: Rows) -> Any:
    """Rows as Altair data, inside the declaration."""
    return require("altair", extra="plot").InlineData(values=[dict(row) for row in rows])


def save_all(made: Figure, folder: Path) -> list[Path]:
    """PNG, SVG and the CSV of the numbers, in ``folder``."""
    return [
        write_atomically(folder / f"{made.name}.png", made.png()),
        write_atomically(folder / f"{made.name}.svg", made.svg()),
        write_atomically(folder / f"{made.name}.csv", made.csv()),
    ]


def save_as(made: Figure, path: Path) -> Path:
    """One file, its kind by its ending: .png, .svg, .csv (the numbers) or .json (the declaration)."""
    match path.suffix.lower():
        case ".png":
            return write_atomically(path, made.png())
        case ".svg":
            return write_atomically(path, made.svg())
        case ".csv":
            return write_atomically(path, made.csv())
        case ".json":
            return write_atomically(path, json.dumps(made.spec, indent=1))
        case other:
            raise InputError(
                f"plot: got {path.name!r} (ending {other!r}), expected a name that ends in .png, .svg, .csv or .json."
            )
