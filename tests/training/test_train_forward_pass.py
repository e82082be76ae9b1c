"""One step against plain loops in float64: every slot of every row encoded by itself."""

import math

import pytest
import torch
from graph_world import inputs_for, world
from train_world import N_ITEMS, Dot, Mean, make_sampler, make_world

from negwise.draws import Key
from negwise.errors import InputError
from negwise.losses import info_nce
from negwise.metrics.model_ranking import DENSE, DistinctIds
from negwise.samplers import Hardest, Impression, InBatch, Lists, Mixture, Pool, Popularity, Uniform
from negwise.training.batches import check_multiprocess, draw_negatives, load_batch
from negwise.training.forward_pass import COUNTS, RowResults, StepInputs, TrainingStep, sum_rows


@pytest.mark.parametrize("n_items", [N_ITEMS, DENSE * 1000])
@pytest.mark.parametrize("size", [1, 30, 900])
def test_distinct_is_unique(n_items, size):
    wanted = torch.randint(n_items, (size,), generator=torch.Generator().manual_seed(size))
    found = DistinctIds.of(wanted, n_items)
    ids, inverse = torch.unique(wanted, return_inverse=True)
    assert torch.equal(found.ids, ids)
    assert torch.equal(found.places(wanted), inverse)
    assert torch.equal(found.places(wanted.reshape(-1, 1)), inverse.reshape(-1, 1))
    assert (found.table is None) == (size * DENSE < n_items)


def samplers():
    data = make_world(shown=True)
    lists = Lists(torch.from_numpy(data.impressions.offsets), torch.from_numpy(data.impressions.ids))
    counts = torch.arange(N_ITEMS) + 1
    return {
        "uniform": make_sampler(data),
        "popularity": Popularity(counts, 0.75),
        "pool": Pool(Uniform(N_ITEMS), 20),
        "in-batch": InBatch(),
        "impression": Impression(lists),
    }


def by_loops(model, batch, negatives, correct):
    """(loss, wins, pairs) of each row: one candidate encoded at a time."""
    encode = model.encode_candidates
    inputs = model.encode_queries(
        batch.query, lambda items: torch.stack([torch.cat([encode(i[None]) for i in row]) for row in items])
    )
    rows = []
    for row, query in enumerate(inputs):
        positive = query @ encode(batch.positives[row][None])[0]
        kept = [slot for slot in range(negatives.ids.shape[1]) if negatives.mask[row, slot]]
        scores = [query @ encode(negatives.ids[row, slot][None])[0] for slot in kept]
        terms = list(scores)
        if correct:
            terms = [
                score - negatives.log_q[row, slot] - math.log(len(kept))
                for score, slot in zip(scores, kept, strict=True)
            ]
        loss = -positive + torch.logsumexp(torch.stack([positive, *terms]), 0)
        wins = sum(1.0 if positive > score else 0.5 if positive == score else 0.0 for score in scores)
        rows.append((loss, wins, len(kept)))
    return rows


@pytest.mark.parametrize("kind", [Dot, Mean])
@pytest.mark.parametrize("name", list(samplers()))
@pytest.mark.parametrize("correct", [False, True])
def test_step_is_the_plain_loop(kind, name, correct):
    model, data = kind().double(), make_world(shown=True)
    key = Key(2, 4)
    batch = load_batch(data.train, torch.arange(12).numpy(), slice(0, 12), key, None)
    negatives = draw_negatives(samplers()[name], batch, 4.5, key)
    loss, wins, pairs, *_ = TrainingStep(model)(
        StepInputs.of(batch.query, batch.positives, negatives, model, N_ITEMS, correct)
    )
    loss.mean().backward()
    ours = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    rows = by_loops(model, batch, negatives, correct)
    torch.stack([row[0] for row in rows]).mean().backward()
    assert loss.tolist() == pytest.approx([row[0].item() for row in rows], rel=1e-9)
    assert wins.tolist() == [row[1] for row in rows] and pairs.tolist() == [row[2] for row in rows]
    for name, weight in model.named_parameters():
        torch.testing.assert_close(ours[name], weight.grad, rtol=1e-9, atol=1e-12)
    assert sum(pairs.tolist()) > 12


