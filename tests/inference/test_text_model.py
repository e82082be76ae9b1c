"""A model of texts: any iterable, any batch, both sides; search and mining against loops."""

import itertools
import json
import time

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch

import negwise as nw
from negwise.errors import InputError
from negwise.inference.encoding import in_order
from negwise.inference.mining import known_answers
from negwise.records import read_run
from negwise.words import split_words


@pytest.fixture(scope="module", params=["siamese-cnn", "siamese-lstm", "siamese-transformer"])
def model(request, world):
    return nw.load(world / "runs" / request.param)


@pytest.fixture(scope="module")
def cnn(world):
    return nw.load(world / "runs" / "siamese-cnn")


def some_texts(n, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(f"t{rng.integers(8)}w{rng.integers(30)}" for _ in range(rng.integers(1, 25))) for _ in range(n)]


def test_a_vector_depends_on_its_text_alone(model):
    texts = some_texts(40)
    whole = model.encode(texts)
    assert whole.shape == (40, model.width) and whole.dtype == np.float32
    alone = np.concatenate([model.encode([text]) for text in texts])
    np.testing.assert_allclose(whole, alone, atol=1e-5)
    np.testing.assert_allclose(model.encode(iter(texts), batch_size=7), whole, atol=1e-5)  # any iterable
    np.testing.assert_allclose(np.linalg.norm(whole, axis=1), 1, atol=1e-5)


def test_the_left_side_is_cut_to_titles_and_divided_by_the_temperature(model):
    short = [text for text in some_texts(60) if len(split_words(text)) <= model.record.lengths["title"]]
    assert len(short) > 5
    left, right = model.encode(short, side="left"), model.encode(short)
    np.testing.assert_allclose(left * model.network.temperature, right, atol=1e-5)
    np.testing.assert_allclose(model.score(short, short), left @ right.T, rtol=1e-4, atol=1e-4)


def test_texts_that_training_never_saw(cnn):
    assert not np.isnan(cnn.encode(["никогда", "", "!?", "日本語", "t0w1 " * 500])).any()
    assert (cnn.encode(["", "?!"]) == 0).all()  # no word, no direction
    a, b = cnn.encode(["qqq1", "qqq2"])
    np.testing.assert_array_equal(a, b)  # two unknown words are the same unknown word


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_parts_stay_in_order_whoever_reads_them(threads):
    """The last of some parts are read first; an endless source is read no further than the threads need."""
    begun, taken = [], []

    def source():
        for number in itertools.count():
            taken.append(number)
            yield (number,)

    def read(number):
        begun.append(number)
        time.sleep(0.002 * (3 - number % 4))
        if number == 9:
            raise InputError("number 9")
        return number

    found = in_order(read, source(), threads)
    assert list(itertools.islice(found, 9)) == list(range(9))
    with pytest.raises(InputError, match="number 9"):
        next(found)
    assert set(range(10)) <= set(begun) and max(taken) <= 10 + threads


def test_encoding_is_lazy_and_says_how_far_it_is(cnn):
    endless = (f"t1w{i % 30}" for i in itertools.count())
    first = next(iter(cnn.encode_batches(endless, batch_size=5)))
    assert first.shape == (5, cnn.width)
    told = []
    cnn.encode(some_texts(12), batch_size=5, progress=lambda done, total: told.append((done, total)))
    assert told == [(5, 12), (10, 12), (12, 12)]
    assert cnn.encode([]).shape == (0, cnn.width) == cnn.encode(iter([])).shape


