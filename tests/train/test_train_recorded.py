"""Steps in a few sizes: the same numbers as in their own size, one recording for each size, and the same on a GPU."""

import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from train_world import N_ITEMS, Dot, make_world, run

from negwise.draws import Key
from negwise.errors import InputError
from negwise.losses import fused
from negwise.models import build
from negwise.protocols import Query, TableModel
from negwise.records import read_run
from negwise.samplers import Impression, Lists, Pool, Popularity, Uniform
from negwise.schedule import AnsK
from negwise.train.asked import Asked
from negwise.train.batches import fetch
from negwise.train.folder import read_json
from negwise.train.recorded import REPEATED, Recorded, nothing_collected, padded, rounded, settle_graphs, use_graphs
from negwise.train.run import Run
from negwise.train.settings import Settings
from negwise.train.step import Step, draw, plan, totals

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
PLACES = 6
CPU = torch.device("cpu")


@pytest.mark.parametrize("to_an_octave", [2, 4])
def test_sizes_are_few_and_never_too_small(to_an_octave):
    sizes = [rounded(n, to_an_octave) for n in range(1, 5000)]
    assert all(n <= size < n * (1 + 1 / to_an_octave) + 1 for n, size in enumerate(sizes, 1))
    assert sizes == sorted(sizes)
    assert {rounded(size, to_an_octave) for size in sizes} == set(sizes)
    assert len(set(sizes)) <= to_an_octave * 13
    assert rounded(0, to_an_octave) == 0


def bert4rec(dropout=0.0):
    torch.manual_seed(0)
    return build("bert4rec", {"n_items": N_ITEMS}, heads=2, head_dim=4, max_len=PLACES, dropout=dropout, mask_rate=0.5)


def nrms():
    return texts("nrms")


SMALL = {
    "nrms": {"heads": 2, "head_dim": 4},
    "naml": {"hidden": 6, "category_width": 3},
    "lstur": {"hidden": 6, "category_width": 3, "user_mask_rate": 0.0},
    "siamese-transformer": {"heads": 2, "head_dim": 4},
    "siamese-cnn": {"hidden": 6},
    "siamese-lstm": {"hidden": 6},
}
MODELS = ("bert4rec", *SMALL)


def texts(name):
    """A small model that reads texts of up to five words."""
    torch.manual_seed(0)
    dice = np.random.default_rng(0)
    tables = ("left", "right") if name.startswith("siamese") else ("title", "abstract")
    content = {table: dice.integers(1, 30, (N_ITEMS, 5)) for table in tables} | {"n_words": 30, "n_users": N_ITEMS}
    for table, count in (("category", 4), ("subcategory", 6)):
        content |= {table: dice.integers(0, count, N_ITEMS)}
    content |= {"n_categories": 4, "n_subcategories": 6}
    return build(name, content, embedding=6, pooling=5, dropout=0.0, **SMALL[name])


class Pairs:
    """Item n's left side asks for its right side."""

    def __len__(self):
        return N_ITEMS

    def batch(self, indices):
        own = torch.as_tensor(indices)
        return Query(own[:, None], torch.ones(len(own), 1, dtype=torch.bool), own), own, own


class Sequences:
    """Rows of a few items each, whose owners are their own numbers."""

    def __init__(self, rows=96):
        dice = np.random.default_rng(1)
        self.mask = np.arange(PLACES) < dice.integers(1, PLACES + 1, rows)[:, None]
        self.items = dice.integers(0, N_ITEMS, (rows, PLACES)) * self.mask

    def __len__(self):
        return len(self.items)

    def batch(self, indices):
        users = torch.as_tensor(indices)
        query = Query(torch.from_numpy(self.items[indices]), torch.from_numpy(self.mask[indices]), users)
        return query, users, users


def world(name):
    """A model in float64, its examples, its sampler and how it hides."""
    if name == "bert4rec":
        model = bert4rec().double()
        return model, Sequences(), Popularity(torch.arange(N_ITEMS) + 1, 0.5), model.cloze
    if name.startswith("siamese"):
        return texts(name).double(), Pairs(), Pool(Uniform(N_ITEMS), 12), None
    data = make_world(shown=True)
    lists = Lists(torch.from_numpy(data.shown.offsets), torch.from_numpy(data.shown.ids))
    return texts(name).double(), data.train, Impression(lists), None


def asked_for(parts, step, k, rows=10, correct=False, lazy=False):
    model, examples, sampler, hide = parts
    key = Key(5, step)
    batch = fetch(examples, np.arange(step, step + rows) % len(examples), slice(0, rows), key, hide)
    drawn = plan(sampler, batch, k, key) if lazy else draw(sampler, batch, k, key)
    return Asked.of(batch.query, batch.positives, drawn, model, N_ITEMS, correct)


