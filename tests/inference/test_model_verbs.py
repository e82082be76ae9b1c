"""`encode`, `recommend` and `export` as a person meets them: files in, files out."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import negwise as nw

TEXTS = ["t1w1 t2w2", 'with "quotes", commas', "две\nстроки", "t3w3", "c1 c2"]


def write_rows(path, rows):
    """Rows as a CSV, JSON lines or Parquet, by the ending."""
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


def read_rows(path):
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    return parquet.read_table(path).to_pylist()


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("out", [".npy", ".csv", ".jsonl", ".parquet"])
def test_encode(negwise, world, tmp_path, ending, out):
    run = world / "runs" / "siamese-cnn"
    file = write_rows(tmp_path / f"texts{ending}", [{"n": i, "body": text} for i, text in enumerate(TEXTS)])
    target = tmp_path / f"vectors{out}"
    words = ["--column", "body", "--side", "left", "--batch-size", 2, "--device", "cpu", "--json"]
    code, said, err = negwise("encode", run, file, "--out", target, *words)
    assert code == 0, err
    model = nw.load(run)
    assert json.loads(said)["texts"] == 5 and json.loads(said)["width"] == model.width
    expected = model.encode(TEXTS, side="left")
    if out == ".npy":
        np.testing.assert_allclose(np.load(target), expected, atol=1e-5)
        return
    rows = read_rows(target)
    assert [row["text"] for row in rows] == TEXTS
    vectors = [[float(v) for v in list(row.values())[1:]] if out == ".csv" else row["vector"] for row in rows]
    np.testing.assert_allclose(np.array(vectors), expected, atol=1e-5)


def test_lines_of_a_text_file_and_an_empty_one(negwise, world, tmp_path):
    run = world / "runs" / "siamese-lstm"
    (tmp_path / "a.txt").write_text("t1w1\nt2w2 c1\n")
    assert negwise("encode", run, tmp_path / "a.txt", "--out", tmp_path / "a.npy")[0] == 0
    np.testing.assert_allclose(np.load(tmp_path / "a.npy"), nw.load(run).encode(["t1w1", "t2w2 c1"]), atol=1e-5)
    (tmp_path / "b.txt").write_text("")
    code, _, err = negwise("encode", run, tmp_path / "b.txt", "--out", tmp_path / "b.npy")
    assert code == 2 and "columns none" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none.csv", "--out", "v.npy"], "none.csv: no such file"),
        (["texts.doc", "--out", "v.npy"], "ending '.doc', expected one of"),
        (["texts.csv", "--column", "a", "--out", "v.xls"], "ending '.xls', expected one of"),
        (["texts.csv", "--out", "v.npy"], "columns a, b, expected text. Choose one: --column NAME"),
        (["texts.csv", "--column", "c", "--out", "v.npy"], "no column 'c'. Columns: a, b"),
        (["bad.jsonl", "--out", "v.npy"], "bad.jsonl, line 2: not JSON"),
        (["number.jsonl", "--out", "v.npy"], "row 2: text is 3, expected a text"),
        (["ragged.csv", "--out", "v.npy"], "line 3: 1 cells, expected the 2 of the header"),
        (["broken.parquet", "--out", "v.npy"], "no Parquet file"),
        (["latin.csv", "--out", "v.npy"], "UTF-8"),
        (["texts.csv", "--side", "up", "--out", "v.npy"], "side: got 'up'"),
    ],
)
def test_a_wrong_file_exits_2_and_leaves_nothing(negwise, world, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.csv").write_text("a,b\n1,2\n")
    (tmp_path / "texts.doc").write_text("x")
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"text"\n')
    (tmp_path / "number.jsonl").write_text('{"text": "a"}\n{"text": 3}\n')
    (tmp_path / "ragged.csv").write_text("text,b\n1,2\n3\n")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 not really")
    (tmp_path / "latin.csv").write_bytes("text\ncafé\n".encode("latin-1"))
    before = sorted(tmp_path.iterdir())
    code, _, err = negwise("encode", world / "runs" / "siamese-cnn", *words)
    assert code == 2 and said in err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("out", [".csv", ".jsonl", ".parquet"])
def test_recommend_from_a_file(negwise, world, tmp_path, ending, out):
    run = world / "runs" / "bert4rec"
    model = nw.load(run)
    users = [*model.user_ids()[:3], "nobody", model.user_ids()[5]]
    file = write_rows(tmp_path / f"users{ending}", [{"user": user, "age": 3} for user in users])
    words = ["recommend", run, "--input", file, "--out", tmp_path / f"found{out}", "--n", 4]
    code, _, err = negwise(*words)
    assert code == 2 and "users: got 'nobody' (1 of 5)" in err
    assert not (tmp_path / f"found{out}").exists()
    code, said, err = negwise(*words, "--unknown", "skip", "--json")
    assert code == 0, err
    assert json.loads(said) == {"queries": 4, "rows": 16, "left_out": 1, "out": str(tmp_path / f"found{out}")}
    rows = read_rows(tmp_path / f"found{out}")
    kept = [user for user in users if user != "nobody"]
    expected = [
        (user, rank, item, score)
        for user, found in zip(kept, model.recommend(kept, n=4), strict=True)
        for rank, (item, score) in enumerate(found, 1)
    ]
    assert [(row["user"], int(row["rank"]), row["item"]) for row in rows] == [one[:3] for one in expected]
    assert [float(row["score"]) for row in rows] == pytest.approx([one[3] for one in expected], rel=1e-5)


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_recommend_for_histories(negwise, world, tmp_path, ending):
    run = world / "runs" / "nrms"
    histories = [["N1", "N2"], ["N30"]]
    cells = histories if ending != ".csv" else ["N1 N2", '["N30"]']
    file = write_rows(tmp_path / f"h{ending}", [{"history": cell} for cell in cells])
    (tmp_path / "c.csv").write_text("item\nN5\nN6\nN7\n")
    words = ["--out", tmp_path / "f.jsonl", "--n", 2, "--candidates", tmp_path / "c.csv", "--include-seen"]
    code, _, err = negwise("recommend", run, "--input", file, *words)
    assert code == 0, err
    found = nw.load(run).recommend(histories=histories, candidates=["N5", "N6", "N7"], n=2)
    expected = [(str(row), item) for row, items in enumerate(found) for item, _ in items]
    assert [(row["user"], row["item"]) for row in read_rows(tmp_path / "f.jsonl")] == expected


def test_recommend_on_the_terminal(negwise, world):
    run = world / "runs" / "bert4rec"
    model = nw.load(run)
    user = model.user_ids()[2]
    code, out, _ = negwise(
        "recommend", run, "--user", user, "--user", "nobody", "--unknown", "skip", "--n", 2, "--json"
    )
    assert code == 0
    found = json.loads(out)
    assert found["left_out"] == ["nobody"] and found["found"][0]["query"] == user
    assert [row["item"] for row in found["found"][0]["items"]] == [item for item, _ in model.recommend([user], n=2)[0]]
    code, out, _ = negwise("recommend", run, "--history", "i1,i2", "--n", 1)
    assert code == 0 and out.startswith(f"0: {model.recommend(histories=[['i1', 'i2']], n=1)[0][0][0]} ")
    for words, said in (
        ([], "got 0 of --user, --history and --input"),
        (["--user", "a", "--history", "b"], "got 2 of"),
        (["--input", "x.csv"], "--out: got nothing"),
        (["--user", "a", "--n", "0"], "n: got 0"),
    ):
        code, _, err = negwise("recommend", run, *words)
        assert code == 2 and said in err
    code, _, err = negwise("recommend", world / "runs" / "siamese-cnn", "--user", "a")
    assert code == 2 and "a model of texts, expected a recommender" in err
    code, _, err = negwise("encode", run, "x.txt", "--out", "v.npy")
    assert code == 2 and "expected a model of texts" in err


def test_export(negwise, world, tmp_path):
    run = world / "runs" / "bert4rec"
    code, out, err = negwise("export", run, "--out", tmp_path / "a", "--vectors", "--histories", "--json")
    assert code == 0, err
    files = json.loads(out)["files"]
    expected = {"README.md", "items.arrow", "model.json", "users.arrow", "vectors.npy", "vectors.parquet"}
    assert set(files) == {*expected, "weights.safetensors"}
    user = nw.load(run).user_ids()[0]
    assert nw.load(tmp_path / "a").recommend([user])[0] == nw.load(run).recommend([user])[0]
    code, _, err = negwise("export", run, "--out", tmp_path / "a")
    assert code == 2 and "is there and not empty" in err


@pytest.mark.parametrize("verb", ["encode", "recommend", "export"])
def test_help_has_an_example(negwise, verb):
    code, out, _ = negwise(verb, "--help")
    assert code == 0 and f"negwise {verb} " in out and "--json" in out
