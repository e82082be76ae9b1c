"""Reads MIND as published: news.tsv and behaviors.tsv, in one folder or in train/, dev/ and test/.

Tables: ``news`` (each news item once, with the first part that has it), ``words`` of their texts, ``users`` and
``impressions``. ``labels`` is null for impressions without labels, as in test/.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from negwise.datasets.formats import SPLIT_FOLDERS, DetectedFormat
from negwise.datasets.table_cache import IdMap, TableWriter
from negwise.datasets.text_input import BadRows, read_lines
from negwise.datasets.timestamps import parse_mind_timestamp
from negwise.errors import quote
from negwise.words import split_words

NEWS = {"id": "string", "category": "string", "subcategory": "string", "title": "string", "abstract": "string"}
NEWS |= {"title_words": "ints", "abstract_words": "ints", "part": "int8"}
IMPRESSIONS = {"user": "int32", "time": "int64", "part": "int8", "history": "ints", "shown": "ints", "labels": "ints"}


def read_mind(detected: DetectedFormat, folder: Path, bad_rows: BadRows) -> int:
    """Write the tables. Returns the number of impressions."""
    parts = [SPLIT_FOLDERS.index(part) if part else 0 for part in detected.parts]
    news, vocabulary, users = IdMap(), IdMap(), IdMap()
    with TableWriter(folder, "news", NEWS) as table:
        for file, part in zip(detected.files[0::2], parts, strict=True):
            _news(file, part, table, news, vocabulary, bad_rows)
    vocabulary.write(folder, "words")
    with TableWriter(folder, "impressions", IMPRESSIONS) as table:
        for file, part in zip(detected.files[1::2], parts, strict=True):
            _behaviors(file, part, table, news.ids, users, bad_rows)
    users.write(folder, "users")
    return table.rows


def _news(file: Path, part: int, table: TableWriter, news: IdMap, vocabulary: IdMap, bad_rows: BadRows) -> None:
    own: set[str] = set()
    for number, text in read_lines(file, bad_rows):
        cells = text.split("\t")
        if len(cells) != 8:
            bad_rows.add_row(file, f"line {number}", f"{len(cells)} cells, expected the 8 of news.tsv")
            continue
        name, category, subcategory, title, abstract = (cell.strip() for cell in cells[:5])
        if not name or not title:
            bad_rows.add_row(file, f"line {number}", f"news {quote(name)} has no {'title' if name else 'id'}")
            continue
        if name in own:
            bad_rows.add_row(file, f"line {number}", f"news {quote(name)} is in the file twice")
            continue
        own.add(name)
        if name in news.ids:
            continue  # other parts may have it too
        news(name)
        numbered = ([vocabulary(word) for word in split_words(field)] for field in (title, abstract))
        table.add(name, category, subcategory, title, abstract, *numbered, part)


def _behaviors(
    file: Path, part: int, table: TableWriter, news: dict[str, int], users: IdMap, bad_rows: BadRows
) -> None:
    for number, text in read_lines(file, bad_rows):
        cells = text.split("\t")
        if len(cells) != 5:
            bad_rows.add_row(file, f"line {number}", f"{len(cells)} cells, expected the 5 of behaviors.tsv")
            continue
        _, user, clock, history, shown_cell = cells
        time, listed = parse_mind_timestamp(clock), shown_cell.split()
        labelled = bool(listed) and listed[0].endswith(("-0", "-1"))
        clicks = _labels(listed) if labelled else None
        names = [entry[:-2] for entry in listed] if labelled else listed
        past = history.split()
        wrong = (
            f"time {quote(clock)}, expected the form 11/12/2019 2:14:46 PM" if time is None
            else "no user" if not user.strip()
            else "nothing was shown" if not listed
            else "shown news must all end in -0 or -1, or none of them" if labelled != (clicks is not None)
            else _unknown(news, past, names)
        )  # fmt: skip
        if wrong is not None:
            bad_rows.add_row(file, f"line {number}", wrong)
            continue
        table.add(users(user.strip()), time, part, [news[n] for n in past], [news[n] for n in names], clicks)


def _labels(listed: Sequence[str]) -> list[int] | None:
    ends = [entry[-2:] for entry in listed]
    return [int(end == "-1") for end in ends] if set(ends) <= {"-0", "-1"} else None


def _unknown(news: dict[str, int], *names: Sequence[str]) -> str | None:
    strange = [name for listed in names for name in listed if name not in news]
    return f"news {quote(strange[0])} is not in news.tsv" if strange else None
