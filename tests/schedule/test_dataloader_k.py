"""KBatchSampler: the K that reaches the collator is the K of that step, whoever loads the batch."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.data_loader import prepare_data_loader, skip_first_batches
from accelerate.state import AcceleratorState, GradientState
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler, SequentialSampler

from negwise.draws import Key, counts
from negwise.errors import InputError
from negwise.schedule import AnsK, ConstantK, FunctionK, KBatchSampler, KDataset, WarmK

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker:UserWarning")

ROWS, BATCH = 96, 8
STEPS = ROWS // BATCH  # per epoch
EPOCHS = 3
TOTAL = STEPS * EPOCHS


class Pairs(Dataset):
    """Returns the pair that it gets, so that a batch shows which (index, count) reached the workers."""

    def __len__(self):
        return ROWS

    def __getitem__(self, pair):
        return pair


class Shuffled(SequentialSampler):
    """A permutation that depends on the epoch, as DistributedSampler's does."""

    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter(np.random.default_rng(self.epoch).permutation(ROWS).tolist())


def batches(sampler=None, drop_last=True, size=BATCH):
    return BatchSampler(sampler or SequentialSampler(range(ROWS)), size, drop_last)


def k_sampler(rule=AnsK(20), inner=None, total=TOTAL, **options):  # noqa: B008 - frozen
    return KBatchSampler(inner or batches(), rule, total, seed=5, **options)


def expected(rule, step, indices, total=TOTAL, seed=5):
    """The plain statement of what a batch must hold: eq. 8 at the K of its own step."""
    k = rule(step / (total - 1))
    return list(zip(indices, counts(k, len(indices), Key(seed, step, np.array(indices))).tolist(), strict=True))


def as_pairs(batch):
    """A batch as the default collator leaves it (two tensors) as a list of pairs."""
    return [tuple(pair) for pair in torch.stack(batch, dim=1).tolist()]


LOADERS = {
    "no workers": {"num_workers": 0},
    "two workers": {"num_workers": 2, "prefetch_factor": 4},
    "persistent workers": {"num_workers": 2, "prefetch_factor": 2, "persistent_workers": True},
}


@pytest.mark.parametrize("through_accelerate", [False, True], ids=["plain", "accelerate"])
@pytest.mark.parametrize("options", LOADERS.values(), ids=LOADERS.keys())
def test_lag_is_zero(options, through_accelerate):
    """Each step has a whole K of its own, so that one step of lag would show in every single row."""
    rule = FunctionK(lambda fraction: round(fraction * (TOTAL - 1)) * 3)
    loader = DataLoader(Pairs(), batch_sampler=k_sampler(rule), **options)
    if through_accelerate:
        loader = Accelerator(cpu=True).prepare(loader)
    step = 0
    for _ in range(EPOCHS):
        for batch in loader:
            index, count = batch
            assert count.tolist() == [3 * step] * BATCH
            assert index.tolist() == list(range(step % STEPS * BATCH, (step % STEPS + 1) * BATCH))
            step += 1
    assert step == TOTAL


@pytest.mark.parametrize("rule", [ConstantK(2.5), AnsK(20), WarmK(6.3)], ids=repr)
def test_counts_are_those_of_eq_8_at_the_step(rule):
    sampler = k_sampler(rule)
    step = 0
    for _ in range(EPOCHS):
        for batch in sampler:
            indices = list(range(step % STEPS * BATCH, (step % STEPS + 1) * BATCH))
            assert batch == expected(rule, step, indices)
            step += 1
    assert step == TOTAL


def test_counts_have_the_mean_of_the_rule():
    rows, steps = 4000, 40
    sampler = KBatchSampler(BatchSampler(range(rows), rows, False), ConstantK(2.3), steps, seed=1)
    drawn = np.array([[count for _, count in batch] for _ in range(steps) for batch in sampler])
    assert set(np.unique(drawn)) == {2, 3}
    se = np.sqrt(0.3 * 0.7 / drawn.size)
    assert abs(drawn.mean() - 2.3) < 4 * se


