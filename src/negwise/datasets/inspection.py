"""Describes a data set: counts as in the paper's Table 1, the ceiling for K, possible splits and problems."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from negwise.datasets.bad_rows import Problem
from negwise.datasets.clicks import ClickWorld, clicks
from negwise.datasets.impression_lists import Impressions, lists_of
from negwise.datasets.impressions import default_split, possible_splits
from negwise.datasets.near_duplicates import equal_texts
from negwise.datasets.pairs import PAIR_SPLITS
from negwise.datasets.prepare import load_impressions, load_sequences
from negwise.datasets.progress_parts import within
from negwise.datasets.ragged import Ints, Ragged, distinct, pair_keys
from negwise.datasets.sequences import SEQUENCE_SPLITS, Sequences
from negwise.datasets.source import Source, read
from negwise.datasets.splits import MIN_GROUPS, SplitSizes, has_enough_days
from negwise.datasets.timestamps import format_timestamp
from negwise.datasets.use_of_columns import Remark
from negwise.stages import Progress, stage

EXAMPLES = 3
PROBLEMS_SHOWN = 10
LOADED = 0.6
"""Share of the time of describing interactions and impressions that loading takes."""


@dataclass(frozen=True)
class Available:
    """Negatives per positive. No row has more than ``most``; for K above ``median`` most rows have fewer than K.

    ``in_training`` is about what ``most`` is in the training split, where only that is drawn from.
    """

    least: int
    median: float
    mean: float
    most: int
    source: str
    in_training: int | None = None

    def ceiling(self) -> str:
        """The largest K, in words."""
        if self.in_training is None:
            return f"{self.most:,}"
        return f"{self.most:,} in all the data, about {self.in_training:,} in the training split"


@dataclass(frozen=True)
class DataReport:
    """``counts`` are counts and averages by name; ``density`` is the share of (user, item) pairs with a positive.

    ``label_balance`` is the share of rows that are positive, None if the data has positives only. ``truth`` has the
    known values of simulated data. ``key`` opens the same data again (`negwise.datasets.open_source`).
    ``columns`` are role -> column; ``remarks`` say what was done with other columns, ratings, ids, texts and files.
    ``default_split`` is how `prepare` splits if it is not told.
    """

    path: str
    kind: str
    counts: dict[str, float]
    density: float | None
    label_balance: float | None
    negatives: Available
    splits: tuple[str, ...]
    examples: tuple[dict[str, str], ...]
    problems: tuple[Problem, ...]
    digest: str
    truth: dict[str, float] | None = None
    key: str | None = None
    columns: dict[str, str] = field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()
    default_split: str | None = None

    def headline(self) -> str:
        """One sentence: the kind of data, and how many negatives a positive has."""
        return f"{self.path} holds {self.kind}; a positive has {_number(self.negatives.median)} negatives (median)."

    def facts(self) -> list[tuple[str, str]]:
        """(label, value) pairs in the order of Table 1, then the bounds of K, then problems."""
        facts = [("kind", self.kind)]
        if self.columns:
            facts.append(("columns", ", ".join(f"{role} = {name}" for role, name in self.columns.items())))
        facts += [(remark.about, remark.what) for remark in self.remarks]
        facts += [(name.replace("_", " "), _number(value)) for name, value in self.counts.items()]
        if self.density is not None:
            facts.append(("density", f"{self.density:.3g}"))
        balance = "positives only" if self.label_balance is None else f"{self.label_balance:.4f} are positive"
        facts.append(("label balance", balance))
        has = self.negatives
        spread = f"{has.least}..{has.most}, median {_number(has.median)}, mean {_number(has.mean)}"
        facts += [("negatives per row", f"{spread} ({has.source})"), ("ceiling for K", has.ceiling())]
        facts += [(f"true {name}", f"{value:.4f}") for name, value in (self.truth or {}).items()]
        facts.append(("can be split by", self._splits_in_words()))
        facts.append(("content hash", self.digest))
        facts.append(("bad rows skipped", str(len(self.problems))))
        facts += [("problem", str(problem)) for problem in self.problems[:PROBLEMS_SHOWN]]
        left = len(self.problems) - PROBLEMS_SHOWN
        return [*facts, ("problems not shown", str(left))] if left > 0 else facts

    def _splits_in_words(self) -> str:
        if not self.splits:
            return "nothing: too few users, days and items"
        names, default = ", ".join(self.splits), self.default_split
        if default not in self.splits:
            return f"{names} (choose by --split: by {default}, the default, it cannot)"
        return names if len(self.splits) == 1 else f"{names} ({default} unless --split says another)"

    def explain(self) -> str:
        """The report as text: one fact per line, then a few example rows."""
        facts = [f"{name}: {value}" for name, value in self.facts()]
        rows = [" | ".join(f"{name}: {value}" for name, value in row.items()) for row in self.examples]
        return "\n".join([self.headline(), "", *facts, "", *rows])

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings, ready for JSON, with all problems."""
        return asdict(self) | {
            "splits": list(self.splits),
            "examples": list(self.examples),
            "problems": [asdict(problem) for problem in self.problems],
            "remarks": [asdict(remark) for remark in self.remarks],
        }


