"""`encode`, `recommend` and `export` as a person meets them: files in, files out."""

import csv
import gzip
import json
import re
import time
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import negwise as nw
from negwise.inference import table_files

TEXTS = ["t1w1 t2w2", 'with "quotes", commas', "две\nстроки", "t3w3", "c1 c2"]


def write_rows(path, rows):
    """Rows as a CSV, JSON lines or Parquet, by the ending; packed where that ends in .gz or .zst."""
    if path.suffix in (".gz", ".zst"):
        plain = write_rows(path.with_suffix(""), rows)
        kind = {".gz": "gzip", ".zst": "zstd"}[path.suffix]
        with pa.output_stream(str(path), compression=kind) as file:
            file.write(plain.read_bytes())
        plain.unlink()
    elif path.suffix == ".csv":
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
    if path.suffix == ".gz":
        plain = path.with_name(f"plain-{path.stem}")
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        return read_rows(plain)
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
    assert code == 2 and "b.txt: empty, expected a file with rows" in err
    (tmp_path / "c.csv").write_text("text,n\n")  # a header, and nothing below it
    code, said, err = negwise("encode", run, tmp_path / "c.csv", "--out", tmp_path / "c.npy")
    assert code == 0 and "0 vectors" in said, err
    assert np.load(tmp_path / "c.npy").shape == (0, nw.load(run).width)


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
        (["cut.csv.gz", "--out", "v.npy"], "cut.csv.gz: reading failed"),
        (["texts.parquet.gz", "--out", "v.npy"], "ending '.parquet.gz', expected one of"),
        (["texts.csv", "--column", "a", "--out", "v.jsonl.xz"], "ending '.jsonl.xz', expected one of"),
        (["texts.csv", "--column", "a", "--out", "v.npy.gz"], "ending '.npy.gz', expected one of .npy, .csv"),
        (["half.jsonl", "--out", "v.jsonl"], "row 1: text is 'a \\ud800', expected a text (half of a surrogate pair"),
        (["twice.tsv", "--out", "v.npy"], "the first line is the header; got 'x, y, x', expected each name once"),
        (["texts.csv", "--column", "a", "--out", "texts.csv"], "texts.csv: it is read from and would be lost"),
        (["texts.csv", "--column", "a", "--out", "link.csv"], "link.csv: it is read from and would be lost"),
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
    (tmp_path / "half.jsonl").write_text('{"text": "a \\ud800"}\n')
    (tmp_path / "twice.tsv").write_text("x\ty\tx\n1\t2\t3\n")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"text\n" + bytes(range(65, 91)) * 99)[:-20])
    (tmp_path / "link.csv").symlink_to(tmp_path / "texts.csv")
    before = sorted(tmp_path.iterdir())
    code, _, err = negwise("encode", world / "runs" / "siamese-cnn", *words)
    assert code == 2 and said in err
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "texts.csv").read_text() == "a,b\n1,2\n"


ARTICLES = [
    {"id": "a1", "title": "t1w1 t2w2", "body": "t1w3 c1", "category": "cat1", "subcategory": "sub10"},
    {"id": "a2", "title": "t4w4", "body": "", "category": "", "subcategory": ""},
    {"id": "a3", "title": "новая статья", "body": "t5w5", "category": "cat5", "subcategory": ""},
]


@pytest.mark.parametrize("name", ["nrms", "naml", "lstur"])
@pytest.mark.parametrize("ending", [".csv.gz", ".jsonl", ".parquet"])
def test_encode_articles(negwise, world, tmp_path, name, ending):
    run, model = world / "runs" / name, nw.load(world / "runs" / name)
    file = write_rows(tmp_path / f"news{ending}", ARTICLES)
    out = tmp_path / "v.jsonl.gz"
    code, said, err = negwise("encode", run, file, "--out", out, "--batch-size", 2, "--device", "cpu", "--json")
    assert code == 0, err
    expected = model.encode([{**row, "abstract": row["body"]} for row in ARTICLES])
    rows = read_rows(out)
    assert [row["id"] for row in rows] == ["a1", "a2", "a3"]
    np.testing.assert_allclose([row["vector"] for row in rows], expected, atol=1e-5)
    reads = {"nrms": [], "naml": ["body", "category", "subcategory"], "lstur": ["category", "subcategory"]}
    assert json.loads(said)["columns"] == ["id", "title", *reads[name]]
    (tmp_path / "titles.txt").write_text("t1w1\nt2w2\n")
    assert negwise("encode", run, tmp_path / "titles.txt", "--out", tmp_path / "t.csv")[0] == 0
    assert [row["title"] for row in read_rows(tmp_path / "t.csv")] == ["t1w1", "t2w2"]