def counts_by_row(pairs_of_steps):
    return [dict(sorted(pair for batch in step for pair in batch)) for step in pairs_of_steps]


def test_ranks_and_splits_agree():
    """One process; accelerate over two, in both its ways of splitting; two ranks with their own samplers."""
    rule = AnsK(20)
    one = k_sampler(rule)
    whole = counts_by_row([batch] for _ in range(EPOCHS) for batch in one)

    def accelerated(size, split):
        ranks = []
        for rank in range(2):
            sampler = k_sampler(rule, batches(size=size), batches_per_step=1 if split else 2)
            loader = prepare_data_loader(
                DataLoader(Pairs(), batch_sampler=sampler),
                num_processes=2,
                process_index=rank,
                split_batches=split,
                put_on_device=False,
            )
            ranks.append([as_pairs(batch) for _ in range(EPOCHS) for batch in loader])
        return counts_by_row(zip(*ranks, strict=True))

    Accelerator(cpu=True)  # sets up the state that prepare_data_loader reads
    assert accelerated(BATCH, split=True) == whole
    assert accelerated(BATCH // 2, split=False) == whole

    ranks = []
    for rank in range(2):
        own = DistributedSampler(range(ROWS), num_replicas=2, rank=rank, shuffle=False)
        sampler = k_sampler(rule, batches(own, size=BATCH // 2))
        ranks.append([batch for _ in range(EPOCHS) for batch in sampler])
    assert counts_by_row(zip(*ranks, strict=True)) == whole


def test_an_incomplete_last_step_is_dropped_with_drop_last_and_kept_without():
    fives = [range(first, first + 5) for first in range(0, 35, 5)]

    class Batches(list):
        drop_last = True

    sampler = KBatchSampler(Batches(fives), ConstantK(1), total_steps=6, seed=0, batches_per_step=3)
    assert (len(sampler), sampler.steps_per_epoch, len(list(sampler))) == (6, 2, 6)

    rule = FunctionK(lambda fraction: round(5 * fraction))
    sampler = KBatchSampler(list(fives), rule, total_steps=6, seed=0, batches_per_step=3)
    assert (len(sampler), sampler.steps_per_epoch) == (7, 3)
    ks = [{count for _, count in batch} for _ in range(2) for batch in sampler]
    assert ks == [{k} for k in (0, 0, 0, 1, 1, 1, 2, 3, 3, 3, 4, 4, 4, 5)]


@pytest.mark.parametrize("start", [0, 1, STEPS - 1, STEPS, STEPS + 5, TOTAL - 1])
@pytest.mark.parametrize("workers", [0, 2])
def test_resume_gives_the_same_batches(start, workers):
    def run(start_step):
        sampler = k_sampler(AnsK(20), batches(Shuffled(range(ROWS))), start_step=start_step)
        loader = DataLoader(Pairs(), batch_sampler=sampler, num_workers=workers if start_step else 0)
        seen = []
        for epoch in range(start_step // STEPS, EPOCHS):
            sampler.set_epoch(epoch)
            seen += [as_pairs(batch) for batch in loader]
        return seen

    assert run(start) == run(0)[start:]


def test_resume_by_accelerates_own_skip():
    sampler = k_sampler(AnsK(20), batches(Shuffled(range(ROWS))))
    loader = Accelerator(cpu=True).prepare(DataLoader(Pairs(), batch_sampler=sampler))
    whole = [[as_pairs(batch) for batch in loader] for _ in range(EPOCHS)]
    loader.set_epoch(1)
    resumed = skip_first_batches(loader, 5)
    resumed.set_epoch(1)
    assert [as_pairs(batch) for batch in resumed] == whole[1][5:]


def test_set_epoch_is_handed_on():
    shuffled = Shuffled(range(ROWS))
    sampler = k_sampler(inner=batches(shuffled))
    sampler.set_epoch(2)
    assert shuffled.epoch == 2
    order = np.random.default_rng(2).permutation(ROWS)[:BATCH].tolist()
    assert next(iter(sampler)) == expected(AnsK(20), 2 * STEPS, order)


def test_launchers_see_and_replace_the_wrapped_sampler():
    sampler = k_sampler()
    assert (sampler.batch_size, sampler.drop_last, len(sampler)) == (BATCH, True, STEPS)
    shuffled = Shuffled(range(ROWS))
    sampler.sampler = shuffled
    assert sampler.batch_sampler.sampler is shuffled
    assert not hasattr(KBatchSampler([[0, 1]], ConstantK(1), 1, 0), "batch_size")


def test_stops_at_total_steps_within_an_epoch_and_refuses_the_next():
    sampler = k_sampler(ConstantK(1), total=STEPS + 3)
    assert [len(list(sampler)) for _ in range(2)] == [STEPS, 3]
    with pytest.raises(InputError, match=rf"past total_steps=15.*pass total_steps={STEPS} \* epochs"):
        next(iter(sampler))


def test_an_epoch_before_the_start_is_refused_not_empty():
    sampler = k_sampler(start_step=STEPS + 2)
    sampler.set_epoch(0)
    with pytest.raises(InputError, match=r"before start_step=14. Call set_epoch\(1\)"):
        next(iter(sampler))


@dataclass(frozen=True)
class ClosedLoop:
    target: float

    def init(self):
        return {"k": 1.0}

    def update(self, observation, state):
        return state["k"] * observation.wins, state


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (ClosedLoop(0.9), r"closed-loop rule ClosedLoop\(target=0.9\).*fetch batches ahead.*rule.update"),
        (4, r"ConstantK\(4\)"),
        (abs, r"FunctionK\(f\)"),
    ],
)
def test_only_open_loop_rules_are_carried(rule, message):
    with pytest.raises(InputError, match=message):
        KBatchSampler(batches(), rule, TOTAL, seed=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"total": 0}, "total_steps=0"),
        ({"batches_per_step": 0}, "batches_per_step=0"),
        ({"start_step": TOTAL + 1}, "start_step=37"),
        ({"start_step": -1}, "start_step=-1"),
        ({"batches_per_step": STEPS + 1}, "no whole step"),
        ({"inner": iter([[0]])}, "with a length"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        k_sampler(**options)


def test_an_index_that_is_no_integer_is_refused():
    with pytest.raises(InputError, match="must be an integer"):
        next(iter(KBatchSampler([["a", "b"]], ConstantK(1), 1, seed=0)))


def test_imports_without_torch():
    code = (
        "import json, sys; from negwise.schedule import KBatchSampler, ConstantK; "
        "print(json.dumps([list(KBatchSampler([[3, 4]], ConstantK(2), 1, 0)), 'torch' in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == [[[[3, 2], [4, 2]]], False]


@pytest.fixture(autouse=True)
def _fresh_accelerate():
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


@pytest.mark.parametrize("workers", [0, 2])
def test_data_that_takes_plain_indices_and_a_collator_that_knows_step_and_count(workers):
    def collate(rows):
        examples, pairs = zip(*rows, strict=True)
        return examples, [pair.k for pair in pairs], {pair.step for pair in pairs}

    data = [f"text {row}" for row in range(ROWS)]
    loader = DataLoader(KDataset(data), batch_sampler=k_sampler(), num_workers=workers, collate_fn=collate)
    for step, (examples, drawn, steps) in enumerate(loader):
        indices = range(step * BATCH, (step + 1) * BATCH)
        assert list(examples) == [data[index] for index in indices] and steps == {step}
        assert list(zip(indices, drawn, strict=True)) == expected(AnsK(20), step, indices)
    with pytest.raises(InputError, match="expected a KIndex"):
        KDataset(data)[3]
