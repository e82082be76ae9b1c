"""What a run writes, what a rule sees, and that it learns."""

import io
import json
import math
import platform
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from train_world import N_ITEMS, Dot, Mean, Watching, make_sampler, make_world, run

import negwise as nw
from negwise.draws import Key
from negwise.errors import InputError, MissingExtra, NegwiseError
from negwise.files import lock_folder, read_json
from negwise.protocols import OpenLoopRule
from negwise.records import BestStep, EvalRecord, Scores, StepRecord, read_result, read_run
from negwise.samplers import Popularity, Uniform
from negwise.schedule import AnsK, ConstantK, training_fraction
from negwise.tasks import evaluation_splits
from negwise.training import EpochOrder, Settings, load_weights
from negwise.training.journal import Bar, Lines, display
from negwise.training.launch import SignalGuard, kept_memory, make_fabric, reseed, resolve_threads


def plain_loop(world, model, rule, steps, size, seed, lr):
    """The loop as one would write it by hand: SGD, K negatives a row encoded row by row."""
    sampler, order, seen = make_sampler(world), EpochOrder(len(world.train), size, seed), []
    for step in range(steps):
        k = rule(training_fraction(step, steps))
        query, positives, groups = world.train.batch(order.batch(step))
        drawn = sampler(positives, k, Key(seed, step, torch.arange(len(positives))), owner=groups)
        items = model.encode_candidates(torch.arange(N_ITEMS))
        inputs = model.encode_queries(query, lambda ids, items=items: items[ids])
        negative = torch.einsum("bd,bkd->bk", inputs, items[drawn.ids]).masked_fill(~drawn.mask, -math.inf)
        positive = (inputs * items[positives]).sum(1, keepdim=True)
        loss = -torch.log_softmax(torch.cat([positive, negative], 1), 1)[:, 0].mean()
        wins = ((positive > negative) & drawn.mask).sum().item()
        seen.append((k, drawn.mask.sum().item() / len(positives), loss.item(), wins / drawn.mask.sum().item()))
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for weight in model.parameters():
                weight -= lr * weight.grad
    return seen


@pytest.mark.parametrize("kind", [Dot, Mean])
def test_a_run_is_the_plain_loop(kind, tmp_path):
    world, ours, theirs = make_world(), kind(), kind()
    run(tmp_path, ours, world, optimizer=lambda weights: torch.optim.SGD(weights, lr=0.5))
    wanted = plain_loop(world, theirs, AnsK(4.5), 17, 10, 3, 0.5)
    for mine, its in zip(read_run(tmp_path).steps, wanted, strict=True):
        assert (mine.k, mine.k_used) == its[:2]
        assert (mine.loss, mine.win_rate) == pytest.approx(its[2:], abs=1e-6)
    for mine, its in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-5, atol=1e-6)


def test_what_is_logged(tmp_path):
    run(tmp_path, rule=ConstantK(3), sampler=Uniform(N_ITEMS))
    log = read_run(tmp_path)
    assert [record.step for record in log.steps] == list(range(1, 18))
    assert [record.event for record in log.events] == ["start", "end"]
    for record in log.steps:
        assert record.k == record.k_used == 3
        assert record.log_k1 == pytest.approx(math.log(4))
        assert record.mi_bound == pytest.approx(float(nw.mi_bound(record.loss, 3)))
    assert [(r.step, r.split) for r in log.evals] == [
        (step, split) for step in (0, 5, 10, 15, 17) for split in ("train", "val")
    ]
    for record in log.evals:
        assert record.queries == 40 and record.pairs > 1000 and 0 < record.auc_se < 0.1
        assert {"ndcg@10", "hit@5", "mrr"} <= record.metrics.keys()
    assert all(one.time <= two.time for one, two in zip(log.steps, log.steps[1:], strict=False))
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["training"]["rule"] == "ConstantK(k=3)" and config["optimizer"]["lr"] == 0.02


def test_records_of_several_steps(tmp_path):
    """A record every four steps says what four records would, averaged over rows."""
    for every in (1, 4):
        run(tmp_path / str(every), log_every=every, eval_every=8, rule=ConstantK(2), sampler=Uniform(N_ITEMS))
    each, some = (read_run(tmp_path / str(every)).steps for every in (1, 4))
    assert [record.step for record in some] == [4, 8, 12, 16, 17]
    rows = [7 if record.step % 16 == 0 else 10 for record in each]
    for first, record in zip((0, 4, 8, 12, 16), some, strict=True):
        window = slice(first, record.step)
        assert record.loss == pytest.approx(np.average([r.loss for r in each[window]], weights=rows[window]))
    corrected = run(tmp_path / "c", correct=True, steps=2)
    assert corrected.steps == 2
    assert [record.mi_bound for record in read_run(tmp_path / "c").steps] == [None, None]


