"""Layouts of the negatives: shared by all rows, per row, or in a table. Blocks of keys, and their products.

Shapes: B rows, K negatives, M rows of a table, D width; R x C a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from negwise.protocols import Draw

SCORE_COPIES = 4
"""Scores, logits, their log-softmax and its gradient."""


class Layout(Protocol):
    """What an implementation needs from the negatives. ``keys`` is the tensor that may require a gradient."""

    @property
    def keys(self) -> Tensor: ...

    def copied_size(self, rows: int, width: int, partial: bool, dtype: torch.dtype) -> int:
        """How many numbers the reference would copy: scores, and keys if it cannot use them in place."""

    def tile_shape(self, rows: int, width: int, budget: int) -> tuple[int, int]:
        """The rows and columns of one block, for ``budget`` numbers of working memory."""

    def block(self, rows: slice, cols: slice, dtype: torch.dtype, allowed: Tensor | None) -> Tensor:
        """The keys of a block in ``dtype``. Keys that ``allowed`` (R, C) masks become 0."""

    def scores(self, query: Tensor, block: Tensor, bias: Tensor, out: Tensor) -> Tensor:
        """The scores of a block, (R, C): ``bias + query . key``."""

    def add_to_query_grad(self, share: Tensor, block: Tensor, grad: Tensor) -> None:
        """Add ``sum_j share[:, j] key_j`` to ``grad`` (R, D), for the query's gradient."""

    def key_grad_buffer(self, width: int, exact: torch.dtype, once: bool) -> Tensor:
        """Memory for `add_to_key_grad`, 0 beyond the first ``width`` negatives. ``once``: one block has all rows."""

    def add_to_key_grad(self, share: Tensor, query: Tensor, rows: slice, cols: slice, grad: Tensor) -> None:
        """Add ``share[b, j] query_b`` to the keys' gradient ``grad``. Blocks of rows come in order."""


