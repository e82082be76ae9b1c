"""Workers that die, runs that fail, and a pool that continues."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from negwise.errors import InputError, NegwiseError
from negwise.jobs import worker_pool
from negwise.jobs.worker import ORPHANED
from negwise.jobs.worker_pool import PlannedRun, ask_worker, failure_of, train_all
from negwise.requests import TrainRequest

pytestmark = pytest.mark.slow


@pytest.fixture
def training(tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "pairs.jsonl"
    rows = [{"left": f"a{i} a{i % 7}", "right": f"b{i} b{i % 7} b{i % 11}"} for i in range(80)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return TrainRequest(
        data=str(file), model="siamese-cnn", k="2", steps=6, batch_size=8, pool=16, eval_every=3, device="cpu",
        settings={"hidden": 8, "embedding": 8, "pooling": 8}, threads=1, learning_rate=1e-3,
    )  # fmt: skip


class Heard:
    """A watch that remembers, and may act on a worker's news."""

    def __init__(self, act=lambda: None):
        self.lines, self.ends, self.act = [], {}, act

    def began(self, run):
        self.lines.append(f"{run.name} begins")

    def step(self, run, message):  # noqa: ARG002
        self.act()

    def ended(self, run, error):
        self.ends[run.name] = error

    def say(self, line):
        self.lines.append(line)


def planned(name, folder, training, **changes):
    return PlannedRun(name, folder, replace(training, **changes))


def workers():
    """Processes of workers whose parent is this process."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if b"negwise.jobs.worker" in words and parent == os.getpid():
            found.append(int(entry.name))
    return found


def test_a_failed_cell_is_failed_and_the_others_are_done(tmp_path, training):
    runs = [
        planned("good", tmp_path / "good", training),
        planned("bad", tmp_path / "bad", training, model="siamese-cnn", settings={"no_such": 1}),
        planned("also good", tmp_path / "also", training, seed=1),
    ]
    heard = Heard()
    train_all(runs, jobs=2, threads=1, progress=heard)
    assert heard.ends["good"] is None
    assert heard.ends["also good"] is None
    assert "no_such" in heard.ends["bad"]
    failure = failure_of(tmp_path / "bad")
    assert "no_such" in failure.error and failure.wrong_request  # not the machine
    assert failure_of(tmp_path / "good") is None
    assert (tmp_path / "good" / "result.json").exists()
    assert workers() == []
    again = Heard()
    train_all([runs[0]], jobs=1, threads=1, progress=again)
    assert again.lines == []  # it is done


def test_a_worker_that_dies_is_replaced_and_its_cell_ends_as_if_nothing_had_happened(tmp_path, training):
    """Killed, and told to stop by somebody else: neither is the end of the run."""
    names, ways = ("plain", "killed", "stopped"), {"killed": signal.SIGKILL, "stopped": signal.SIGTERM}
    heard = Heard()

    def strike():
        name = heard.lines[-1].split()[0]
        if name in ways:
            os.kill(workers()[0], ways.pop(name))

    heard.act = strike
    train_all([planned(name, tmp_path / name, training) for name in names], jobs=1, threads=1, progress=heard)
    assert heard.ends == dict.fromkeys(names)
    assert sum("resumes from its last checkpoint" in line for line in heard.lines) == 2
    assert any("SIGKILL" in line for line in heard.lines)
    plain, *others = ((tmp_path / name / "checkpoints" / "6" / "weights.safetensors").read_bytes() for name in names)
    assert others == [plain, plain]


def test_a_worker_that_is_dead_before_it_is_asked_is_replaced_too(tmp_path, training, monkeypatch):
    send, killed = worker_pool.Worker.send, []

    def ask_the_dead(worker, request):
        if not killed:
            killed.append(worker)
            worker.process.kill()
            worker.process.wait()
        send(worker, request)

    monkeypatch.setattr(worker_pool.Worker, "send", ask_the_dead)
    heard = Heard()
    train_all([planned("late", tmp_path / "late", training)], jobs=1, threads=1, progress=heard)
    assert heard.ends == {"late": None}
    assert len(killed) == 1


def test_a_request_from_somebody_who_is_dead_already_is_not_done(tmp_path, training):
    request = {"do": "train", "request": asdict(replace(training, out=str(tmp_path / "run")))}
    words = [sys.executable, "-m", "negwise.jobs.worker"]
    done = subprocess.run(words, input=json.dumps(request) + "\n", text=True, check=False, capture_output=True)
    assert done.returncode == ORPHANED
    assert not (tmp_path / "run" / "result.json").exists()


def test_ctrl_c_again_does_not_wait():
    class Process:
        told = ()

        def terminate(self):
            self.told += ("terminate",)

        def kill(self):
            self.told += ("kill",)

        def wait(self, _seconds):
            raise KeyboardInterrupt

    class Stub:
        def __init__(self):
            self.process = Process()

    stubs = [Stub(), Stub()]
    worker_pool._stop(stubs)
    assert [stub.process.told for stub in stubs] == [("terminate", "kill")] * 2


def test_a_cell_that_keeps_killing_its_worker_has_failed(tmp_path, training, monkeypatch):
    monkeypatch.setattr(worker_pool.Worker, "send", lambda self, _: self.process.kill())
    heard = Heard()
    train_all([planned("deadly", tmp_path / "deadly", training)], jobs=1, threads=1, progress=heard)
    assert "SIGKILL, 2 times" in heard.ends["deadly"]
    assert failure_of(tmp_path / "deadly").error == heard.ends["deadly"]


def test_a_worker_ends_when_whoever_started_it_is_killed(tmp_path, training):
    request = {"do": "train", "request": asdict(replace(training, steps=100_000, out=str(tmp_path / "run")))}
    script = (
        "import json, time\n"
        "from negwise.jobs.worker_pool import Worker\n"
        "worker = Worker(1)\n"
        f"worker.send(json.loads({json.dumps(request)!r}))\n"
        "print(worker.process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        assert soon(lambda: (tmp_path / "run" / "run.jsonl").exists())
        assert alive(pid)
        parent.kill()
    assert soon(lambda: not alive(pid))


def soon(happens, seconds=120):
    deadline = time.monotonic() + seconds
    while not happens() and time.monotonic() < deadline:
        time.sleep(0.05)
    return happens()


def alive(pid):
    """Whether there is such a process, and no mere record of one."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_one_question_one_answer(training):
    found = ask_worker({"do": "time", "request": asdict(training), "steps": 4}, 1)
    assert found["step"] > 0
    assert 0 < found["evaluation"] < found["pilot_evaluation"]
    with pytest.raises(InputError, match="no such"):
        ask_worker({"do": "time", "request": asdict(replace(training, data="no-such-file")), "steps": 4}, 1)
    with pytest.raises(NegwiseError, match="KeyError"):
        ask_worker({"do": "nonsense"}, 1)
