"""What starting the command line costs, beside a bare import of what it cannot do without."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.table import Row, seconds


def run() -> list[Row]:
    """``negwise estimate`` against ``python -c "import numpy, scipy.special"``, whole processes."""
    # An installed package has its bytecode; a shell that forbids writing it would measure the compiler.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def process(*words: str) -> None:
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, env=environment)

    took = seconds(
        {
            "estimate": lambda: process("-m", "negwise", "estimate", "--train-auc", "0.75"),
            "bare": lambda: process("-c", "import numpy, scipy.special"),
        },
        repeats=15,
        warmup=2,
    )
    return [
        Row(
            "start of negwise estimate",
            "time over a bare import of numpy, scipy.special",
            took["estimate"] / took["bare"],
            1.7,
            "lower",
        )
    ]
