"""What `load` opens, and what it says of folders that it cannot."""

import json
import shutil

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import negwise as nw
from negwise.errors import InputError
from negwise.records import MODEL_FORMAT, ArmResult, Results, SeedResult, write_record
from negwise.records.checkpoint_records import own_digest

RUN_FILES = ("model/model.json", "model/tokenizer.json", "model/items.arrow", "model/users.arrow", "weights", "state")


@pytest.fixture
def run(world, tmp_path):
    """A copy of a run that a test may damage."""
    return shutil.copytree(world / "runs" / "nrms", tmp_path / "run")


def place(run, name):
    weights = run / json.loads((run / "result.json").read_text())["weights"]
    return {"weights": weights / "weights.safetensors", "state": weights / "state.json"}.get(name, run / name)


def test_a_job_is_its_winner(world, tmp_path):
    job = tmp_path / "job"
    for name in ("siamese-cnn", "bert4rec"):
        shutil.copytree(world / "runs" / name, job / "arms" / name)
    (job / "job.json").write_text("{}")
    with pytest.raises(InputError, match=r"a job without results.json: it has not ended"):
        nw.load(job)

    def results(model):
        seeds = (SeedResult(0, "arms/bert4rec", "done"),)
        arm = ArmResult("4", "4", 4.0, None, False, 0.1, (), seeds)
        write_record(job / "results.json", Results("run", (arm,), ("auc",), chosen="4", model=model))

    results("arms/bert4rec")
    assert nw.load(job).record.model == "bert4rec"
    results("arms/gone")
    with pytest.raises(InputError, match=r"arms/gone: not there, but results.json names it.*Copy"):
        nw.load(job)
    results(None)
    with pytest.raises(InputError, match=r"no run of this job came to an end"):
        nw.load(job)


def test_an_unfinished_run_has_its_best_weights_so_far(run):
    expected = nw.load(run).item_vectors()
    (run / "result.json").unlink()
    np.testing.assert_array_equal(nw.load(run).item_vectors(), expected)
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(InputError, match=r"no checkpoint yet"):
        nw.load(run)


@pytest.mark.parametrize("name", RUN_FILES)
@pytest.mark.parametrize("how", ["missing", "cut", "changed", "empty"])
def test_a_folder_that_is_not_whole_is_refused(run, name, how):
    file = place(run, name)
    content = file.read_bytes()
    if how == "missing":
        file.unlink()
    else:
        middle = len(content) // 2
        changed = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        file.write_bytes({"cut": content[:middle], "changed": changed, "empty": b""}[how])
    with pytest.raises(InputError) as error:
        nw.load(run)
    assert str(run) in str(error.value)
    assert any(word in str(error.value) for word in ("Copy", "copy", "Restore"))
    assert "run the same command" not in str(error.value) or name == "state"  # nobody who was given a model has one


def test_versions(run):
    file = run / "model" / "model.json"
    values = json.loads(file.read_text())
    del values["digest"]

    def write(**changes):
        changed = {name: value for name, value in (values | changes).items() if value is not None}
        file.write_text(json.dumps(changed | {"digest": own_digest(changed)}))

    write()
    nw.load(run)
    write(format=MODEL_FORMAT + 1)
    with pytest.raises(
        InputError, match=f"format {MODEL_FORMAT + 1}, expected {MODEL_FORMAT} or less. A newer negwise"
    ):
        nw.load(run)
    write(format=None)
    with pytest.raises(InputError, match=r"it says no format.*Train again"):
        nw.load(run)
    write(sizes="many")
    with pytest.raises(InputError, match=r"sizes is 'many', expected an object"):
        nw.load(run)


def test_other_folders_and_weights(run, tmp_path):
    for path, said in (
        (tmp_path / "none", "not there, expected the folder of a job"),
        (run / "result.json", "a file, expected the folder"),
        (tmp_path, "none of results.json, config.json and model.json"),
        (run / "model", "a part of a run, without weights. Pass the run's folder"),
    ):
        with pytest.raises(InputError, match=said):
            nw.load(path)
    out = nw.load(run).export(tmp_path / "out")
    weights = load_file(out / "weights.safetensors")
    name = next(iter(weights))

    def rewrite(changed):
        save_file(changed, out / "weights.safetensors")
        values = json.loads((out / "model.json").read_text())
        from negwise.records.checkpoint_records import digest_of

        values["files"]["weights.safetensors"] = digest_of((out / "weights.safetensors").read_bytes())
        del values["digest"]
        (out / "model.json").write_text(json.dumps(values | {"digest": own_digest(values)}))

    rewrite({**weights, name: weights[name] * float("nan")})
    with pytest.raises(InputError, match=r"not finite.*smaller --learning-rate"):
        nw.load(out)
    rewrite({one: values for one, values in weights.items() if one != name})
    with pytest.raises(InputError, match=r"weights are of another model"):
        nw.load(out)


def test_loading_leaves_random_numbers_alone_and_reprs_are_short(world):
    import torch

    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    for name in ("bert4rec", "siamese-cnn"):
        assert len(repr(nw.load(world / "runs" / name))) < 300
    assert torch.equal(torch.rand(3), expected)


def test_word_vectors_from_a_file_set_the_width(tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    rows = [{"left": f"word{i} of", "right": f"a body that says word{i}"} for i in range(60)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "glove.txt").write_text("".join(f"word{i} {' '.join(['0.5'] * 7)}\n" for i in range(60)))
    result = nw.train(
        tmp_path / "pairs.jsonl", out=tmp_path / "run", vectors=tmp_path / "glove.txt", model="siamese-cnn", k=2,
        steps=2, batch_size=8, device="cpu",
    )  # fmt: skip
    (tmp_path / "glove.txt").unlink()
    assert result.model.network.words.width == 7 == result.model.record.settings["embedding"]


def test_simulated_data_has_numbers_for_ids(tmp_path):
    world = {"users": 30, "items": 40, "impressions": 150, "shown": 8, "history": 5, "click_rate": 0.3}
    result = nw.train(
        "clicks", out=tmp_path / "run", model="nrms", k=2, steps=2, batch_size=8, device="cpu", world=world
    )
    model = nw.load(tmp_path / "run")
    assert model.item_ids() == [str(number) for number in range(40)] and len(model.recommend([3, "4"], n=2)) == 2
    assert result.model.record.task == "impressions"