def test_the_table_of_bert4rec_is_what_it_encodes():
    model = bert4rec()
    assert isinstance(model, TableModel) and not isinstance(nrms(), TableModel)
    assert torch.equal(model.table, model.encode_candidates(torch.arange(N_ITEMS)))


@pytest.mark.parametrize(("name", "lazy"), [("bert4rec", True), *((name, False) for name in MODELS)])
@pytest.mark.parametrize("k", [1, 3.5, 5, 9])
def test_padding_changes_nothing_but_sizes(name, lazy, k):
    parts = world(name)
    step = Step(parts[0])
    found = []
    own = asked_for(parts, 0, k, correct=name == "bert4rec", lazy=lazy)
    for asked in (own, padded(own)):
        parts[0].zero_grad()
        loss, wins, pairs = step(asked)
        (loss.sum() * asked.share).backward()
        sums = totals(loss, wins, pairs, asked.counted)
        found.append([sums, *(weight.grad.clone() for weight in parts[0].parameters())])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)
    sizes = [{n: tuple(value.shape) for n, value in each.tensors().items()} for each in (own, padded(own))]
    assert sizes[0].keys() == sizes[1].keys()
    changed = {n for n in sizes[0] if sizes[0][n] != sizes[1][n]}
    assert changed <= {"negatives", "mask", "log_q", "counts", *REPEATED, "candidates"}
    assert found[0][0][3] > 0


@pytest.mark.parametrize("name", MODELS)
def test_what_is_padded_stays_as_it_is(name):
    once = padded(asked_for(world(name), 0, 5))
    assert padded(once) is once


def test_a_padded_size_is_really_larger():
    """So that the test above compares what it means to."""
    reads = [len(asked_for(world("bert4rec"), step, 5).positives) for step in range(20)]
    assert any(rounded(n, 4) > n for n in reads)
    asked = asked_for(world("nrms"), 0, 5)
    assert rounded(asked.negatives.ids.shape[1], 2) == 6 and rounded(len(asked.candidates), 4) > len(asked.candidates)


@pytest.mark.parametrize(("name", "lazy"), [("bert4rec", True), *((name, False) for name in MODELS)])
def test_one_recording_for_each_size_over_a_schedule(name, lazy):
    """And the weights come out as they do step by step, with negatives that are drawn at once."""
    rule, steps = AnsK(20), 60
    ends = []
    for recorded in (False, True):
        parts = world(name)
        step, adam = Step(parts[0]), torch.optim.Adam(parts[0].parameters(), 0.01)

        def learn(asked, step=step, adam=adam):
            loss, wins, pairs = step(asked)
            adam.zero_grad()
            (loss.sum() * asked.share).backward()
            adam.step()
            return totals(loss, wins, pairs, asked.counted)

        made = []

        def record(work, made=made):
            made.append(work)
            return work

        learner = Recorded(learn, CPU, record) if recorded else learn
        asked = (asked_for(parts, n, rule(n / (steps - 1)), lazy=lazy and recorded) for n in range(steps))
        sums = [learner(each) for each in asked]
        ends.append((torch.stack(sums), [weight.detach().clone() for weight in parts[0].parameters()]))
    columns = {rounded(int(np.ceil(rule(n / (steps - 1)))), 2) for n in range(steps)}
    assert len(columns) > 5  # K did move through sizes
    assert 0 < len(made) <= len(learner.sizes)
    rows = {dict(key[1:])["positives"][0] for key in learner.sizes}
    others = {dict(key[1:]).get("candidates") for key in learner.sizes}
    assert len(learner.sizes) <= len(columns) * len(rows) * len(others)
    torch.testing.assert_close(ends[0][0], ends[1][0], rtol=1e-9, atol=1e-12)
    for ours, theirs in zip(ends[0][1], ends[1][1], strict=True):
        # The loss does not depend on some biases of a Transformer, and Adam makes steps of what is rounding alone.
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-11 if "siamese" not in name else 1e-8)


def test_graphs_are_refused_where_they_cannot_be(tmp_path):
    with pytest.raises(InputError, match="one CUDA device is recorded, and this run has 1 process"):
        run(tmp_path / "run", graphs=True)
    assert not (tmp_path / "run" / "checkpoints").exists()


ONE_GPU = SimpleNamespace(device=torch.device("cuda"), world_size=1)  # as much of Fabric as is asked here


