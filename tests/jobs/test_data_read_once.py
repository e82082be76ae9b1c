"""A job reads its data once: no worker opens the file, each finds what was read by a content key."""

import json
import os
import subprocess
import sys
from dataclasses import asdict

import pytest

from negwise.datasets import open_source, read
from negwise.errors import InputError
from negwise.jobs.worker import _request
from negwise.jobs.worker_pool import PlannedRun
from negwise.requests import TrainRequest
from negwise.tasks import make_task

# Python imports this when it starts, in the job and in its workers: it notes who opens the data or the cache.
WATCH = """
import os, sys

def watch(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        name = os.path.basename(os.fsdecode(arguments[0]))
        if name in ("pairs.jsonl", "facts.json"):
            with open(os.environ["WATCH_LOG"], "a") as log:
                log.write(f"{'worker' if 'negwise.jobs.worker' in sys.orig_argv else 'job'} {name} {arguments[1]}\\n")

sys.addaudithook(watch)
"""


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "pairs.jsonl"
    rows = [{"left": f"a{i} a{i % 7}", "right": f"b{i} b{i % 7} b{i % 11}"} for i in range(60)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def opened(folder, *words):
    """Run the command line with a cache of its own: who opened what, in order."""
    log = folder / f"{words[0]}.log"
    (folder / "watch").mkdir(exist_ok=True)
    (folder / "watch" / "sitecustomize.py").write_text(WATCH)
    paths = [str(folder / "watch"), os.environ.get("PYTHONPATH", "")]
    more = {"WATCH_LOG": str(log), "NEGWISE_CACHE": str(folder / f"{words[0]}-cache"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "negwise", *map(str, words)]
    done = subprocess.run(
        command,
        env={**os.environ, **more, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [tuple(line.split()) for line in log.read_text().splitlines()]


@pytest.mark.slow
def test_a_sweep_opens_its_file_as_often_as_one_look_at_the_data(pairs, tmp_path):
    """Two runs and a timing, in worker processes that read the cache and never the file."""
    look = [who for who, name, _ in opened(tmp_path, "data", pairs) if name == pairs.name]
    words = ["sweep", "--data", pairs, "--out", tmp_path / "job", "--k", "1,2", "--seeds", 1, "--steps", 2]
    sweep = opened(tmp_path, *words, "--batch-size", 8, "--queries", 4, "--jobs", 1, "--device", "cpu")
    assert len(list((tmp_path / "job").glob("arms/*/*/result.json"))) == 2
    assert [who for who, name, _ in sweep if name == pairs.name] == look == ["job"] * len(look)
    assert ("worker", "facts.json", "r") in sweep  # the watch sees what workers open
    assert sweep.count(("job", "facts.json", "w")) == 1  # parsed once,
    assert sweep.count(("worker", "facts.json", "w")) == 1  # and near-equal texts looked for once


def request_for(file, **more):
    return TrainRequest(
        data=str(file), model="siamese-cnn", k="2", settings={"hidden": 8, "embedding": 8, "pooling": 8}, **more
    )


def test_a_worker_gets_the_key_of_the_data_and_needs_no_file(pairs, tmp_path):
    source = read(pairs)
    message = PlannedRun("one", tmp_path / "run", request_for(pairs), source.key).message()
    pairs.unlink()
    request, found = _request(json.loads(json.dumps(message)))
    assert (found.key, found.digest) == (source.key, source.digest)
    assert request.data == str(pairs)
    assert make_task(request, found).data.digest == source.digest
    with pytest.raises(InputError, match=r"pairs\.jsonl: no such file"):
        make_task(request)


def test_data_is_opened_by_its_key_after_the_file_is_gone(pairs):
    source = read(pairs)
    pairs.unlink()
    again = open_source(source.key)
    assert (again.kind, again.path, again.digest) == ("pairs", str(pairs), source.digest)
    assert again.tables.keys() == source.tables.keys()
    assert all(again.tables[name].equals(table) for name, table in source.tables.items())
    assert again.word_list == source.word_list


def test_a_key_that_the_cache_does_not_have_is_told_with_what_to_do(pairs, tmp_path, monkeypatch):
    key = read(pairs).key
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "another"))
    with pytest.raises(InputError, match=r"not in the cache\. Read it again, or set NEGWISE_CACHE as before"):
        open_source(key)
    assert open_source(key, tmp_path / "cache").key == key


def test_a_request_without_a_key_reads_for_itself(pairs):
    assert _request({"request": asdict(request_for(pairs))})[1] is None
