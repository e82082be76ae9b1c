"""The signal of the demo: ``python -m benchmarks.demo JOB OUT.json``, JOB the folder of a ``negwise run --seeds 3``.

For every arm against K = 1, paired by seed: HR@5 among all test texts, and among 1,000 of them. The second is the
expectation over which 1,000 are drawn, in closed form: with A of N others above the positive, the number above among
999 drawn is hypergeometric.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from negwise.files import write_atomically
from negwise.metrics import Ranks
from negwise.training import read_ranks

AMONG, FIRST = 1000, 5


def hit_rate(ranks: Ranks, among: int | None = None) -> float:
    """Share of queries whose one positive is in the first five, among all or so many candidates; ties go against it."""
    above = ranks.above + ranks.tied - 1
    if among is None:
        return float(np.mean(above < FIRST))
    return float(np.mean(stats.hypergeom.cdf(FIRST - 1, ranks.sizes - 1, above, among - 1)))


def compare(job: Path) -> dict[str, Any]:
    results = json.loads((job / "results.json").read_text())
    rates = {
        arm["name"]: {
            seed["seed"]: (hit_rate(read_ranks(job / seed["run"])), hit_rate(read_ranks(job / seed["run"]), AMONG))
            for seed in arm["seeds"]
            if seed["state"] == "done"
        }
        for arm in results["arms"]
    }
    found: dict[str, Any] = {"command": json.loads((job / "job.json").read_text())["request"], "arms": {}}
    for name, seeds in rates.items():
        gaps = np.array([np.subtract(seeds[seed], rates["1"][seed]) for seed in sorted(seeds)])
        found["arms"][name] = {
            "HR@5": np.mean(list(seeds.values()), axis=0).round(4).tolist(),
            "against K=1": gaps.mean(0).round(4).tolist(),
            "se": (gaps.std(0, ddof=1) / len(gaps) ** 0.5).round(4).tolist() if len(gaps) > 1 else None,
            "seeds": len(gaps),
        }
    return found


def main() -> None:
    found = compare(Path(sys.argv[1]))
    write_atomically(Path(sys.argv[2]), json.dumps(found, indent=1) + "\n")
    for name, arm in found["arms"].items():
        print(f"K {name}: HR@5 {arm['HR@5']} (all, of 1,000), against K=1 {arm['against K=1']} +- {arm['se']}")


if __name__ == "__main__":
    main()