@pytest.mark.parametrize(
    ("dtype", "triton", "message"),
    [
        (torch.float64, True, "float32, not in float64, and a loss without them waits"),
        (torch.float32, False, "'triton' is not installed"),
    ],
)
def test_a_loss_that_waits_for_the_gpu_is_not_recorded(monkeypatch, dtype, triton, message):
    """Else the first step runs, and the second one ends with an error of CUDA's that names nothing."""
    monkeypatch.setattr(fused, "_installed", lambda: triton)
    model = bert4rec().to(dtype)
    adam = torch.optim.Adam(model.parameters())
    with pytest.raises(InputError, match=message):
        use_graphs(True, ONE_GPU, model, adam, moving=False)
    assert not use_graphs(None, ONE_GPU, model, adam, moving=False)
    assert adam.param_groups[0]["capturable"] is False


def test_the_optimizer_is_made_fit_to_be_recorded(monkeypatch):
    monkeypatch.setattr(fused, "_installed", lambda: True)
    model = bert4rec()
    adam = torch.optim.Adam(model.parameters())
    assert use_graphs(None, ONE_GPU, model, adam, moving=False)
    assert adam.param_groups[0]["capturable"] is True
    with pytest.raises(InputError, match=r"SGD cannot be recorded; torch\.optim\.Adam can"):
        use_graphs(True, ONE_GPU, model, torch.optim.SGD(model.parameters()), moving=False)
    assert not use_graphs(None, ONE_GPU, model, torch.optim.SGD(model.parameters()), moving=False)


class Mine(torch.optim.Adam):
    """A step with Python of its own."""

    def step(self, closure=None):
        return super().step(closure)


def test_an_optimizer_whose_python_a_replay_would_leave_out_is_not_recorded(monkeypatch):
    monkeypatch.setattr(fused, "_installed", lambda: True)
    model = bert4rec()
    hooked = torch.optim.Adam(model.parameters())
    hooked.register_step_post_hook(lambda *_: None)
    for adam in (Mine(model.parameters()), hooked):
        assert not use_graphs(None, ONE_GPU, model, adam, moving=False)
        with pytest.raises(InputError, match="hooks or a step of its own"):
            use_graphs(True, ONE_GPU, model, adam, moving=False)


def test_a_run_that_had_graphs_goes_on_where_there_are_none():
    """Its checkpoint says capturable, which on a CPU torch refuses."""
    model = bert4rec()
    adam = torch.optim.Adam(model.parameters())
    adam.param_groups[0]["capturable"] = True
    here = SimpleNamespace(device=CPU, world_size=1)
    assert not use_graphs(None, here, model, adam, moving=False)
    sum(weight.sum() for weight in model.parameters()).backward()
    adam.step()


@pytest.mark.parametrize(
    ("asked", "saved", "found"),
    [(None, None, None), (True, None, True), (False, None, False), (None, True, None), (None, False, False)],
)
def test_a_run_keeps_to_what_it_began_with(asked, saved, found):
    assert settle_graphs(asked, saved) is found
    if saved is not None:
        with pytest.raises(InputError, match="this run began with"):
            settle_graphs(not saved, saved)


def test_graphs_of_a_run_are_read_from_its_checkpoint(tmp_path, monkeypatch):
    """One that began without them, or before there were any, does not take them up half-way."""
    words = {"lr_scale": strike_at(0.6), "steps": 20, "save_every": 2}
    with pytest.raises(RuntimeError, match="struck"):
        run(tmp_path / "run", **words)
    asked = []

    def note(wanted, *_, **__):
        asked.append(wanted)
        return False

    monkeypatch.setattr("negwise.train.loop.use_graphs", note)
    run(tmp_path / "run", **words | {"lr_scale": strike_at(2), "graphs": False})
    assert asked == [False]


@pytest.mark.parametrize("wrong", [0, 1, "no"])
def test_graphs_is_yes_no_or_nothing(wrong):
    with pytest.raises(InputError, match="graphs="):
        Settings(steps=1, batch_size=1, graphs=wrong)


def test_sizes_beyond_so_many_run_as_they_are(monkeypatch):
    monkeypatch.setattr("negwise.train.recorded.MOST", 3)
    done = []
    learner = Recorded(lambda asked: done.append(asked.width) or torch.zeros(()), CPU, lambda work: work)
    parts = world("bert4rec")
    for k in (1, 2, 4, 8, 16, 1, 16):
        learner(asked_for(parts, 0, k))
    assert len(learner.sizes) == 3 and done == [1, 2, 4, 8, 16, 1, 16]


def test_a_run_and_its_graphs_are_freed_when_it_ends(tmp_path, monkeypatch):
    """Without waiting for garbage to be collected."""
    kept = []
    usual = Run.go

    def go(self):
        kept.append(weakref.ref(self))
        return usual(self)

    monkeypatch.setattr(Run, "go", go)
    with nothing_collected():
        run(tmp_path / "run")
        assert kept[0]() is None


