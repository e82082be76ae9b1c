"""Do two versions train to the same weights? ``python tests/golden/against.py COMMIT``, or ``make golden-against``.

Every golden run is trained twice on this machine, by this checkout and by one of COMMIT, each in a process of its own
with one thread. Weights and optimizer states must be equal to the last bit.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from golden_runs import RUNS, STEPS, arguments, write_data

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Exit code 0 where all weights are equal, 1 where some differ, 2 where COMMIT is missing."""
    if len(sys.argv) != 2:
        print("usage: python tests/golden/against.py COMMIT", file=sys.stderr)
        return 2
    commit = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        data, other = write_data(home / "data"), home / "other"
        _git("worktree", "add", "--detach", str(other), commit)
        try:
            both = [(name, source, model) for model in RUNS for name, source in (("here", ROOT), ("there", other))]
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                list(pool.map(lambda one: _train(one[1], one[2], data, home / one[0] / one[2]), both))
        finally:
            _git("worktree", "remove", "--force", str(other))
        differences = {model: _differences(home / "here" / model, home / "there" / model) for model in RUNS}
    for model, found in differences.items():
        print(f"{model}:", f"differs in {', '.join(found)}" if found else "equal to the last bit")
    return 1 if any(differences.values()) else 0


def _git(*words: str) -> None:
    subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True)


def _train(checkout: Path, model: str, data: Path, out: Path) -> None:
    own = {"PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1", "NEGWISE_CACHE": str(out.parent / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "negwise", *arguments(model, data, out)],
        env={**os.environ, **own},
        cwd=checkout,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{checkout}, {model}: exit code {done.returncode}\n{done.stderr}")


def _differences(here: Path, there: Path) -> list[str]:
    """The names of tensors that are not equal, or not in both."""
    found = []
    for file in ("weights.safetensors", "optimizer.safetensors"):
        ours, theirs = (load_file(run / "checkpoints" / str(STEPS) / file) for run in (here, there))
        found += sorted(ours.keys() ^ theirs.keys())
        found += [name for name in sorted(ours.keys() & theirs.keys()) if not np.array_equal(ours[name], theirs[name])]
    return found


if __name__ == "__main__":
    sys.exit(main())
