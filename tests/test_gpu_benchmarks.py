"""The machinery of ``python -m benchmarks.kernels``, on a CPU: what fails or does not fit, and the limits counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import gpu, limits, peers
from benchmarks.cases import Case, Runner, bar, summary, unmeasured

CPU = torch.device("cpu")


def good() -> dict[str, Any]:
    return {"bars": [bar("speed", 5.0, 4.0), bar("memory", 9.0, 8.0, "lower", "%"), bar("rate", None, 1.0)]}


def broken() -> dict[str, Any]:
    raise ValueError("no such shape")


def test_a_case_that_fails_or_does_not_fit_leaves_the_others_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.json"
    runner = Runner(out, CPU, 60.0, {"device": "cpu"})
    assert not runner.run([Case("broken", 1, broken), Case("long", 1000, good), Case("good", 1, good)])
    found = json.loads(out.read_text())
    assert found["device"] == "cpu"
    assert found["cases"]["broken"]["failed"] == "ValueError: no such shape"
    assert "takes about 1000 s" in found["cases"]["long"]["left out"]
    assert [held["met"] for held in found["cases"]["good"]["bars"]] == [True, False, None]
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == ["broken", "long", "good"]
    lines = summary(found)
    assert "| good | memory | 9 % | ≤ 8 % | missed |" in lines and "failed: ValueError" in lines


def test_resuming_runs_what_is_missing_and_keeps_the_rest(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    Runner(out, CPU, 60.0, {}).run([Case("first", 1, good), Case("second", 1, broken), Case("third", 1000, good)])

    def again() -> dict[str, Any]:
        raise AssertionError("the first one is there")

    runner = Runner(out, CPU, 60.0, {}, resume=True)
    assert runner.run([Case("first", 1, again), Case("second", 1, good), Case("third", 1, good)])
    assert all("bars" in case for case in json.loads(out.read_text())["cases"].values())


def test_a_tiny_run_meets_no_bar_and_misses_none() -> None:
    assert {held["met"] for held in unmeasured(good())["bars"]} == {None}


def test_the_clock_counts_every_call_and_the_bar_takes_the_gpus_own_time() -> None:
    calls: list[int] = []
    spent, late = gpu.times(lambda: calls.append(1), CPU, repeats=7)
    assert (len(spent), late, len(calls)) == (7, 0, 7 + 3)  # three to warm up
    assert gpu.counted({"ms": 3.0}) == 3.0
    assert gpu.counted({"ms": 3.0, "queued_ms": 2.0, "graph_ms": 1.9}) == 2.0
    assert gpu.counted({"ms": 0.3, "queued_ms": 0.05, "graph_ms": 0.04}) == 0.04


def test_memory_beside_gradients_counts_the_forward_pass_whole() -> None:
    gradient = torch.zeros(2**18)  # one MiB
    assert gpu.extra_mib({"peak_mib": 5.0}, {"peak_mib": 5.5}, [gradient]) == 5.0
    assert gpu.extra_mib({"peak_mib": 5.0}, {"peak_mib": 9.0}, [gradient]) == 8.0


def test_distinct_ids_of_the_limit_are_those_of_a_simulation() -> None:
    m, b, k, d, size = 5000, 40, 100, 8, 2
    drawn = [len(np.unique(np.random.default_rng(seed).integers(0, m, b * k))) for seed in range(200)]
    forward = limits.table_forward(b, k, d, size).nbytes
    assert forward == b * k * 8 + b * k * d * size + 3 * b * d * size
    rest = 2 * b * k * 8 + 2 * b * d * size + m * d * size
    counted = (limits.table_both(m, b, k, d, size).nbytes - forward - rest) / (d * size)
    assert counted == pytest.approx(np.mean(drawn), abs=4 * np.std(drawn) / 200**0.5)


def test_the_limit_is_the_larger_of_both_times() -> None:
    work = limits.Work(nbytes=100.0, operations=1000.0)
    assert work.ms({"bytes_per_ms": 10.0, "operations_per_ms": 1000.0}) == 10.0
    assert work.ms({"bytes_per_ms": 1000.0, "operations_per_ms": 10.0}) == 100.0


def test_peers_that_are_there_compute_our_loss() -> None:
    if peers.missing("info-nce-pytorch"):
        pytest.skip("no peers here; python -m benchmarks.peers --install fetches them")
    found = peers.check()
    for offs in found.values():
        assert all(off < 1e-5 for off in offs.values() if isinstance(off, float))
    assert {peer.name for peer in peers.PEERS} == set(found)
