"""An exported folder does what the run did, tells who made it, and gives nobody's history away."""

import json
from importlib.util import find_spec

import numpy as np
import pyarrow.parquet as parquet
import pytest

import negwise as nw
from negwise.errors import InputError
from tests.inference.inference_world import MODELS


def answers(model):
    """Something that every part of a model has a say in."""
    if model.record.task == "pairs":
        return model.score(["t1w1 t2w2", "c1"], ["t1w3 c4", "t2w2", "t5w1"])
    items = model.item_ids()
    return model.recommend(histories=[items[:3], items[5:6]], n=8).scores


@pytest.mark.parametrize("name", MODELS)
def test_an_exported_model_is_the_same_model(name, world, tmp_path):
    model = nw.load(world / "runs" / name)
    out = model.export(tmp_path / "out")
    again = nw.load(out)
    np.testing.assert_array_equal(answers(model), answers(again))
    twice = nw.load(again.export(tmp_path / "twice"))
    np.testing.assert_array_equal(answers(model), answers(twice))
    assert twice.outcome == model.outcome and twice.outcome.scores is not None
    assert not [file for file in out.rglob("*") if file.suffix in (".pt", ".pkl", ".bin")]
    card = (out / "README.md").read_text()
    test = json.loads((world / "runs" / name / "result.json").read_text())["evaluations"]["test"]
    low, high = (min(max(test["auc"] + sign * 1.6448536 * test["auc_se"], 0), 1) for sign in (-1, 1))
    assert f"auc {test['auc']:.4f}, 90% interval {low:.4f} .. {high:.4f} (the metric that counted)" in card
    assert f"`--k {model.record.k}`" in card and "K at the end of training" in card
    assert "nw.load(" in card and model.record.provenance["data_digest"] in card
    place, file = model.record.provenance["data"].rsplit("/", 1)
    assert f"- {file}: " in card
    assert not [one for one in out.iterdir() if place.encode() in one.read_bytes()]  # nobody learns where it lay


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_as_large_as_what_it_has_learnt_and_read(name, world, tmp_path):
    """Weights, histories and names, and a few kB beside them: nothing of optimisers, texts of pairs or negatives."""
    model = nw.load(world / "runs" / name)
    learnt = sum(value.nbytes for value in model.network.state_dict().values())
    read = world / "runs" / name / "model" / "tokenizer.json"
    read = read.stat().st_size if read.exists() else 0  # words and their numbers
    if model.record.task != "pairs":
        read += 8 * len(model.histories.ids) + 64 * (len(model.items) + len(model.users))
    out = model.export(tmp_path / "out", **({} if model.record.task == "pairs" else {"histories": True}))
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    assert learnt < size < learnt + read + 30_000


@pytest.mark.parametrize("name", ["bert4rec", "naml"])
def test_histories_stay_at_home_unless_asked_for(name, world, tmp_path):
    model = nw.load(world / "runs" / name)
    bare, full = model.export(tmp_path / "bare"), model.export(tmp_path / "full", histories=True)
    everybody = {user.encode() for user in model.user_ids()}
    assert nw.load(full).record.example.encode() in everybody
    for file in bare.iterdir():
        if file.suffix != ".safetensors":  # random bytes may say anything
            content = file.read_bytes()
            assert not [user for user in everybody if b'"' + user + b'"' in content]
    assert not (bare / "users.arrow").exists()
    with pytest.raises(InputError, match=r"exported without histories.*--histories"):
        nw.load(bare).recommend(model.user_ids()[:1])
    with pytest.raises(InputError, match=r"histories: .* has none"):
        nw.load(bare).export(tmp_path / "again", histories=True)
    user = model.user_ids()[3]
    assert nw.load(full).recommend([user])[0] == model.recommend([user])[0]
    assert nw.load(full).history(user) == model.history(user)


def test_lstur_keeps_whose_vector_is_whose(world, tmp_path):
    model = nw.load(world / "runs" / "lstur")
    bare = nw.load(model.export(tmp_path / "bare"))
    user = model.user_ids()[int(model.network.users.weight.abs().sum(1).argmax())]
    assert bare.recommend([user], [["N1"]])[0] == model.recommend([user], [["N1"]])[0]
    with pytest.raises(InputError, match=r"exported without histories"):
        bare.recommend([user])


def test_vectors_for_any_index(world, tmp_path):
    model = nw.load(world / "runs" / "nrms")
    out = model.export(tmp_path / "out", vectors=True)
    np.testing.assert_array_equal(np.load(out / "vectors.npy"), model.item_vectors())
    table = parquet.read_table(out / "vectors.parquet")
    assert table["id"].to_pylist() == model.item_ids()
    np.testing.assert_array_equal(np.array(table["vector"].to_pylist(), np.float32), model.item_vectors())


def test_a_folder_that_is_there_is_not_replaced(world, tmp_path):
    model = nw.load(world / "runs" / "siamese-cnn")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("keep me")
    with pytest.raises(InputError, match=r"is there and not empty"):
        model.export(tmp_path / "full")
    assert [file.name for file in tmp_path.rglob("*")] == ["full", "mine.txt"]
    (tmp_path / "empty").mkdir()
    assert nw.load(model.export(tmp_path / "empty")).record.model == "siamese-cnn"


needs_onnx = pytest.mark.skipif(
    not all(find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime")),
    reason="needs onnx, onnxscript and onnxruntime: pip install 'negwise[onnx]'",
)


QUICK_TO_EXPORT = ("siamese-cnn", "bert4rec")


@needs_onnx
@pytest.mark.parametrize(
    "name", [name if name in QUICK_TO_EXPORT else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)
@pytest.mark.filterwarnings("ignore")  # the exporter's own
def test_onnx_gives_the_vectors_of_torch(name, world, tmp_path):
    import onnxruntime

    model = nw.load(world / "runs" / name)
    out = model.export(tmp_path / "out", onnx=True)
    assert "encoder.onnx" in (out / "README.md").read_text()
    session = onnxruntime.InferenceSession(str(out / "encoder.onnx"))
    if model.record.task == "pairs":
        texts = ["t1w1 t2w2 c3", "c1", "t3w3 " * 30]
        given = {"tokens": model.tokenizer.encode(texts, model.record.lengths["body"]).astype(np.int64)}
        expected = model.encode(texts)
    elif model.record.task == "sequences":
        given = {"items": np.array([[3, 4, 5, 0], [9, 1, 2, 7]]), "mask": np.array([[True] * 3 + [False], [True] * 4])}
        ids = model.item_ids()
        rows = [[3, 4, 5], [9, 1, 2, 7]]
        found = model.recommend(histories=[[ids[i] for i in row] for row in rows], n=len(ids), exclude_seen=False)
        vectors = session.run(None, given)[0]
        for row, query in zip(found, vectors, strict=True):
            want = query @ model.item_vectors().T
            np.testing.assert_allclose([s for _, s in row], np.sort(want)[::-1], atol=1e-4)
        return
    else:
        articles = [{"title": "t1w1 c2", "abstract": "t1w3 c1 c2", "category": "cat1"}, {"title": "t4w4"}]
        given = {name: values.numpy() for name, values in model.reader.read(articles).items()}
        given = {name: values.astype(np.int64) for name, values in given.items()}
        expected = model.encode(articles)
    np.testing.assert_allclose(session.run(None, given)[0], expected, atol=1e-4)
