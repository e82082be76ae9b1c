"""What a run can be given: a loss, a metric, a step to pause at, assets, samplers with state, given negatives."""

import json
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from train_world import N_ITEMS, Dot, Mean, Watching, make_sampler, make_world, run

from negwise.errors import InputError
from negwise.losses import bpr, info_nce, scores
from negwise.protocols import Negatives
from negwise.records import read_result, read_run
from negwise.samplers import GivenFirst, Hardest, Lists, Mixture, Queue, Uniform
from negwise.tasks.sampler_choice import ModelScore
from negwise.training import checkpoint
from negwise.training.forward_pass import counts_apart


def weights(out, step=17):
    return load_file(out / "checkpoints" / str(step) / "weights.safetensors")


def same(ours, theirs):
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


class Pairwise:
    """BPR, called as InfoNCE is."""

    def __call__(self, query, positive, negatives, *, ids, mask=None, log_q=None, reduction="mean"):
        assert log_q is None
        return bpr(*scores(query, positive, negatives, ids=ids, mask=mask), reduction=reduction)

    def __repr__(self):
        return "Pairwise()"


def test_the_loss_is_the_callers(tmp_path):
    """The recorded loss is that of the loss given, on the first batch by hand; config.json names it."""
    model = Dot()
    run(tmp_path / "bpr", model, loss=Pairwise(), steps=1, eval_every=1)
    run(tmp_path / "usual", Dot(), steps=1, eval_every=1)
    [ours], [theirs] = (read_run(tmp_path / name).steps for name in ("bpr", "usual"))
    assert ours.win_rate == theirs.win_rate and ours.loss != theirs.loss
    assert json.loads((tmp_path / "bpr" / "config.json").read_text())["training"]["loss"] == "Pairwise()"
    with pytest.raises(InputError, match=r"training\.loss was 'Pairwise\(\)' and is 'not there'"):
        run(tmp_path / "bpr", Dot(), steps=1, eval_every=1)
    assert same(weights(tmp_path / "usual", 1), weights_of(tmp_path / "again", loss=info_nce))


def weights_of(out, **words):
    run(out, Dot(), steps=1, eval_every=1, **words)
    return weights(out, 1)


@pytest.mark.parametrize("metric", ["auc", "ndcg@10", "hit@3", "mrr"])
def test_the_metric_decides_which_weights_are_kept(tmp_path, metric):
    result = run(tmp_path, Mean(), steps=60, eval_every=4, metric=metric)
    curve = {record.step: record.value(metric) for record in read_run(tmp_path).of_split("val")}
    best = max(curve, key=lambda step: (curve[step], -step))
    assert (result.best.step, result.best.metric, result.best.value) == (best, metric, curve[best])
    assert result.weights == f"checkpoints/{best}"
    assert result.best.auc == result.evaluations["val"].auc


@pytest.mark.parametrize("case", ["open", "closed"])
def test_a_paused_run_continues_to_the_same_bits(tmp_path, case):
    words = {"model": lambda: Mean(dropout=0.3), "rule": Watching() if case == "closed" else None, "lag": 3}

    def go(name, until=None):
        return run(tmp_path / name, words["model"](), rule=words["rule"], lag=words["lag"], until=until)

    whole = go("whole")
    paused = go("parts", until=4)
    assert (paused.steps, paused.finished) == (4, False)
    assert read_result(tmp_path / "parts") is None
    assert go("parts", until=4).steps == 4  # nothing happens twice
    assert go("parts", until=11).steps == 11
    last = go("parts")
    assert last.finished and replace(last, seconds=0.0) == replace(whole, seconds=0.0)
    assert same(weights(tmp_path / "parts"), weights(tmp_path / "whole"))
    events = [record.event for record in read_run(tmp_path / "parts").events]
    assert events.count("pause") == 3 and events[-1] == "end"


def test_a_pause_before_the_first_step_and_beyond_the_last(tmp_path):
    assert run(tmp_path, Dot(), until=0).steps == 0
    assert run(tmp_path, Dot(), until=99).finished
    with pytest.raises(InputError, match="until=-1, expected a step from 0"):
        run(tmp_path / "other", Dot(), until=-1)


def test_threads_may_change_at_a_pause_and_nowhere_else(tmp_path):
    run(tmp_path, Dot(), until=5, threads=1)
    run(tmp_path, Dot(), until=9, threads=2)
    assert run(tmp_path, Dot()).threads == 2
    told = [record for record in read_run(tmp_path).events if record.event == "threads"]
    assert [(record.step, record.detail) for record in told] == [(5, "1 before, 2 from here on")]


def test_assets_lie_beside_the_weights(tmp_path):
    run(tmp_path, Dot(), steps=2, assets=lambda: {"tokenizer.json": b"{}", "items.txt": b"a\nb\n"})
    assert (tmp_path / "model" / "tokenizer.json").read_bytes() == b"{}"
    assert (tmp_path / "model" / "items.txt").read_bytes() == b"a\nb\n"


def queue(_=None):
    return Mixture([make_sampler(make_world()), Queue(30)], [1, 2])


