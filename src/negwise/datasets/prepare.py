"""From tables to a task: which rows are examples, how they are split, what text models read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from negwise.datasets.cache import cached
from negwise.datasets.documents import Documents, document_task
from negwise.datasets.examples import Task
from negwise.datasets.impressions import Impressions, impression_task, impressions_of
from negwise.datasets.near import THRESHOLD, WIDTH, near_groups
from negwise.datasets.ragged import Ints, Ragged, distinct_pairs, offsets_of, places
from negwise.datasets.read_interactions import COLUMNS
from negwise.datasets.sequences import Sequences, sequence_task, sequences_of
from negwise.datasets.source import Source
from negwise.datasets.splits import Shares
from negwise.datasets.storing import TableWriter, open_tables
from negwise.datasets.words import Text, Vocabulary, number_categories
from negwise.errors import InputError

DEFAULT_SPLIT = {"impressions": "time", "sequences": "last", "pairs": "random"}


@dataclass(frozen=True)
class Lengths:
    """Places: words of a title and of a body, items of a history."""

    title: int = 30
    body: int = 100
    history: int = 50

    def __post_init__(self) -> None:
        for name in ("title", "body", "history"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}={getattr(self, name)}, expected 1 or more places")


def prepare(
    source: Source,
    *,
    task: str | None = None,
    split: str | None = None,
    shares: Shares | None = None,
    lengths: Lengths | None = None,
    min_count: int = 1,
    seed: int = 0,
) -> Task:
    """A `Task` of ``source``: ``task`` "impressions", "sequences" or "pairs" (None: what the data is by itself).

    MIND is impressions, and with ``task="pairs"`` title and abstract of its news. ``split`` None means "time" for
    impressions, "last" for sequences, "random" for pairs ("folders" for MIND's); where the data cannot be split
    that way, the error says what to ask for instead.
    """
    has = _tasks(source)
    name = task or has[0]
    if name not in has:
        raise InputError(
            f"{source.path}: the task is {name}, and {source.kind} data serves {' and '.join(has)}. Choose a model for "
            f"{' or '.join(has)} (docs/training.md lists them), or other data."
        )
    shares, lengths = shares or Shares(), lengths or Lengths()
    how = split or ("folders" if source.kind == "mind" and name == "pairs" else DEFAULT_SPLIT[name])
    if name == "pairs":
        made = _pairs(source, how, shares, lengths, min_count, seed)
    elif name == "sequences":
        made = sequence_task(sequences(source), how, shares, lengths.history, seed, source.path)
    else:
        made = impression_task(impressions(source), how, shares, lengths.history, seed, source.path)
        if source.kind == "mind":
            made = replace(made, text=_news_text(source, made, lengths, min_count))
    return replace(made, digest=source.digest)


def _tasks(source: Source) -> tuple[str, ...]:
    if source.kind == "mind":
        return ("impressions", "pairs")
    if source.kind == "pairs":
        return ("pairs",)
    grouped = source.tables["interactions"]["impression"].null_count == 0
    return ("impressions", "sequences") if grouped and source.kind == "interactions" else ("sequences",)


def column(table: Any, name: str) -> Ints:
    return table[name].to_numpy().astype(np.int64)


def sequences(source: Source) -> Sequences:
    """Positives of each user in the order of time."""
    table = source.tables["interactions"]
    times = None if table["time"].null_count else column(table, "time")
    return sequences_of(
        column(table, "user"),
        column(table, "item"),
        times,
        len(source.tables["users"]),
        len(source.tables["items"]),
        column(table, "label"),
    )


def impressions(source: Source) -> Impressions:
    """Impressions of MIND, or of interactions of one's own that have them."""
    if source.kind != "mind":
        table = source.tables["interactions"]
        if table["time"].null_count:
            raise InputError(f"{source.path}: impressions without a time column: what came before what? Add one.")
        user, item, time, label, impression = (column(table, name) for name in COLUMNS)
        sizes = len(source.tables["users"]), len(source.tables["items"])
        return impressions_of(user, item, time, label, impression, *sizes)
    table = source.tables["impressions"]
    shown, history, clicks = (Ragged.of_arrow(table[name]) for name in ("shown", "history", "labels"))
    labelled = clicks.lengths > 0
    labels = np.zeros(len(shown.ids), np.int8)
    labels[np.repeat(labelled, shown.lengths)] = clicks.ids
    return Impressions(
        column(table, "user"),
        column(table, "time"),
        history.ids,
        history.offsets[:-1],
        history.offsets[1:],
        shown,
        labels,
        labelled,
        len(source.tables["users"]),
        len(source.tables["news"]),
        None if source.parts == ("",) else column(table, "part"),
    )


def _pairs(source: Source, split: str, shares: Shares, lengths: Lengths, min_count: int, seed: int) -> Task:
    left, right, texts, negatives, folder = _documents(source)
    bodies = right.followed_by(texts)
    near = _near(source, bodies)
    arranged = document_task(Documents(left, right, texts, negatives, near, folder), split, shares, seed, source.path)
    task, rows = arranged.task, arranged.rows
    titles = left.followed_by(Ragged.of([[]] * len(texts)))
    taught = np.arange(*task.train.candidates)
    text = _text(source, {"title": titles.take(rows), "body": bodies.take(rows)}, taught, lengths, min_count)
    return replace(task, text=text)


def _documents(source: Source) -> tuple[Ragged, Ragged, Ragged, Ragged, Ints | None]:
    if source.kind == "mind":
        news = source.tables["news"]
        title, abstract = (Ragged.of_arrow(news[f"{name}_words"]) for name in ("title", "abstract"))
        both = np.flatnonzero((title.lengths > 0) & (abstract.lengths > 0))
        if not len(both):
            raise InputError(f"{source.path}: no news has an abstract, so there are no title-abstract pairs.")
        nothing = Ragged.of([])
        folder = None if source.parts == ("",) else column(news, "part")[both]
        return title.take(both), abstract.take(both), nothing, Ragged.of([[]] * len(both)), folder
    pairs = source.tables["pairs"]
    left, right, negatives = (Ragged.of_arrow(pairs[name]) for name in ("left_words", "right_words", "negatives"))
    return left, right, Ragged.of_arrow(source.tables["texts"]["words"]), negatives, None


def _near(source: Source, bodies: Ragged) -> Ints:
    """Groups of near-equal bodies, worked out once for each content."""

    def build(folder: Path) -> dict[str, Any]:
        with TableWriter(folder, "near", {"group": "int32"}) as table:
            for group in near_groups(bodies).tolist():
                table.add(group)
        return {}

    folder, _ = cached(f"{source.digest}-near-{WIDTH}-{THRESHOLD}", source.folder.parent, build)
    return column(open_tables(folder)["near"], "group")


def _news_text(source: Source, task: Task, lengths: Lengths, min_count: int) -> Text:
    """Words count where training shows a title: in an impression, or in the history before one."""
    news = source.tables["news"]
    assert task.shown is not None
    groups = np.unique(task.train.groups)
    seen = np.zeros(task.n_items, bool)
    seen[task.shown.take(groups).ids] = True
    first, last = distinct_pairs(task.train.start, task.train.end)
    seen[task.train.items[places(first, offsets_of(last - first))]] = True
    fields = {name: Ragged.of_arrow(news[f"{name}_words"]) for name in ("title", "abstract")}
    text = _text(
        source, {"title": fields["title"], "body": fields["abstract"]}, np.flatnonzero(seen), lengths, min_count
    )
    numbered = {name: number_categories(news[name].to_pylist()) for name in ("category", "subcategory")}
    categories = {name: numbers for name, (numbers, _) in numbered.items()}
    return replace(text, categories=categories, category_names={name: names for name, (_, names) in numbered.items()})


def _text(source: Source, fields: Mapping[str, Ragged], taught: Ints, lengths: Lengths, min_count: int) -> Text:
    file_words: Sequence[str] = source.tables["words"]["id"].to_pylist()
    vocabulary = Vocabulary.of([field.take(taught) for field in fields.values()], file_words, min_count)
    tokens = {name: vocabulary.table(field, file_words, getattr(lengths, name)) for name, field in fields.items()}
    return Text(vocabulary, tokens, {}, {})
