"""Data: what is in a folder, a file or a default, and the examples, splits and lists that training needs.

    source = read("MINDsmall")                   # read once, then memory-mapped
    task = prepare(source, split="time")         # examples, lists of negatives, token tables
    query, positives, groups = task.train.batch([0, 1, 2])

Nothing here knows of K, of a model or of a loss; torch is loaded when the first batch is made.
"""

from __future__ import annotations

from negwise.datasets.clicks import ClickWorld, clicks
from negwise.datasets.examples import Batch, Examples, SequenceWindows, TaskData
from negwise.datasets.inspection import DataReport, inspect
from negwise.datasets.prepare import Lengths, prepare
from negwise.datasets.ragged import Ragged
from negwise.datasets.source import Source, read
from negwise.datasets.splits import SplitSizes
from negwise.datasets.table_cache import cache_folder
from negwise.datasets.text_input import Problem
from negwise.datasets.vocabulary import Text, Vocabulary, split_words

__all__ = [
    "Batch",
    "ClickWorld",
    "DataReport",
    "Examples",
    "Lengths",
    "Problem",
    "Ragged",
    "SequenceWindows",
    "Source",
    "SplitSizes",
    "TaskData",
    "Text",
    "Vocabulary",
    "cache_folder",
    "clicks",
    "inspect",
    "prepare",
    "read",
    "split_words",
]
