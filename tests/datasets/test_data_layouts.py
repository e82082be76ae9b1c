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


def told(source):
    return {remark.about: remark.what for remark in source.remarks}


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
def test_a_folder_of_spark_with_its_marker_files(form, tmp_path):
    folder = tmp_path / "log"
    for number, at in enumerate((0, 30)):
        write(folder / f"part-0000{number}.{form}", ROWS[at : at + 30], form)
        (folder / f".part-0000{number}.{form}.crc").write_bytes(b"crc\0")
    for name in ("_SUCCESS", "_committed_1", f"part-00002.{form}"):
        (folder / name).touch()
    for name in ("script.py", "card.md", "dataset.yaml", "0.crc"):
        (folder / name).write_text("import sys")
    (folder / "old").mkdir()
    source = read(folder, cache=tmp_path / "cache")
    assert found(source) == expected(ROWS)
    said = told(source)
    assert said[f"file part-00002.{form}"] == "not read: it is empty"
    assert said["files _SUCCESS, _committed_1"].startswith("not read: its name begins with _")
    assert said[f"files .part-00000.{form}.crc, .part-00001.{form}.crc"].startswith("not read: its name begins with .")
    assert said["files 0.crc, card.md, dataset.yaml, script.py"] == "not read: by its name it is about the data"
    assert said["file old/"].startswith("not read: a folder beside")
    assert found(read(folder / "*", cache=tmp_path / "cache")) == expected(ROWS)


def test_a_folder_without_data_says_what_is_in_it(tmp_path):
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "_SUCCESS").touch()
    (tmp_path / "log" / "README.md").write_text("about\n")
    with pytest.raises(InputError, match=r"found nothing but README.md \(by its name .*\), _SUCCESS \(its name begins"):
        read(tmp_path / "log", cache=tmp_path / "cache")


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl", "arrow"])
def test_the_names_of_folders_are_columns(form, tmp_path):
    """``date=2020-01-01/``: the time of its rows; ``country=de/`` has no role and is told of."""
    rows = []
    for day in ("2020-01-02", "2020-01-01"):
        for country in ("de", "a%2Fb"):
            own = [{"user": f"u{n}", "item": n + len(rows)} for n in range(3)]
            write(tmp_path / "log" / f"date={day}" / f"country={country}" / f"0.{form}", own, form)
            rows += [(row["user"], str(row["item"]), int(day[-2:]), country.replace("%2F", "/")) for row in own]
    (tmp_path / "log" / "_SUCCESS").touch()
    source = read(tmp_path / "log", cache=tmp_path / "cache")
    first = 1_577_836_800_000
    rows.sort(key=lambda row: (row[2], row[3]))
    assert found(source) == [(user, item, first + (day - 1) * 86_400_000) for user, item, day, _ in rows]
    assert source.columns == {"user": "user", "item": "item", "time": "date"}
    assert told(source)["column country"] == "ignored: no role has this name"
    chosen = read(tmp_path / "log", columns={"user": "country"}, cache=tmp_path / "cache")
    assert [row[:2] for row in found(chosen)] == [(country, item) for _, item, _, country in rows]
    positive = read(tmp_path / "log", positive="country=de", cache=tmp_path / "cache")
    assert positive.tables["interactions"]["label"].to_pylist() == [int(row[3] == "de") for row in rows]
    (tmp_path / "log" / "date=2020-01-02").rename(tmp_path / "log" / "date=2020-01-05")
    assert (
        found(read(tmp_path / "log", cache=tmp_path / "cache"))[-1][2] == first + 4 * 86_400_000
    )  # not from the cache


def test_names_of_folders_that_say_nothing_or_not_the_same(tmp_path):
    rows = [{"user": f"u{n}", "item": n} for n in range(4)]
    for name in ("time=__HIVE_DEFAULT_PARTITION__", "time=5"):
        write(tmp_path / "log" / name / "0.csv", rows, "csv")
    with pytest.raises(InputError, match=r"time=__HIVE.*0.csv, line 2: time None is neither"):
        read(tmp_path / "log", cache=tmp_path / "cache")
    write(tmp_path / "log" / "0.csv", rows, "csv")
    with pytest.raises(InputError, match=r"has time in the names of its folders, but 0.csv has no column"):
        read(tmp_path / "log", cache=tmp_path / "cache")
    write(tmp_path / "both" / "user=a" / "item=b" / "0.csv", [{"colour": "red"}], "csv")
    with pytest.raises(InputError, match="user, item are in the names of folders, and nothing in the file"):
        read(tmp_path / "both", cache=tmp_path / "cache")
    for split in ("train", "test"):
        write(tmp_path / "splits" / f"split={split}" / "0.csv", rows[: 3 if split == "train" else 4], "csv")
    assert len(read(tmp_path / "splits", cache=tmp_path / "cache").tables["interactions"]) == 3


@pytest.mark.parametrize("inside", ["plain/train-00000-of-00001.parquet", "default/train/0.parquet", "x/y/0.parquet"])
def test_a_configuration_of_a_repository(inside, tmp_path):
    repository = tmp_path / "repo"
    write(repository / inside, ROWS, "parquet")
    (repository / "README.md").write_text("user,item\nnot,data\n")
    (repository / ".git" / "objects").mkdir(parents=True)
    (repository / ".git" / "objects" / "a").write_text("x")
    source = read(repository, cache=tmp_path / "cache")
    assert found(source) == expected(ROWS) and told(source)["file README.md"].startswith("not read: by its name")
    write(repository / "other" / "train.parquet", ROWS[:5], "parquet")
    with pytest.raises(InputError, match=r"the folders .*other.* have data. Pass one of them, as .*repo/"):
        read(repository, cache=tmp_path / "cache")
    assert found(read(repository / "other", cache=tmp_path / "cache")) == expected(ROWS[:5])


def test_the_first_version_of_feather_is_told_how_to_be_converted(tmp_path):
    (tmp_path / "old.feather").write_bytes(b"FEA1" + b"\0" * 60 + b"FEA1")
    with pytest.raises(InputError, match=r"Feather version 1, expected version 2 or Parquet. Type: python -c .*'old.f"):
        read(tmp_path / "old.feather", cache=tmp_path / "cache")


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