@dataclass(frozen=True)
class SharedKeys:
    """``keys`` (K, D): all rows share the negatives. Blocks are views, products are matrix products."""

    keys: Tensor

    def copied_size(self, rows: int, width: int, partial: bool, dtype: torch.dtype) -> int:
        blanked = partial or self.keys.dtype != dtype
        return SCORE_COPIES * rows * width + blanked * self.keys.numel()

    def tile_shape(self, rows: int, width: int, budget: int) -> tuple[int, int]:
        tile_rows = min(rows, 1024)
        return tile_rows, min(width, max(128, budget // max(tile_rows, self.keys.shape[1])))

    def block(self, rows: slice, cols: slice, dtype: torch.dtype, allowed: Tensor | None) -> Tensor:
        del rows
        keys = self.keys[cols].to(dtype)
        return keys if allowed is None else keys.masked_fill(~allowed.any(0)[:, None], 0)

    def scores(self, query: Tensor, block: Tensor, bias: Tensor, out: Tensor) -> Tensor:
        return torch.addmm(bias, query, block.t(), out=out)

    def add_to_query_grad(self, share: Tensor, block: Tensor, grad: Tensor) -> None:
        grad.addmm_(share, block)

    def key_grad_buffer(self, width: int, exact: torch.dtype, once: bool) -> Tensor:
        grad = torch.empty_like(self.keys, dtype=self.keys.dtype if once else exact)
        grad[width:] = 0
        return grad

    def add_to_key_grad(self, share: Tensor, query: Tensor, rows: slice, cols: slice, grad: Tensor) -> None:
        if rows.start:
            grad[cols].addmm_(share.t(), query)
        elif grad.dtype == query.dtype:
            torch.mm(share.t(), query, out=grad[cols])
        else:
            grad[cols] = share.t() @ query


@dataclass(frozen=True)
class PerRowKeys:
    """``keys`` (B, K, D): each row has its own negatives."""

    keys: Tensor

    def copied_size(self, rows: int, width: int, partial: bool, dtype: torch.dtype) -> int:
        del rows, width  # one score per vector, so the vectors need more memory than the scores
        blanked = partial or self.keys.dtype != dtype
        return blanked * self.keys.numel()

    def tile_shape(self, rows: int, width: int, budget: int) -> tuple[int, int]:
        return _row_tile_shape(rows, width, self.keys.shape[2], budget)

    def block(self, rows: slice, cols: slice, dtype: torch.dtype, allowed: Tensor | None) -> Tensor:
        keys = self.keys[rows, cols].to(dtype)
        return keys if allowed is None else keys.masked_fill(~allowed[:, :, None], 0)

    def scores(self, query: Tensor, block: Tensor, bias: Tensor, out: Tensor) -> Tensor:
        return _row_scores(query, block, bias, out)

    def add_to_query_grad(self, share: Tensor, block: Tensor, grad: Tensor) -> None:
        _add_row_to_query_grad(share, block, grad)

    def key_grad_buffer(self, width: int, exact: torch.dtype, once: bool) -> Tensor:
        del exact, once  # each value is written once, so nothing is rounded twice
        grad = torch.empty_like(self.keys)
        grad[:, width:] = 0
        return grad

    def add_to_key_grad(self, share: Tensor, query: Tensor, rows: slice, cols: slice, grad: Tensor) -> None:
        if grad.dtype == query.dtype:
            torch.mul(share.unsqueeze(2), query.unsqueeze(1), out=grad[rows, cols])
        else:
            grad[rows, cols] = share.unsqueeze(2) * query.unsqueeze(1)


@dataclass(frozen=True)
class TableKeys:
    """A table ``keys`` (M, D), looked up by ``ids`` (B, K)."""

    keys: Tensor
    ids: Tensor

    def copied_size(self, rows: int, width: int, partial: bool, dtype: torch.dtype) -> int:
        del partial, dtype
        return rows * width * self.keys.shape[1]

    def tile_shape(self, rows: int, width: int, budget: int) -> tuple[int, int]:
        return _row_tile_shape(rows, width, self.keys.shape[1], budget)

    def block(self, rows: slice, cols: slice, dtype: torch.dtype, allowed: Tensor | None) -> Tensor:
        ids = self.ids[rows, cols]
        if not len(self.keys):  # every id is masked; an empty sum stands in for the vectors, with a gradient
            return self.keys.sum(0).to(dtype).expand(*ids.shape, -1)
        keys = self.keys.index_select(0, ids.reshape(-1)).to(dtype).view(*ids.shape, self.keys.shape[1])
        return keys if allowed is None else keys.masked_fill(~allowed[:, :, None], 0)

    def scores(self, query: Tensor, block: Tensor, bias: Tensor, out: Tensor) -> Tensor:
        return _row_scores(query, block, bias, out)

    def add_to_query_grad(self, share: Tensor, block: Tensor, grad: Tensor) -> None:
        _add_row_to_query_grad(share, block, grad)

    def key_grad_buffer(self, width: int, exact: torch.dtype, once: bool) -> Tensor:
        del width, once
        return torch.zeros_like(self.keys, dtype=exact)

    def add_to_key_grad(self, share: Tensor, query: Tensor, rows: slice, cols: slice, grad: Tensor) -> None:
        if not len(grad):
            return
        ids = self.ids[rows, cols].reshape(-1)
        grad.index_add_(0, ids, (share.unsqueeze(2) * query.unsqueeze(1)).flatten(0, 1))


@dataclass(frozen=True)
class DrawnKeys:
    """A table ``keys`` (M, D), looked up by ids that are not drawn yet. No `Layout`: only the kernels draw ids."""

    keys: Tensor
    draw: Draw


@dataclass(frozen=True)
class CountedKeys:
    """A table ``keys`` (M, D), and ids, given or to be drawn, that are counted first. No `Layout` either."""

    keys: Tensor
    ids: Tensor | Draw


Keys = Layout | DrawnKeys | CountedKeys
"""All layouts that the kernels take."""


def block_slices(total: int, step: int) -> Iterator[slice]:
    """Slices of length ``step`` that cover ``range(total)``. The last one may be shorter."""
    for start in range(0, total, step):
        yield slice(start, min(start + step, total))


def _row_tile_shape(rows: int, width: int, depth: int, budget: int) -> tuple[int, int]:
    tile_cols = min(width, max(1, budget // depth))
    return min(rows, max(1, budget // (tile_cols * depth))), tile_cols


def _row_scores(query: Tensor, block: Tensor, bias: Tensor, out: Tensor) -> Tensor:
    # On a CPU a row vector on the left is several times faster than a column vector on the right.
    torch.bmm(query.unsqueeze(1), block.transpose(1, 2), out=out.unsqueeze(1))
    return out.add_(bias)


def _add_row_to_query_grad(share: Tensor, block: Tensor, grad: Tensor) -> None:
    grad.unsqueeze(1).baddbmm_(share.unsqueeze(1), block)
