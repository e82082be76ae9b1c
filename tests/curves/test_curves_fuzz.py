"""Whatever the file holds, `read` gives sound curves or an `InputError`, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tracker_logs import database, write_events

from negwise.curves import Curves, read
from negwise.errors import InputError, MissingExtra

LOGS = Path(__file__).parent / "logs"
RUN = "".join(
    json.dumps(record) + "\n"
    for step in range(0, 40, 10)
    for record in (
        {"kind": "step", "step": step, "loss": 0.5, "win_rate": 0.5},
        {"kind": "eval", "step": step, "split": "train", "auc": 0.5 + step / 100, "queries": 9},
        {"kind": "eval", "step": step, "split": "val", "auc": 0.5 + step / 200, "auc_se": 0.01},
        {"kind": "event", "event": "resume", "step": step},
    )
)
REAL = [*(file.read_bytes() for file in sorted(LOGS.iterdir())), RUN.encode()]
POINTS = [(0, 0.5), (10, 0.625), (20, 0.75)]

NAMES = ["step", "epoch", "train_auc", "val_auc", "val/auroc", "val_auc_se", "queries", "val_pairs", "loss", "", "Step"]
NAMES += ["a - val/auc", "a - val/auc__MIN", "a - train/auc", "b - train/auc", "kind", "split", "auc", "log_history"]
CELLS = [
    "",
    "0",
    "1",
    ".5",
    "0.625",
    "nan",
    "-1",
    "65",
    "1e999",
    "1_0",
    '"',
    '"a',
    "\r",
    "\x0b",
    "\u2028",
    "eval",
    "val",
]


def mostly(good: st.SearchStrategy, bad: st.SearchStrategy) -> st.SearchStrategy:
    """A file has many values, and one bad one ends the reading: keep them rare, so that reading gets far."""
    return st.integers(0, 24).flatmap(lambda draw: bad if draw == 0 else good)


fuzz = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def check(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    try:
        curves = read(path)
    except (InputError, MissingExtra) as error:  # bytes may start as a file of W&B, which is not installed
        assert str(error).startswith(str(path))
        assert len(str(error)) < 6000
    else:
        assert_sound(curves)


def assert_sound(curves: Curves) -> None:
    assert curves.train_auc is not None or curves.val_auc is not None
    for split in ("train", "val"):
        auc, steps, se, queries, pairs = (
            getattr(curves, f"{split}_{name}") for name in ("auc", "steps", "se", "queries", "pairs")
        )
        assert (f"{split}_auc" in curves.columns) == (auc is not None)
        if auc is None:
            assert steps is None and se is None and queries is None and pairs is None
            continue
        assert auc.dtype == np.float64 and auc.ndim == 1 and auc.size > 0
        assert np.all((auc >= 0) & (auc <= 1))
        for other in (steps, se, queries, pairs):
            assert other is None or (other.shape == auc.shape and np.all(np.isfinite(other)) and np.all(other >= 0))
        assert steps is None or np.all(np.diff(steps) > 0)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "log"


@fuzz
@given(st.binary(max_size=300))
@example(b"\xef\xbb\xbf")
@example(b',\n"",')
def test_any_bytes(path: Path, data: bytes) -> None:
    check(path, data)


@fuzz
@given(st.text(max_size=300))
def test_any_text(path: Path, text: str) -> None:
    check(path, text.encode(errors="surrogatepass"))


aucs = mostly(st.sampled_from(["", ".5", "0.625", "1"]), st.sampled_from(CELLS) | st.floats().map(str))


@fuzz
@given(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True),
    st.lists(st.lists(aucs, min_size=5, max_size=5), max_size=6),
    st.sampled_from(",\t;"),
    st.sampled_from(["\n", "\r\n", "\r"]),
    mostly(st.just(0), st.integers(-1, 1)),
)
def test_any_table(
    path: Path, names: list[str], rows: list[list[str]], delimiter: str, newline: str, excess: int
) -> None:
    lines = [["step", *names], *([str(step), *row[: len(names) + excess]] for step, row in enumerate(rows))]
    check(path, newline.join(delimiter.join(line) for line in lines).encode())


scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from([*CELLS, 10**400])
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner), max_leaves=8
)
entries = mostly(
    st.fixed_dictionaries(
        {"eval_auc": mostly(st.floats(0, 1), values)}, optional={"train_auc": scalars, "loss": values}
    ),
    values,
)
evaluations = mostly(
    st.fixed_dictionaries(
        {
            "kind": mostly(st.just("eval"), st.sampled_from(["event", "step", 3])),
            "auc": mostly(st.floats(0, 1), values),
            "split": mostly(st.sampled_from(["val", "train", "test"]), scalars),
        },
        optional={"event": st.just("resume"), "queries": mostly(st.just(9), scalars), "auc_se": st.none()},
    ),
    values,
)


@fuzz
@given(st.lists(entries, max_size=6) | st.lists(evaluations, max_size=6), st.booleans())
def test_any_json(path: Path, entries: list[object], state: bool) -> None:
    for step, entry in enumerate(entries):
        if isinstance(entry, dict):
            entry.setdefault("step", step)
    if state:
        text = json.dumps({"epoch": 1, "log_history": entries}, indent=2)
    else:
        text = "".join(json.dumps(entry) + "\n" for entry in entries)
    check(path, text.encode())


@fuzz
@given(st.sampled_from(REAL), st.data())
def test_real_files_cut_short(path: Path, log: bytes, data: st.DataObject) -> None:
    check(path, log[: data.draw(st.integers(0, len(log)))])


@fuzz
@given(st.sampled_from(REAL), st.data())
def test_real_files_with_a_piece_replaced(path: Path, log: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(log)))
    end = data.draw(st.integers(start, min(len(log), start + 30)))
    piece = data.draw(
        st.binary(max_size=8) | st.sampled_from([b",", b"\n", b'"', b"{", b"9" * 5000, b"[" * 3000, b"NaN"])
    )
    check(path, log[:start] + piece + log[end:])


@fuzz
@given(st.sampled_from(REAL), st.randoms(use_true_random=False))
def test_real_files_with_lines_shuffled(path: Path, log: bytes, random) -> None:
    lines = log.split(b"\n")
    random.shuffle(lines)
    check(path, b"\n".join(lines))


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """An event file and a database."""
    pytest.importorskip("tensorboard")
    folder = tmp_path_factory.mktemp("binary")
    events = write_events(folder / "events", {"val/auc": dict(POINTS), "k": {0: 2.0}})
    stored = database(folder / "mlflow.db", {"a": {"val_auc": POINTS}}, [("k", "2", "id-a")])
    for file in (events, stored):
        assert_sound(read(file))
    return [events.read_bytes(), stored.read_bytes()]


@fuzz
@given(st.data())
def test_binary_files_with_pieces_replaced(path: Path, binary: list[bytes], data: st.DataObject) -> None:
    log = data.draw(st.sampled_from(binary))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(log)))
        end = data.draw(st.integers(start, min(len(log), start + 30)))
        log = log[:start] + data.draw(st.binary(max_size=30)) + log[end:]
    check(path, log)


def test_the_real_files_pass() -> None:
    for log in REAL:
        assert log  # an empty corpus would make every test above pass
    for file in LOGS.iterdir():
        assert_sound(read(file))
