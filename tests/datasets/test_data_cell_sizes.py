"""Small files that hold large tables are read in bounded memory, or refused before a row gets its copy."""

import gzip
import lzma

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from negwise.datasets import arrow_files, line_blocks, read, source
from negwise.datasets.arrow_files import table_rows
from negwise.datasets.cell_sizes import may_have_text, parts, text_bytes
from negwise.datasets.ipc_batches import MAGIC_BYTES, unpacked_sizes
from negwise.errors import InputError

ROWS, LONG = 20_000, 2**20
"""20 GB as rows: one text of a megabyte in each."""
MOST = 400 * 2**20


@pytest.fixture
def peak():
    """Bytes that Arrow has held at once since the test began."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    yield pool.max_memory
    pa.set_memory_pool(before)


def repeated(text, rows=ROWS):
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))


def write(path, table, form):
    if form == "parquet":
        # Without Arrow's own schema, which would say that texts are in dictionaries: other programs write none.
        pq.write_table(table, path, compression="zstd", store_schema=False)
    else:
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
    return path


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("role", ["right", "negatives"])
def test_one_long_text_in_every_row_is_refused_before_it_is_copied(form, role, tmp_path, peak):
    bomb = repeated("ab " * (LONG // 3))
    lists = pa.ListArray.from_arrays(pa.array(np.arange(ROWS + 1, dtype=np.int32)), bomb)
    short = repeated("a short text")
    cells = {"left": short, "right": bomb if role == "right" else short}
    if role == "negatives":
        cells["negatives"] = lists
    path = write(tmp_path / "bomb", pa.table(cells), form)
    assert path.stat().st_size < 2 * LONG
    with pytest.raises(InputError, match=r"bomb, from row 1: the texts take 20,\d+,\d+,\d+ bytes as rows"):
        read(path, cache=tmp_path / "cache")
    assert peak() < MOST


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_one_long_id_in_every_row_is_one_id(form, tmp_path, peak):
    users, items = repeated("u" * LONG), pa.array(np.arange(ROWS) % 7)
    path = write(tmp_path / "log", pa.table({"user": users, "item": items}), form)
    found = read(path, cache=tmp_path / "cache")
    assert [len(name) for name in found.tables["users"]["id"].to_pylist()] == [LONG]
    assert len(found.tables["interactions"]) == ROWS and peak() < MOST


def test_long_texts_come_few_rows_at_a_time(tmp_path, monkeypatch):
    """What is large and no bomb is read as any other file, in blocks that are bounded by their bytes."""
    monkeypatch.setattr(arrow_files, "BLOCK_BYTES", 1000)
    texts = [f"row {n} " + "w" * (n * 37 % 700) for n in range(60)]
    for form, kind in (("parquet", pa.string()), ("arrow", pa.large_string()), ("arrow", pa.string_view())):
        table = pa.table({"left": pa.array(texts, kind), "right": pa.array(texts).dictionary_encode()})
        blocks = list(table_rows(write(tmp_path / "file", table, form), form, {"left": "left", "right": "right"}))
        assert [cell for block in blocks for cell in block.columns["left"].to_pylist()] == texts
        assert [cell for block in blocks for cell in block.columns["right"].to_pylist()] == texts
        assert np.concatenate([block.numbers for block in blocks]).tolist() == list(range(1, 61))
        assert len(blocks) > 20 and all(
            len(block) == 1 or sum(2 * len(cell) for cell in block.columns["left"].to_pylist()) <= 1000
            for block in blocks
        )


def test_a_cell_has_the_bound_of_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr(line_blocks, "MAX_LINE", 1000)
    for form in ("parquet", "arrow"):
        table = pa.table({"user": ["a", "b", "c"], "item": ["x", "y" * 1001, "z"]})
        path = write(tmp_path / "log", table, form)
        with pytest.raises(InputError, match=r"log, row 2: item has 1,001 bytes of text, expected 1,000 or fewer"):
            read(path, cache=tmp_path / "cache")


KINDS = {
    "string": pa.array(["a", None, "", "dé"]),
    "large": pa.array(["a", None, "", "dé"], pa.large_string()),
    "view": pa.array(["a", None, "", "a long one that is not kept within the view"], pa.string_view()),
    "binary view": pa.array([b"a", None, b"", b"b" * 40], pa.binary_view()),
    "binary": pa.array([b"a", None, b"", b"\xff\xfe"]),
    "fixed": pa.array([b"ab", None, b"cd", b"ef"], pa.binary(2)),
    "dictionary": pa.array(["a", None, "a", "dé"]).dictionary_encode(),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([1, 3, 4], pa.int32()), pa.array(["a", "bcd", "e"])),
    "list": pa.array([["a", "bc"], None, [], ["d"]]),
    "list of dictionary": pa.ListArray.from_arrays(
        pa.array([0, 2, 2, 3, 4], pa.int32()), pa.array(["a", "bc", "a", "bc"]).dictionary_encode()
    ),
    "overlapping": pa.ListViewArray.from_arrays(
        pa.array([0, 0, 1, 0], pa.int32()), pa.array([2, 2, 1, 0], pa.int32()), pa.array(["abc", "de"])
    ),
    "fixed list": pa.array([["a", "bc"], ["d", "e"], ["", ""], ["fff", "g"]], pa.list_(pa.string(), 2)),
    "struct": pa.array([{"a": "x", "b": "yz"}, {"a": "", "b": "z"}, None, {"a": "q", "b": ""}]),
    "map": pa.array([[("a", "bc")], [], None, [("d", "")]], pa.map_(pa.string(), pa.string())),
    "number": pa.array([1, 2, None, 4]),
}


def bytes_by_loop(cell):
    if isinstance(cell, str):
        return len(cell.encode())
    if isinstance(cell, bytes):
        return len(cell)
    if isinstance(cell, dict):
        return sum(map(bytes_by_loop, cell.values()))
    return sum(map(bytes_by_loop, cell)) if isinstance(cell, list | tuple) else 0


@pytest.mark.parametrize("name", KINDS)
def test_sizes_of_cells_against_plain_values(name):
    for column in (KINDS[name], KINDS[name].slice(1, 3), KINDS[name].slice(2, 0)):
        expected = [bytes_by_loop(cell) for cell in column.to_pylist()]
        if name == "fixed":
            expected = [2] * len(column)  # a missing one takes its place too
        assert text_bytes(column).tolist() == expected and may_have_text(column) == (name != "number")


def test_rows_are_cut_by_bytes():
    found = parts(np.array([3, 3, 3, 50, 1, 0, 0, 0, 0, 0, 6, 0]), 6)
    assert [(one.start, one.stop) for one in found] == [(0, 2), (2, 3), (3, 4), (4, 10), (10, 12)]
    assert parts(np.zeros(0, np.int64), 6) == []


@pytest.mark.parametrize("form", ["file", "stream"])
@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_compressed_batch_says_what_it_unpacks_to(form, compression, tmp_path, monkeypatch):
    batches = [pa.record_batch({"user": np.arange(n), "item": ["x" * 100] * n}) for n in (10, 5000)]
    path, new = tmp_path / "log", pa.ipc.new_file if form == "file" else pa.ipc.new_stream
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as sink, new(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    with path.open("rb") as raw:
        sizes = list(unpacked_sizes(raw, MAGIC_BYTES if form == "file" else 0))
    assert len(sizes) == 2
    for size, batch in zip(sizes, batches, strict=True):  # offsets are padded
        assert batch.nbytes <= size <= batch.nbytes + 64 * 5
    assert len(read(path, cache=tmp_path / "cache").tables["interactions"]) == 5010
    monkeypatch.setattr(arrow_files, "MAX_BATCH", 10_000)
    with pytest.raises(InputError, match=r"log, batch 2: unpacks to 5\d\d,\d\d\d bytes, expected 10,000 or fewer"):
        read(path, cache=tmp_path / "other")


@pytest.mark.parametrize("kind", [MemoryError, pa.ArrowMemoryError])
def test_too_little_memory_is_said_with_the_place(kind, tmp_path, monkeypatch):
    path = write(tmp_path / "log.parquet", pa.table({"user": ["a"], "item": ["x"]}), "parquet")

    def fails(*_):
        raise kind("malloc of size 20 failed")

    monkeypatch.setattr(source, "read_interactions", lambda blocks, *_: fails(next(blocks)))
    with pytest.raises(InputError, match=r"log.parquet, from row 1: not enough memory \(malloc of size 20 failed\)"):
        read(path, cache=tmp_path / "cache")
    monkeypatch.setattr(arrow_files, "text_bytes", fails)
    with pytest.raises(InputError, match=r"log.parquet, after row 0: not enough memory \(malloc of size 20 failed\)"):
        list(table_rows(path, "parquet", {"user": "user"}))


def test_xz_in_several_streams_and_with_a_limit_of_memory(tmp_path, monkeypatch):
    rows = [f"u{n % 7},{n * n % 11}\n" for n in range(5000)]
    path = tmp_path / "log.csv.xz"
    text = "user,item\n" + "".join(rows)
    packed = [lzma.compress(text[at : at + 10_000].encode()) for at in range(0, len(text), 10_000)]
    path.write_bytes((b"\0" * 8).join(packed) + b"\0" * 4)
    found = read(path, cache=tmp_path / "cache").tables["interactions"]
    plain = tmp_path / "log.csv"
    plain.write_text(text)
    assert found.equals(read(plain, cache=tmp_path / "cache").tables["interactions"]) and len(found) == 5000
    path.write_bytes(packed[0][:-20])
    with pytest.raises(InputError, match="Is the file complete"):
        read(path, cache=tmp_path / "cache")
    path.write_bytes(lzma.compress(text.encode(), preset=9))  # asks for 65 MB
    monkeypatch.setattr(line_blocks, "XZ_MEMORY", 2**24)
    with pytest.raises(InputError, match=r"more than 16,777,216 bytes of memory. Pack it anew: xz -dc log.csv.xz"):
        read(path, cache=tmp_path / "cache")
    path.write_bytes(gzip.compress(text.encode()))
    assert len(read(path, cache=tmp_path / "cache").tables["interactions"]) == 5000
