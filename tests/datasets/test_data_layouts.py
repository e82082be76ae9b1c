"""Shards, patterns, and the layouts that others publish data in, against the rows that were written."""

import json
import os

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from data_files import compress

from negwise.datasets import inspect, read
from negwise.errors import InputError

ROWS = [{"user_id": f"u{n % 7}", "item_id": n * 37 % 11, "timestamp": 1_000_000 + n} for n in range(60)]


def expected(rows):
    return [(row["user_id"], str(row["item_id"]), row["timestamp"] * 1000) for row in rows]


def found(source):
    users, items = (source.tables[name]["id"].to_pylist() for name in ("users", "items"))
    return [(users[row["user"]], items[row["item"]], row["time"]) for row in source.tables["interactions"].to_pylist()]


def write(path, rows, form):
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows)
    if form == "csv":
        lines = [",".join(map(str, row.values())) + "\n" for row in rows]
        path.write_text(",".join(rows[0]) + "\n" + "".join(lines))
    elif form == "tsv":
        lines = ["\t".join(map(str, row.values())) + "\n" for row in rows]
        path.write_text("\t".join(rows[0]) + "\n" + "".join(lines))
    elif form == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif form == "parquet":
        pq.write_table(table, path, row_group_size=9)
    elif form == "feather":
        pyarrow.feather.write_feather(table, path, chunksize=13, compression="zstd")
    else:
        with pa.OSFile(str(path), "wb") as sink:
            new = pa.ipc.new_file if form == "arrow" else pa.ipc.new_stream
            with new(sink, table.schema) as writer:
                writer.write_table(table, max_chunksize=17)
    return path


FORMS = ["csv", "tsv", "jsonl", "parquet", "feather", "arrow", "stream"]


@pytest.mark.parametrize("form", FORMS)
def test_a_file_a_folder_of_shards_and_a_pattern_are_the_same(form, tmp_path):
    whole = write(tmp_path / "one", ROWS, form)
    for number, at in enumerate((0, 20, 40)):
        write(tmp_path / "shards" / f"part-{number}", ROWS[at : at + 20], form)
    (tmp_path / "shards" / "README.md").write_text("about the data")
    (tmp_path / "shards" / ".hidden").write_text("x")
    for path in (whole, tmp_path / "shards", tmp_path / "shards" / "part-*"):
        source = read(path, cache=tmp_path / "cache")
        assert found(source) == expected(ROWS) and source.kind == "interactions"
        assert source.columns == {"user": "user_id", "item": "item_id", "time": "timestamp"}
    assert found(read(tmp_path / "shards" / "part-[02]", cache=tmp_path / "cache")) == expected(ROWS[:20] + ROWS[40:])


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
def test_shards_may_be_compressed(form, ending, tmp_path):
    for number, at in enumerate((0, 30)):
        compress(write(tmp_path / "shards" / f"{number}.{form}", ROWS[at : at + 30], form), ending)
    assert found(read(tmp_path / "shards", cache=tmp_path / "cache")) == expected(ROWS)


def test_a_bad_row_names_its_shard(tmp_path):
    write(tmp_path / "shards" / "0.csv", ROWS[:5], "csv")
    second = write(tmp_path / "shards" / "1.csv", ROWS[5:9], "csv")
    second.write_text(second.read_text().replace("1000007", "soon"))
    with pytest.raises(InputError, match=r"1\.csv, line 4: time 'soon'"):
        read(tmp_path / "shards", cache=tmp_path / "cache")


def test_columns_of_a_shard_may_be_in_another_order_but_not_others(tmp_path):
    write(tmp_path / "s" / "0.csv", ROWS[:5], "csv")
    turned = [dict(reversed(row.items())) for row in ROWS[5:9]]
    write(tmp_path / "s" / "1.csv", turned, "csv")
    assert found(read(tmp_path / "s", cache=tmp_path / "cache")) == expected(ROWS[:9])
    (tmp_path / "s" / "2.csv").write_text("user,item\na,b\n")
    with pytest.raises(
        InputError, match=r"2\.csv: .*same columns; found 0.csv, 1.csv, 2.csv. Pass the file, or a pattern"
    ):
        read(tmp_path / "s", cache=tmp_path / "cache")


