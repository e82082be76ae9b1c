"""What the golden runs come to, as data: ``python tests/golden/make_golden.py`` writes ``golden.json`` anew.

Do that only where results are meant to change, and say why in the commit.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from golden_runs import RUNS, STEPS, arguments, write_data

GOLDEN = Path(__file__).parent / "golden.json"


def train(model: str, data: Path, out: Path) -> Path:
    """Run ``negwise train`` in this process; returns the folder of the run."""
    from negwise.cli import app

    app(arguments(model, data, out), standalone_mode=False)
    return out


def summary(out: Path) -> dict[str, Any]:
    """Losses of every step, AUCs, and the norm of every weight after the last step."""
    from safetensors.numpy import load_file

    log = [json.loads(line) for line in (out / "run.jsonl").read_text().splitlines()]
    weights = load_file(out / "checkpoints" / str(STEPS) / "weights.safetensors")
    return {
        "loss": [record["loss"] for record in log if record["kind"] == "step"],
        "win_rate": [record["win_rate"] for record in log if record["kind"] == "step"],
        "auc": {f"{r['split']} {r['step']}": r["auc"] for r in log if r["kind"] == "eval"},
        "norm": {name: float((array.astype("float64") ** 2).sum() ** 0.5) for name, array in sorted(weights.items())},
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = write_data(Path(folder) / "data")
        found = {model: summary(train(model, data, Path(folder) / model)) for model in RUNS}
    GOLDEN.write_text(json.dumps(found, indent=1) + "\n")
    print(f"wrote {GOLDEN}")


if __name__ == "__main__":
    main()