def test_positives_are_pushed_in_the_order_of_the_steps(tmp_path):
    sampler = Queue(1000)
    run(tmp_path, Dot(), sampler=sampler, steps=16, eval_every=16)
    world, seen = make_world(), []
    from negwise.training import EpochOrder

    order = EpochOrder(len(world.train), 10, 3)
    for step in range(16):
        seen += world.train.positives[order.batch(step)].tolist()
    assert sampler.ids.tolist() == seen
    steps = read_run(tmp_path).steps
    assert steps[0].k_used == 0 and steps[-1].k_used > 0  # an empty queue has nothing to draw


def test_a_queue_resumes_from_a_checkpoint(tmp_path):
    whole = tmp_path / "whole"
    run(whole, Dot(dropout=0.2), sampler=queue(), save_every=2)
    run(tmp_path / "parts", Dot(dropout=0.2), sampler=queue(), save_every=2, until=6)
    state = checkpoint.latest(tmp_path / "parts").state
    assert state["samplers"] == {"0": {"pushed": 60}} and "samplers.safetensors" in state["files"]
    run(tmp_path / "parts", Dot(dropout=0.2), sampler=queue(), save_every=2)
    assert same(weights(tmp_path / "parts"), weights(whole))


def test_the_hardest_negatives_are_those_of_the_model_as_it_is(tmp_path):
    """Against scores by hand, and with weights that change from step to step."""
    model, seen = Mean(), []

    def noted(ids, positives, query):
        found = ModelScore(model)(ids, positives, query)
        vectors = model.encode_candidates(torch.arange(N_ITEMS)).detach()
        by_hand = model.encode_queries(query, lambda items: vectors[items]).detach()
        torch.testing.assert_close(found, torch.einsum("bd,bkd->bk", by_hand, vectors[ids]))
        seen.append(found)
        return found

    run(tmp_path, model, sampler=Hardest(Uniform(N_ITEMS), 20, noted), steps=4, eval_every=4)
    assert len(seen) == 4
    hard, easy = (read_run(path).steps for path in (tmp_path, weights_folder(tmp_path / "easy")))
    assert hard[0].win_rate < easy[0].win_rate


def weights_folder(out):
    run(out, Mean(), sampler=Uniform(N_ITEMS), steps=4, eval_every=4)
    return out


def test_wins_over_given_and_drawn_negatives_are_apart(tmp_path):
    """Each user's list is given; the win rates of both kinds, weighted by their pairs, are the whole."""
    world, rng = make_world(), np.random.default_rng(5)
    lists = Lists.of([rng.permutation(N_ITEMS)[: n % 4].tolist() for n in range(23)])
    run(tmp_path, Dot(), sampler=GivenFirst(lists, Uniform(N_ITEMS)), rule=None, steps=8, eval_every=8)
    for record in read_run(tmp_path).steps:
        assert record.given_win_rate is not None and record.drawn_win_rate is not None
        low, high = sorted((record.given_win_rate, record.drawn_win_rate))
        assert low - 1e-9 <= record.win_rate <= high + 1e-9
    run(tmp_path / "none", Dot(), world, steps=2)
    assert all(record.given_win_rate is None for record in read_run(tmp_path / "none").steps)


def test_hits_are_over_drawn_negatives():
    """Lists that are never beaten, or always, change nothing: a rule that holds hits sees only what was drawn."""
    query, positive = torch.tensor([[1.0]] * 3), torch.tensor([[2.0]] * 3)
    table = torch.tensor([[9.0], [1.0], [2.0], [0.0]])
    ids = torch.tensor([[0, 1, 3], [1, 2, 3], [0, 1, 0]])
    mask = torch.tensor([[True, True, True], [True, True, True], [True, False, False]])
    drawn = Negatives(ids, mask, given=torch.tensor([1, 1, 1]))
    wins, pairs, hits, rows = counts_apart(query, positive, table, drawn)
    assert wins.tolist() == [0, 1, 0] and pairs.tolist() == [1, 1, 1]
    assert hits.tolist() == [1, 0.5, 0] and rows.tolist() == [1, 1, 0]


def test_a_loss_without_hits_leaves_them_open(tmp_path):
    class Plain(NamedTuple):
        loss: torch.Tensor
        wins: torch.Tensor
        pairs: torch.Tensor

    def loss(*sides, **more):
        return Plain(*info_nce(*sides, **more)[:3])

    seen = []

    class Spy(Watching):
        def update(self, observation, state):
            seen.append(observation)
            return super().update(observation, state)

    run(tmp_path, Dot(), rule=Spy(), loss=loss, steps=6, lag=1)
    assert all(look.rows == 0 and look.pairs > 0 for look in seen[1:])
    assert all(record.hit_rate is None for record in read_run(tmp_path).steps)


def test_a_loss_has_the_same_name_in_every_process():
    """The address in the ``repr`` of a function changes from process to process; a run could not resume by it."""
    from negwise.training.trainer import _name_of

    assert _name_of(bpr) == "negwise.losses.score_losses.bpr"
    assert _name_of(partial(bpr, reduction="sum")) == "negwise.losses.score_losses.bpr(('reduction', 'sum'))"
    assert _name_of(Pairwise()) == "Pairwise()"
