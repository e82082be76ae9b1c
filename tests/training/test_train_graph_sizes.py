"""Steps in a few sizes: the same numbers as in their own size, and one recording for each size."""

import numpy as np
import pytest
import torch
from graph_world import MODELS, N_ITEMS, bert4rec, inputs_for, nrms, world

from negwise.protocols import TableModel
from negwise.schedule import AnsK
from negwise.training.cuda_graphs import REPEATED, GraphedStep, pad_sizes, round_up
from negwise.training.forward_pass import TrainingStep, sum_rows

CPU = torch.device("cpu")


@pytest.mark.parametrize("to_an_octave", [2, 4])
def test_sizes_are_few_and_never_too_small(to_an_octave):
    sizes = [round_up(n, to_an_octave) for n in range(1, 5000)]
    assert all(n <= size < n * (1 + 1 / to_an_octave) + 1 for n, size in enumerate(sizes, 1))
    assert sizes == sorted(sizes)
    assert {round_up(size, to_an_octave) for size in sizes} == set(sizes)
    assert len(set(sizes)) <= to_an_octave * 13
    assert round_up(0, to_an_octave) == 0


def test_the_table_of_bert4rec_is_what_it_encodes():
    model = bert4rec()
    assert isinstance(model, TableModel) and not isinstance(nrms(), TableModel)
    assert torch.equal(model.table, model.encode_candidates(torch.arange(N_ITEMS)))


@pytest.mark.parametrize(("name", "lazy"), [("bert4rec", True), *((name, False) for name in MODELS)])
@pytest.mark.parametrize("k", [1, 3.5, 5, 9])
def test_padding_changes_nothing_but_sizes(name, lazy, k):
    parts = world(name)
    step = TrainingStep(parts[0])
    found = []
    own = inputs_for(parts, 0, k, correct=name == "bert4rec", lazy=lazy)
    for inputs in (own, pad_sizes(own)):
        parts[0].zero_grad()
        rows = step(inputs)
        (rows.loss.sum() * inputs.share).backward()
        sums = sum_rows(rows, inputs.counted)
        found.append([sums, *(weight.grad.clone() for weight in parts[0].parameters())])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)
    sizes = [{n: tuple(value.shape) for n, value in each.tensors().items()} for each in (own, pad_sizes(own))]
    assert sizes[0].keys() == sizes[1].keys()
    changed = {n for n in sizes[0] if sizes[0][n] != sizes[1][n]}
    assert changed <= {"negatives", "mask", "log_q", "counts", *REPEATED, "candidates"}
    assert found[0][0][3] > 0


@pytest.mark.parametrize("name", MODELS)
def test_what_is_padded_stays_as_it_is(name):
    once = pad_sizes(inputs_for(world(name), 0, 5))
    assert pad_sizes(once) is once


def test_a_padded_size_is_really_larger():
    """So that the test above compares what it means to."""
    reads = [len(inputs_for(world("bert4rec"), step, 5).positives) for step in range(20)]
    assert any(round_up(n, 4) > n for n in reads)
    inputs = inputs_for(world("nrms"), 0, 5)
    assert round_up(inputs.negatives.ids.shape[1], 2) == 6 and round_up(len(inputs.candidates), 4) > len(
        inputs.candidates
    )


@pytest.mark.parametrize(("name", "lazy"), [("bert4rec", True), *((name, False) for name in MODELS)])
def test_one_recording_for_each_size_over_a_schedule(name, lazy):
    """And the weights come out as they do step by step, with negatives that are drawn at once."""
    rule, steps = AnsK(20), 60
    ends = []
    for recorded in (False, True):
        parts = world(name)
        step, adam = TrainingStep(parts[0]), torch.optim.Adam(parts[0].parameters(), 0.01)

        def learn(inputs, step=step, adam=adam):
            rows = step(inputs)
            adam.zero_grad()
            (rows.loss.sum() * inputs.share).backward()
            adam.step()
            return sum_rows(rows, inputs.counted)

        made = []

        def record(work, made=made):
            made.append(work)
            return work

        learner = GraphedStep(learn, CPU, record) if recorded else learn
        inputs = (inputs_for(parts, n, rule(n / (steps - 1)), lazy=lazy and recorded) for n in range(steps))
        sums = [learner(each) for each in inputs]
        ends.append((torch.stack(sums), [weight.detach().clone() for weight in parts[0].parameters()]))
    columns = {round_up(int(np.ceil(rule(n / (steps - 1)))), 2) for n in range(steps)}
    assert len(columns) > 5  # K did move through sizes
    assert 0 < len(made) <= len(learner.sizes)
    rows = {dict(key[1:])["positives"][0] for key in learner.sizes}
    others = {dict(key[1:]).get("candidates") for key in learner.sizes}
    assert len(learner.sizes) <= len(columns) * len(rows) * len(others)
    torch.testing.assert_close(ends[0][0], ends[1][0], rtol=1e-9, atol=1e-12)
    for ours, theirs in zip(ends[0][1], ends[1][1], strict=True):
        # The loss does not depend on some biases of a Transformer, and Adam makes steps of what is rounding alone.
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-11 if "siamese" not in name else 1e-8)


def test_the_least_recently_used_size_gives_way():
    done, recorded = [], []
    learner = GraphedStep(
        lambda inputs: done.append(inputs.width) or torch.zeros(()), CPU, lambda work: recorded.append(1) or work, 3
    )
    parts = world("bert4rec")
    for k in (1, 2, 4, 1, 8, 1, 16):
        learner(inputs_for(parts, 0, k))
    assert [key[0] for key in learner.sizes] == [8, 1, 16]  # 2 and 4 were used longest ago
    assert done == [1, 2, 4, 1, 8, 1, 16] and len(recorded) == 1