def vectors_with(model, row, value):
    """Three vectors, of which one is of no use."""
    vectors = np.zeros((3, model.width), np.float32)
    vectors[row, -1] = value
    return vectors


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda m: m.encode("a text"), "texts: got one text, 'a text', expected several"),
        (lambda m: m.encode(None), "texts: got None, expected several"),
        (lambda m: m.encode(5), "texts: got 5, expected several"),
        (lambda m: m.encode({"text": ["a"]}), r"texts: got a dictionary with text, expected several"),
        (lambda m: m.encode(pd.DataFrame({"body": ["a"]})), r"texts: got a DataFrame with body.*as frame\['body'\]"),
        (lambda m: m.encode(pl.DataFrame({"body": ["a"]})), r"texts: got a DataFrame with body.*as frame\['body'\]"),
        (lambda m: m.encode(pa.table({"body": ["a"]})), r"texts: got a Table with body"),
        (lambda m: m.search(pd.DataFrame({"q": ["a"]}), ["a"]), "queries: got a DataFrame with q"),
        (lambda m: m.search(["a"], pd.DataFrame({"b": ["a"]})), "texts: got a DataFrame with b"),
        (lambda m: m.search("a", ["a"]), "queries: got one text, 'a'"),
        (lambda m: m.export(None), "export: got None, expected the path of a new folder"),
        (lambda m: m.encode(["a", None]), r"texts\[1\] is None, a NoneType, expected a text"),
        (lambda m: m.encode(["a"] * 8 + [3], batch_size=4), r"texts\[8\] is 3"),
        (lambda m: m.encode(["a"], side="middle"), "side: got 'middle', expected one of left, right"),
        (lambda m: m.encode(["a"], batch_size=0), "batch_size: got 0"),
        (lambda m: m.search(["a"], ["b"], 0), "n: got 0"),
        (lambda m: m.search(["a"], np.zeros((3, 2), np.float32)), r"vectors: got float32 of shape \(3, 2\)"),
        (lambda m: m.search(["a"], vectors_with(m, 1, np.nan)), r"vectors: row 1 \(1 of 3\) has values that are not f"),
        (lambda m: m.search(vectors_with(m, 2, np.inf), ["a"]), r"vectors: row 2 \(1 of 3\)"),
        (lambda m: m.export("x", vectors=True), "vectors: a model of texts has no items.*negwise encode .* --out"),
        (lambda m: m.mine([("a", "b")], n=0), "n: got 0"),
        (lambda m: m.mine([("a", "b")], margin=-1), "margin: got -1"),
        (lambda m: m.mine([("a",)]), "pairs: number 0 is"),
        (lambda m: m.mine([]), "pairs: got none"),
        (lambda m: m.mine(None), "pairs: got None, expected several"),
        (lambda m: m.mine([{"user": 1, "item": 2}]), "interactions data, expected text pairs"),
    ],
)
def test_what_is_wrong_is_said(cnn, call, said):
    with pytest.raises(InputError, match=said):
        call(cnn)


def test_search_is_exact_whatever_the_corpus_comes_as(cnn):
    corpus, queries = some_texts(300, 1), some_texts(6, 2)
    scores = cnn.encode(queries, side="left") @ cnn.encode(corpus).T
    expected = [sorted(range(300), key=lambda i, row=row: (-row[i], i))[:5] for row in scores]
    for given in (corpus, iter(corpus), cnn.encode(corpus)):
        found = cnn.search(queries, given, n=5, batch_size=64)
        for row, (want, got) in enumerate(zip(expected, found, strict=True)):
            # Equal texts tie: compare what they score.
            np.testing.assert_allclose([s for _, s in got], scores[row][want], rtol=1e-4)
            np.testing.assert_allclose([scores[row][i] for i, _ in got], scores[row][want], rtol=1e-4)
    assert found.queries == queries
    vectors = cnn.search(cnn.encode(queries, side="left"), corpus, n=5)
    np.testing.assert_array_equal(vectors.ids, cnn.search(queries, corpus, n=5).ids)
    of_torch = cnn.search(torch.from_numpy(cnn.encode(queries, side="left")), torch.from_numpy(cnn.encode(corpus)), n=5)
    np.testing.assert_array_equal(of_torch.ids, cnn.search(queries, cnn.encode(corpus), n=5).ids)
    few = cnn.search(queries, corpus[:2], n=5)
    assert [len(row) for row in few] == [2] * 6


def mined_by_loops(model, pairs, n, margin):
    """Every rule of `mine`, one pair and one text at a time."""
    texts = list(dict.fromkeys(right for _, right in pairs))
    for left, right in pairs:
        answers = [tuple(split_words(r)) for asked, r in pairs if asked == left]
        scores = dict(zip(texts, model.score([left], texts)[0].tolist(), strict=True))
        limit = scores[right] - margin / model.network.temperature
        allowed = [t for t in texts if tuple(split_words(t)) not in answers and scores[t] <= limit]
        best = sorted(allowed, key=lambda text, scores=scores: -scores[text])[:n]
        yield best + [None] * (n - len(best))


