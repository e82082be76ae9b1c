"""Recommendations against one network call and one sort a query; unknown ids and empty histories by name."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import negwise as nw
from negwise.errors import InputError
from negwise.protocols import Query

NEWS = ("nrms", "naml", "lstur")


@pytest.fixture(scope="module", params=["bert4rec", *NEWS])
def model(request, world):
    return nw.load(world / "runs" / request.param)


@pytest.fixture(scope="module")
def asked(world):
    return json.loads((world / "queries.json").read_text())


def scores_of(model, history, user=None):
    """Scores of all items for one history, by the network alone."""
    ids = model.item_ids()
    items = torch.tensor([[ids.index(one) for one in history[-model.record.history :]]])
    who = torch.tensor([-1 if user is None else model.user_ids().index(user)])
    network = model.network
    with torch.no_grad():
        table = network.encode_candidates(torch.arange(len(ids)))
        query = Query(items, torch.ones_like(items, dtype=torch.bool), who)
        return (network.encode_queries(query, lambda wanted: table[wanted]) @ table.T)[0].numpy()


def ranked(model, scores, leave_out=(), among=None):
    ids = model.item_ids()
    allowed = [one for one in (among or ids) if one not in leave_out]
    return sorted(allowed, key=lambda one: -scores[ids.index(one)])


def test_users_get_what_their_whole_history_says(model):
    users = model.user_ids()[:12]
    found = model.recommend(users, n=5)
    assert list(found.queries) == users
    for user, row in zip(users, found, strict=True):
        scores = scores_of(model, model.history(user), user)
        expected = ranked(model, scores, leave_out=model.history(user))[:5]
        np.testing.assert_allclose(
            [score for _, score in row], [scores[model.item_ids().index(one)] for one in expected], rtol=1e-4, atol=1e-5
        )
        assert not {item for item, _ in row} & set(model.history(user))


def test_histories_of_strangers_with_and_without_what_they_saw(model):
    items = model.item_ids()
    histories = [items[:1], items[3:9], items[2:40:3]]
    for exclude in (True, False):
        found = model.recommend(histories=histories, n=4, exclude_seen=exclude, batch_size=2)
        assert list(found.queries) == [0, 1, 2]
        for history, row in zip(histories, found, strict=True):
            expected = ranked(model, scores_of(model, history), leave_out=history if exclude else ())[:4]
            assert [item for item, _ in row] == expected


def test_candidates_are_one_list_or_a_list_each(model):
    items = model.item_ids()
    histories, own = [items[:4], items[5:8]], [items[10:20], items[30:33]]
    rows = list(model.recommend(histories=histories, candidates=own, n=5))
    for history, among, row in zip(histories, own, rows, strict=True):
        assert [item for item, _ in row] == ranked(model, scores_of(model, history), among=among)[:5]
    assert [len(row) for row in rows] == [5, 3]  # no more than there are
    shared = model.recommend(histories=histories, candidates=items[:12], n=12)
    for history, row in zip(histories, shared, strict=True):
        expected = ranked(model, scores_of(model, history), leave_out=history, among=items[:12])
        assert [item for item, _ in row] == expected


def test_candidates_count_once_and_a_huge_n_costs_nothing(model):
    items = model.item_ids()
    for twice in ([items[5], items[6], items[5]], [[items[5], items[6], items[5]]]):
        found = model.recommend(histories=[items[:2]], candidates=twice, n=10**9)
        assert sorted(item for item, _ in found[0]) == sorted(items[5:7])
    assert len(model.recommend(histories=[items[:2]], n=10**9)[0]) == len(items) - 2


def test_similar_items_and_vectors(model):
    vectors, ids = model.item_vectors(), model.item_ids()
    assert vectors.shape[0] == len(ids) and vectors.dtype == np.float32
    norms = np.maximum(np.linalg.norm(vectors, axis=1), 1e-12)
    for at, row in zip((0, 7), model.similar([ids[0], ids[7]], n=6), strict=True):
        cosine = vectors @ vectors[at] / (norms * norms[at])
        cosine[at] = -np.inf
        np.testing.assert_allclose([score for _, score in row], np.sort(cosine)[::-1][:6], atol=1e-5)
        assert ids[at] not in [item for item, _ in row]


def test_what_is_unknown_is_named_or_left_out(model):
    known, items = model.user_ids()[0], model.item_ids()
    with pytest.raises(InputError, match=r"users: got 'nobody', 77 \(2 of 3\).*unknown='skip'"):
        model.recommend(["nobody", known, 77])
    found = model.recommend(["nobody", known, 77], unknown="skip")
    assert list(found.queries) == [known] and found.left_out == ("nobody", 77)
    with pytest.raises(InputError, match=r"items: got 'x' \(1 of 2\)"):
        model.recommend(histories=[[items[0], "x"]])
    with pytest.raises(InputError, match=r"histories: 1 \(1 of 2\) without a single item"):
        model.recommend(histories=[[items[0]], []])
    found = model.recommend(histories=[["x"], [items[0], "x"], []], unknown="skip", n=3)
    assert list(found.queries) == [1] and found.left_out == (0, 2)
    assert found[0] == model.recommend(histories=[[items[0]]], n=3)[0]
    with pytest.raises(InputError, match="items: got 'x'"):
        model.similar(["x"])
    assert model.similar(["x", items[1]], unknown="skip").left_out == ("x",)
    assert len(model.recommend([])) == 0


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda m: m.recommend(), "neither users nor histories"),
        (lambda m: m.recommend("u1"), "users: got one text, 'u1', expected several"),
        (lambda m: m.recommend(["u1"], unknown=None), "unknown: got"),
        (lambda m: m.recommend([1.5]), "users: got 1.5 of type float, expected an id"),
        (lambda m: m.recommend([True]), "users: got True of type bool"),
        (lambda m: m.recommend([None]), "users: got None"),
        (lambda m: m.recommend(["u1"], n=0), "n: got 0"),
        (lambda m: m.recommend(histories=["i1"]), "each of histories: got one text, 'i1', expected several"),
        (
            lambda m: m.recommend(histories=[["i1"]], exclude_seen="no"),
            "exclude_seen: got 'no', expected True or False",
        ),
        (lambda m: m.recommend(pd.DataFrame({"user": ["u1"]})), r"users: got a DataFrame with user.*frame\['user'\]"),
        (lambda m: m.similar({"item": ["i1"]}), "items: got a dictionary with item"),
        (lambda m: m.recommend(["u1"], candidates=pl.DataFrame({"item": ["i1"]})), "candidates: got a DataFrame"),
        (lambda m: m.recommend([1e18]), r"users: got 1e\+18 of type float.*stands for several whole numbers"),
        (lambda m: m.recommend(np.array(["2020-01-01"], "M8[ns]")), "users: got .*of type datetime64"),
        (lambda m: m.similar(["\ud800"]), r"items: got '\\ud800' \(1 of 1\), which training did not see"),
        (lambda m: m.recommend(["u1"], [["i1"], ["i2"]]), "histories: got 2 for 1 users"),
        (lambda m: m.recommend(["u1"], unknown="maybe"), "unknown: got 'maybe', expected one of error, skip"),
        (lambda m: m.recommend(["u1"], candidates=[]), "candidates: got none"),
        (lambda m: m.recommend(["u1", "u2"], candidates=[["i1"]]), "candidates: got 1 lists for 2 queries"),
        (lambda m: m.recommend(["u1"], candidates=[["i1"], ["i2"]]), "candidates: got 2 lists for 1 queries"),
        (lambda m: m.recommend(["u1"], candidates=["zz"], unknown="skip"), "candidates: none of 'zz' is an item that"),
        (lambda m: m.recommend(["u1"], candidates=[["zz"]], unknown="skip"), "candidates: none of 'zz' is an item"),
        (lambda m: m.recommend(["u1"], empty="maybe"), "empty: got 'maybe', expected one of error, skip, serve"),
        (lambda m: m.encode(["a title"]), "bert4rec knows items by their ids"),
        (lambda m: m.recommend(["u1"], batch_size=0), "batch_size: got 0"),
        (lambda m: m.recommend(["u1"], n=2.5), "n: got 2.5"),
        (lambda m: m.recommend(["u1"], device="tpu"), "device: got 'tpu', expected one of auto, cpu, cuda"),
        (lambda m: m.similar("i1"), "items: got one text, 'i1', expected several"),
        (lambda _: nw.load(3), "load: got 3, expected the folder"),
    ],
)
def test_a_wrong_question_is_answered_in_words(world, call, said):
    with pytest.raises(InputError, match=said):
        call(nw.load(world / "runs" / "bert4rec"))


@pytest.mark.parametrize("name", NEWS)
def test_new_articles_by_their_text(world, name):
    model = nw.load(world / "runs" / name)
    reader = model.reader
    # An article with the text of a known one has its vector: the words of N5, back from its tokens.
    table = model.home.table("items.arrow")
    at = model.item_ids().index("N5")
    words = reader.tokenizer.words
    article = {"id": "new", "title": " ".join(words[token] for token in table["title"][at].as_py())}
    if "abstract" in table.column_names:
        article["abstract"] = " ".join(words[token] for token in table["abstract"][at].as_py())
    for kind in set(table.column_names) & {"category", "subcategory"}:
        article[kind] = model.record.categories[kind][table[kind][at].as_py()]
    np.testing.assert_allclose(model.encode([article])[0], model.item_vectors()[at], atol=1e-5)
    assert model.encode(["any new title", "t1w1"]).shape == (2, model.item_vectors().shape[1])
    more = model.with_items([article, {"id": 99, "title": "t1w2 c3"}])
    assert more.item_ids()[-2:] == ["new", "99"] and len(model.item_ids()) == len(more.item_ids()) - 2
    asked = {"n": 10_000, "exclude_seen": False}
    old, new = (
        dict(one.recommend(histories=[["N1", last]], **asked)[0]) for one, last in ((model, "N5"), (more, "new"))
    )
    assert {item: new[item] for item in old} == pytest.approx(old, abs=1e-5) and len(new) == len(old) + 2
    among = more.recommend(histories=[["N1"]], candidates=["new", "N5", 99], n=3)[0]
    assert dict(among)["new"] == pytest.approx(dict(among)["N5"], abs=1e-5)
    for wrong, said in (
        ([{"title": "no id"}], "number 0 has no id"),
        ([{"id": "N5", "title": "x"}], "'N5' is there already"),
        ([{"id": "a", "title": "x"}, {"id": "a", "title": "y"}], "'a' is there already"),
        ([{"id": "a", "name": "x"}], "expected a title"),
    ):
        with pytest.raises(InputError, match=said):
            model.with_items(wrong)
    if name != "nrms":
        with pytest.raises(InputError, match="category: got 'cat99', which training did not see"):
            model.encode([{"title": "x", "category": "cat99"}])
    with pytest.raises(InputError, match="Export before with_items"):
        more.export("nowhere")
    if "abstract" in table.column_names:  # as text pairs call it
        named = {"body" if key == "abstract" else key: value for key, value in article.items()}
        np.testing.assert_array_equal(model.encode([named]), model.encode([article]))
    np.testing.assert_array_equal(more.with_items([{"id": "last", "title": "t3w3"}]).item_vectors()[:-1],
                                  more.item_vectors())  # fmt: skip


def test_items_are_encoded_once_and_where_the_network_was_sent(world, monkeypatch):
    model, events = nw.load(world / "runs" / "nrms"), []
    encode, send, move = model.network.encode_candidates, torch.nn.Module.to, torch.Tensor.to
    table = (len(model.item_ids()), model.width)

    def watch(name, call):
        return lambda *given, **more: (events.append(name), call(*given, **more))[1]

    def moved(tensor, *given, **more):
        if tuple(tensor.shape) == table:
            events.append("copy of the table")
        return move(tensor, *given, **more)

    monkeypatch.setattr(model.network, "encode_candidates", watch("encode", encode))
    monkeypatch.setattr(torch.nn.Module, "to", watch("network moves", send))
    monkeypatch.setattr(torch.Tensor, "to", moved)
    first = model.recommend(histories=[["N1"]], device="cpu")
    assert events[0] == "network moves" and events.count("encode") == 1
    for _ in range(3):
        np.testing.assert_array_equal(model.recommend(histories=[["N1"]], device="cpu").ids, first.ids)
    model.similar(["N1"], device="cpu")
    assert events.count("encode") == 1 and "copy of the table" not in events
    more = model.with_items([{"id": "new", "title": "t1w1"}])
    more.recommend(histories=[["N1"]], device="cpu")
    assert events.count("encode") == 1  # new articles leave the others as they are


@pytest.mark.parametrize("unknown", ["error", "skip"])
def test_an_empty_history_is_served_where_that_is_asked_for(model, unknown):
    items = model.item_ids()
    found = model.recommend(histories=[[], items[:2]], n=len(items), unknown=unknown, empty="serve", exclude_seen=False)
    assert list(found.queries) == [0, 1] and found.left_out == ()
    row = torch.zeros((1, 1), dtype=torch.int64)
    with torch.no_grad():
        vectors = model.network.encode_candidates(torch.arange(len(items)))
        query = Query(row, torch.zeros_like(row, dtype=torch.bool), row[0] - 1)
        scores = (model.network.encode_queries(query, lambda ids: vectors[ids]) @ vectors.T)[0]
    assert dict(found[0]) == pytest.approx(dict(zip(items, scores.tolist(), strict=True)), abs=1e-5)
    alone = model.recommend(histories=[items[:2]], n=len(items), exclude_seen=False)
    assert dict(found[1]) == pytest.approx(dict(alone[0]), abs=1e-5)
    left = model.recommend(histories=[["zz"], items[:2]], unknown="skip", empty="serve", n=3)
    assert list(left.queries) == [0, 1]  # of whom nothing is known, what an empty history gets
    assert model.recommend(histories=[[], items[:2]], empty="skip").left_out == (0,)
    with pytest.raises(InputError, match=r"histories: 0 \(1 of 2\) without a single item.*empty='serve'"):
        model.recommend(histories=[["zz"], items[:2]], unknown="skip", empty="error")


def test_lstur_knows_people_and_serves_strangers(world):
    model = nw.load(world / "runs" / "lstur")
    weights = model.network.users.weight
    torch.manual_seed(0)
    weights.normal_()  # everybody is known well
    user, history = model.user_ids()[0], [["N1", "N2"]]
    known, stranger = (model.recommend(users, history, n=5)[0] for users in ([user], ["who"]))
    assert known != stranger
    assert stranger == model.recommend(histories=history, n=5)[0]
    assert len(model.recommend([user], [[]], n=2)[0]) == 2  # by the long-term vector alone
    weights.zero_()  # nobody is: all are strangers
    assert stranger == model.recommend([user], history, n=5)[0]


def test_what_a_model_does_not_have_is_said_with_what_it_has(world):
    with pytest.raises(AttributeError, match=r"'recommend': it is a model of texts, which has encode, score, search"):
        nw.load(world / "runs" / "siamese-cnn").recommend(["a"])
    with pytest.raises(AttributeError, match=r"'search': it is a recommender, which has recommend, similar"):
        nw.load(world / "runs" / "nrms").search(["a"], ["b"])


@pytest.mark.parametrize("form", [pd.DataFrame, pl.DataFrame, pa.table])
def test_articles_may_be_a_frame(world, form):
    model = nw.load(world / "runs" / "naml")
    rows = [{"id": f"new{n}", "title": f"t{n}w1 t2w{n}", "category": "cat1"} for n in range(5)]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    np.testing.assert_array_equal(model.encode(form(columns)), model.encode(rows))
    assert model.with_items(form(columns)).item_ids()[-5:] == [row["id"] for row in rows]
    with pytest.raises(InputError, match="articles: got a dictionary with id, title, expected several"):
        model.with_items({"id": "n", "title": "t"})


def test_numbers_of_numpy_are_plain_in_a_result(world):
    found = nw.load(world / "runs" / "bert4rec").recommend(np.array([7, 8]), unknown="skip")
    assert json.loads(json.dumps(found.to_dict()))["left_out"] == [7, 8]
