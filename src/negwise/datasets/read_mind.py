"""Reads MIND as published: news.tsv and behaviors.tsv, in one folder or in train/, dev/ and test/.

Tables: ``news`` (each news item once, with the first part that has it), ``words`` of their texts, ``users`` and
``impressions``. ``labels`` is null for impressions without labels, as in test/. N rows of a block, T entries of lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from negwise.datasets import line_blocks
from negwise.datasets.bad_rows import BadRows
from negwise.datasets.delimited import Cut, cut_lines
from negwise.datasets.file_layouts import SPLIT_FOLDERS
from negwise.datasets.formats import DetectedFormat
from negwise.datasets.id_columns import WHITE_SPACE, IdMap, keep
from negwise.datasets.ragged import Ints, Ragged, offsets_of
from negwise.datasets.row_blocks import RowBlock, Wrong
from negwise.datasets.table_cache import TableWriter
from negwise.datasets.timestamps import mind_times
from negwise.datasets.word_lists import Words, split_at_spaces, words_of
from negwise.errors import quote, require
from negwise.stages import Progress

NEWS = {"id": "string", "category": "string", "subcategory": "string", "title": "string", "abstract": "string"}
NEWS |= {"title_words": "ints", "abstract_words": "ints", "part": "int8"}
IMPRESSIONS = {"user": "int32", "time": "int64", "part": "int8", "history": "ints", "shown": "ints", "labels": "ints"}
NEWS_CUT = Cut("\t", 8, "expected the 8 of news.tsv", blank=False)
BEHAVIORS_CUT = Cut("\t", 5, "expected the 5 of behaviors.tsv", blank=False)
_FIELDS = ("id", "category", "subcategory", "title", "abstract")


def read_mind(detected: DetectedFormat, folder: Path, bad_rows: BadRows, progress: Progress | None = None) -> int:
    """Write the tables. Returns the number of impressions."""
    parts = [SPLIT_FOLDERS.index(part) if part else 0 for part in detected.parts]
    news, vocabulary, users = IdMap(), IdMap(), IdMap()
    with TableWriter(folder, "news", NEWS) as news_table:
        for file, part in zip(detected.files[0::2], parts, strict=True):
            _read_news(file, part, news_table, news, vocabulary, bad_rows)
    vocabulary.write(folder, "words")
    known = _Known.of(news)
    sizes = [file.stat().st_size for file in detected.files[1::2]]
    with TableWriter(folder, "impressions", IMPRESSIONS) as table:
        for at, (file, part) in enumerate(zip(detected.files[1::2], parts, strict=True)):
            for block in _behaviors(file):
                _add_impressions(block, part, table, known, users, bad_rows)
                if progress is not None:
                    progress((sum(sizes[:at]) + block.share * sizes[at]) / max(sum(sizes), 1))
    users.write(folder, "users")
    return table.rows


def _read_news(file: Path, part: int, table: TableWriter, news: IdMap, vocabulary: IdMap, bad_rows: BadRows) -> None:
    arrow, compute = require("pyarrow", extra="train"), require("pyarrow.compute", extra="train")
    own: set[str] = set()
    for block in cut_lines(file, NEWS_CUT, {name: at for at, name in enumerate(_FIELDS)}):
        cells = {name: compute.utf8_trim(column, characters=WHITE_SPACE) for name, column in block.columns.items()}
        wrong, rows = Wrong(), []
        titled = compute.greater(compute.binary_length(cells["title"]), 0).to_pylist()
        for row, (name, has_title) in enumerate(zip(cells["id"].to_pylist(), titled, strict=True)):
            if not name or not has_title:
                wrong[row] = f"news {quote(name)} has no {'title' if name else 'id'}"
            elif name in own:
                wrong[row] = f"news {quote(name)} is in the file twice"
            else:
                own.add(name)
                if name not in news.ids:  # other parts may have it too
                    news.ids[name] = len(news.ids)
                    rows.append(row)
        block.report(wrong, bad_rows)
        chosen = arrow.array(rows, arrow.int64())
        kept = {name: column.take(chosen) for name, column in cells.items()}
        titles, abstracts = (words_of(kept[name]) for name in ("title", "abstract"))
        numbered = _numbered(titles, abstracts, vocabulary)
        lists = {"title_words": numbered[0], "abstract_words": numbered[1]}
        table.write({**kept, **lists, "part": np.full(len(rows), part, np.int8)})


def _numbered(titles: Words, abstracts: Words, vocabulary: IdMap) -> tuple[Ragged, Ragged]:
    """Words as numbers, in the order title, abstract, title, abstract."""
    arrow = require("pyarrow", extra="train")
    n = len(titles.lengths)
    both = Words(
        np.concatenate((titles.lengths, abstracts.lengths)), arrow.concat_arrays([titles.words, abstracts.words])
    ).take(np.arange(2 * n).reshape(2, n).T.reshape(-1))
    listed = Ragged(offsets_of(both.lengths), vocabulary.numbers(both.words.dictionary_encode()).astype(np.int64))
    return listed.take(np.arange(0, 2 * n, 2)), listed.take(np.arange(1, 2 * n, 2))


def _behaviors(file: Path) -> Iterator[RowBlock]:
    # Each block looks names up in all news, which takes as long as some megabytes of rows.
    places = {"user": 1, "time": 2, "history": 3, "shown": 4}
    return cut_lines(file, BEHAVIORS_CUT, places, 4 * line_blocks.BLOCK_BYTES)


def _add_impressions(
    block: RowBlock, part: int, table: TableWriter, news: _Known, users: IdMap, bad_rows: BadRows
) -> None:
    compute = require("pyarrow.compute", extra="train")
    wrong: Wrong = Wrong()
    clock = block.columns["time"]
    times, no_time = mind_times(clock)
    for row in np.flatnonzero(no_time).tolist():
        wrong[row] = f"time {quote(clock[row].as_py())}, expected the form 11/12/2019 2:14:46 PM"
    user = compute.utf8_trim(_plain(block.columns["user"]), characters=WHITE_SPACE)
    for row in np.flatnonzero(compute.equal(compute.binary_length(user), 0).to_numpy(zero_copy_only=False)).tolist():
        wrong.setdefault(row, "no user")
    past, shown = split(block.columns["history"]), split(block.columns["shown"])
    entries = _all_labelled(shown, news) or _labels(shown, news, wrong)
    history = _in_news(past.words, news.names)
    for words, found, lengths in ((past.words, history, past.lengths), (entries.names, entries.news, shown.lengths)):
        if (found < 0).any():
            owner = np.repeat(np.arange(len(block)), lengths)
            for at in np.flatnonzero(found < 0).tolist():
                wrong.setdefault(int(owner[at]), f"news {quote(words[at].as_py())} is not in news.tsv")
    good = block.report(wrong, bad_rows)
    rows = slice(None) if good is None else np.flatnonzero(good)
    lists = [Ragged(offsets_of(past.lengths), history)]
    lists += [Ragged(offsets_of(shown.lengths), ids) for ids in (entries.news, entries.labels)]
    listed = lists if good is None else [one.take(np.flatnonzero(good)) for one in lists]
    table.write(
        {
            "user": users.numbers(keep(user.dictionary_encode(), good)),
            "time": times[rows],
            "part": np.full(len(listed[0]), part, np.int8),
            "history": listed[0],
            "shown": listed[1],
            "labels": _nullable(listed[2], entries.labelled[rows]),
        }
    )


def split(column: Any) -> Words:
    """``str.split()`` of each cell."""
    arrow = require("pyarrow", extra="train")
    texts = _plain(column)
    data = texts.buffers()[2]
    raw = b"" if data is None else memoryview(data).tobytes()
    if raw.isascii() and not any(bytes([code]) in raw for code in (9, 11, 12, 13, 28, 29, 30, 31)):
        return split_at_spaces(texts)
    listed = [text.split() for text in texts.to_pylist()]
    return Words(
        np.array([len(one) for one in listed], np.int64),
        arrow.array([word for one in listed for word in one], arrow.string()),
    )


class _Known(NamedTuple):
    """The names of V news, and (2 V) the same with -0, then with -1 at the end: what impressions list."""

    names: Any
    labelled: Any

    @classmethod
    def of(cls, news: IdMap) -> _Known:
        arrow = require("pyarrow", extra="train")
        ends = [f"{name}{end}" for end in ("-0", "-1") for name in news.ids]
        return cls(arrow.array(list(news.ids), "string"), arrow.array(ends, "string"))


class _Entries(NamedTuple):
    """What was shown: the ``news`` (T,) and ``labels`` (T,) of entries, and which impressions are ``labelled`` (N,).

    ``news`` is -1 for ``names`` that are not known; ``labels`` are 0 where there are none.
    """

    labelled: NDArray[np.bool_]
    labels: Ints
    names: Any
    news: Ints


def _all_labelled(shown: Words, news: _Known) -> _Entries | None:
    """The entries, if every impression has some and all of them are known and have labels; else None."""
    if not len(news.names) or not shown.lengths.all():
        return None
    found = _in_news(shown.words, news.labelled)
    if (found < 0).any():
        return None
    labels, numbers = np.divmod(found, len(news.names))
    return _Entries(np.ones(len(shown.lengths), bool), labels, shown.words, numbers)


def _labels(shown: Words, news: _Known, wrong: Wrong) -> _Entries:
    arrow, compute = require("pyarrow", extra="train"), require("pyarrow.compute", extra="train")
    n, offsets = len(shown.lengths), offsets_of(shown.lengths)
    clicked, skipped = (
        compute.ends_with(shown.words, end).to_numpy(zero_copy_only=False).astype(bool) for end in ("-1", "-0")
    )
    has_label = clicked | skipped
    filled = shown.lengths > 0
    labelled = np.zeros(n, bool)
    labelled[filled] = has_label[offsets[:-1][filled]]
    for row in np.flatnonzero(~filled).tolist():
        wrong.setdefault(row, "nothing was shown")
    owner = np.repeat(np.arange(n), shown.lengths)
    for row in np.unique(owner[labelled[owner] & ~has_label]).tolist():
        wrong.setdefault(row, "shown news must all end in -0 or -1, or none of them")
    cut = labelled[owner] & has_label
    names = compute.if_else(arrow.array(cut), compute.utf8_slice_codeunits(shown.words, 0, -2), shown.words)
    return _Entries(labelled, (clicked & cut).astype(np.int64), names, _in_news(names, news.names))


def _in_news(names: Any, news: Any) -> Ints:
    """(T,) The row of each name in ``news``, -1 for those that are not in it."""
    found = require("pyarrow.compute", extra="train").index_in(names, value_set=news)
    return found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)


def _nullable(lists: Ragged, filled: Any) -> Any:
    """``lists`` as an Arrow array, null where not ``filled``."""
    arrow = require("pyarrow", extra="train")
    offsets = arrow.array(lists.offsets, arrow.int32())
    mask = None if filled.all() else arrow.array(~filled)
    return arrow.ListArray.from_arrays(offsets, arrow.array(lists.ids, arrow.int32()), mask=mask)


def _plain(column: Any) -> Any:
    arrow = require("pyarrow", extra="train")
    return column.cast(arrow.string())