def test_a_correction_needs_probabilities(tmp_path):
    with pytest.raises(InputError, match="correct=True, and the sampler gave no log_q"):
        run(tmp_path, correct=True, steps=2, sampler=Popularity(torch.ones(N_ITEMS), log_q=False))


def test_result_and_best_weights(tmp_path):
    model = Mean()
    result = run(tmp_path, model, steps=60, eval_every=10)
    assert result == read_result(tmp_path) and result.finished
    curve = {record.step: record.auc for record in read_run(tmp_path).of_split("val")}
    best = max(curve, key=lambda step: (curve[step], -step))
    assert result.best == BestStep(best, curve[best], "auc", curve[best])
    assert result.weights == f"checkpoints/{best}"
    assert set(result.evaluations) == {"train", "val", "test"}
    assert result.evaluations["val"].auc == curve[best]
    from negwise.tasks import evaluate_model

    chosen = load_weights(Mean(seed=9), tmp_path)
    assert (
        Scores(**evaluate_model(chosen, evaluation_splits(make_world())["test"]).record()) == result.evaluations["test"]
    )
    last = load_weights(Mean(seed=9), tmp_path / "checkpoints" / "60")
    assert torch.equal(last.mix.weight, model.mix.weight)


def test_it_learns(tmp_path):
    result = run(tmp_path, Mean(), make_world(n=400), steps=300, eval_every=100)
    curve = [record.auc for record in read_run(tmp_path).of_split("val")]
    assert curve[0] < 0.6 and result.best.auc > 0.65
    losses = [record.loss - record.log_k1 for record in read_run(tmp_path).steps]
    assert np.mean(losses[-50:]) < np.mean(losses[:20]) - 0.1


@pytest.mark.parametrize("lag", [1, 2, 8])
def test_a_rule_sees_counts_of_a_fixed_number_of_steps_before(tmp_path, lag):
    seen = []

    class Spy(Watching):
        def update(self, observation, state):
            seen.append(observation)
            return super().update(observation, state)

    assert not isinstance(Spy(), OpenLoopRule)
    run(tmp_path, rule=Spy(), lag=lag)
    log = read_run(tmp_path)
    assert [look.step for look in seen] == list(range(17))
    assert all((look.pairs, look.rows, look.k) == (0, 0, None) for look in seen[:lag])
    rows = [7 if record.step % 16 == 0 else 10 for record in log.steps]
    for look, before, count in zip(seen[lag:], log.steps, rows, strict=False):
        assert look.pairs == round(before.k_used * count)
        assert look.wins / look.pairs == pytest.approx(before.win_rate)
        assert (look.rows, look.k) == (count, before.k)
        assert look.hits / look.rows == pytest.approx(before.hit_rate)
    aucs = {record.step: record.auc for record in log.of_split("val")}
    assert {look.step: look.val_auc for look in seen if look.val_auc is not None} == {
        step + lag: auc for step, auc in aucs.items() if step + lag < 17
    }
    assert read_json(tmp_path / "config.json")["training"]["lag"] == lag
    assert len({record.k for record in log.steps}) > 2


def test_learning_rates_are_scaled(tmp_path):
    rates = []

    class Watched(torch.optim.SGD):
        def step(self, closure=None):
            rates.append(self.param_groups[0]["lr"])
            return super().step(closure)

    run(tmp_path, optimizer=lambda weights: Watched(weights, lr=0.5), lr_scale=lambda fraction: 1 - fraction, steps=5)
    assert rates == pytest.approx([0.5, 0.375, 0.25, 0.125, 0.0])


def test_dropout_follows_seed_and_step_alone(tmp_path):
    device = torch.device("cpu")
    draws = {}
    for key in [(0, 0, 0), (0, 1, 0), (1, 0, 0), (0, 0, 1), (0, 0, 0)]:
        torch.rand(7)
        reseed(*key, device)
        drawn = torch.rand(4)
        assert torch.equal(draws.setdefault(key, drawn), drawn)
    assert len({tuple(drawn.tolist()) for drawn in draws.values()}) == 4
    before = torch.random.get_rng_state()
    run(tmp_path, Dot(dropout=0.5), steps=2)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("precision", ["bf16-mixed", "64-true"])
def test_precisions(precision, tmp_path):
    world = make_world(n=400)
    result = run(tmp_path, Mean(), world, precision=precision, steps=300, eval_every=300)
    assert result.precision == precision
    assert result.best.auc > 0.62


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators are left alone")
def test_freed_memory_stays_with_the_process_while_it_trains():
    """Counted in pages that the system had to give out, and in those that the process has."""
    resource = pytest.importorskip("resource")

    def faults():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(4):
            torch.empty(16 << 20).fill_(1.0)  # 64 MB
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    def resident_mb():
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20

    outside, before = faults(), resident_mb()
    with kept_memory():
        faults()
        kept = faults()
        large, behind = torch.ones(16 << 20), torch.ones(1 << 20)  # what is behind it keeps a hole from the heap's end
        del large
    after = resident_mb()
    assert kept < outside / 10
    assert after < before + 16, behind.shape


