"""Tiles of the frozen queue on one GPU: ``python -m benchmarks.tiles OUT.json``.

B = 256, K = 131,072, D = 128 in bfloat16, loss and the query's gradient, replayed from a CUDA graph: each tile of rows
and keys with so many warps, stages of the pipeline and programs a processor, with the win rate and without.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from benchmarks import gpu, limits, peers
from negwise.files import write_atomically
from negwise.losses import info_nce

ROWS, KEYS, DEPTH = 256, 131_072, 128
TILES = (
    (64, 128, 4, 3, 2), (64, 128, 4, 2, 2), (128, 128, 8, 3, 1), (128, 128, 8, 2, 1), (128, 64, 8, 3, 1),
    (128, 64, 4, 3, 1), (64, 64, 4, 3, 2), (64, 64, 4, 4, 3), (64, 64, 4, 3, 3), (128, 64, 8, 3, 2),
    (256, 64, 8, 2, 1), (64, 256, 4, 2, 1), (64, 256, 8, 2, 1),
)  # fmt: skip
"""Rows, keys, warps, stages, programs a processor; the first is what `product` has."""


def measured(tile: tuple[int, ...], stats: bool, device: torch.device) -> dict[str, Any]:
    """Microseconds and rate of one tile."""
    from negwise.losses.fused import product  # which needs Triton
    from negwise.losses.fused.arguments import processors

    rows, keys, warps, stages, programs = tile
    make = torch.Generator(device).manual_seed(0)
    query, positive, queue = (peers.vectors(make, n, DEPTH, dtype=torch.bfloat16) for n in (ROWS, ROWS, KEYS))
    query.requires_grad_()

    def split(total: int, block: int, others: int, where: torch.device) -> tuple[int, int]:
        blocks = -(-total // block)
        span = -(-blocks // max(1, processors(where) * programs // others))
        return span * block, -(-blocks // span)

    def call() -> None:
        query.grad = None
        info_nce(query, positive, queue, temperature=0.1, impl="fused", stats=stats).loss.backward()  # type: ignore[no-untyped-call]

    with (
        mock.patch.object(product, "_tile", lambda *_: (rows, keys, DEPTH, warps, stages)),
        mock.patch.object(product, "_split", split),
    ):
        ms = gpu.median_ms(gpu.replayed(call), device, repeats=40)
    rate = limits.queue(ROWS, KEYS, DEPTH, 2).operations / ms / 1e9
    names = ("rows", "keys", "warps", "stages", "programs a processor")
    return dict(zip(names, tile, strict=True)) | {"win rate": stats, "us": 1e3 * ms, "TFLOP/s": rate}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tiles", description=__doc__)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    if not torch.cuda.is_available():
        parser.error("there is no CUDA device")
    found = []
    for tile in TILES:
        for stats in (True, False):
            found.append(measured(tile, stats, torch.device("cuda")))
            print(found[-1], flush=True)
            write_atomically(out, json.dumps({"tiles": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