@pytest.mark.parametrize("inside", ["data/train-0000{}-of-00002.parquet", "train/{}.parquet", "train-{}.parquet"])
def test_the_layout_of_a_repository_gives_its_training_split(inside, tmp_path):
    write(tmp_path / "repo" / inside.format(0), ROWS[:30], "parquet")
    write(tmp_path / "repo" / inside.format(1), ROWS[30:50], "parquet")
    write(tmp_path / "repo" / inside.format(0).replace("train", "test"), ROWS[50:], "parquet")
    (tmp_path / "repo" / "README.md").write_text("card")
    source = read(tmp_path / "repo", cache=tmp_path / "cache")
    assert found(source) == expected(ROWS[:50])
    assert [remark.about for remark in source.remarks if "another split" in remark.what]
    held = tmp_path / "repo" / inside.format(0).replace("train", "test")
    assert found(read(held, cache=tmp_path / "cache")) == expected(ROWS[50:])


def save_to_disk(folder, rows):
    """What Hugging Face's ``Dataset.save_to_disk`` leaves, in two shards."""
    half = len(rows) // 2
    names = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    for name, part in zip(names, (rows[:half], rows[half:]), strict=True):
        write(folder / name, part, "stream")
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    (folder / "dataset_info.json").write_text("{}")


def test_a_saved_dataset_and_a_saved_dictionary_of_datasets(tmp_path):
    save_to_disk(tmp_path / "one", ROWS)
    assert found(read(tmp_path / "one", cache=tmp_path / "cache")) == expected(ROWS)
    save_to_disk(tmp_path / "both" / "train", ROWS[:40])
    save_to_disk(tmp_path / "both" / "test", ROWS[40:])
    (tmp_path / "both" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    source = read(tmp_path / "both", cache=tmp_path / "cache")
    assert found(source) == expected(ROWS[:40])
    assert any(remark.about == "file test" for remark in source.remarks)
    (tmp_path / "one" / "data-00001-of-00002.arrow").unlink()
    with pytest.raises(InputError, match=r"data-00001-of-00002.arrow is missing"):
        read(tmp_path / "one", cache=tmp_path / "cache")


def test_recbole(tmp_path):
    folder = tmp_path / "ml-100k"
    folder.mkdir()
    lines = ["user_id:token\titem_id:token\trating:float\ttimestamp:float"]
    lines += [f"{row['user_id']}\t{row['item_id']}\t{n % 5 + 1}\t{row['timestamp']}" for n, row in enumerate(ROWS)]
    (folder / "ml-100k.inter").write_text("\n".join(lines) + "\n")
    (folder / "ml-100k.item").write_text("item_id:token\ttitle:token_seq\n1\tToy Story\n")
    source = read(folder, cache=tmp_path / "cache")
    assert found(source) == expected(ROWS)
    report = inspect(folder, positive="rating>=4", cache=tmp_path / "cache")
    assert report.label_balance == sum(n % 5 + 1 >= 4 for n in range(60)) / 60


def test_what_is_ambiguous_is_said(tmp_path):
    write(tmp_path / "x" / "test.csv", ROWS, "csv")
    write(tmp_path / "x" / "val.csv", ROWS, "csv")
    with pytest.raises(InputError, match="which of them is the training data"):
        read(tmp_path / "x", cache=tmp_path / "cache")
    with pytest.raises(InputError, match="no file has such a name"):
        read(tmp_path / "*.nothing", cache=tmp_path / "cache")
    (tmp_path / "z.zip").write_bytes(b"PK\x03\x04rest")
    with pytest.raises(InputError, match=r"a ZIP archive. Unpack it"):
        read(tmp_path / "z.zip", cache=tmp_path / "cache")
    (tmp_path / "z.bin").write_bytes(b"\x89PNG\xff\xff\xff\xff")
    with pytest.raises(InputError, match=r"not UTF-8 text, nor Parquet.* 89 50 4e 47"):
        read(tmp_path / "z.bin", cache=tmp_path / "cache")


@pytest.mark.parametrize("form", FORMS)
def test_a_name_that_is_not_unicode(form, tmp_path):
    path = write(tmp_path / "file", ROWS, form)
    strange = os.fsencode(tmp_path) + b"/\xff\xfe." + form.encode()
    os.rename(path, strange)  # noqa: PTH104 (the name is bytes)
    source = read(os.fsdecode(strange), cache=tmp_path / "cache")
    assert found(source) == expected(ROWS)
    json.dumps(inspect(os.fsdecode(strange), cache=tmp_path / "cache").to_dict())
