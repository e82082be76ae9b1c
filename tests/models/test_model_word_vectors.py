"""Word vectors from files that others made: GloVe, word2vec, arrays beside their words."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from model_world import content, make

from negwise.errors import InputError
from negwise.models import build, load_vectors

VOCABULARY = ["<pad>", "<unk>", "the", "Cat", "zebra", "new york", "unheard"]
GLOVE = "the 0.5 -1 2e-1\nCat 1 2 3\n, 9 9 9\nnew york 4 5 6\nthe 7 7 7\n"
REAL = Path(__file__).parents[2].parent / "shared" / "data" / "vectors"


def check(vectors):
    assert vectors.table.shape == (7, 3)
    assert vectors.table.dtype == np.float32
    np.testing.assert_array_equal(vectors.table[[2, 3, 5]], np.float32([[0.5, -1, 0.2], [1, 2, 3], [4, 5, 6]]))
    assert vectors.found.tolist() == [False, False, True, True, False, True, False]
    assert not vectors.table[0].any()
    assert vectors.table[[1, 4, 6]].all()


@pytest.mark.parametrize("start", ["", "5 3\n"], ids=["glove", "word2vec"])
@pytest.mark.parametrize("pack", [False, True], ids=["plain", "gz"])
def test_text_files(tmp_path, start, pack):
    path = tmp_path / ("vectors.txt.gz" if pack else "vectors.txt")
    data = (start + GLOVE).encode()
    path.write_bytes(gzip.compress(data) if pack else data)
    vectors = load_vectors(path, VOCABULARY)
    check(vectors)
    assert str(vectors) == f"3 of 5 words (60.0%) found in {path.name}, width 3"
    np.testing.assert_array_equal(vectors.table, load_vectors(path, VOCABULARY).table)
    other = load_vectors(path, VOCABULARY, seed=1)
    check(other)
    assert (other.table[4] != vectors.table[4]).all()


@pytest.mark.parametrize("name", ["some.100d.npy", "some.100d.f16.npy"])
def test_an_array_beside_its_words(tmp_path, name):
    rows = [line.rsplit(" ", 3) for line in GLOVE.splitlines()]
    np.save(tmp_path / name, np.array([row[1:] for row in rows], dtype=np.float32))
    names = tmp_path / "some.100d.words.txt"
    names.write_text("\n".join(row[0] for row in rows) + "\n")
    check(load_vectors(tmp_path / name, VOCABULARY))
    moved = names.rename(tmp_path / "elsewhere.txt")
    with pytest.raises(InputError, match=r"folder has no some.*words.txt; pass words=PATH"):
        load_vectors(tmp_path / name, VOCABULARY)
    check(load_vectors(tmp_path / name, VOCABULARY, words=moved))
    moved.write_text("the\n")
    with pytest.raises(
        InputError,
        match=r"float32 of shape \(5, 3\), expected numbers, one row for each of the 1 words in .*elsewhere.txt",
    ):
        load_vectors(tmp_path / name, VOCABULARY, words=moved)


def test_words_not_found_look_like_words(tmp_path):
    rng = np.random.default_rng(0)
    spread, middle = np.array([0.1, 2.0]), np.array([3.0, -1.0])
    known = middle + spread * rng.standard_normal((500, 2))
    lines = [f"w{i} {a:.6f} {b:.6f}" for i, (a, b) in enumerate(known)]
    (tmp_path / "v.txt").write_text("\n".join(lines))
    vectors = load_vectors(tmp_path / "v.txt", ["", "?", *[f"w{i}" for i in range(1500)]])
    drawn = vectors.table[502:]
    np.testing.assert_allclose(drawn.mean(0), known.mean(0), atol=4 * spread.max() / np.sqrt(1000))
    np.testing.assert_allclose(drawn.std(0), known.std(0), rtol=0.1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the 1 2 3\nCat 1 x 3\n", r"line 2: expected a word and 3 numbers, got 'Cat 1 x 3'"),
        ("the 1 2 3\nCat 1 nan 3\n", r"line 2: expected a word and 3 numbers"),
        ("dog 1 2 3\n", r"has none of the 5 words, such as \["),
        ("", r"has none of the 5 words"),
    ],
)
def test_bad_files_are_refused(tmp_path, text, message):
    (tmp_path / "v.txt").write_text(text)
    with pytest.raises(InputError, match=message):
        load_vectors(tmp_path / "v.txt", VOCABULARY)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the 1 2 3\nCat 1 2 3 4\n", r"line 2: expected a word and 3 numbers, got 'Cat 1 2 3 4'"),
        ("2 4\nthe 1 2 3\nCat 1 2 3\n", r"line 2: expected a word and 4 numbers, got 'the 1 2 3'"),
        ("2 2\nthe 1 2 3\nCat 1 2 3\n", r"line 2: expected a word and 2 numbers, got 'the 1 2 3'"),
        ("7 3\nthe 1 2 3\nCat 1 2 3\n", r"has 2 rows, but its first line says 7: is the file complete\?"),
        ("the\t1\t2\n", r"single spaces separate the numbers of a line"),
    ],
    ids=["long line", "header too wide", "header too narrow", "cut file", "tabs"],
)
def test_widths_and_rows_that_do_not_fit_are_refused(tmp_path, text, message):
    (tmp_path / "v.txt").write_text(text)
    with pytest.raises(InputError, match=message):
        load_vectors(tmp_path / "v.txt", VOCABULARY)


def test_somebody_elses_words_may_have_spaces_and_a_file_a_mark(tmp_path):
    (tmp_path / "v.txt").write_text(GLOVE + ". . . 1 1 1\nthe name@domain 1 1 1\n", encoding="utf-8-sig")
    check(load_vectors(tmp_path / "v.txt", VOCABULARY))


def test_a_fasttext_file_ends_its_lines_with_a_space(tmp_path):
    (tmp_path / "v.vec").write_text("5 3\n" + GLOVE.replace("\n", " \n"))
    check(load_vectors(tmp_path / "v.vec", VOCABULARY))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("v.txt", b"the 1 2\nc\xffa 1 2\n"),
        ("glove.zip", b"PK\x03\x04\x14\x00\x9f\x8e"),
        ("v.txt.gz", b"the 1 2\n"),
        ("cut.gz", gzip.compress(b"the 1 2\n" * 5000, mtime=0)[:40]),
        ("broken.gz", gzip.compress(bytes(range(32, 120)) * 50, mtime=0)[:12] + b"\xff" * 40),
    ],
    ids=["latin-1", "zip", "named .gz", "cut", "broken"],
)
def test_what_is_no_text_is_refused(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=r"expected lines of UTF-8 text, plain or in a complete .gz"):
        load_vectors(tmp_path / name, VOCABULARY)


def test_arrays_that_cannot_be_are_refused(tmp_path):
    path, words = tmp_path / "v.npy", tmp_path / "v.words.txt"
    words.write_text("the\nCat\n")
    for array, message in (
        (np.array([[1, 2], [np.inf, 1]]), r"v.npy, row 1 \('Cat'\): expected finite numbers"),
        (np.array([["a"], ["b"]]), r"<U1 of shape \(2, 1\), expected numbers"),
    ):
        np.save(path, array)
        with pytest.raises(InputError, match=message):
            load_vectors(path, VOCABULARY)
    path.write_bytes(b"junk")
    with pytest.raises(InputError, match=r"not an array of numbers; write one with numpy.save"):
        load_vectors(path, VOCABULARY)
    np.save(path, np.ones((2, 2)))
    with pytest.raises(InputError, match=r"none.txt: no such file of words"):
        load_vectors(path, VOCABULARY, words=tmp_path / "none.txt")
    (tmp_path / "v.txt").write_text(GLOVE)
    with pytest.raises(InputError, match=r"goes with an array .npy; .* leave words out"):
        load_vectors(tmp_path / "v.txt", VOCABULARY, words=words)


def test_words_of_an_array_may_have_any_character_but_a_line_end(tmp_path):
    np.save(tmp_path / "v.npy", np.float32([[1, 2], [3, 4], [5, 6]]))
    (tmp_path / "v.words.txt").write_text("the\na\u2028b\nCat\n", encoding="utf-8")
    vectors = load_vectors(tmp_path / "v.npy", VOCABULARY)
    np.testing.assert_array_equal(vectors.table[[2, 3]], np.float32([[1, 2], [5, 6]]))


def test_a_word_is_in_the_vocabulary_once(tmp_path):
    (tmp_path / "v.txt").write_text(GLOVE)
    with pytest.raises(InputError, match="the vocabulary has 'Cat' as word 3 and as word 7, expected it once"):
        load_vectors(tmp_path / "v.txt", [*VOCABULARY, "Cat"])


def test_what_was_loaded_goes_into_a_model_as_it_is(tmp_path):
    (tmp_path / "v.txt").write_text(GLOVE)
    vectors = load_vectors(tmp_path / "v.txt", VOCABULARY)
    model = build("nrms", {"title": [[2, 3], [4, 0]], "n_words": 7, "vectors": vectors})
    np.testing.assert_array_equal(model.words.embedding.weight.detach().numpy(), vectors.table)
    for wrong, message in (
        (np.full((7, 3), np.nan), "row 0 has a value that is not finite"),
        ("glove.txt", "is a str"),
    ):
        with pytest.raises(InputError, match=message):
            build("nrms", {"title": [[2, 3], [4, 0]], "n_words": 7}, vectors=wrong)


def test_a_short_line_is_refused_not_read_as_another_word(tmp_path):
    (tmp_path / "v.txt").write_text("the 1 2 3\nCat 1 2\n")
    with pytest.raises(InputError, match=r"line 2: expected a word and 3 numbers, got 'Cat 1 2'"):
        load_vectors(tmp_path / "v.txt", VOCABULARY)


def test_no_file(tmp_path):
    with pytest.raises(InputError, match="no such file of word vectors"):
        load_vectors(tmp_path / "v.txt", VOCABULARY)


@pytest.mark.parametrize("case", ["nrms", "naml", "lstur", "siamese-transformer", "siamese-cnn", "siamese-lstm"])
def test_vectors_load_into_every_text_model(case):
    table = np.random.default_rng(0).standard_normal((60, 11)).astype(np.float32)
    model = make(case, shaken=False, data=content() | {"vectors": table})
    weight = model.words.embedding.weight
    assert weight.requires_grad
    assert not weight[0].any()
    assert torch.equal(weight[1:].detach(), torch.from_numpy(table[1:]))
    assert torch.isfinite(model.encode_candidates(torch.arange(5))).all()
    weight.data.add_(1)
    assert not (table == weight.detach().numpy()).any()  # the model has its own copy
    direct = build(case, content(), vectors=table)
    assert torch.equal(direct.words.embedding.weight[1:].detach(), torch.from_numpy(table[1:]))


@pytest.mark.skipif(not REAL.exists(), reason="no real vectors here: ../shared/data/vectors")
def test_real_glove():
    path = REAL / "glove.6B.100d.f16.npy"
    vectors = load_vectors(path, ["<pad>", "<unk>", "king", "queen", "cabbage", "qqxzy"])
    assert vectors.found.tolist() == [False, False, True, True, True, False]
    unit = vectors.table / np.linalg.norm(vectors.table, axis=1, keepdims=True).clip(1e-9)
    assert unit[2] @ unit[3] > 0.6 > 0.3 > unit[2] @ unit[4]
