"""Ids of every kind, through the files of a model and back: whole numbers, texts, unicode, 1e18."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save

import negwise as nw
from negwise.datasets import Ragged, read
from negwise.errors import InputError
from negwise.inference.id_map import IdMap
from negwise.models import build
from negwise.protocols import Query
from negwise.records import ITEMS, USERS, ModelRecord, with_manifest
from negwise.tasks.model_files import arrow_file, as_lists

SETTINGS = {"heads": 1, "head_dim": 4, "layers": 1, "max_len": 5}
text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
number = st.integers(-(10**18), 10**18) | st.sampled_from([10**18, 10**18 + 1, 2**63, 2**53 + 1, 0, -1])
an_id = (
    text
    | number
    | st.floats(-(2**53) + 1, 2**53 - 1).map(round).map(float)
    | st.sampled_from(["1e18", "1e+18", "nan", "None", "٣", "é", "e\u0301", " a", "a ", "007", "7"])
)


def as_data_has_it(one):
    """The text of an id in a data set: blanks around it are left out, 7.0 is 7."""
    return str(int(one) if isinstance(one, float) else one).strip()


def has_text(one):
    return as_data_has_it(one) != "" and "\0" not in as_data_has_it(one)


def unique_ids(least, most):
    return st.lists(an_id.filter(has_text), min_size=least, max_size=most, unique_by=as_data_has_it)


def write_folder(folder, items, users, histories):
    """An exported folder by hand, of a small model with random weights."""
    torch.manual_seed(0)
    network = build("bert4rec", {"n_items": len(items)}, **SETTINGS)
    record = ModelRecord(
        "bert4rec", "sequences", SETTINGS, {"n_items": len(items), "n_users": len(users)}, {}, 5, "auc", "4"
    )
    names = {
        one: pa.array([as_data_has_it(name) for name in ids], pa.large_string())
        for one, ids in (("i", items), ("u", users))
    }
    files = {
        ITEMS: arrow_file({"id": names["i"]}),
        USERS: arrow_file({"id": names["u"], "history": as_lists(Ragged.of(histories))}),
        "weights.safetensors": save(network.state_dict()),
    }
    for name, content in with_manifest(record, files).items():
        (folder / name).write_bytes(content)
    return network.eval()


@given(unique_ids(2, 12), unique_ids(1, 5), st.data())
@settings(max_examples=60, deadline=None)
def test_every_id_finds_its_own_row(items, users, data):
    rows = st.lists(st.integers(0, len(items) - 1), min_size=1, max_size=7)
    histories = [data.draw(rows) for _ in users]
    with tempfile.TemporaryDirectory() as folder:
        network = write_folder(Path(folder), items, users, histories)
        model = nw.load(folder)
    assert model.item_ids() == [as_data_has_it(one) for one in items]
    found = model.recommend(users, n=len(items), exclude_seen=False)
    given_ = model.recommend(histories=[[items[i] for i in row] for row in histories], n=len(items), exclude_seen=False)
    np.testing.assert_array_equal(found.ids, given_.ids)
    for row, history in zip(found, histories, strict=True):
        last = torch.tensor([history[-5:]])
        with torch.no_grad():
            query = network.encode_queries(Query(last, torch.ones_like(last, dtype=torch.bool), last[:, 0]), None)
            scores = (query @ network.table.T)[0].numpy()
        assert dict(row) == pytest.approx(
            {as_data_has_it(one): score for one, score in zip(items, scores.tolist(), strict=True)}, abs=1e-5
        )
    assert model.history(users[0]) == [as_data_has_it(items[i]) for i in histories[0]]


@given(unique_ids(1, 8), an_id)
@settings(max_examples=60, deadline=None)
def test_an_id_is_found_by_its_text_and_by_nothing_else(ids, other):
    texts = [as_data_has_it(one) for one in ids]
    known = IdMap(pa.array(texts, pa.large_string()), "items")
    assert known.numbers(ids).tolist() == list(range(len(ids))) == known.numbers(texts).tolist()
    expected = texts.index(as_data_has_it(other)) if as_data_has_it(other) in texts else -1
    assert known.numbers([other]).tolist() == [expected]
    assert (other in known) is (expected >= 0)


@pytest.mark.parametrize(
    "items",
    [[" i0", "i1 ", "9.0", "\u3000ü", "x\u00a0y"], [7, -3, 10**18], [7.0, 8.0, -3.0]],
    ids=["text", "int", "float"],
)
def test_what_training_was_given_is_found_as_it_was_given(tmp_path, monkeypatch, items):
    """The rows of a data set, as their owner has them, against the ids that reading made of them."""
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path))
    rows = [{"user": f" u{n} ", "item": item, "time": n} for n, item in enumerate(items)]
    source = read(rows)
    known = IdMap(source.tables["items"]["id"].combine_chunks(), "items")
    assert sorted(known.numbers(items).tolist()) == list(range(len(items)))
    people = IdMap(source.tables["users"]["id"].combine_chunks(), "users")
    assert (people.numbers([row["user"] for row in rows]) >= 0).all()
    assert people.numbers(["", " ", "u9"]).tolist() == [-1, -1, -1]


@pytest.mark.parametrize("wrong", [1e18, 7.5, float("nan"), None, True, b"a", ["a"], ("a",), np.bool_(True), {}])
def test_what_is_no_id_is_refused_and_never_becomes_another(wrong):
    known = IdMap(pa.array(["1000000000000000000", "nan", "None", "True", "a", "7"], pa.large_string()), "users")
    with pytest.raises(InputError, match=r"users: got .* expected an id: a text or a whole number"):
        known.numbers([wrong])
    assert known.numbers([np.int64(7), 10**18]).tolist() == [5, 0]
