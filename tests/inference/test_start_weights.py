"""The weights of an older model in a new one: rows by name, whatever their numbers are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import torch

from negwise.errors import InputError
from negwise.inference.model_folder import find_model
from negwise.jobs.start_weights import ROWS, copy_weights, like_model
from negwise.models import WordTokenizer
from negwise.records import CONFIG, RunConfig, decode, read_record
from negwise.requests import TrainRequest
from negwise.tasks import make_task
from tests.inference.inference_world import MODELS, write_data


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEGWISE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield write_data(tmp_path_factory.mktemp("again"))


def request_of(run, data, seed=5):
    """The request that trained ``run``, on data that lies elsewhere, with other weights at random."""
    request = decode(TrainRequest, read_record(RunConfig, run / CONFIG).run, "config")
    return replace(request, data=str(data / request.data.rsplit("/", 1)[-1]), seed=seed)


@pytest.mark.parametrize("model", MODELS)
def test_the_same_data_gives_the_same_weights(world, data, model):
    older = find_model(world / "runs" / model)
    request = like_model(request_of(older.path, data), older.record)
    task = make_task(request)
    drawn = {name: value.clone() for name, value in task.model.state_dict().items()}
    copy_weights(task, request, older)
    before = older.weights()
    assert all(torch.equal(value, before[name]) for name, value in task.model.state_dict().items())
    assert any(not torch.equal(value, before[name]) for name, value in drawn.items())


def test_items_and_words_are_found_by_name(world, data, tmp_path):
    for model, rows in (("bert4rec", "items.weight"), ("siamese-cnn", "words.embedding.weight")):
        older = find_model(world / "runs" / model)
        request = like_model(request_of(older.path, data), older.record)
        changed = tmp_path / request.data.rsplit("/", 1)[-1]
        head, *rest = Path(request.data).read_text().splitlines()
        later = rest[: len(rest) // 2 : -1]  # the other way round, and half of it
        changed.write_text("\n".join([head, *later]) + "\n")
        request = replace(request, data=str(changed))
        task = make_task(request)
        drawn = task.model.state_dict()[rows].clone()
        copy_weights(task, request, older)
        theirs, mine = names_of(older.files), names_of_task(task, request)
        assert theirs != mine  # the numbers are not those of before
        known = [name for name in mine if name in theirs]
        assert known
        before, now = older.weights()[rows], task.model.state_dict()[rows]
        for name in mine:
            row = mine.index(name)
            expected = before[theirs.index(name)] if name in theirs else drawn[row]
            assert torch.equal(now[row], expected), (model, name)
        if model == "bert4rec":  # the mask is the last row of both
            assert torch.equal(now[-1], before[-1])


def names_of(files):
    if (files / "items.arrow").exists():
        return pa.ipc.open_file(files / "items.arrow").read_all()["id"].to_pylist()
    return list(WordTokenizer.from_json((files / "tokenizer.json").read_bytes()).words)


def names_of_task(task, request):
    files = task.assets(request)
    if "items.arrow" in files:
        return pa.ipc.open_file(pa.py_buffer(files["items.arrow"])).read_all()["id"].to_pylist()
    return list(WordTokenizer.from_json(files["tokenizer.json"]).words)


def test_a_model_of_another_shape_is_refused(world, data):
    older = find_model(world / "runs" / "siamese-cnn")
    request = like_model(request_of(older.path, data), older.record)
    request = replace(request, settings={**request.settings, "hidden": 2 * request.settings["hidden"]})
    with pytest.raises(InputError, match=r"a siamese-cnn of another shape: .* Leave --from out"):
        copy_weights(make_task(request), request, older)


def test_every_table_of_rows_is_one_of_a_model(world):
    """A new table of items, words or users in a model must be named in `ROWS`, or it would be copied by its place."""
    tables = {
        name
        for model in MODELS
        for name, value in find_model(world / "runs" / model).weights().items()
        if value.ndim == 2 and ("embedding" in name or name in ("items.weight", "users.weight", "positions.weight"))
    }
    assert tables <= set(ROWS)
