"""The second study: runs to the end of training, each with its learning curves, its path of K and every test rank.

``run`` trains the blocks of the plan in their order; a call that is killed loses the runs that it was in. One line,
typed again with another ``--out`` until it says that nothing is left, on a machine with a GPU::

    python -m evidence.second_study run --data DATA --workers 12 --limit 560 --out runs/second-1
    python -m evidence.second_study run --data DATA --workers 12 --limit 560 --out runs/second-2 --done runs/second-1
    python -m evidence.second_study merge runs/second-1 runs/second-2 --out evidence/second
    python -m evidence.second_study tables evidence/second
    python -m evidence page

Blocks may be named, as ``run end-items rates``. `plan` lists them with the seconds that they take.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from evidence.second_cells import BLOCKS, DATA, cells_in_order, cells_of, seconds_of
from evidence.second_runs import read_all, save_runs, train_all
from evidence.second_tables import sentences, tables_of
from negwise import NegwiseError


def main(words: list[str] | None = None) -> int:
    """0 where all is done, 1 where something is left, 2 where the request was wrong."""
    asked = _parser().parse_args(words)
    try:
        match asked.verb:
            case "plan":
                _print_plan(asked.workers)
            case "run":
                cells = [cell for cell in cells_in_order(asked.blocks or BLOCKS) if cell.task in (asked.tasks or DATA)]
                left = train_all(
                    cells, asked.data, asked.out, tuple(asked.done),
                    workers=asked.workers, limit=asked.limit,
                )  # fmt: skip
                print(*left, f"{len(left)} left", sep="\n", file=sys.stderr)
                return int(bool(left))
            case "merge":
                asked.out.mkdir(parents=True, exist_ok=True)
                save_runs(read_all(asked.folders), asked.out)
            case "tables":
                found = read_all(asked.folders)
                print(*(f"{name}\n\n{text}\n" for name, text in tables_of(found).items()), sep="\n")
                print(*(f"{name}: {text}" for name, text in sentences(found).items()), sep="\n")
    except NegwiseError as error:
        print(f"evidence: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m evidence.second_study", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    run, plan, merge, tables = (verbs.add_parser(name) for name in ("run", "plan", "merge", "tables"))
    run.add_argument("blocks", nargs="*", help=f"of {', '.join(BLOCKS)}; all of them where none is named")
    run.add_argument("--tasks", nargs="+", choices=DATA, help="only the runs of these")
    run.add_argument("--data", type=Path, default=Path(), help="folder of ml-1m, reuters and mind")
    run.add_argument("--out", type=Path, required=True, help="folder for what comes out; what it has is kept")
    run.add_argument("--done", type=Path, nargs="*", default=[], help="folders of earlier calls")
    run.add_argument("--limit", type=float, default=1e9, help="seconds")
    for verb in (run, plan):
        verb.add_argument("--workers", type=int, default=12, help="runs side by side")
    merge.add_argument("folders", type=Path, nargs="+")
    merge.add_argument("--out", type=Path, required=True)
    tables.add_argument("folders", type=Path, nargs="+")
    return parser


def _print_plan(workers: int) -> None:
    """Blocks in their order: runs that no earlier block has, and their seconds side by side."""
    seen: set[object] = set()
    for block in BLOCKS:
        new = [cell for cell in cells_of(block) if cell not in seen]
        seen |= set(new)
        print(f"{block}: {len(new)} runs, {sum(map(seconds_of, new)) / workers:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
