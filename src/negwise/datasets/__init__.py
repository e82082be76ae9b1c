"""Data sets: read a folder, a file or embedded data, split it, and make the examples that training needs.

    source = read("MINDsmall")                   # parsed once, then memory-mapped
    task = prepare(source, split="time")         # examples, exclusions, texts
    query, positives, groups = task.train.batch([0, 1, 2])

This package does not depend on K, models or losses. It imports torch when the first batch is made.
"""

from __future__ import annotations

from negwise.datasets.bad_rows import Problem
from negwise.datasets.clicks import ClickWorld, clicks
from negwise.datasets.formats import EMBEDDED
from negwise.datasets.frames import as_path
from negwise.datasets.inspection import DataReport, inspect, inspect_source
from negwise.datasets.prepare import HISTORY, available_tasks, prepare
from negwise.datasets.ragged import Ragged
from negwise.datasets.source import Source, open_source, read
from negwise.datasets.splits import SplitSizes
from negwise.datasets.table_cache import cache_folder
from negwise.datasets.task_data import Batch, Examples, SequenceWindows, TaskData, TaskTexts, Texts

__all__ = [
    "EMBEDDED",
    "HISTORY",
    "Batch",
    "ClickWorld",
    "DataReport",
    "Examples",
    "Problem",
    "Ragged",
    "SequenceWindows",
    "Source",
    "SplitSizes",
    "TaskData",
    "TaskTexts",
    "Texts",
    "as_path",
    "available_tasks",
    "cache_folder",
    "clicks",
    "inspect",
    "inspect_source",
    "open_source",
    "prepare",
    "read",
]
