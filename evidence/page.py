"""The page of the evidence, kept true: its tables, its figures and every number of its prose follow from the records.

A table stands between ``<!-- table NAME -->`` and ``<!-- end -->``; `refresh` writes what belongs there. Prose is
written by hand, and may use a number with a decimal point only if a table of the page has it (`loose_numbers`), or
between ``<!-- paper -->`` or ``<!-- rule -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evidence import figures, variants
from evidence.analysis import Analysis, load_analysis
from evidence.claims import claims
from evidence.record import PACE, read
from evidence.seconds import per_second, seconds
from evidence.tables import all_tables, endpoints, estimates, schedules, tuning
from evidence.tasks import TASKS
from evidence.truth import Truth, truths
from evidence.turning import points, turning, turning_figure
from evidence.worlds import assumptions, worlds, worlds_figure
from negwise.errors import InputError
from negwise.files import write_atomically
from negwise.report import Figure

_TABLE = re.compile(r"(<!-- table ([\w-]+) -->\n)(?:(?!<!-- end -->).)*(<!-- end -->)", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])\d*\.\d+(?![\w.])")
_BY_HAND = re.compile(r"<!-- (?:paper|rule) -->.*?<!-- end -->", re.DOTALL)
"""Printed by the paper, or a rule of the protocol: numbers that no record has."""
MADE_BY = {
    **{f"sweep-{name}": f"negwise reproduce {name}" for name in TASKS},
    "claims": "python -m evidence news, matching and items",
    "worlds": "python -m evidence clicks",
    "assumptions": "python -m evidence clicks",
    "estimates-others": "python -m evidence matching --data docs",
    "endpoints-others": "python -m evidence matching --data docs",
    "schedules-others": "python -m evidence matching --data docs",
    "tuning-others": "python -m evidence news --model naml --k 100 --seeds 3",
    "hundred": "python -m evidence items",
    "contrasts": "python -m evidence news --seeds 10 --name news-ten, or python -m evidence matching --data docs",
    "sweep-docs": "python -m evidence matching --data docs",
    "repeats": "python -m evidence news --seeds 10 --name news-ten",
    "models": "python -m evidence news --model naml --k 100 --seeds 3",
    "turning": "python -m evidence items --turning 0.01,0.05,0.1,0.2,0.3,0.5",
    "paper": "python -m evidence items --paper",
    "long": "python -m evidence items --steps 3600 --k 20,100,1000 --name items-long",
    "seconds": "python -m evidence seconds --out FOLDER-OF-A-TASK",
}
"""Tables that not every set of records has, and what makes theirs."""


@dataclass(frozen=True)
class Evidence:
    """What the records say: the tasks, their variants by the name of their records, and the worlds."""

    tasks: dict[str, Analysis]
    variants: dict[str, Analysis] = field(default_factory=dict)
    worlds: list[Truth] = field(default_factory=list)

    @property
    def every(self) -> dict[str, Analysis]:
        return self.tasks | self.variants

    @property
    def swept(self) -> dict[str, Analysis]:
        """The tasks, and those on other data: each a whole sweep of K."""
        return self.tasks | {name: one for name, one in self.variants.items() if name == one.of}

    @property
    def turned(self) -> list[Analysis]:
        return [one for one in self.every.values() if points(one)]

    @property
    def timed(self) -> list[Analysis]:
        return [one for one in self.every.values() if "pace" in one.record]


def loaded(records: Path) -> Evidence:
    """Every record that is there."""
    names = sorted(path.stem for path in records.glob("*.json") if path.name != PACE)
    tasks = {name: _complete(load_analysis(records, name)) for name in TASKS if name in names}
    if not tasks:
        raise InputError(
            f"{records}: expected the record of {', '.join(TASKS)}, found {', '.join(names) or 'none'}. "
            "Make one with: python -m evidence items --data ..."
        )
    others = {name: _complete(load_analysis(records, name)) for name in names if name not in (*TASKS, "clicks")}
    return Evidence(tasks, others, truths(read(records, "clicks")) if "clicks" in names else [])


def _complete(one: Analysis) -> Analysis:
    """The record, if it has what its tables need: K = 1, K* and the best K, with two seeds or more.

    With the paper's settings K = 1 and another K will do.
    """
    path = one.folder / f"{one.name}.json"
    if len(one.record["seeds"]) < 2:
        raise InputError(f"{path}: it has one seed, and an interval needs two. Run it again with --seeds 5.")
    needed = {1} if one.variant == "paper" and len(one.fixed) > 1 else {1, one.k_star, one.k_best}
    lacks = sorted(needed - set(one.fixed))
    if lacks:
        raise InputError(
            f"{path}: not every seed of K = {', '.join(map(str, lacks))} is done. Type the command that made it again, "
            "and copy the record anew."
        )
    if not path.with_suffix(".safetensors").exists():
        raise InputError(f"{path}: {one.name}.safetensors is missing beside it. Copy both files.")
    return one


def drawn(found: Evidence) -> list[Figure]:
    """Every figure of the page."""
    every = list(found.swept.values())
    swept = [*every, *(more for _, more in variants.longer(found.every))]
    made = [figure for one in swept for figure in (figures.three_panels(one), figures.schedules(one))]
    made += [figures.scores(every), figures.recommended(every)]
    made += [turning_figure(found.turned)] if found.turned else []
    made += [per_second(one) for one in found.timed]
    return [*made, worlds_figure(found.worlds)] if found.worlds else made


def tabled(found: Evidence) -> dict[str, str]:
    """Every table of the page that there are records for, by name."""
    every = found.every
    made = all_tables(found.tasks, found.swept, every)
    if len(found.tasks) == len(TASKS):
        made["claims"] = claims(found.tasks, found.turned)
    optional: dict[str, tuple[Callable[[Any], str], Any]] = {
        "estimates-others": (estimates, found.variants),
        "endpoints-others": (endpoints, {name: one for name, one in found.variants.items() if one.k_star in one.fixed}),
        "schedules-others": (schedules, found.variants),
        "tuning-others": (tuning, {name: one for name, one in found.variants.items() if one.variant == "model"}),
        "hundred": (variants.hundred, variants.with_hundred(every)),
        "contrasts": (lambda found: variants.contrasts(found, every), variants.again(every)),
        "repeats": (variants.repeats, variants.repeated(every)),
        "models": (variants.models, variants.other_models(every)),
        "turning": (turning, found.turned),
        "paper": (variants.paper, variants.published(every)),
        "long": (variants.long, variants.longer(every)),
        "seconds": (seconds, found.timed),
        "worlds": (worlds, found.worlds),
        "assumptions": (assumptions, found.worlds),
    }
    return made | {name: make(of) for name, (make, of) in optional.items() if of}


def filled(text: str, tables: dict[str, str]) -> str:
    """The page with every table as the records have it."""

    def put(match: re.Match[str]) -> str:
        if match[2] in MADE_BY and match[2] not in tables:
            raise InputError(
                f"the page asks for a table {match[2]!r}, and the records have nothing for it. "
                f"Make it with: {MADE_BY[match[2]]}; and copy the record to the others."
            )
        if match[2] not in tables:
            raise InputError(f"the page asks for a table {match[2]!r}; there are {', '.join(tables)}.")
        return f"{match[1]}{tables[match[2]]}\n{match[3]}"

    return _TABLE.sub(put, text)


def refresh(records: Path, page: Path) -> list[Path]:
    """Write the tables into the page, and the figures in a folder beside it, as SVG with the CSV of their numbers."""
    if not page.is_file():
        raise InputError(f"{page}: no such page. Expected a Markdown file with places as <!-- table sweep-items -->.")
    found = loaded(records)
    paths = [write_atomically(page, filled(page.read_text(), tabled(found)))]
    pictures = page.with_suffix("")
    for figure in drawn(found):
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
