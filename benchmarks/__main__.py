"""``python -m benchmarks [NAME ...] [--json FILE]``: run the measurements and print one table, bars beside them."""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.table import Row
from negwise.files import write_atomically

NAMES = ("theory", "startup", "losses", "samplers", "metrics", "training", "reading", "serving", "coverage", "path")
RECORDED = ("online", "recipes", "equal_time", "frameworks")
"""What takes hours to measure: these print the committed record, and say in their own files how to measure anew."""
PACKAGES = ("negwise", "numpy", "scipy", "torch", "numba", "pyarrow")


def main() -> int:
    """Exit 0 where every bar holds, 1 where one is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        help=f"which to run, of: {', '.join(NAMES)} (default: all); {', '.join(RECORDED)}: the record",
    )
    parser.add_argument("--json", type=Path, help="also write the rows here")
    parser.add_argument("--markdown", type=Path, help="run nothing; print the rows of this file as a Markdown table")
    asked = parser.parse_args()
    if asked.markdown is not None:
        print(markdown(json.loads(asked.markdown.read_text())))
        return 0
    unknown = sorted(set(asked.names) - {*NAMES, *RECORDED})
    if unknown:
        parser.error(f"got {', '.join(unknown)}, expected names among {', '.join((*NAMES, *RECORDED))}")
    tables: dict[str, list[Row]] = {}
    for name in asked.names or NAMES:
        print(f"running {name} ...", file=sys.stderr)
        tables[name] = importlib.import_module(f"benchmarks.{name}").run()
    show([row for rows in tables.values() for row in rows])
    if asked.json is not None:
        record = {
            "command": f"python -m benchmarks {' '.join(tables)}",
            "python": platform.python_version(),
            "machine": platform.machine(),
            "versions": {package: version(package) for package in PACKAGES},
            "rows": {name: [row.to_dict() for row in rows] for name, rows in tables.items()},
        }
        write_atomically(asked.json, json.dumps(record, indent=1) + "\n")
    return 0 if all(row.passed is not False for rows in tables.values() for row in rows) else 1


def markdown(record: dict[str, Any]) -> str:
    """A record's rows as a table, for the docs."""
    lines = ["| work | measure | value | bar |", "|---|---|---|---|"]
    for row in (
        Row(**{k: v for k, v in row.items() if k != "passed"}) for rows in record["rows"].values() for row in rows
    ):
        sign = {"higher": "≥", "lower": "≤"}[row.better]
        bar = "" if row.bar is None else f"{sign} {_number(row.bar)} {row.unit}{'' if row.passed else ' (missed)'}"
        lines.append(f"| {row.work} | {row.measure} | {_number(row.value)} {row.unit} | {bar} |")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:,.4g}"


def show(rows: list[Row]) -> None:
    """The rows as one table."""
    from rich.console import Console
    from rich.table import Table

    table = Table("work", "measure", "value", "bar", "", title="negwise benchmarks")
    for row in rows:
        sign = {"higher": ">=", "lower": "<="}[row.better]
        bar = "" if row.bar is None else f"{sign} {row.bar:,.4g} {row.unit}"
        verdict = {True: "[green]holds[/]", False: "[red]missed[/]", None: ""}[row.passed]
        table.add_row(row.work, row.measure, f"{row.value:,.4g} {row.unit}", bar, verdict)
    Console(width=160 if not sys.stdout.isatty() else None).print(table)


if __name__ == "__main__":
    raise SystemExit(main())
