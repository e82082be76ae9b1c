"""Rows as columns: what every reader of a file hands over, whatever the file's form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from negwise.datasets.bad_rows import BadRows
from negwise.datasets.data_names import shown
from negwise.datasets.line_blocks import BadLine

Wrong = dict[int, str]
"""Row of a block -> what is wrong with it. The first thing that is found stays."""


@dataclass(frozen=True, eq=False)
class RowBlock:
    """N rows of ``file``: ``columns`` by role, each an Arrow array or a list of N cells.

    ``numbers`` (N,) are the numbers of the rows' first lines, or of the rows where ``unit`` is "row". ``bad`` are lines
    that could not be cut into cells. ``share`` of the file is read after this block.
    """

    file: Path
    columns: Mapping[str, Any]
    numbers: NDArray[np.int64]
    bad: list[BadLine] = field(default_factory=list)
    share: float = 1.0
    unit: str = "line"

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def place(self) -> str:
        """``log.csv, from line 7``."""
        return f"{shown(self.file)}, from {self.unit} {self.numbers[0]}" if len(self) else shown(self.file)

    def report(self, wrong: Wrong, bad_rows: BadRows) -> NDArray[np.bool_] | None:
        """Tell ``bad_rows`` what is wrong, in the order of the file. Returns which rows are good (N,); None for all."""
        told = self.bad + [(int(self.numbers[row]), what) for row, what in wrong.items()]
        for number, what in sorted(told, key=lambda one: one[0]):
            bad_rows.add_row(self.file, f"{self.unit} {number}", what)
        if not wrong:
            return None
        good = np.ones(len(self), bool)
        good[list(wrong)] = False
        return good


def cell(column: Any, row: int) -> Any:
    """One cell as a plain Python value, for a message."""
    value = column[row]
    return value.as_py() if hasattr(value, "as_py") else value