def test_ids_of_articles_are_written_as_training_reads_them(negwise, world, tmp_path):
    run = world / "runs" / "nrms"
    file = write_rows(tmp_path / "n.parquet", [{"id": 3.0, "title": "t1w1"}, {"id": 4.0, "title": "t2w2"}])
    assert negwise("encode", run, file, "--out", tmp_path / "v.jsonl")[0] == 0
    assert [row["id"] for row in read_rows(tmp_path / "v.jsonl")] == ["3", "4"]
    for wrong, said in (
        (None, "row 2: no id"),
        (1.5, "row 2: id 1.5 is a float"),
        ("\ud800", "half of a surrogate pair"),
    ):
        file = write_rows(tmp_path / "w.jsonl", [{"id": "a", "title": "t1w1"}, {"id": wrong, "title": "t2w2"}])
        code, _, err = negwise("encode", run, file, "--out", tmp_path / "w.csv")
        assert code == 2 and said in err, err


@pytest.mark.parametrize("ending", [".csv", ".jsonl.gz", ".parquet"])
def test_new_articles_are_recommended(negwise, world, tmp_path, ending):
    run = world / "runs" / "naml"
    news = write_rows(tmp_path / f"news{ending}", ARTICLES)
    (tmp_path / "h.csv").write_text('history\nN1 N2\nN30 a1\n""\n')
    (tmp_path / "c.csv").write_text("item\na1\na2\na3\nN5\n")
    words = ["--items", news, "--candidates", tmp_path / "c.csv", "--n", 4, "--include-seen", "--batch-size", 2]
    words += ["--input", tmp_path / "h.csv", "--out", tmp_path / "f.csv.gz"]
    code, _, err = negwise("recommend", run, *words)
    assert code == 2 and "h.csv, row 3: a history without a single item" in err and "--empty serve" in err
    code, _, err = negwise("recommend", run, *words, "--empty", "serve")
    assert code == 0, err
    articles = [{**row, "abstract": row["body"]} for row in ARTICLES]
    found = nw.load(run).with_items(articles).recommend(
        histories=[["N1", "N2"], ["N30", "a1"], []], candidates=["a1", "a2", "a3", "N5"], n=4, exclude_seen=False,
        empty="serve",
    )  # fmt: skip
    expected = [(str(row), item) for row, items in enumerate(found) for item, _ in items]
    assert [(row["user"], row["item"]) for row in read_rows(tmp_path / "f.csv.gz")] == expected and len(expected) == 12


def test_wrong_articles(negwise, world, tmp_path):
    ask = ["--history", "N1", "--items"]
    news = write_rows(tmp_path / "news.csv", ARTICLES)
    for name, row, said in (
        ("naml", {"title": "t1w1"}, "no column id; got title, expected id and title"),
        ("naml", {"id": "N5", "title": "x"}, "articles: 'N5' is there already"),
        ("naml", {"id": "n", "title": None}, "row 1: title is None, expected a text"),
        ("naml", {"id": " ", "title": "x"}, "articles: number 0 has an empty text as its id"),
        ("naml", {"id": "n", "title": "x", "category": "cat99"}, "category: got 'cat99', which training did not see"),
        ("bert4rec", ARTICLES[0], "--items: bert4rec knows items by their ids"),
    ):
        file = write_rows(tmp_path / "wrong.jsonl", [row])
        code, _, err = negwise("recommend", world / "runs" / name, *ask, file)
        assert code == 2 and said in err, err
    code, _, err = negwise("encode", world / "runs" / "naml", news, "--side", "left", "--out", tmp_path / "v.npy")
    assert code == 2 and "--side: got left, expected none" in err
    code, _, err = negwise("recommend", world / "runs" / "naml", *ask, news, "--out", news)
    assert code == 2 and "it is read from and would be lost" in err


def test_whole_numbers_as_users_keep_their_names(negwise, tmp_path, monkeypatch):
    """Also in the second batch of rows, where a history without a user would have another number."""
    monkeypatch.setattr("negwise.inference.file_jobs.read_rows", partial(table_files.read_rows, size=2))
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    rows = [{"user": user, "item": item, "time": item} for user in range(5) for item in range(user, user + 6)]
    nw.train(rows, out=tmp_path / "run", k=2, steps=1, batch_size=4, device="cpu")
    file = write_rows(tmp_path / "u.jsonl", [{"user": user} for user in range(5)])
    code, _, err = negwise("recommend", tmp_path / "run", "--input", file, "--out", tmp_path / "f.csv", "--n", 1)
    assert code == 0, err
    assert [row["user"] for row in read_rows(tmp_path / "f.csv")] == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".csv.zst", ".jsonl", ".parquet"])