@pytest.mark.parametrize("name", list(samplers()))
def test_each_candidate_is_encoded_once(name):
    model, data, key = Mean(), make_world(shown=True), Key(2, 4)
    batch = load_batch(data.train, torch.arange(12).numpy(), slice(0, 12), key, None)
    negatives = draw_negatives(samplers()[name], batch, 4, key)
    TrainingStep(model)(StepInputs.of(batch.query, batch.positives, negatives, model, N_ITEMS))
    drawn = negatives.ids if negatives.pool is None else negatives.pool
    wanted = {*batch.query.items.flatten().tolist(), *batch.positives.tolist(), *drawn.flatten().tolist()}
    assert model.encoded == [len(wanted)]


@pytest.mark.parametrize(("name", "mixed"), [("bert4rec", torch.bfloat16), ("siamese-cnn", torch.float32)])
def test_autocast_scores_a_table_in_its_dtype(name, mixed):
    """A table is a weight and multiplied as one; its gradient has its own dtype. What a model encodes stays so."""
    parts = world(name)
    model, inputs = parts[0].float(), inputs_for(parts, 0, 5)
    given = []

    def noted(*sides, **words):
        given.append([side.dtype for side in sides])
        return info_nce(*sides, **words)

    plain = TrainingStep(model, noted)(inputs).loss
    with torch.autocast("cpu", torch.bfloat16):
        loss = TrainingStep(model, noted)(inputs).loss
    loss.mean().backward()
    assert given == [[torch.float32] * 3, [mixed] * 3]
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, plain, rtol=3e-2, atol=3e-2)
    assert all(weight.grad.dtype == torch.float32 for weight in model.parameters() if weight.grad is not None)


def test_no_negatives_no_loss():
    model, data, key = Dot(), make_world(), Key(0, 0)
    batch = load_batch(data.train, torch.arange(5).numpy(), slice(0, 5), key, None)
    none = draw_negatives(Uniform(N_ITEMS), batch, 0, key)
    rows = TrainingStep(model)(StepInputs.of(batch.query, batch.positives, none, model, N_ITEMS))
    assert rows.loss.tolist() == rows.pairs.tolist() == rows.wins.tolist() == [0] * 5


def test_totals_add_up():
    loss, wins, pairs = torch.tensor([1.0, 2.0]), torch.tensor([0.5, 2.0]), torch.tensor([1, 3])
    wanted = {"loss": 3, "log_k1": math.log(2) + math.log(4), "wins": 2.5, "pairs": 4, "queries": 2}
    nothing = {"given_wins": 0, "given_pairs": 0, "hits": 0, "rows": 0}
    hits, ones = torch.tensor([0.5, 1.0]), torch.tensor([1, 1])
    for rows, given in (
        (RowResults(loss, wins, pairs), nothing),
        (RowResults(loss, wins, pairs, wins, pairs), nothing | {"given_wins": 2.5, "given_pairs": 4}),
        (RowResults(loss, wins, pairs, hits=hits, rows=ones), nothing | {"hits": 1.5, "rows": 2}),
    ):
        sums = dict(zip(COUNTS, sum_rows(rows, torch.tensor(2.0).double()).tolist(), strict=True))
        assert sums == pytest.approx(wanted | given)
        assert sum_rows(rows, torch.tensor(0.0).double()).tolist() == [0] * len(COUNTS)


def test_what_would_draw_from_one_process_alone_is_refused(monkeypatch):
    monkeypatch.setattr("negwise.distributed.world_size", lambda: 2)
    for sampler in (*samplers().values(), Mixture([Uniform(9), Popularity(torch.arange(1, 10))], [1, 1])):
        check_multiprocess(sampler)
    for sampler in (Mixture([Uniform(9), InBatch()], [1, 1]), Hardest(InBatch(), 3, lambda ids, _: ids)):
        with pytest.raises(InputError, match=r"InBatch within \w+ would draw from the rows of one process alone"):
            check_multiprocess(sampler)
