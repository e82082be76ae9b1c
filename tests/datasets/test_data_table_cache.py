"""Read once, bounded, whole or absent."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from negwise.datasets import cache_folder, read, source
from negwise.datasets.table_cache import file_hash, get_or_build
from negwise.errors import InputError


def log(folder, rows=20, name="log.txt"):
    path = folder / name
    path.write_text("".join(f"{row % 7 + 1} {row % 5 + 1}\n" for row in range(rows)))
    return path


def broken(*_):
    raise AssertionError("read again")


def test_a_second_start_reads_nothing(tmp_path, monkeypatch):
    path, cache = log(tmp_path), tmp_path / "cache"
    first = read(path, cache=cache)
    monkeypatch.setattr(source, "_read", broken)
    second = read(path, cache=cache)
    assert second.digest == first.digest
    assert second.tables["interactions"].equals(first.tables["interactions"])
    with pytest.raises(AssertionError, match="read again"):
        read(path, cache=tmp_path / "another")


def test_the_key_is_the_content(tmp_path):
    cache = tmp_path / "cache"
    path = log(tmp_path)
    first = read(path, cache=cache)
    again = path.read_text()
    stat = path.stat()
    path.write_text(again.replace("1 1\n", "1 2\n", 1))  # the same size,
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # and the same time
    assert read(path, cache=cache).digest != first.digest
    path.write_text(again)
    assert read(path, cache=cache).digest == first.digest


def test_a_copy_elsewhere_under_another_name_is_the_same_content(tmp_path, monkeypatch):
    cache, copy = tmp_path / "cache", tmp_path / "elsewhere" / "copy.data"
    path = log(tmp_path)
    path.write_text(path.read_text() + "x\n")
    first = read(path, skip_bad=1, cache=cache)
    copy.parent.mkdir()
    copy.write_bytes(path.read_bytes())
    monkeypatch.setattr(source, "_read", broken)
    second = read(copy, skip_bad=1, cache=cache)
    assert second.digest == first.digest
    assert [(problem.file, problem.where) for problem in second.problems] == [(str(copy), "line 21")]


def test_hashes_are_remembered_only_for_settled_files(tmp_path):
    cache = tmp_path / "cache"
    path = log(tmp_path)
    file_hash(path, cache)
    assert not (cache / "hashes").exists()  # changed a moment ago: it may change again within a clock tick
    memory = tmp_path / "memory"
    fake = file_hash(Path(sys.executable).resolve(), memory)
    assert file_hash(Path(sys.executable).resolve(), memory) == fake
    assert len(list((memory / "hashes").iterdir())) == 1


def test_what_was_allowed_before_is_an_error_now(tmp_path):
    path, cache = log(tmp_path), tmp_path / "cache"
    with path.open("a") as stream:
        stream.write("x\ny\n")
    assert [problem.where for problem in read(path, skip_bad=2, cache=cache).problems] == ["line 21", "line 22"]
    with pytest.raises(InputError, match="line 22"):
        read(path, skip_bad=1, cache=cache)
    with pytest.raises(InputError, match="line 21"):
        read(path, cache=cache)


def test_a_reader_that_fails_leaves_nothing(tmp_path):
    def build(folder):
        (folder / "half.arrow").write_text("half")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        get_or_build("key", tmp_path, build)
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_was_slower_takes_what_is_there(tmp_path):
    def build(folder):
        (folder / "mine").write_text("slow")
        get_or_build("key", tmp_path, lambda _: {"who": "fast"})  # another process, meanwhile
        return {"who": "slow"}

    folder, _ = get_or_build("key", tmp_path, build)
    assert json.loads((folder / "facts.json").read_text()) == {"who": "fast"}
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_damaged_cache_says_what_to_delete(tmp_path):
    found = read(log(tmp_path), cache=tmp_path / "cache")
    (found.folder / "facts.json").write_text("{")
    with pytest.raises(InputError, match="Delete that folder"):
        read(tmp_path / "log.txt", cache=tmp_path / "cache")


def test_a_truncated_table_says_what_to_delete(tmp_path):
    found = read(log(tmp_path), cache=tmp_path / "cache")
    table = found.folder / "interactions.arrow"
    table.write_bytes(table.read_bytes()[:-40])
    with pytest.raises(InputError, match="Delete that folder"):
        read(tmp_path / "log.txt", cache=tmp_path / "cache")


def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="NEGWISE_CACHE"):
        read(log(tmp_path), cache=tmp_path / "file" / "cache")


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("NEGWISE_CACHE")
    assert cache_folder().name.lower() in ("negwise", "cache")


@pytest.mark.parametrize("value", [-1, True, 1.5, "3"])
def test_skip_bad_is_a_count(value, tmp_path):
    with pytest.raises(InputError, match="skip_bad"):
        read(log(tmp_path), skip_bad=value, cache=tmp_path / "cache")


PEAK = """
import sys
from negwise.datasets import arrow_files, line_blocks, numbered_rows, read, source
line_blocks.BLOCK_BYTES = arrow_files.BATCH_ROWS = numbered_rows.WAITING_ROWS = 2**15  # several blocks even if small
source.open_tables = lambda folder: {}  # pages of a mapped file count as memory, and can be given back at any time
source.describe_columns = lambda *_: []
read(sys.argv[1], cache=sys.argv[2])
with open("/proc/self/status") as status:
    print(next(line for line in status if line.startswith("VmHWM")).split()[1])