def test_a_file_says_how_much_of_it_is_read(tmp_path, ending):
    file = write_rows(tmp_path / f"t{ending}", [{"text": f"word{n} " * 50} for n in range(4000)])
    shares = []
    rows = sum(len(part) for part in table_files.read_rows(file, ["text"], 500, shares.append))
    assert rows == 4000 and len(shares) == 8 and shares == sorted(shares) and 0 < shares[0] <= shares[-1] == 1
    if ending in (".csv", ".jsonl", ".parquet"):  # a block of a small packed file is most of it
        assert shares[3] == pytest.approx(0.5, abs=0.02)


def test_long_work_says_what_is_left_without_a_terminal(negwise, world, tmp_path, monkeypatch):
    monkeypatch.setattr("negwise.stages.EVERY", 0.04)
    slow = table_files.read_rows

    def slowly(*given, **more):
        for part in slow(*given, **more):
            time.sleep(0.02)
            yield part

    monkeypatch.setattr("negwise.inference.file_jobs.read_rows", slowly)
    file = write_rows(tmp_path / "t.csv", [{"text": f"t1w{n} " * 400} for n in range(40)])
    words = ["--out", tmp_path / "v.npy", "--batch-size", 2]
    code, out, err = negwise("encode", world / "runs" / "siamese-cnn", file, *words)
    assert code == 0 and "t.csv" not in out
    assert re.search(rf"encoding {re.escape(str(file))}: \d+%, \d+ s left", err), err


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


def test_columns_of_users_and_items_have_the_names_that_data_has(negwise, world, tmp_path):
    run = world / "runs" / "bert4rec"
    users, items = nw.load(run).user_ids()[:2], nw.load(run).item_ids()[:9]
    (tmp_path / "u.csv").write_text("age,userId\n" + "".join(f"3,{user}\n" for user in users))
    (tmp_path / "c.csv").write_text("Movie ID\n" + "".join(f"{item}\n" for item in items))
    words = ["--candidates", tmp_path / "c.csv", "--include-seen", "--n", 3, "--out", tmp_path / "f.csv"]
    code, _, err = negwise("recommend", run, "--input", tmp_path / "u.csv", *words)
    assert code == 0, err
    found = nw.load(run).recommend(users, candidates=items, exclude_seen=False, n=3)
    expected = [(user, item) for user, row in zip(users, found, strict=True) for item, _ in row]
    assert [(row["user"], row["item"]) for row in read_rows(tmp_path / "f.csv")] == expected
    (tmp_path / "u.csv").write_text("uid,visitor\n1,2\n")
    code, _, err = negwise("recommend", run, "--input", tmp_path / "u.csv", *words)
    assert code == 2 and "user could be any of uid, visitor. Call one of them user." in err
    (tmp_path / "u.csv").write_text("age\n1\n")
    code, _, err = negwise("recommend", run, "--input", tmp_path / "u.csv", *words)
    assert code == 2 and "got the columns age, expected user, history, or both" in err


def test_a_row_without_an_id_is_named(negwise, world, tmp_path, monkeypatch):
    """By its number in the file, also in a later batch."""
    monkeypatch.setattr("negwise.inference.file_jobs.read_rows", partial(table_files.read_rows, size=2))
    run = world / "runs" / "bert4rec"
    user, item = nw.load(run).user_ids()[0], nw.load(run).item_ids()[0]
    for rows, said in (
        ([{"user": user}] * 3 + [{"user": None}], "row 4: no user, expected an id"),
        ([{"history": [item]}] * 2 + [{"history": [item, None]}], "row 3: no item, expected an id"),
        ([{"history": [item]}] * 4 + [{"history": []}], "row 5: a history without a single item"),
    ):
        file = write_rows(tmp_path / "wrong.jsonl", rows)
        code, _, err = negwise("recommend", run, "--input", file, "--out", tmp_path / "f.csv")
        assert code == 2 and f"wrong.jsonl, {said}" in err, err


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


def test_recommend_on_the_terminal(negwise, world, tmp_path):
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
    (tmp_path / "x.txt").write_text("a\n")
    code, _, err = negwise("encode", run, tmp_path / "x.txt", "--out", tmp_path / "v.npy")
    assert code == 2 and "bert4rec knows items by their ids and reads no text, expected a model of texts or of" in err


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
