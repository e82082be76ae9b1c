"""Read once, bounded, whole or absent."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from negwise.data import cache_folder, read, source
from negwise.data.cache import cached, file_hash
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
        cached("key", tmp_path, build)
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_was_slower_takes_what_is_there(tmp_path):
    def build(folder):
        (folder / "mine").write_text("slow")
        cached("key", tmp_path, lambda _: {"who": "fast"})  # another process, meanwhile
        return {"who": "slow"}

    folder, _ = cached("key", tmp_path, build)
    assert json.loads((folder / "facts.json").read_text()) == {"who": "fast"}
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_damaged_cache_says_what_to_delete(tmp_path):
    found = read(log(tmp_path), cache=tmp_path / "cache")
    (found.folder / "facts.json").write_text("{")
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
import resource, sys
from negwise.data import read
read(sys.argv[1], cache=sys.argv[2])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak(path, cache):
    """Peak memory in MB of a process that reads ``path``."""
    run = subprocess.run([sys.executable, "-c", PEAK, path, cache], capture_output=True, text=True, check=True)
    return int(run.stdout) / (1024 * (1024 if sys.platform == "darwin" else 1))


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


@pytest.mark.slow
@pytest.mark.parametrize(("write", "rows"), [(write_pairs, 2_000), (write_mind, 5_000), (log, 50_000)])
def test_memory_does_not_grow_with_the_file(write, rows, tmp_path):
    small, large = tmp_path / "small", tmp_path / "large"
    if write is log:
        small, large = log(tmp_path, rows, "small"), log(tmp_path, 10 * rows, "large")
    else:
        write(small, rows)
        write(large, 10 * rows)
    peaks = [peak(path, tmp_path / "cache") for path in (small, large)]
    # Ten times the rows. One that kept them would hold 20 MB of Python objects and more, whatever the file's size.
    assert peaks[1] < peaks[0] + 5.0, peaks
