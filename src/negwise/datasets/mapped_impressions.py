"""Impressions of MIND as memory maps: columns and lists as flat arrays, made once and kept by content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from negwise.datasets.impression_lists import (
    ImpressionLists,
    Impressions,
    click_blocks,
    history_blocks,
)
from negwise.datasets.mapped_arrays import ArrayWriter, open_arrays, open_lists
from negwise.datasets.progress_parts import within
from negwise.datasets.ragged import Ragged, narrow
from negwise.datasets.source import Source
from negwise.datasets.table_cache import get_or_build, read_batches
from negwise.stages import Progress

FORM = 1
"""Raised when the arrays get other content for the same data."""
PARTS = (0.0, 0.3, 0.7, 1.0)
"""Where columns, clicks and histories begin and end, as shares of the time that all take."""


def mapped_impressions(source: Source, progress: Progress | None = None) -> Impressions:
    """The impressions of ``source`` with their lists. ``progress`` is called where they have to be made first."""

    def build(folder: Path) -> dict[str, Any]:
        with ArrayWriter(folder) as columns:
            _write_columns(source, columns, within(progress, *PARTS[0:2]))
        data = _impressions(source, open_arrays(folder, columns.kinds))
        with ArrayWriter(folder) as lists:
            for block in click_blocks(data, within(progress, *PARTS[1:3])):
                lists.write("click.rows", block.click_rows)
                lists.write("click.items", block.click_items)
                lists.write_lists("clicked", block.clicked)
                lists.write_lists("not_clicked", block.not_clicked)
        clicks = open_arrays(folder, {name: lists.kinds[name] for name in ("click.rows", "click.items")})
        with ArrayWriter(folder) as histories:
            for users in history_blocks(
                data, clicks["click.rows"], clicks["click.items"], within(progress, *PARTS[2:4])
            ):
                histories.write_lists("histories", users)
        return {"arrays": columns.kinds | lists.kinds | histories.kinds}

    folder, facts = get_or_build(f"{source.digest}-impressions-{FORM}", source.folder.parent, build)
    return _impressions(source, open_arrays(folder, facts["arrays"]))


def _write_columns(source: Source, arrays: ArrayWriter, progress: Progress | None) -> None:
    rows = 0
    for batch in read_batches(source.folder, "impressions"):
        shown, history, clicks = (Ragged.of_arrow(batch[name]) for name in ("shown", "history", "labels"))
        labelled = clicks.lengths > 0
        labels = np.zeros(len(shown.ids), np.int8)
        labels[np.repeat(labelled, shown.lengths)] = clicks.ids
        for name in ("user", "time", "part"):
            arrays.write(name, batch[name].to_numpy())
        arrays.write("labelled", labelled)
        arrays.write("labels", labels)
        for name, lists in (("shown", shown), ("history", history)):
            arrays.write_lists(name, Ragged(lists.offsets, narrow(lists.ids, len(source.tables["news"]))))
        rows += len(batch)
        if progress is not None:
            progress(rows / len(source.tables["impressions"]))


def _impressions(source: Source, arrays: dict[str, Any]) -> Impressions:
    history = open_lists(arrays, "history")
    lists = None
    if "histories.ids" in arrays:
        by_impression = (open_lists(arrays, name) for name in ("clicked", "not_clicked", "histories"))
        lists = ImpressionLists(arrays["click.rows"], arrays["click.items"], *by_impression)
    return Impressions(
        arrays["user"],
        arrays["time"],
        history.ids,
        history.offsets[:-1],
        history.offsets[1:],
        open_lists(arrays, "shown"),
        arrays["labels"],
        arrays["labelled"],
        len(source.tables["users"]),
        len(source.tables["news"]),
        None if source.parts == ("",) else arrays["part"],
        lists,
    )
