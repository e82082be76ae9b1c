"""Blocks of lines cut by Arrow against the csv module and plain loops over the whole file."""

import csv
import io
import json
import random

import numpy as np
import pyarrow as pa
import pytest

from negwise.datasets import line_blocks, read
from negwise.datasets.delimited import Cut, csv_rows
from negwise.datasets.json_lines import json_rows
from negwise.datasets.row_blocks import Wrong
from negwise.datasets.timestamps import parse_timestamp, times_of
from negwise.datasets.word_lists import words_of
from negwise.errors import InputError
from negwise.words import split_words


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch, request):
    monkeypatch.setattr(line_blocks, "BLOCK_BYTES", getattr(request, "param", 64))


def by_csv_module(path, delimiter, width):
    """(rows with the line that each begins in, bad lines), by one reader over all lines."""
    own, good, bad = [], [], []

    def feed():
        for number, raw in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
            try:
                text = raw.decode()
            except UnicodeDecodeError:
                bad.append(number)
                continue
            own.append(number)
            yield text.rstrip("\r") + "\n"

    reader = csv.reader(feed(), delimiter=delimiter, strict=True)
    header = True
    while True:
        own.clear()
        try:
            cells = next(reader)
        except StopIteration:
            return good, sorted(bad)
        except csv.Error:
            bad += own
            continue
        if len(cells) <= 1 and not (cells and cells[0].strip()):
            continue
        if header:
            header = False
        elif len(cells) == width:
            good.append((own[0], cells))
        else:
            bad.append(own[0])


def cut(path, delimiter, width):
    places = {str(at): at for at in range(width)}
    good, bad = [], []
    for block in csv_rows(path, Cut(delimiter, width, "", quotes=True), places):
        columns = [block.columns[str(at)].to_pylist() for at in range(width)]
        good += zip(block.numbers.tolist(), map(list, zip(*columns, strict=True)), strict=True)
        bad += [number for number, _ in block.bad]
    return good, sorted(bad)


PIECES = ["a", "bc", "", " ", '"', '""', ",", "\n", "\r", "é", "日本", "x y", "0", "\t", "'", ";", "\x1f"]


@pytest.mark.parametrize("seed", range(60))
def test_rows_are_those_of_the_csv_module(seed, tmp_path):
    """Half of the files are written by a csv writer, half are put together at random, some with bytes that are none."""
    dice = random.Random(seed)
    delimiter, width = dice.choice(",\t;"), dice.randint(2, 4)
    path = tmp_path / "file.csv"
    header = delimiter.join("abcd"[:width]) + "\n"
    if seed % 2:
        stream = io.StringIO()
        writer = csv.writer(stream, delimiter=delimiter, lineterminator=dice.choice(["\n", "\r\n"]),
                            quoting=dice.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))  # fmt: skip
        for _ in range(40):
            writer.writerow(["".join(dice.choices(PIECES, k=dice.randint(0, 4))) for _ in range(width)])
        content = (header + stream.getvalue()).encode()
    else:
        pieces = [*PIECES[:12], delimiter, delimiter, "\n", delimiter.join("wxyz"[:width]) + "\n"]
        content = header.encode() + "".join(dice.choices(pieces, k=dice.randint(5, 120))).encode() + b"\n"
        if seed % 4 == 0:
            at = dice.randrange(len(header), len(content))
            content = content[:at] + b"\xff" + content[at:]
    path.write_bytes(content)
    assert cut(path, delimiter, width) == by_csv_module(path, delimiter, width)


@pytest.mark.parametrize("small_blocks", [7, 2**21], indirect=True)
def test_the_size_of_a_block_changes_nothing(tmp_path):
    path = tmp_path / "file.csv"
    rows = [["u" * n, f'i "{n}"\n{n}'] for n in range(30)]
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([["user", "item"], *rows])
    good, bad = cut(path, ",", 2)
    assert [cells for _, cells in good] == [[a, b] for a, b in rows] and not bad


ROWS = [
    '{"user": "a", "item": 1, "time": 5}',
    '{"user": "a", "item": 2, "time": 6.5}',
    '{"user": "b", "item": "x", "time": "2019-11-12"}',
    '{"user": "b", "item": 12345678901234567890123, "time": 7}',
    '{"item": 3, "user": "é\\u00e9", "time": 8, "more": {"a": [1, {"b": 2}]}}',
    '{"user": "😀", "item": 4, "time": 9, "user": "twice"}',
    '{"user": "c", "item": true, "time": 9}',
    '{"user": "c", "item": 1e40, "time": 9}',
    '{"user": "c", "item": [1], "time": 9}',
    '{"user": "c", "item": 5, "time": 9}{"user": "c", "item": 6, "time": 9}',
    '{"user": "c", "item": 5,',
    '"time": 9}',
    "",
    "[1]",
    '{"user": "\\ud800", "item": 5, "time": 9}',
    '{"user": ' + "[" * 100_000 + "]" * 100_000 + ', "item": 1, "time": 9}',
    '{"user": "c", "item": 7.0, "time": 9}',
]


@pytest.mark.parametrize("small_blocks", [64, 2**21], indirect=True)
def test_json_lines_are_those_of_the_json_module(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(row + "\n" for row in ROWS))
    source = read(path, skip_bad=20, cache=tmp_path / "cache")
    users, items = (source.tables[name]["id"].to_pylist() for name in ("users", "items"))
    table = source.tables["interactions"].to_pylist()
    found = [(users[row["user"]], items[row["item"]]) for row in table]
    assert found == [("a", "1"), ("a", "2"), ("b", "x"), ("b", "12345678901234567890123"), ("éé", "3"),
                     ("twice", "4"), ("c", "7")]  # fmt: skip
    assert [row["time"] for row in table[:3]] == [5000, 6500, 1573516800000]
    lines = [int(problem.where.split()[1]) for problem in source.problems]
    assert lines == [7, 8, 9, 10, 11, 12, 14, 15, 16]


