"""Each model against the same model in NumPy loops, with the same weights; and what must not be seen in its vectors."""

import model_loops as loops
import numpy as np
import pytest
import torch
from model_world import (
    CASES,
    EMPTY_ROW,
    EMPTY_TITLE,
    N_ITEMS,
    NEWS,
    NOTHING,
    TEXTS,
    content,
    histories,
    make,
    queries,
    run,
)

from negwise.errors import InputError
from negwise.protocols import Query

ALL = list(CASES)


def weights(model):
    return {name: value.numpy() for name, value in model.state_dict().items()}


def close(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", ALL)
def test_vectors_are_those_of_the_loops(case):
    model, data, query = make(case).double().eval(), content(), queries(case)
    temperature = CASES[case][1].get("temperature", 0.1)
    with torch.no_grad():
        candidates, asked = run(model, query)
    w = weights(model)
    close(candidates, [loops.candidate(case, item, data, w, temperature) for item in range(N_ITEMS)])
    kept = [row[mask].tolist() for row, mask in zip(query.items, query.mask, strict=True)]
    users = query.users.tolist()
    expected = [loops.query(case, items, user, data, w, temperature) for items, user in zip(kept, users, strict=True)]
    close(asked, expected)


def test_gaps_are_read_where_the_query_says():
    model, sequences = make("bert4rec").double().eval(), histories()
    items = sequences.items.clone()
    items[0, 1] = items[2, 4] = 17  # what is there must not matter
    reads = torch.tensor([[2, 4], [0, 1], [2, 0]])
    query = Query(items, sequences.mask, sequences.users, reads)
    with torch.no_grad():
        ours = model.encode_queries(query, None)
    assert len(query) == len(ours) == 3
    w = weights(model)
    third = loops.gaps([model.mask_id, 4, model.mask_id], [2, 0], w)
    close(ours, [third[0], *loops.gaps([5, model.mask_id, 2], [1], w), third[1]])


@pytest.mark.parametrize("side", [0, 1], ids=["candidates", "queries"])
@pytest.mark.parametrize("case", ALL)
def test_gradients_are_those_of_finite_differences(case, side):
    """Along a random direction of all weights at once: a gradient that is cut anywhere gives another slope."""
    changes = {"user_mask_rate": 0.0} if case.startswith("lstur") else {}
    model, query = make(case, dropout=0.0, **changes).double().train(), queries(case)
    generator = torch.Generator().manual_seed(5)
    weights = [weight.detach() for weight in model.parameters()]
    direction = [torch.randn(weight.shape, generator=generator, dtype=torch.float64) for weight in weights]
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding) and module.padding_idx is not None:  # none: 0, and never moved
            place = next(i for i, weight in enumerate(model.parameters()) if weight is module.weight)
            direction[place][module.padding_idx] = 0
    pull = torch.randn(run(model, query)[side].shape, generator=generator, dtype=torch.float64)
    (run(model, query)[side] * pull).sum().backward()
    slopes = [
        (weight.grad * d).sum().item()
        for weight, d in zip(model.parameters(), direction, strict=True)
        if weight.grad is not None
    ]

    def at(step):
        with torch.no_grad():
            for weight, d in zip(weights, direction, strict=True):
                weight.add_(d, alpha=step)
            value = (run(model, query)[side] * pull).sum().item()
            for weight, d in zip(weights, direction, strict=True):
                weight.sub_(d, alpha=step)
        return value

    assert sum(slopes) == pytest.approx((at(1e-6) - at(-1e-6)) / 2e-6, rel=1e-6)


@pytest.mark.parametrize("case", NEWS)
def test_padding_sends_no_gradient(case):
    """An item that stands in every padded place, and nowhere else, must not matter."""
    model, query = make(case).train(), histories()
    query = Query(query.items.masked_fill(~query.mask, N_ITEMS - 1), query.mask, query.users)
    vectors = torch.randn(N_ITEMS, run(model, query)[0].shape[1], requires_grad=True)
    asked = model.encode_queries(query, lambda items: vectors[items])
    (asked * torch.randn_like(asked)).sum().backward()
    clicked = query.items[query.mask].unique()
    assert vectors.grad.any(1).nonzero().flatten().tolist() == clicked.tolist()


def test_evaluation_uses_no_position_that_training_never_sees():
    """Training hides items among ``max_len``; a question after ``max_len`` of them has one place more."""
    model = make("bert4rec", max_len=5, dropout=0.0)
    items = torch.arange(1, 6)[None]
    there = torch.ones_like(items, dtype=torch.bool)
    reads = torch.tensor([[0, 2]])
    positions = []
    for query in (Query(items, there, items[:, 0], reads), Query(items, there, items[:, 0])):
        model.zero_grad()
        model.encode_queries(query, None).square().sum().backward()
        positions.append(model.positions.weight.grad.any(1))
    assert positions[0].all()
    assert not (positions[1] & ~positions[0]).any()


