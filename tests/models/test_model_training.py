"""What a loop relies on: models learn, dropout follows the mode, weights travel, low precision works."""

import pytest
import torch
import torch.nn.functional as F
from model_world import CASES, N_ITEMS, N_USERS, NEWS, TEXTS, content, make, queries, run
from safetensors.torch import load, save

from negwise.draws import Key
from negwise.models.layers import Encoder
from negwise.models.transformer import sinusoids
from negwise.protocols import Model, Negatives, Query
from negwise.training.forward_pass import StepInputs, TrainingStep

ALL = list(CASES)


def examples(case):
    """32 queries and what each should find."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.arange(32)
    if case in TEXTS:
        texts = torch.arange(8, 40)  # those with words
        return Query(texts[:, None], torch.ones(32, 1, dtype=torch.bool), rows), texts
    items = torch.stack([torch.randperm(N_ITEMS, generator=generator)[:4] for _ in rows])
    positives = torch.randperm(N_ITEMS - 8, generator=generator) + 8
    return Query(items, torch.ones(32, 4, dtype=torch.bool), rows), positives


@pytest.mark.parametrize("case", ALL)
def test_overfits_32_examples(case):
    changes = {} if case == "bert4rec" else {"embedding": 16}
    changes |= {"user_mask_rate": 0.0} if case.startswith("lstur") else {}
    changes |= {"head_dim": 8} if "head_dim" in CASES[case][1] else {"hidden": 64}
    model = make(case, shaken=False, dropout=0.0, **changes)
    query, positives = examples(case)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    losses = []
    for _ in range(600):
        candidates, asked = run(model, query)
        scores = asked @ candidates.T
        loss = F.cross_entropy(scores, positives)
        losses.append(loss.item())
        if losses[-1] < 0.1 and torch.equal(scores.argmax(1), positives):
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    # From no better than chance (log 40 = 3.7) to all 32 right, and sure of it.
    assert losses[0] > 2.5
    assert losses[-1] < 0.1
    assert torch.equal(scores.argmax(1), positives)


def test_bert4rec_learns_to_fill_its_gaps():
    """Sequences that count upwards: after training, the gap after 20, 21, 22 is 23."""
    model = make("bert4rec", shaken=False, dropout=0.0, head_dim=16, mask_rate=0.3)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    starts = torch.arange(32)
    whole = Query(starts[:, None] + torch.arange(7), torch.ones(32, 7, dtype=torch.bool), starts)
    for step in range(300):
        query, targets = model.mask_items(whole, Key(seed=0, step=step))
        candidates, asked = run(model, query)
        loss = F.cross_entropy(asked @ candidates.T, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    start = Query(whole.items[:, :6], whole.mask[:, :6], starts)
    with torch.no_grad():
        candidates, asked = run(model, start)
    assert ((asked @ candidates.T).argmax(1) == starts + 6).float().mean() > 0.9


@pytest.mark.parametrize("case", ALL)
def test_dropout_follows_the_mode(case):
    model, query = make(case), queries(case)
    with torch.no_grad():
        model.train()
        torch.manual_seed(1)
        first = run(model, query)
        second = run(model, query)
        torch.manual_seed(1)
        again = run(model, query)
        assert not torch.equal(first[1], second[1])
        assert torch.equal(first[1], again[1])
        model.eval()
        still = [run(model, query) for _ in range(2)]
    assert torch.equal(still[0][0], still[1][0])
    assert torch.equal(still[0][1], still[1][1])


def test_rate_of_dropout_and_of_masked_users():
    model = make("lstur", dropout=0.0, user_mask_rate=0.25).train()
    users = torch.arange(N_USERS).repeat(200)
    empty = Query(torch.zeros(len(users), 1, dtype=torch.int64), torch.zeros(len(users), 1, dtype=torch.bool), users)
    torch.manual_seed(0)
    with torch.no_grad():
        _, asked = run(model, empty)
    masked = ~asked.any(1)
    # 6,600 coins of 0.25: four standard deviations are 0.021. A user who is not masked is as in evaluation.
    assert abs(masked.float().mean().item() - 0.25) < 0.022
    assert torch.equal(asked[~masked], model.users.weight[users[~masked]])


@pytest.mark.parametrize("case", ["lstur", "lstur-con"])
def test_a_user_nobody_trained_on_is_unknown(case):
    """One step on user 4 moves that user's long-term vector from 0, and nobody else's."""
    model, query = make(case, shaken=False, user_mask_rate=0.0).train(), queries(case)
    assert not model.users.weight.any()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    candidates, asked = run(model, Query(query.items[:1], query.mask[:1], torch.tensor([4])))
    F.cross_entropy(asked @ candidates.T, torch.tensor([7])).backward()
    optimizer.step()
    assert model.users.weight.any(1).nonzero().flatten().tolist() == [4]


@pytest.mark.parametrize("case", ALL)
def test_gradients_reach_every_weight(case):
    model, query = make(case, **({"user_mask_rate": 0.0} if case.startswith("lstur") else {})), queries(case)
    candidates, asked = run(model, query)
    torch.manual_seed(3)
    (candidates * torch.randn_like(candidates)).sum().add((asked * torch.randn_like(asked)).sum()).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.abs().max() > 1e-6, name


@pytest.mark.parametrize("case", ALL)
def test_bfloat16_autocast(case):
    model, query = make(case, shaken=False).eval(), queries(case)
    with torch.no_grad():
        candidates, asked = run(model, query)
    with torch.autocast("cpu", torch.bfloat16):
        low_candidates, low_asked = run(model, query)
        loss = (low_asked.float() @ low_candidates.float().T).logsumexp(1).mean()
    loss.backward()
    for high, low in ((candidates, low_candidates), (asked, low_asked)):
        assert (high - low.float()).norm() < 0.02 * high.norm() + 1e-6
    assert all(torch.isfinite(weight.grad).all() for weight in model.parameters())


@pytest.mark.parametrize("case", ALL)
def test_weights_travel_through_safetensors(case):
    model, other = make(case, seed=1).eval(), make(case, seed=2).eval()
    packed = save(model.state_dict())
    other.load_state_dict(load(packed))
    query = queries(case)
    with torch.no_grad():
        for ours, theirs in zip(run(model, query), run(other, query), strict=True):
            assert torch.equal(ours, theirs)
    tables = {name for name, _ in model.named_buffers()}
    assert not tables & set(model.state_dict())  # data, not weights


@pytest.mark.parametrize("case", ALL)
def test_is_a_model(case):
    model = make(case)
    assert isinstance(model, Model)
    assert isinstance(model, torch.nn.Module)
    assert type(model).__mro__[1] is torch.nn.Module
    assert model.needs_items == (case in NEWS)


def test_encoders_drop_out_between_reading_and_pooling():
    class Ones(torch.nn.Module):
        def forward(self, x, mask):
            return torch.ones_like(x) * mask[..., None]

    encoder = Encoder(Ones(), 4000, 3, 0.3)
    torch.manual_seed(0)
    pooled = encoder(torch.zeros(1, 1, 4000), torch.ones(1, 1, dtype=torch.bool))
    assert abs((pooled == 0).float().mean().item() - 0.3) < 0.03
    torch.testing.assert_close(pooled[pooled != 0], torch.full_like(pooled[pooled != 0], 1 / 0.7))
    assert (encoder.eval()(torch.zeros(1, 1, 4000), torch.ones(1, 1, dtype=torch.bool)) == 1).all()


def test_cosines_are_exact_in_low_precision():
    model = make("siamese-cnn", hidden=64).eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        lengths = model.encode_candidates(torch.arange(10, 30)).norm(dim=1)
    torch.testing.assert_close(lengths, torch.ones(20), rtol=0, atol=1e-6)


def test_the_word_and_the_category_that_are_none_start_at_zero():
    model = make("lstur", shaken=False)
    for embedding in (model.words.embedding, model.category_view, model.subcategory_view):
        assert not embedding.weight[0].any()
        assert embedding.weight[1:].any(1).all()


def test_columns_that_are_all_padding_are_not_kept():
    data = content()
    wide = data | {"title": torch.nn.functional.pad(torch.as_tensor(data["title"]), (0, 20))}
    assert make("nrms", data=wide).title.shape == data["title"].shape


@pytest.mark.parametrize("case", TEXTS + NEWS)
def test_only_ids_travel(case):
    """Tables of words are in the model, as small as they may be, and follow it."""
    model = make(case)
    tables = dict(model.named_buffers())
    for name, table in tables.items():
        assert (torch.as_tensor(content()[name]) == table).all()
        if table.dim() == 2:
            assert table.dtype == torch.int32
    moved = dict(model.to("meta").named_buffers())
    assert all(moved[name].device.type == "meta" for name in tables)


@pytest.mark.parametrize("case", NEWS)
def test_a_step_reads_each_distinct_news_once(case):
    model, query = make(case), queries(case)
    rows = []
    view = model.news if case == "nrms" else model.title_view
    view.register_forward_pre_hook(lambda _, args: rows.append(len(args[0])))
    positives, ids = (
        torch.tensor([3, 8, 8, 2, 1, 7]),
        torch.tensor([[9, 30], [8, 30], [31, 9], [4, 4], [9, 30], [3, 31]]),
    )
    drawn = Negatives(ids, torch.ones_like(ids, dtype=torch.bool))
    TrainingStep(model)(StepInputs.of(query, positives, drawn, model, N_ITEMS))
    assert sum(rows) == len({*query.items.flatten().tolist(), *positives.tolist(), *ids.flatten().tolist()})


def test_positions_kept_from_an_evaluation_serve_training():
    sinusoids.cache_clear()
    model, query = make("siamese-transformer"), queries("siamese-transformer")
    with torch.inference_mode():
        run(model.eval(), query)
    candidates, asked = run(model.train(), query)
    (asked @ candidates.T).sum().backward()
    assert sinusoids.cache_info().hits


def test_a_query_knows_its_length_and_moves():
    query = queries("nrms")
    assert len(query) == 6
    reads = Query(query.items, query.mask, query.users, torch.tensor([[0, 1], [3, 2]]))
    assert len(reads) == 2
    moved = reads.to("meta")
    assert {part.device.type for part in (moved.items, moved.mask, moved.users, moved.positions)} == {"meta"}
    assert query.to("cpu").positions is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("case", ALL)
def test_gpu_agrees_with_cpu(case, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # on by default for recurrent layers: 3e-4 off
    model, query = make(case).eval(), queries(case)
    with torch.no_grad():
        expected = run(model, query)
        model.cuda()
        ours = run(model, query.to("cuda"), torch.arange(N_ITEMS, device="cuda"))
    for here, there in zip(expected, ours, strict=True):
        torch.testing.assert_close(here, there.cpu(), rtol=1e-4, atol=1e-4)
    model.train()
    with torch.autocast("cuda", torch.bfloat16):
        candidates, asked = run(model, query.to("cuda"), torch.arange(N_ITEMS, device="cuda"))
        (asked.float() @ candidates.float().T).logsumexp(1).mean().backward()
    assert all(torch.isfinite(weight.grad).all() for weight in model.parameters())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("case", ALL)
def test_the_host_never_waits_for_the_gpu(case):
    """Both calls and their gradients are queued; nothing in them asks the device for a value."""
    model, query = make(case).cuda().train(), queries(case).to("cuda")
    ids = torch.arange(N_ITEMS, device="cuda")
    for mode in ("default", "error"):  # once to warm up
        torch.cuda.set_sync_debug_mode(mode)
        try:
            candidates, asked = run(model, query, ids)
            (asked @ candidates.T).logsumexp(1).mean().backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
