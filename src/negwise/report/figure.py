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


@dataclass(frozen=True)
class Figure:
    """``spec`` is the whole declaration (Vega-Lite); ``rows`` are the numbers that it shows."""

    name: str
    spec: dict[str, Any]
    rows: Rows

    def png(self, scale: float = 2.0) -> bytes:
        return rasterised(self.svg(), scale)

    def svg(self) -> str:
        return require("vl_convert", extra="plot").vegalite_to_svg(json.dumps(self.spec))

    def csv(self) -> str:
        return as_csv(self.rows)


def rasterised(svg: str, scale: float = 2.0) -> bytes:
    """A drawn figure as PNG."""
    return require("vl_convert", extra="plot").svg_to_png(svg, scale=scale)


def as_csv(rows: Rows) -> str:
    """One table; a row that lacks a column has an empty cell there."""
    text = io.StringIO()
    columns = list(dict.fromkeys(column for row in rows for column in row))
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def save_all(made: Figure, folder: Path) -> list[Path]:
    """PNG, SVG and the CSV of the numbers, in ``folder``."""
    svg = made.svg()  # drawing takes most of the time, so it is done once
    return [
        write_atomically(folder / f"{made.name}.png", rasterised(svg)),
        write_atomically(folder / f"{made.name}.svg", svg),
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
