"""Data: what is in a folder, a file or a default, and the examples, splits and lists that training needs.

    source = read("MINDsmall")                   # read once, then memory-mapped
    task = prepare(source, split="time")         # examples, lists of negatives, token tables
    query, positives, groups = task.train.batch([0, 1, 2])

Nothing here knows of K, of a model or of a loss; torch is loaded when the first batch is made.
"""

from __future__ import annotations

from negwise.datasets.cache import cache_folder
from negwise.datasets.clicks import World, clicks
from negwise.datasets.examples import Batch, Examples, Task, Windows
from negwise.datasets.inspecting import inspect
from negwise.datasets.prepare import Lengths, prepare
from negwise.datasets.problems import Problem
from negwise.datasets.ragged import Ragged
from negwise.datasets.report import DataReport
from negwise.datasets.source import Source, read
from negwise.datasets.splits import Shares
from negwise.datasets.words import Text, Vocabulary, words

__all__ = [
    "Batch",
    "DataReport",
    "Examples",
    "Lengths",
    "Problem",
    "Ragged",
    "Shares",
    "Source",
    "Task",
    "Text",
    "Vocabulary",
    "Windows",
    "World",
    "cache_folder",
    "clicks",
    "inspect",
    "prepare",
    "read",
    "words",
]