"""


def peak(path, cache, code=PEAK):
    """Peak memory in MB of a process that reads ``path``."""
    # Not ru_maxrss: Linux carries it over from the parent, and after torch pytest is larger than any reader.
    run = subprocess.run([sys.executable, "-c", code, path, cache], capture_output=True, text=True, check=True)
    return int(run.stdout) / 1024


def write_pairs(path, rows):
    body = " ".join(f"w{number}" for number in range(200))
    with path.open("w") as stream:
        for row in range(rows):
            stream.write(json.dumps({"left": f"t{row % 50} a b", "right": f"w{row % 90} {body}"}) + "\n")


def write_mind(folder, rows):
    folder.mkdir()
    (folder / "news.tsv").write_text("".join(f"N{n}\tc\ts\ttitle {n}\t\t\t[]\t[]\n" for n in range(100)))
    with (folder / "behaviors.tsv").open("w") as stream:
        for row in range(rows):
            shown = " ".join(f"N{(row + n) % 100}-{int(n == 0)}" for n in range(40))
            stream.write(
                f"{row}\tU{row % 90}\t11/11/2019 1:00:00 AM\t{shown.replace('-0', '').replace('-1', '')}\t{shown}\n"
            )


def write_log(path, rows):
    log(path.parent, rows, path.name)


def write_csv(path, rows):
    """Rows of one user, so that only what is kept of a row could grow."""
    path.write_text("user,item,time\n" + "".join(f"u{row % 9},i{row % 7},{row}\n" for row in range(rows)))


def write_parquet(path, rows):
    """One row group, however many rows: values that compress badly, so that the file itself is large."""
    random = np.random.default_rng(0)
    columns = {"user": random.integers(0, 90, rows), "item": random.integers(0, 90, rows)}
    columns["time"] = random.integers(0, 10**9, rows)
    pq.write_table(pa.table(columns), path, row_group_size=rows)


READERS = [
    (write_pairs, 2_000), (write_mind, 5_000), (write_log, 50_000), (write_csv, 50_000), (write_parquet, 200_000),
]  # fmt: skip


def peaks(write, rows, folder, code=PEAK):
    """Peak memory for ``rows`` rows, and for ten times as many."""
    write(folder / "small", rows)
    write(folder / "large", 10 * rows)
    return [peak(folder / name, folder / "cache", code) for name in ("small", "large")]


needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize(("write", "rows"), READERS)
def test_memory_does_not_grow_with_the_file(write, rows, tmp_path):
    small, large = peaks(write, rows, tmp_path)
    # Ten times the rows. One that kept them would hold 10 MB more and far above, whatever the file's size.
    assert large < small + 5.0, (small, large)


@needs_proc
@pytest.mark.slow
def test_the_memory_test_sees_a_reader_that_keeps_its_rows(tmp_path):
    """From a parent that is itself larger than the reader, as pytest is once torch is loaded."""
    larger = np.ones(2**25)  # 256 MB
    kept = PEAK.replace("2**15", "10**9")  # the whole file is one block
    small, large = peaks(write_log, 50_000, tmp_path, kept)
    assert large > small + 10.0, (small, large)
    assert larger.nbytes > large * 2**20