def inspect(
    data: Any,
    *,
    columns: Mapping[str, str] | None = None,
    positive: str | None = None,
    skip_bad: int = 0,
    cache: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> DataReport:
    """Describe ``data``, of which `read` has the kinds, or the embedded ``clicks``."""
    if isinstance(data, str) and data == "clicks":
        return replace(_of_clicks(clicks()), default_split="user")
    return inspect_source(
        read(data, columns=columns, positive=positive, skip_bad=skip_bad, cache=cache, progress=progress)
    )


def inspect_source(source: Source) -> DataReport:
    """Describe data that was read already."""
    describe = {"mind": _of_mind, "pairs": _of_pairs}.get(source.kind, _of_interactions)
    with stage(f"describing {source.path}") as tell:
        return replace(describe(source, tell), key=source.key, columns=source.columns, remarks=source.remarks)


def _of_clicks(world: ClickWorld) -> DataReport:
    data = world.impressions
    counts: dict[str, float] = {"items": data.n_items, "users": data.n_users} | _impression_counts(data)
    shown = [
        {"user": str(data.users[i]), "shown": _first_ids(data.shown[i])} for i in range(min(EXAMPLES, len(data.shown)))
    ]
    truth = {"AUC": world.auc, "label separation": world.separation}
    return _of_impressions(data, "clicks", "simulated impressions", counts, tuple(shown), (), world.digest, truth)


def _of_mind(source: Source, progress: Progress) -> DataReport:
    data, news = load_impressions(source, within(progress, 0.0, LOADED)), source.tables["news"]
    title, body = (Ragged.of_arrow(news[f"{name}_words"]).lengths for name in ("title", "abstract"))
    counts: dict[str, float] = {"news": data.n_items, "users": data.n_users} | _impression_counts(data)
    counts["title_length"] = _mean(title)
    counts["news_with_a_body"] = int((body > 0).sum())
    counts["body_length"] = _mean(body[body > 0])
    if not data.labelled.all():
        counts["impressions_without_labels"] = int((~data.labelled).sum())
    rows = tuple(
        {
            "user": str(source.tables["users"]["id"][int(data.users[i])]),
            "history": f"{data.end[i] - data.start[i]} news",
            "shown": str(news["title"][int(data.shown[i][0])]) if len(data.shown[i]) else "",
        }
        for i in range(min(EXAMPLES, len(data.shown)))
    )
    return _of_impressions(data, source.path, "mind", counts, rows, source.problems, source.digest)


def _of_impressions(
    data: Impressions,
    path: str,
    kind: str,
    counts: dict[str, float],
    rows: tuple[dict[str, str], ...],
    problems: tuple[Problem, ...],
    digest: str,
    truth: dict[str, float] | None = None,
) -> DataReport:
    lists, lengths = lists_of(data), data.shown.lengths
    clicks = len(lists.click_rows)
    labelled = np.where(data.labelled, lengths, 0)
    not_clicked = labelled - np.bincount(lists.click_rows, minlength=len(lengths))
    pairs = len(distinct(pair_keys(data.users[lists.click_rows], lists.click_items, data.n_items)))
    return DataReport(
        path,
        kind,
        counts,
        pairs / max(data.n_users * data.n_items, 1),
        float(clicks / max(int(labelled.sum()), 1)),
        _available(not_clicked[lists.click_rows], "shown in the same impression and not clicked"),
        possible_splits(data, SplitSizes()),
        rows,
        problems,
        digest,
        truth,
        default_split=default_split(data, SplitSizes())[0],
    )


def _sequence_splits(data: Sequences) -> tuple[str, ...]:
    length = np.diff(data.offsets)
    can = {
        # Of three items two are held out; training needs two consecutive items of some user.
        "last": bool((length >= 3).any() and ((length > 3) | (length == 2)).any()),
        "user": int((length >= 2).sum()) >= MIN_GROUPS,
        "time": data.times is not None and has_enough_days(data.times, SplitSizes()),
    }
    return tuple(name for name in SEQUENCE_SPLITS if can[name])


def _impression_counts(data: Impressions) -> dict[str, float]:
    clicked = int((data.labels == 1).sum())
    return {"impressions": len(data.shown), "clicks": clicked, "history_length": _mean(data.end - data.start)}


def _of_interactions(source: Source, progress: Progress) -> DataReport:
    table, users, items = (source.tables[name] for name in ("interactions", "users", "items"))
    numbers = table.slice(0, EXAMPLES).to_pylist()
    rows = tuple(
        {"user": str(users["id"][row["user"]]), "item": str(items["id"][row["item"]])}
        | ({} if row["time"] is None else {"time": format_timestamp(row["time"])})
        | ({"label": str(row["label"])} if source.kind == "interactions" else {})
        for row in numbers
    )
    if source.kind == "interactions" and len(table) and table["impression"].null_count == 0:
        data = load_impressions(source)
        counts: dict[str, float] = {"items": data.n_items, "users": data.n_users} | _impression_counts(data)
        kind = "interactions with impressions"
        return _of_impressions(data, source.path, kind, counts, rows, source.problems, source.digest)
    sequence = load_sequences(source, within(progress, 0.0, LOADED))
    pairs = Ragged.of_pairs(sequence.users, sequence.items, sequence.n_users)
    labels = table["label"].to_numpy()
    low = int(len(labels) - labels.sum(dtype=np.int64))
    among = f"; {low:,} rows have the label 0: negatives that come with the data" if low else ""
    return DataReport(
        source.path,
        source.kind,
        {
            "items": sequence.n_items,
            "users": sequence.n_users,
            "interactions": len(sequence.items),
            "history_length": _mean(np.diff(sequence.offsets)),
        },
        len(pairs.ids) / max(sequence.n_users * sequence.n_items, 1),
        None if labels.all() else float(labels.mean()),
        _available(sequence.n_items - pairs.lengths, f"the catalogue without the user's own items{among}"),
        _sequence_splits(sequence),
        rows,
        source.problems,
        source.digest,
        default_split=SEQUENCE_SPLITS[0],
    )


def _of_pairs(source: Source, _: Progress) -> DataReport:
    table = source.tables["pairs"]
    left, right, given = (Ragged.of_arrow(table[name]) for name in ("left_words", "right_words", "negatives"))
    equal = equal_texts(right)
    with_given = int((given.lengths > 0).sum())
    among = f"; {with_given:,} pairs bring negatives of their own, which come first" if with_given else ""
    others = len(right) - np.bincount(equal)[equal]
    negatives = _available(others, f"right texts of other pairs, without equal texts{among}")
    sizes = SplitSizes()
    in_training = max(round((negatives.most + 1) * (1 - sizes.val - sizes.test)) - 1, 0)
    rows = table.slice(0, EXAMPLES).select(["left", "right"]).to_pylist()
    return DataReport(
        source.path,
        source.kind,
        {
            "pairs": len(left),
            "distinct_bodies": int(equal.max(initial=-1)) + 1,
            "title_length": _mean(left.lengths),
            "body_length": _mean(right.lengths),
            "given_negatives": len(given.ids),
        },
        None,
        len(left) / (len(left) + len(given.ids)) if len(given.ids) else None,
        replace(negatives, in_training=in_training),
        PAIR_SPLITS[:1] if len(left) >= MIN_GROUPS else (),
        tuple({name: _shorten(text) for name, text in row.items()} for row in rows),
        source.problems,
        source.digest,
        default_split=PAIR_SPLITS[0],
    )


def _available(counts: Ints, source: str) -> Available:
    if not len(counts):
        return Available(0, 0.0, 0.0, 0, source)
    return Available(int(counts.min()), float(np.median(counts)), float(counts.mean()), int(counts.max()), source)


def _mean(values: Ints) -> float:
    return float(values.mean()) if len(values) else 0.0


def _first_ids(ids: Ints) -> str:
    return " ".join(map(str, ids[:8].tolist())) + (" ..." if len(ids) > 8 else "")


def _shorten(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:97]}..."


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"