def test_settings_are_checked():
    for changes, message in (
        ({"steps": 0}, "steps=0"),
        ({"batch_size": 2.5}, "batch_size=2.5"),
        ({"eval_every": 0}, "eval_every=0"),
        ({"seed": -1}, "seed=-1"),
        ({"precision": "16-mixed"}, "expected one of 32-true"),
        ({"device": "tpu"}, "device='tpu'"),
    ):
        with pytest.raises(InputError, match=message):
            Settings(**{"steps": 5, "batch_size": 3, **changes})
    usual = Settings(steps=101, batch_size=3)
    assert [step for step in range(102) if usual.evaluates(step)] == [*range(0, 101, 6), 101]
    assert resolve_threads(None, 3) == resolve_threads(3, 3) == resolve_threads(3, None) == 3
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="no GPU"):
            make_fabric("cuda")
    with pytest.raises(InputError, match="plain JSON"):
        run("unused", config={"what": object()})


STEP = StepRecord(step=30, k=4.25, loss=1.5)
EVALUATION = EvalRecord(step=30, split="val", auc=0.712, auc_se=0.003)


def test_lines_in_a_pipe(tmp_path, capsys, monkeypatch):
    run(tmp_path, show=True)
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 10 and err[-1].startswith("step 17/17  val AUC 0.")
    stream = io.StringIO()
    lines = display(100, 10, stream)
    assert isinstance(lines, Lines)
    lines.step(STEP)
    assert stream.getvalue() == ""
    monkeypatch.setattr("negwise.training.journal.SECONDS_BETWEEN_LINES", 0)
    lines.began -= 10
    lines.step(STEP)
    assert stream.getvalue() == "step 30/100  K 4.25  loss 1.5000  2 steps/s  0:00:35 left\n"


def test_a_bar_on_a_terminal():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    bar = display(100, 10, stream)
    assert isinstance(bar, Bar)
    with bar:
        bar.evaluation(EVALUATION)
        bar.step(STEP)
        bar.say("hello")
    shown = stream.getvalue()
    for part in ("30/100", "K 4.25", "loss 1.5000", "AUC val 0.712", "steps/s", "hello"):
        assert part in shown, part


def test_a_bar_in_eighty_columns(monkeypatch):
    """Nothing is cut off: step, K, loss, AUC, rate and the time left."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with display(10000, 0, stream) as bar:
        for split in ("train", "val"):
            bar.evaluation(replace(EVALUATION, split=split))
        for step in range(1, 60):
            bar.step(replace(STEP, step=step, k=180.25))
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue().split("\r")[-1]).strip()
    pattern = r"59/10000 .*AUC train 0\.712 val 0\.712  K 180  loss 1\.5000  [0-9.e+]+ steps/s (\d:\d\d:\d\d|-:--:--)"
    assert re.fullmatch(pattern, last), last


def test_tensorboard_has_to_be_there(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingExtra, match="tensorboard"):
        run(tmp_path / "without", tensorboard=True)
    assert not (tmp_path / "without").exists()


@pytest.mark.slow
def test_tensorboard_on_request(tmp_path):
    """TensorBoard's own reader finds what the log has."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run(tmp_path, tensorboard=True)
    log, events = read_run(tmp_path), accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()

    def plotted(name):
        return {event.step: event.value for event in events.Scalars(name)}

    for name in ("k", "k_used", "loss", "win_rate", "log_k1", "mi_bound"):
        assert plotted(f"train/{name}") == {
            record.step: pytest.approx(getattr(record, name), rel=1e-6) for record in log.steps
        }, name
    for split in ("train", "val"):
        assert plotted(f"eval/{split}/auc") == {
            record.step: pytest.approx(record.auc, rel=1e-6) for record in log.of_split(split)
        }


def test_a_second_ctrl_c_stops_at_once():
    import os
    import signal

    before = signal.getsignal(signal.SIGINT)
    with SignalGuard() as stopping:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopping.received
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_two_processes_do_not_write_in_one_folder(tmp_path):
    run(tmp_path / "done", steps=2)
    with lock_folder(tmp_path / "done", "run"):
        assert run(tmp_path / "done", steps=2).steps == 2  # what is done may be read by anyone
    with lock_folder(tmp_path / "new", "run"), pytest.raises(NegwiseError, match="another process works on this run"):
        run(tmp_path / "new", steps=2)
    assert not (tmp_path / "new" / "run.jsonl").exists()
    assert run(tmp_path / "new", steps=2).steps == 2
