"""Prepares a task from tables: examples, splits, vocabulary and token tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from negwise.datasets import impression_lists
from negwise.datasets.impression_lists import Impressions
from negwise.datasets.impressions import impression_task, impressions_from_rows
from negwise.datasets.mapped_arrays import let_go
from negwise.datasets.mapped_impressions import mapped_impressions
from negwise.datasets.near_duplicates import THRESHOLD, WIDTH, near_duplicate_groups
from negwise.datasets.pairs import PairTable, pair_task
from negwise.datasets.progress_parts import within
from negwise.datasets.ragged import Ints, Ragged, flat_indices, offsets_of
from negwise.datasets.read_interactions import COLUMNS
from negwise.datasets.sequences import Sequences, sequence_task, sequences_from_rows
from negwise.datasets.source import Source
from negwise.datasets.splits import SplitSizes
from negwise.datasets.table_cache import TableWriter, get_or_build, open_tables, read_columns
from negwise.datasets.task_data import TaskData, TaskTexts, Texts, concatenated, number_categories
from negwise.errors import InputError
from negwise.stages import Progress, stage, tell

HISTORY = 50
LOADED, READ = 0.5, 0.2
"""Shares of the time: of loading sequences in their split, and of reading columns in the loading."""


def prepare(
    source: Source,
    *,
    task: str | None = None,
    split: str | None = None,
    shares: SplitSizes | None = None,
    history: int = HISTORY,
    seed: int = 0,
    progress: Progress | None = None,
) -> TaskData:
    """A `TaskData` from ``source``. ``task``: "impressions", "sequences" or "pairs" (None: the default of the data).

    The default of MIND is impressions; ``task="pairs"`` takes titles and abstracts of its news. The default ``split``
    is "time" for impressions (where that cannot be, as with few days, "folders" or "user", which a note says), "last"
    for sequences, "random" for pairs ("folders" for MIND's). If the data cannot be split as asked for, the error names
    an alternative. Whoever listens to the stages is told the notes. ``progress`` is called with the share that is done.
    """
    available = available_tasks(source)
    name = task or available[0]
    if name not in available:
        raise InputError(
            f"{source.path}: got the task {name}, but {source.kind} data supports {' and '.join(available)}. "
            f"Choose a model for {' or '.join(available)} (docs/training.md lists them), or other data."
        )
    if history < 1:
        raise InputError(f"history={history}, expected 1 or more items")
    shares = shares or SplitSizes()
    with stage(f"splitting {source.path}", progress) as share_done:
        prepared = _prepare(source, name, split, shares, history, seed, share_done)
    for note in prepared.notes:
        tell(f"{source.path}: {note}")
    return replace(prepared, digest=source.digest)


def _prepare(
    source: Source, name: str, split: str | None, shares: SplitSizes, history: int, seed: int, progress: Progress
) -> TaskData:
    if name == "pairs":
        return _prepare_pairs(source, split or ("folders" if source.kind == "mind" else "random"), shares, seed)
    if name == "sequences":
        loaded = load_sequences(source, within(progress, 0.0, LOADED))
        done = within(progress, LOADED, 1.0)
        return sequence_task(loaded, split or "last", shares, history, seed, source.path, done)
    task = impression_task(load_impressions(source, progress), split, shares, history, seed, source.path)
    return replace(task, texts=_news_texts(source, task)) if source.kind == "mind" else task


def available_tasks(source: Source) -> tuple[str, ...]:
    """The tasks that ``source`` has data for, the default first."""
    if source.kind == "mind":
        return ("impressions", "pairs")
    if source.kind == "pairs":
        return ("pairs",)
    grouped = source.tables["interactions"]["impression"].null_count == 0
    return ("impressions", "sequences") if grouped and source.kind == "interactions" else ("sequences",)


def int_column(table: Any, name: str) -> Ints:
    return table[name].to_numpy().astype(np.int64)


def load_sequences(source: Source, progress: Progress | None = None) -> Sequences:
    """The positives of each user in the order of time."""
    names = ["user", "item", "label"]
    if not source.tables["interactions"]["time"].null_count:
        names.append("time")
    columns = read_columns(source.folder, "interactions", names)
    if progress is not None:
        progress(READ)
    return sequences_from_rows(
        columns["user"],
        columns["item"],
        columns.get("time"),
        len(source.tables["users"]),
        len(source.tables["items"]),
        columns["label"],
        within(progress, READ, 1.0),
    )


def load_impressions(source: Source, progress: Progress | None = None) -> Impressions:
    """The impressions of MIND, or of interactions with an impression column."""
    if source.kind != "mind":
        table = source.tables["interactions"]
        if table["time"].null_count:
            raise InputError(f"{source.path}: impressions need a time column, for the history of each. Add one.")
        user, item, time, label, impression = read_columns(source.folder, "interactions", list(COLUMNS)).values()
        sizes = len(source.tables["users"]), len(source.tables["items"])
        return impressions_from_rows(user, item, time, label, impression, *sizes)
    return mapped_impressions(source, progress)


def _prepare_pairs(source: Source, split: str, shares: SplitSizes, seed: int) -> TaskData:
    left, right, texts, negatives, folder = _load_pairs(source)
    bodies = concatenated(right, texts)
    near = _near_duplicates(source, bodies.words)
    table = PairTable(left.words, right.words, texts.words, negatives, near, folder)
    arranged = pair_task(table, split, shares, seed, source.path)
    task, rows = arranged.task, arranged.rows
    nothing = Texts([""] * len(texts), Ragged.of([[]] * len(texts)), left.word_list)
    fields = {"title": concatenated(left, nothing).take(rows), "body": bodies.take(rows)}
    return replace(task, texts=TaskTexts(fields, np.arange(*task.train.candidates), {}, {}))


def _load_pairs(source: Source) -> tuple[Texts, Texts, Texts, Ragged, Ints | None]:
    """Left and right texts, texts that are only negatives, the negatives of each pair, and its folder."""
    if source.kind == "mind":
        title, abstract = (_texts(source, "news", name, f"{name}_words") for name in ("title", "abstract"))
        both = np.flatnonzero((title.words.lengths > 0) & (abstract.words.lengths > 0))
        if not len(both):
            raise InputError(f"{source.path}: no news item has an abstract, so there are no title-abstract pairs.")
        nothing = Texts([], Ragged.of([]), title.word_list)
        folder = None if source.parts == ("",) else int_column(source.tables["news"], "part")[both]
        return title.take(both), abstract.take(both), nothing, Ragged.of([[]] * len(both)), folder
    left, right = (_texts(source, "pairs", name, f"{name}_words") for name in ("left", "right"))
    negatives = Ragged.of_arrow(source.tables["pairs"]["negatives"])
    return left, right, _texts(source, "texts", "text", "words"), negatives, None


def _texts(source: Source, table: str, strings: str, words: str) -> Texts:
    columns = source.tables[table]
    return Texts(columns[strings], Ragged.of_arrow(columns[words]), source.word_list)


def _near_duplicates(source: Source, bodies: Ragged) -> Ints:
    """Groups of near-equal texts, cached by content."""

    def build(folder: Path) -> dict[str, Any]:
        with TableWriter(folder, "near", {"group": "int32"}) as table:
            table.write({"group": near_duplicate_groups(bodies)})
        return {}

    folder, _ = get_or_build(f"{source.digest}-near-{WIDTH}-{THRESHOLD}", source.folder.parent, build)
    return int_column(open_tables(folder)["near"], "group")


def _news_texts(source: Source, task: TaskData) -> TaskTexts:
    """The vocabulary counts news in training: those in its impressions, and in the histories of these."""
    news = source.tables["news"]
    assert task.impressions is not None
    in_training = np.zeros(task.n_items, bool)
    train, shown = task.train, task.impressions
    for at in range(0, len(train), impression_lists.BLOCK):
        block = slice(at, at + impression_lists.BLOCK)
        in_training[shown.take(train.groups[block]).ids] = True
        first, last = train.start[block].astype(np.int64), train.end[block].astype(np.int64)
        in_training[train.items[flat_indices(first, offsets_of(last - first))]] = True
        let_go(shown.ids, shown.offsets, train.items)
    title, abstract = (_texts(source, "news", name, f"{name}_words") for name in ("title", "abstract"))
    numbered = {name: number_categories(news[name].to_pylist()) for name in ("category", "subcategory")}
    categories = {name: numbers for name, (numbers, _) in numbered.items()}
    names = {name: names for name, (_, names) in numbered.items()}
    return TaskTexts({"title": title, "body": abstract}, np.flatnonzero(in_training), categories, names)
