"""The page of the evidence, kept true: its tables, its figures and every number of its prose follow from the records.

A table stands between ``<!-- table NAME -->`` and ``<!-- end -->``; `refresh` writes what belongs there. Prose is
written by hand, and may use a number with a decimal point only if a table of the page has it (`loose_numbers`), or
between ``<!-- paper -->`` or ``<!-- rule -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import re
from pathlib import Path

from negwise.errors import InputError
from negwise.experiments.evidence import figures
from negwise.experiments.evidence.analysis import Analysis, load_analysis
from negwise.experiments.evidence.claims import claims
from negwise.experiments.evidence.record import read
from negwise.experiments.evidence.tables import all_tables
from negwise.experiments.evidence.tasks import TASKS
from negwise.experiments.evidence.truth import Truth, truths
from negwise.files import write_atomically
from negwise.report.figure import Figure

_TABLE = re.compile(r"(<!-- table ([\w-]+) -->\n)(?:(?!<!-- end -->).)*(<!-- end -->)", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])\d*\.\d+(?![\w.])")
_BY_HAND = re.compile(r"<!-- (?:paper|rule) -->.*?<!-- end -->", re.DOTALL)
"""Printed by the paper, or a rule of the protocol: numbers that no record has."""


def loaded(records: Path) -> tuple[dict[str, Analysis], list[Truth]]:
    """Every task that has a record, and the worlds."""
    found = {name: load_analysis(records, name) for name in TASKS if (records / f"{name}.json").exists()}
    if not found:
        raise InputError(f"{records}: no records there. Make one with: negwise reproduce items --data ...")
    return found, truths(read(records, "clicks")) if (records / "clicks.json").exists() else []


def drawn(found: dict[str, Analysis], worlds: list[Truth]) -> list[Figure]:
    """Every figure of the page."""
    every = list(found.values())
    made = [figure for one in every for figure in (figures.three_panels(one), figures.schedules(one))]
    made += [figures.scores(every), figures.recommended(every)]
    return [*made, figures.worlds(worlds)] if worlds else made


def tabled(found: dict[str, Analysis], worlds: list[Truth]) -> dict[str, str]:
    """Every table of the page, by name."""
    made = all_tables(found, worlds)
    return made | {"claims": claims(found)} if len(found) == len(TASKS) else made


def filled(text: str, tables: dict[str, str]) -> str:
    """The page with every table as the records have it."""

    def put(match: re.Match[str]) -> str:
        if match[2] not in tables:
            raise InputError(f"the page asks for a table {match[2]!r}; there are {', '.join(tables)}.")
        return f"{match[1]}{tables[match[2]]}\n{match[3]}"

    return _TABLE.sub(put, text)


def refresh(records: Path, page: Path, pictures: Path) -> list[Path]:
    """Write the tables into the page, and the figures beside it as SVG with the CSV of their numbers."""
    found, worlds = loaded(records)
    paths = [write_atomically(page, filled(page.read_text(), tabled(found, worlds)))]
    for figure in drawn(found, worlds):
        paths.append(write_atomically(pictures / f"{figure.name}.svg", figure.svg()))
        paths.append(write_atomically(pictures / f"{figure.name}.csv", figure.csv()))
    return paths


def loose_numbers(text: str) -> list[str]:
    """Numbers with a decimal point in the prose that no table of the page has, to the digits given there."""
    tables = "\n".join(match[0] for match in _TABLE.finditer(text))
    known = [float(number) for number in _NUMBER.findall(tables)]
    prose = _BY_HAND.sub("", _TABLE.sub("", text))
    loose = []
    for number in _NUMBER.findall(prose):
        digits = len(number.split(".")[1])
        if not any(round(abs(value), digits) == float(number) for value in known):
            loose.append(number)
    return loose
