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
# The sinusoids are float32; everything else is compared in double precision.
TOLERANCE = {"siamese-transformer": 3e-5}


def weights(model):
    return {name: value.numpy() for name, value in model.state_dict().items()}


def close(ours, theirs, case):
    np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE.get(case, 1e-9), atol=TOLERANCE.get(case, 1e-9))


@pytest.mark.parametrize("case", ALL)
def test_vectors_are_those_of_the_loops(case):
    model, data, query = make(case).double().eval(), content(), queries(case)
    temperature = CASES[case][1].get("temperature", 0.1)
    with torch.no_grad():
        candidates, asked = run(model, query)
    w = weights(model)
    close(candidates, [loops.candidate(case, item, data, w, temperature) for item in range(N_ITEMS)], case)
    kept = [row[mask].tolist() for row, mask in zip(query.items, query.mask, strict=True)]
    users = query.users.tolist()
    expected = [loops.query(case, items, user, data, w, temperature) for items, user in zip(kept, users, strict=True)]
    close(asked, expected, case)


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
    close(ours, [third[0], *loops.gaps([5, model.mask_id, 2], [1], w), third[1]], "bert4rec")


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
    short = {key: value[:-1, :] if np.ndim(value) == 2 else value for key, value in data.items()}
    for name in ("title", "abstract", "left", "right"):
        short[name] = np.where(np.arange(short[name].shape[1]) < 5, short[name], 0)  # cut at five words
    long = {key: np.pad(value, ((0, 0), (0, 30))) if np.ndim(value) == 2 else value for key, value in short.items()}
    # One longer text, so that the columns of padding stay.
    for name in ("title", "abstract", "left", "right"):
        long[name] = np.concatenate([long[name], np.ones((1, long[name].shape[1]), int)])
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
    with pytest.raises(InputError, match="5 places, expected 1"):
        run(make("siamese-cnn"), histories())


def test_a_sequence_longer_than_the_model_is_refused():
    query = histories()
    with pytest.raises(InputError, match="5 places, expected at most max_len=4"):
        run(make("bert4rec", max_len=4), query)
    assert run(make("bert4rec", max_len=5), query)[1].shape == (6, 8)