def test_an_object_over_two_lines_is_two_bad_rows(tmp_path, monkeypatch):
    """Beside two objects on one line there are as many objects as lines, and still each line is its own."""
    monkeypatch.setattr(line_blocks, "BLOCK_BYTES", 2**21)
    path = tmp_path / "log.jsonl"
    path.write_text('{"user": 1, "item": 2}\n{"user": 1,\n"item": 3}\n{"user": 1, "item": 4}{"user": 1, "item": 5}\n')
    source = read(path, skip_bad=3, cache=tmp_path / "cache")
    assert [problem.where for problem in source.problems] == ["line 2", "line 3", "line 4"]


def test_a_row_after_a_quoted_line_end_has_its_own_line(tmp_path, monkeypatch):
    monkeypatch.setattr(line_blocks, "BLOCK_BYTES", 2**21)
    path = tmp_path / "log.csv"
    path.write_text('user,item,note\na,1,"two\nlines"\n\nb,2,"x"\n,3,"y"\n')
    with pytest.raises(InputError, match="line 6: no user"):
        read(path, cache=tmp_path / "cache")


def test_a_block_that_arrow_parses_is_the_same_as_in_python(tmp_path):
    dice = random.Random(1)
    rows = [{"user": f"u{dice.randrange(9)}", "item": dice.randrange(99), "note": '{["é'} for _ in range(50)]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=dice.random() < 0.5) + "\n" for row in rows))
    blocks = list(json_rows(path, "interactions", {"user": "user", "item": "item"}))
    assert any(isinstance(block.columns["user"], pa.Array) for block in blocks)
    for name in ("user", "item"):
        cells = [cell for block in blocks for cell in (block.columns[name] if isinstance(block.columns[name], list)
                                                       else block.columns[name].to_pylist())]  # fmt: skip
        assert cells == [row[name] for row in rows]


CHARACTERS = [*"abcXYZ019'' _-.,", "é", "ß", "İ", "Σ", "日", "ก", "क", "्", "٣", "²", "’", "\u00a0", "\n", "ǅ"]


@pytest.mark.parametrize("seed", range(20))
def test_words_of_a_column_are_those_of_each_text(seed):
    dice = random.Random(seed)
    alphabet = CHARACTERS if seed % 2 else CHARACTERS[:16]
    texts = ["".join(dice.choices(alphabet, k=dice.choice([0, 1, 2, 9, 40]))) for _ in range(60)] + ["a'", "'b", ""]
    dice.shuffle(texts)
    found = words_of(pa.array(["left out", *texts]).slice(1))
    ends = np.cumsum(found.lengths).tolist()
    words = found.words.to_pylist()
    assert [words[a:b] for a, b in zip([0, *ends], ends, strict=False)] == [split_words(text) for text in texts]


TIMES = ["5", " 6 ", "7.25", "1e3", "978300760123", "2019-11-12", "2019-11-12 10:11:12", "2019-11-12T10:11:12.1235",
         "2019-11-12T10:11:12.1239",
         "2019-11-12T10:11:12+02:00", "20191112T101112", "nan", "inf", "", "soon", "0x1F", "1_000", "-5", "1e15",
         "1e16",
         "2019-W46-2", "2019-02-30", "٣"]  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_times_of_a_column_are_those_of_each_cell(seed):
    dice = random.Random(seed)
    cells = dice.sample(TIMES, dice.randint(1, 4)) * 2
    column = pa.array(cells)
    for form in (column, column.cast(pa.large_string()), column.dictionary_encode(), cells):
        wrong = Wrong()
        found = times_of(form, wrong)
        expected = [parse_timestamp(cell) for cell in cells]
        assert sorted(wrong) == [row for row, time in enumerate(expected) if time is None]
        assert [time for row, time in enumerate(found.tolist()) if row not in wrong] == [
            t for t in expected if t is not None
        ]
    assert all(repr(cells[row]) in what for row, what in wrong.items())


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.timestamp("ns", "Asia/Tokyo"),
                                  pa.timestamp("s"), pa.date32(), pa.date64()])  # fmt: skip
def test_times_of_every_type(kind):
    column = pa.array([1, 100, None], pa.int64()).cast(pa.int32() if kind == pa.date32() else pa.int64())
    column = column.cast(kind, safe=False)
    wrong = Wrong()
    found = times_of(column, wrong)
    assert found[:2].tolist() == [parse_timestamp(cell) for cell in column.cast(
        pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else kind, safe=False).to_pylist()[:2]]  # fmt: skip
    assert list(wrong) == [2]


def test_a_line_without_end_is_bounded(tmp_path, monkeypatch):
    """An archive of a gigabyte of zeros is given up after the longest line, not unpacked."""
    import gzip

    monkeypatch.setattr(line_blocks, "MAX_LINE", 2**16)
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb") as stream:
        stream.write(b"user,item\na,b\n")
        for _ in range(64):
            stream.write(b"0" * 2**20)
    assert path.stat().st_size < 2**17
    with pytest.raises(InputError, match="line 3: longer than 65536 bytes"):
        read(path, cache=tmp_path / "cache")