@pytest.mark.parametrize("case", ALL)
def test_nothing_in_place_of_padding_can_be_seen(case):
    model, query = make(case).eval(), queries(case)
    with torch.no_grad():
        candidates, asked = run(model, query)
        if hasattr(model, "words"):
            model.words.embedding.weight[0] = 50.0
        other = Query(query.items.masked_fill(~query.mask, 11), query.mask, query.users)
        candidates_again, asked_again = run(model, other)
    assert torch.equal(candidates, candidates_again)
    assert torch.equal(asked, asked_again)


@pytest.mark.parametrize("case", ALL)
def test_length_of_tables_and_histories_cannot_be_seen(case):
    data, query = content(), queries(case)
    ids = torch.arange(N_ITEMS - 1)  # the last item has the longest texts
    model = make(case).double().eval()
    short = {key: value[:-1] if np.ndim(value) else value for key, value in data.items()}
    for name in ("title", "abstract", "left", "right"):
        short[name] = np.where(np.arange(short[name].shape[1]) < 5, short[name], 0)  # cut at five words
    long = {key: np.pad(value, ((0, 0), (0, 30))) if np.ndim(value) == 2 else value for key, value in short.items()}
    # One longer text, so that the columns of padding stay.
    long |= {key: np.concatenate([value, np.ones_like(value[:1])]) for key, value in long.items() if np.ndim(value)}
    narrow, wide = (make(case, data=each).double().eval() for each in (short, long))
    for other in (narrow, wide):
        other.load_state_dict(model.state_dict())
    if case not in TEXTS:
        roomy = Query(
            torch.nn.functional.pad(query.items, (2, 2)), torch.nn.functional.pad(query.mask, (2, 2)), query.users
        )
    else:
        query = roomy = Query(query.items.clamp(max=N_ITEMS - 2), query.mask, query.users)
    with torch.no_grad():
        for ours, theirs in zip(run(narrow, query, ids), run(wide, roomy, ids), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", ALL)
def test_rows_with_nothing_are_finite_both_ways(case):
    model, query = make(case).train(), queries(case)
    only = Query(query.items[EMPTY_ROW : EMPTY_ROW + 1], query.mask[EMPTY_ROW : EMPTY_ROW + 1], query.users[:1])
    for each in (query, only):
        candidates, asked = run(model, each)
        (candidates.square().sum() + asked.square().sum()).backward()
        assert torch.isfinite(candidates).all()
        assert torch.isfinite(asked).all()
        for name, weight in model.named_parameters():
            assert torch.isfinite(weight.grad).all(), name


def test_nothing_is_the_zero_vector():
    for case in ("nrms", "naml", *TEXTS):
        with torch.no_grad():
            candidates, asked = run(make(case).eval(), queries(case))
        assert not asked[EMPTY_ROW].any(), case
        assert asked[0].any(), case
        item = EMPTY_TITLE if case == "nrms" else NOTHING
        assert not candidates[item].any(), case


def test_a_reader_of_lstur_without_clicks_is_the_long_term_vector():
    query = histories()
    user = query.users[EMPTY_ROW]
    with torch.no_grad():
        ini, con = make("lstur").eval(), make("lstur-con").eval()
        assert torch.equal(run(ini, query)[1][EMPTY_ROW], ini.users.weight[user])
        vector = run(con, query)[1][EMPTY_ROW]
        half = con.users.embedding_dim
        assert torch.equal(vector[-half:], con.users.weight[user])
        assert not vector[:-half].any()


def test_histories_without_places_are_empty_ones():
    query = Query(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(2, 0, dtype=torch.bool), torch.tensor([4, 1]))
    for case in (*NEWS, "bert4rec"):
        model = make(case).eval()
        wide = Query(torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 3, dtype=torch.bool), query.users)
        with torch.no_grad():
            torch.testing.assert_close(run(model, query)[1], run(model, wide)[1])


def test_a_text_query_has_one_place():
    with pytest.raises(InputError, match="5 positions, expected 1"):
        run(make("siamese-cnn"), histories())


def test_a_sequence_longer_than_the_model_is_refused():
    query = histories()
    with pytest.raises(InputError, match="5 positions, expected at most max_len=4"):
        run(make("bert4rec", max_len=4), query)
    assert run(make("bert4rec", max_len=5), query)[1].shape == (6, 8)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", ALL)
def test_weights_of_half_precision(case, dtype):
    model = make(case).eval()
    ids = torch.arange(1, 5)
    with torch.no_grad():
        want = model.encode_candidates(ids)
        found = model.to(dtype).encode_candidates(ids)
    torch.testing.assert_close(found.to(want), want, rtol=0.1, atol=0.1)