def test_mined_negatives_are_hard_and_not_likely_to_be_right(cnn, tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    rights = some_texts(50, 5)
    pairs = [(f"t{i % 8}w{i % 30} t{i % 5}w1", right) for i, right in enumerate(rights)]
    pairs += [(pairs[0][0], rights[7]), ("t1w1", rights[3].upper() + "!"), ("t2w2", rights[4])]
    table = cnn.mine(pairs, n=3, margin=0.02, out=tmp_path / "mined.jsonl")
    assert table.column_names == ["query", "positive", "negative_1", "negative_2", "negative_3"]
    found = zip(*(table[f"negative_{k}"].to_pylist() for k in (1, 2, 3)), strict=True)
    assert words_of(found) == words_of(mined_by_loops(cnn, pairs, 3, 0.02))
    assert any(None in row for row in cnn.mine(pairs, n=3, margin=1.9).to_pylist() for row in [row.values()])
    report = nw.data(tmp_path / "mined.jsonl")  # ready for the next run
    assert report.counts["pairs"] == len(pairs)
    for ending in ("csv", "parquet"):
        cnn.mine(tmp_path / "mined.jsonl", n=1, out=tmp_path / f"again.{ending}")
    assert parquet.read_table(tmp_path / "again.parquet")["query"].to_pylist() == [left for left, _ in pairs]
    assert nw.data(tmp_path / "again.csv").counts["pairs"] == len(pairs)


def words_of(rows):
    """The words of each text: two texts of the same words tie, and rounding says which of them comes first."""
    return [[None if text is None else split_words(text) for text in row] for row in rows]


@pytest.mark.parametrize("form", [pd.DataFrame, pl.DataFrame, pa.table, lambda columns: columns])
def test_pairs_to_mine_come_as_training_takes_them(cnn, tmp_path, monkeypatch, form):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    pairs = [(f"t{i % 8}w{i % 30} c{i % 40}", right) for i, right in enumerate(some_texts(30, 9))]
    columns = {"said": [left for left, _ in pairs], "replied": [right for _, right in pairs]}
    found = cnn.mine(form(columns), n=2, columns={"left": "said", "right": "replied"})
    assert found.equals(cnn.mine(pairs, n=2))
    rows = [{"query": left, "positive": right} for left, right in pairs]
    assert cnn.mine(rows, n=2).equals(found)


def test_texts_of_the_same_words_are_the_same_answer():
    texts = ["a b", "c", "A, b!", "b a"]
    row, positive = np.array([0, 1, 0]), np.array([0, 1, 3])  # asking 0 has "a b" and "b a", asking 1 has "c"
    assert [known_answers(row, positive, texts, 3)[asking].tolist() for asking in range(3)] == [[0, 2, 3], [1], []]


def test_the_next_run_learns_from_mined_negatives(cnn, tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    pairs = [(f"t{i % 8}w{i % 30} c{i % 40}", right) for i, right in enumerate(some_texts(80, 7))]
    cnn.mine(pairs, n=2, margin=0.02, out=tmp_path / "mined.jsonl")
    (tmp_path / "plain.jsonl").write_text("".join(json.dumps({"left": a, "right": b}) + "\n" for a, b in pairs))

    def last_step(name):
        settings = {"hidden": 8, "embedding": 8, "pooling": 8}
        nw.train(
            tmp_path / f"{name}.jsonl", out=tmp_path / name, model="siamese-cnn", k=3, steps=3, batch_size=16,
            device="cpu", settings=settings,
        )  # fmt: skip
        return read_run(tmp_path / name).steps[-1]

    mined, plain = last_step("mined"), last_step("plain")
    assert plain.given_win_rate is None and 0 <= mined.given_win_rate <= 1  # mined negatives are among those of a row
    assert mined.drawn_win_rate is not None and mined.k_used == 3  # two of them, and one that is drawn


def test_mining_does_not_write_over_its_pairs(cnn, tmp_path):
    file = tmp_path / "pairs.jsonl"
    file.write_text('{"left": "t1w1", "right": "t1w2"}\n')
    with pytest.raises(InputError, match=r"pairs.jsonl: it is read from and would be lost"):
        cnn.mine(file, out=file)
    assert file.read_text() == '{"left": "t1w1", "right": "t1w2"}\n'
