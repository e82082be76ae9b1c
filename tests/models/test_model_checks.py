"""What a model cannot be made from is refused by name when it is made, not at some later step."""

import numpy as np
import pytest
import torch
from model_world import content

from negwise.errors import InputError
from negwise.models import build

WHOLE = "expected a whole number, 1 or more"
SHARE = "expected a probability from 0 to 1"


@pytest.mark.parametrize(
    ("name", "setting", "value", "message"),
    [
        ("nrms", "heads", 0, f"heads=0, {WHOLE}"),
        ("nrms", "heads", 2.5, f"heads=2.5, {WHOLE}"),
        ("nrms", "head_dim", -1, f"head_dim=-1, {WHOLE}"),
        ("nrms", "embedding", 0, f"embedding=0, {WHOLE}"),
        ("nrms", "pooling", 0, f"pooling=0, {WHOLE}"),
        ("nrms", "pooling", True, f"pooling=True, {WHOLE}"),
        ("nrms", "dropout", 1.5, f"dropout=1.5, {SHARE}"),
        ("nrms", "dropout", "a", f"dropout='a', {SHARE}"),
        ("naml", "hidden", 0, f"hidden=0, {WHOLE}"),
        ("naml", "category_width", 0, f"category_width=0, {WHOLE}"),
        ("naml", "window", 3.0, f"window=3.0, {WHOLE}"),
        ("lstur", "hidden", 0, f"hidden=0, {WHOLE}"),
        ("lstur", "user_mask_rate", 2, f"user_mask_rate=2, {SHARE}"),
        ("lstur", "user_mask_rate", float("nan"), f"user_mask_rate=nan, {SHARE}"),
        ("siamese-transformer", "heads", -1, f"heads=-1, {WHOLE}"),
        ("siamese-transformer", "layers", 0, f"layers=0, {WHOLE}"),
        ("siamese-lstm", "hidden", 0, f"hidden=0, {WHOLE}"),
        ("siamese-cnn", "temperature", "x", "temperature='x', expected a number above 0"),
        ("siamese-cnn", "temperature", float("inf"), "temperature=inf, expected a number above 0"),
        ("bert4rec", "layers", 0, f"layers=0, {WHOLE}"),
        ("bert4rec", "max_len", 0, f"max_len=0, {WHOLE}"),
        ("bert4rec", "mask_rate", 3, f"mask_rate=3, {SHARE}"),
        ("bert4rec", "last_rate", -1, f"last_rate=-1, {SHARE}"),
    ],
)
def test_settings_that_cannot_be(name, setting, value, message):
    with pytest.raises(InputError, match=message):
        build(name, content(), **{setting: value})


@pytest.mark.parametrize(("name", "count"), [("lstur", "n_users"), ("bert4rec", "n_items")])
def test_nobody_and_nothing(name, count):
    with pytest.raises(InputError, match=f"{count}=0, {WHOLE}"):
        build(name, content() | {count: 0})


@pytest.mark.parametrize(
    ("name", "short", "message"),
    [
        ("naml", "category", "title 40, abstract 40, category 39, subcategory 40; expected one row per item in each"),
        ("naml", "abstract", "title 40, abstract 39, category 40"),
        ("lstur", "subcategory", "title 40, category 40, subcategory 39"),
        ("siamese-cnn", "left", "left 39, right 40"),
    ],
)
def test_tables_are_of_the_same_items(name, short, message):
    data = content()
    with pytest.raises(InputError, match=message):
        build(name, data | {short: data[short][:-1]})


def test_what_makes_no_table_is_refused():
    for rows in ([[1, 2], [3]], np.array([["a", "b"]])):
        with pytest.raises(InputError, match=r"title is a .* that cannot become an array, expected token ids"):
            build("nrms", content() | {"title": rows})


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32, np.uint64, np.int8])
def test_tables_of_any_whole_numbers_are_taken(kind):
    data = content()
    model = build("lstur", data | {"title": data["title"].astype(kind), "category": data["category"].astype(kind)})
    assert (model.title.numpy() == data["title"]).all()
    assert (model.category.numpy() == data["category"]).all()


def test_tensors_are_taken_and_copied():
    data = content()
    ids = {
        name: torch.tensor(data[name], dtype=torch.int64) for name in ("title", "abstract", "category", "subcategory")
    }
    counted = {name: value for name, value in data.items() if name not in ("n_categories", "n_subcategories")}
    model = build("naml", counted | ids)
    assert model.category_view.embedding.num_embeddings == data["category"].max() + 1
    for table in ids.values():
        table.zero_()
    for name in ids:
        assert (getattr(model, name).numpy() == data[name]).all()


def test_a_table_without_columns_is_one_without_words():
    data = content()
    model = build("naml", data | {"title": data["title"][:, :0]}).eval()
    empty = build("naml", data | {"title": np.zeros_like(data["title"])}).eval()
    empty.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(model.encode_candidates(torch.arange(40)), empty.encode_candidates(torch.arange(40)))
