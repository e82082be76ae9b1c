"""InfoNCE and the training step on one GPU, peers beside them: ``python -m benchmarks.kernels OUT.json``.

Cases in the order of their importance, each with its bars. `benchmarks.cases` says what happens when one fails or time
runs out; `gpu` is the clock, `limits` counts what cannot be done without, `peers` are the others. ``--tiny`` tries
every case on shapes that a CPU can take (the fused side with TRITON_INTERPRET=1, where Triton is installed); its
figures mean nothing. The step needs ML-1M, in the folder that NEGWISE_DATA names.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks import bert4rec, gpu, peers
from benchmarks.cases import Case, Runner, summary
from benchmarks.loss_cases import bars_5m, bars_100k, batch_case, inside, queue_case, small_case, table_case, wide_case
from benchmarks.sides import Bench


def cases(bench: Bench, tiny: bool, seconds: float) -> list[Case]:
    """All of them, the most important first."""
    n = {name: small if tiny else large for name, (large, small) in SIZES.items()}
    many = (n["table"], n["rows"], n["k"], n["d"])
    whole = (n["rows"], n["k"], n["d"])
    step = bert4rec.TINY if tiny else bert4rec.FULL
    full = Bench(bench.device, torch.float32, bench.top)
    return [
        Case("table 100k", 75, lambda: table_case(bench, *many, full=True, bars=bars_100k)),
        Case("table 5M", 60, lambda: table_case(bench, n["large table"], *whole, full=True, bars=bars_5m)),
        Case("queue", 60, lambda: queue_case(bench, n["queue rows"], n["queue"], n["d"])),
        Case("batch 32k", 75, lambda: batch_case(bench, n["batch"], n["wide"])),
        Case("batch 262k", 75, lambda: batch_case(bench, n["large batch"], n["wide"], plain=False)),
        Case("BERT4Rec step", 45, lambda: bert4rec.step_case(step, bench.device)),
        Case("BERT4Rec step as K grows", 60, lambda: bert4rec.growth_case(step, bench.device)),
        Case("BERT4Rec step, kernel by kernel", 30, lambda: bert4rec.kernels_case(step, bench.device)),
        Case("BERT4Rec to its quality", seconds + 40, lambda: bert4rec.quality_case(step, bench.device, seconds)),
        Case("table 100k, ids drawn in the kernel", 20, lambda: inside(bench, *many)),
        Case("table 100k, drawn by popularity", 25, lambda: table_case(bench, *many, skew=1.0)),
        Case("table of BERT4Rec's step", 20, lambda: table_case(full, *n["step"], skew=0.7)),
        Case("small table, ids looked up or counted", 25, lambda: small_case(bench, *n["small"])),
        Case("batch 8k, wide vectors", 40, lambda: wide_case(bench, *n["wide batch"])),
        Case("table of ML-1M", 20, lambda: table_case(bench, *n["ml"])),
    ]


SIZES: dict[str, tuple[Any, Any]] = {
    "table": (100_000, 50),
    "large table": (5_000_000, 200),
    "rows": (4096, 6),
    "k": (1024, 9),
    "d": (128, 16),
    "queue rows": (256, 8),
    "queue": (131_072, 40),
    "batch": (32_768, 32),
    "large batch": (262_144, 48),
    "wide": (256, 32),
    "wide batch": ((8_192, (384, 768, 1_024)), (9, (300,))),
    "step": ((3_400, 8_700, 100, 128), (30, 9, 5, 16)),
    "small": ((3_416, 8_700, (16, 64, 128, 192, 256, 1024), 128), (30, 9, (5, 40), 16)),
    "ml": ((3_706, 5_120, 100, 64), (40, 5, 6, 16)),
}
"""Each size on a GPU, and where it is only tried."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tiny", action="store_true", help="try every case on small shapes, on a CPU too")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these cases alone")
    parser.add_argument("--seconds", type=float, default=1e9, help="leave out a case that would not fit into this time")
    parser.add_argument("--quality-seconds", type=float, default=115.0, help="the length of BERT4Rec's training")
    parser.add_argument("--resume", action="store_true", help="run only what OUT lacks or what failed there")
    asked = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and not asked.tiny:
        parser.error("there is no CUDA device; --tiny tries the cases on a CPU")
    dtype = torch.float32 if asked.tiny else torch.bfloat16
    top = gpu.ceilings(device, asked.tiny)
    bench = Bench(device, dtype, top)
    chosen = cases(bench, asked.tiny, 3.0 if asked.tiny else asked.quality_seconds)
    names = [case.name for case in chosen]
    unknown = sorted(set(asked.only or ()) - set(names))
    if unknown:
        parser.error(f"--only: got {', '.join(unknown)}, expected names among {', '.join(names)}")
    facts = {
        "command": " ".join(["python -m benchmarks.kernels", *sys.argv[1:]]),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "peers": peers.standing(),
        "ceilings": top,
    }
    runner = Runner(asked.out, device, asked.seconds, facts, judge=not asked.tiny, resume=asked.resume)
    good = runner.run([case for case in chosen if not asked.only or case.name in asked.only])
    print(summary(json.loads(asked.out.read_text())))
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
