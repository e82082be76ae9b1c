"""The pages of the evidence, kept true: tables, figures and every number of the prose follow from the records.

A table stands between ``<!-- table NAME -->`` and ``<!-- end -->``, a number of the prose between
``<!-- fact NAME -->`` and ``<!-- end -->``; `refresh` writes what belongs there. Any other number with a decimal point
or a per cent sign has to be in a table of its page (`loose_numbers`), or between ``<!-- cited -->`` or
``<!-- rule -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evidence import figures, tables, variants
from evidence.analysis import Analysis, load_analysis
from evidence.claims import formula
from evidence.facts import facts
from evidence.fresh import fresh
from evidence.gain import AUC_RECORDS, errors
from evidence.record import PACE, read
from evidence.rules import depths, rules
from evidence.second_runs import Run, read_all
from evidence.second_tables import sentences, tables_of
from evidence.tasks import NOWHERE, TASKS
from evidence.truth import Truth, truths
from evidence.turning import points, turning
from evidence.worlds import assumptions, worlds, worlds_figure
from negwise.errors import InputError
from negwise.files import write_atomically
from negwise.report import Figure

_MARKED = re.compile(r"(<!-- (table|fact) ([\w-]+) -->\n?)(?:(?!<!-- end -->).)*(<!-- end -->)", re.DOTALL)
_TABLE = re.compile(r"<!-- table [\w-]+ -->(?:(?!<!-- end -->).)*<!-- end -->", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])[+-]?\d*\.\d+(?![\w.])|(?<![\w.])\d+%")
_BY_HAND = re.compile(r"<!-- (?:cited|rule|fact [\w-]+) -->.*?<!-- end -->|```.*?```|`[^`\n]*`|\]\([^)]*\)", re.DOTALL)
"""Facts; what others have printed, or a rule of the protocol; code, and addresses of links."""
ORDER = ("items", "matching", NOWHERE, "news")
"""Data sets as the pages have them."""
TITLES = {
    "items": "Items: BERT4Rec, ML-1M",
    "matching": "Matching: Reuters",
    NOWHERE: "Docs: docstrings",
    "news": "News: NRMS, MIND",
}
PACED = {"items": "items-turning", "matching": "matching-turning", NOWHERE: NOWHERE, "news": "news-ten"}
"""The record of each data set whose steps were timed."""
SECOND = "second"
"""The folder of the second study, beside that of the records."""


@dataclass(frozen=True)
class Evidence:
    """What the records say: the tasks, their variants by the name of their records, worlds, and the second study."""

    tasks: dict[str, Analysis]
    variants: dict[str, Analysis] = field(default_factory=dict)
    worlds: list[Truth] = field(default_factory=list)
    second: list[Run] = field(default_factory=list)

    @property
    def every(self) -> dict[str, Analysis]:
        return self.tasks | self.variants

    @property
    def swept(self) -> dict[str, Analysis]:
        """The tasks, and those on other data: each a whole sweep of K."""
        return self.tasks | {name: one for name, one in self.variants.items() if name == one.of}

    @property
    def largest(self) -> dict[str, Analysis]:
        """Each data set by the record with the most seeds."""
        found = variants.largest(self.every)
        return {name: found[name] for name in ORDER if name in found}

    @property
    def longer(self) -> dict[str, Analysis]:
        return {f"{one.of}, longer": one for one in variants.longer(self.every)}

    @property
    def timed(self) -> dict[str, Analysis]:
        return {name: one for name, one in self.every.items() if "pace" in one.record}


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
    second = records.parent / SECOND
    return Evidence(
        tasks,
        others,
        truths(read(records, "clicks")) if "clicks" in names else [],
        read_all([second]) if second.exists() else [],
    )


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


def drawn(found: Evidence) -> list[tuple[Figure, str]]:
    """Every figure of the pages, with its picture."""
    made = []
    for name, one in found.largest.items():
        timed = found.timed.get(PACED[name])
        figure = figures.shares(one, TITLES[name], {} if timed is None else timed.record["pace"]["ms"])
        made.append((figure, figures.small_svg(figure)))
    if found.worlds:
        figure = worlds_figure(found.worlds)
        made.append((figure, figure.svg()))
    return made


def tabled(found: Evidence) -> dict[str, str]:
    """Every table of the pages that there are records for, by name."""
    every, most, longer = found.every, found.largest, found.longer
    catalogues = {name: one for name, one in (most | longer).items() if one.of != "news"}
    own = {name: one for name, one in every.items() if name == one.of or one.variant == "model"}
    turned = [one for one in every.values() if points(one)]
    lengths = [one for name, one in (most | longer).items()] + variants.published(every)
    wanted: dict[str, tuple[Callable[[Any], str], Any]] = {
        "headline": (tables.headline, most | longer),
        "primary": (tables.primary, found.tasks),
        "fresh-seeds": (tables.fresh_seeds, variants.repeated(every)),
        "worth": (tables.worth, every),
        "estimates": (tables.estimates, every),
        "schedules": (tables.schedules, most | longer),
        "models": (variants.models, variants.other_models(every)),
        "paper": (variants.paper, variants.published(every)),
        "turning": (turning, turned),
        "lambdas": (tables.lambdas, found.swept),
        "fits": (tables.fits, found.swept),
        "tuning": (tables.tuning, own | longer),
        "paces": (tables.paces, found.timed),
        "provenance": (tables.provenance, every),
        "rules": (rules, most),
        "depths": (depths, catalogues),
        "lengths": (variants.lengths, lengths),
        "worlds": (worlds, found.worlds),
        "assumptions": (assumptions, found.worlds),
        **{f"sweep-{one.of}": (tables.sweep, one) for one in most.values()},
        **{f"sweep-{one.of}-longer": (tables.sweep, one) for one in longer.values()},
    }
    made = {name: make(of) for name, (make, of) in wanted.items() if of}
    if set(AUC_RECORDS) <= set(every):
        made["errors"] = errors(next(iter(every.values())).folder)
    return made | {"formula": formula(), "fresh": fresh()} | tables_of(found.second)


def stated(found: Evidence) -> dict[str, str]:
    """The numbers of the prose."""
    return facts(found.tasks, found.largest, found.every) | sentences(found.second)


def filled(text: str, tables: dict[str, str], facts: dict[str, str]) -> str:
    """The page with every table and every number as the records have it."""

    def put(match: re.Match[str]) -> str:
        start, kind, name, end = match.groups()
        known = tables if kind == "table" else facts
        if name not in known:
            raise InputError(
                f"the page asks for a {kind} {name!r}; the records have {', '.join(known) or 'none'}. "
                "Copy the records that it needs to the others."
            )
        return f"{start}{known[name]}\n{end}" if kind == "table" else f"{start}{known[name]}{end}"

    return _MARKED.sub(put, text)


def pages_of(docs: Path) -> list[Path]:
    """The page and its appendices, in a folder; not the plan, which was written first."""
    found = [
        docs / "evidence.md",
        *(path for path in sorted(docs.glob("evidence-*.md")) if path.stem != "evidence-plan"),
    ]
    if not found[0].is_file():
        raise InputError(f"{docs}: no evidence.md. Expected a folder of Markdown files with <!-- table headline -->.")
    return found


def refresh(records: Path, docs: Path) -> list[Path]:
    """Write the tables and numbers into the pages, and the figures in a folder beside them, as SVG with their CSV."""
    pages = pages_of(docs)
    found = loaded(records)
    made, numbers = tabled(found), stated(found)
    paths = [write_atomically(page, filled(page.read_text(), made, numbers)) for page in pages]
    for figure, svg in drawn(found):
        paths.append(write_atomically(docs / "evidence" / f"{figure.name}.svg", svg))
        paths.append(write_atomically(docs / "evidence" / f"{figure.name}.csv", figure.csv()))
    return paths


def loose_numbers(text: str) -> list[str]:
    """Numbers with a decimal point or a per cent sign that no table of the page has, to the digits given."""
    known = [_value(number) for match in _TABLE.finditer(text) for number in _NUMBER.findall(match[0])]
    prose = _BY_HAND.sub("", _TABLE.sub("", text))
    loose = []
    for number in _NUMBER.findall(prose):
        digits = 2 if number.endswith("%") else len(number.split(".")[1])
        if not any(round(abs(value), digits) == abs(_value(number)) for value in known):
            loose.append(number)
    return loose


def _value(number: str) -> float:
    return float(number[:-1]) / 100 if number.endswith("%") else float(number)


def words_of(text: str) -> int:
    """Words of a page as it is read, tables among them."""
    shown = re.sub(r"<!--.*?-->|!\[[^\]]*\]\([^)]*\)|\]\([^)]*\)", " ", text, flags=re.DOTALL)
    return sum(any(letter.isalnum() for letter in word) for word in re.split(r"[\s|]+", shown))