@GPU
def test_a_model_that_does_not_say_so_is_not_recorded(tmp_path):
    with pytest.raises(InputError, match=r"Dot does not say .*fixed_work"):
        run(tmp_path / "run", Dot(), graphs=True, device="cuda")


CASES = {
    "drawn in the loss": {},
    "a rate that moves": {"lr_scale": lambda fraction: 1 - 0.5 * fraction},
    "listed and corrected": {"correct": True},
    "bfloat16": {"precision": "bf16-mixed"},
    **{name: {"name": name} for name in SMALL},
    **{f"bfloat16 {name}": {"name": name, "precision": "bf16-mixed"} for name in ("nrms", "lstur", "siamese-lstm")},
}


@GPU
@pytest.mark.parametrize("case", list(CASES))
def test_graphs_train_as_plain_steps_do(tmp_path, case):
    """On one GPU, from the same weights, with K that changes: the same losses to rounding, and the same bits twice.

    Not the same weights to rounding: the loss does not depend on the bias of an attention's keys, so that Adam makes
    steps of what is rounding alone.
    """
    losses, ends = [], []
    for name, graphs in (("plain", False), ("graphs", True), ("again", True)):
        model = trained(tmp_path / name, graphs=graphs, **CASES[case])
        steps = read_run(tmp_path / name).steps
        losses.append(torch.tensor([(step["loss"], step["k_used"]) for step in steps]))
        ends.append([weight.detach().cpu() for weight in model.parameters()])
    plain, recorded, again = losses
    near = 2e-2 if "bfloat16" in case else 1e-3
    torch.testing.assert_close(plain, recorded, rtol=near, atol=near)
    assert len(plain) == 60 and torch.equal(recorded, again)
    assert all(torch.equal(*pair) for pair in zip(ends[1], ends[2], strict=True))


def trained(out, *, graphs, device="cuda", name="bert4rec", **changes):
    """A model after 60 steps of a K that rises and falls; what it learns is not judged here."""
    model, examples, sampler, hide = world(name)
    words = {"examples": examples, "sampler": sampler, "hide": hide, "judged": {}} | changes
    run(out, model.float(), rule=AnsK(9), steps=60, batch_size=16, device=device, graphs=graphs, **words)
    return model


@pytest.mark.parametrize("case", [case for case in CASES if "bfloat16" not in case])
def test_what_the_gpu_is_asked_is_asked_rightly(tmp_path, case):
    """The runs of the test before, without graphs on a CPU, so that it does not fail for a wrong word."""
    first, second = (
        trained(tmp_path / name, graphs=False, device="cpu", **CASES[case]).state_dict() for name in ("one", "two")
    )
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_nothing_is_collected_while_a_step_is_recorded():
    assert gc.isenabled()
    with pytest.raises(RuntimeError, match="struck"), nothing_collected():
        assert not gc.isenabled()
        raise RuntimeError("struck")
    assert gc.isenabled()


@GPU
def test_runs_one_after_the_other_leave_no_graph_to_be_freed_within_a_recording(tmp_path):
    trained(tmp_path / "before", graphs=True)
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()  # what is there already is looked at no more, which would take minutes
    gc.set_threshold(1, 1, 1)  # garbage is collected as soon as there is some
    try:
        for turn in range(2):
            trained(tmp_path / str(turn), graphs=True)
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@GPU
def test_graphs_are_taken_where_they_can_be(tmp_path):
    trained(tmp_path / "run", graphs=None)
    result = read_json(tmp_path / "run" / "result.json")
    assert result["graphs"] is True


@GPU
def test_a_stopped_run_with_graphs_goes_on_to_the_same_weights(tmp_path):
    ends = []
    for name in ("whole", "stopped"):
        model = bert4rec(dropout=0.3)
        words = {
            "examples": Sequences(), "sampler": Uniform(N_ITEMS), "rule": AnsK(9), "steps": 40, "batch_size": 16,
            "hide": model.cloze, "device": "cuda", "graphs": True, "eval_every": 10,
        }  # fmt: skip
        if name == "stopped":
            with pytest.raises(RuntimeError, match="struck"):
                run(tmp_path / name, model, **words, lr_scale=strike_at(0.6))
            model = bert4rec(dropout=0.3)
            words["hide"] = model.cloze
        run(tmp_path / name, model, **words, lr_scale=strike_at(2))
        ends.append([weight.detach().cpu() for weight in model.parameters()])
    assert all(torch.equal(*pair) for pair in zip(*ends, strict=True))


def strike_at(when):
    """A learning rate that falls to a half, and fails once."""

    def scale(fraction):
        if fraction > when:
            raise RuntimeError("struck")
        return 1 - 0.5 * fraction

    return scale
