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
from negwise.datasets import Ragged
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
    | st.sampled_from(["1e18", "1e+18", "nan", "None", "٣", "é", "e\u0301", " a", "a ", "007", "7", "\x00"])
)


def unique_ids(least, most):
    return st.lists(an_id, min_size=least, max_size=most, unique_by=str)


def write_folder(folder, items, users, histories):
    """An exported folder by hand, of a small model with random weights."""
    torch.manual_seed(0)
    network = build("bert4rec", {"n_items": len(items)}, **SETTINGS)
    record = ModelRecord(
        "bert4rec", "sequences", SETTINGS, {"n_items": len(items), "n_users": len(users)}, {}, 5, "auc", "4"
    )
    names = {one: pa.array([str(name) for name in ids], pa.large_string()) for one, ids in (("i", items), ("u", users))}
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
    assert model.item_ids() == [str(one) for one in items]
    found = model.recommend(users, n=len(items), exclude_seen=False)
    given_ = model.recommend(histories=[[items[i] for i in row] for row in histories], n=len(items), exclude_seen=False)
    np.testing.assert_array_equal(found.ids, given_.ids)
    for row, history in zip(found, histories, strict=True):
        last = torch.tensor([history[-5:]])
        with torch.no_grad():
            query = network.encode_queries(Query(last, torch.ones_like(last, dtype=torch.bool), last[:, 0]), None)
            scores = (query @ network.table.T)[0].numpy()
        assert dict(row) == pytest.approx(
            {str(one): score for one, score in zip(items, scores.tolist(), strict=True)}, abs=1e-5
        )
    assert model.history(users[0]) == [str(items[i]) for i in histories[0]]


@given(unique_ids(1, 8), an_id)
@settings(max_examples=60, deadline=None)
def test_an_id_is_found_by_its_exact_text_and_by_nothing_else(ids, other):
    known = IdMap(pa.array([str(one) for one in ids], pa.large_string()), "items")
    texts = [str(one) for one in ids]
    assert known.numbers(ids).tolist() == list(range(len(ids))) == known.numbers(texts).tolist()
    expected = texts.index(str(other)) if str(other) in texts else -1
    assert known.numbers([other]).tolist() == [expected]
    assert (other in known) is (expected >= 0)


@pytest.mark.parametrize("wrong", [1e18, float("nan"), None, True, b"a", ["a"], ("a",), np.float64(7), {}])
def test_what_is_no_id_is_refused_and_never_becomes_another(wrong):
    known = IdMap(pa.array(["1000000000000000000", "nan", "None", "True", "a", "7"], pa.large_string()), "users")
    with pytest.raises(InputError, match=r"users: got .* expected an id: a text or a whole number"):
        known.numbers([wrong])
    assert known.numbers([np.int64(7), 10**18]).tolist() == [5, 0]
