"""MovieLens, SASRec and one's own interactions, against plain loops over the rows that were written."""

import csv

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import compress, in_order, ratings

from negwise.datasets import SplitSizes, inspect, prepare, read
from negwise.errors import InputError

ROWS = ratings()


def write(form, folder):
    path = (
        folder
        / {"dat": "ratings.dat", "csv": "ratings.csv", "sas": "log.txt", "own": "own.csv", "parquet": "o.bin"}[form]
    )
    if form == "dat":
        path.write_text("".join("::".join(map(str, row)) + "\n" for row in ROWS))
    elif form == "csv":
        path.write_text("userId,movieId,rating,timestamp\n" + "".join(",".join(map(str, row)) + "\n" for row in ROWS))
    elif form == "sas":
        sequences = in_order(ROWS)
        path.write_text("".join(f"{user} {item}\n" for user in sorted(sequences) for item in sequences[user]))
    elif form == "own":
        path.write_text("time;user;item\n" + "".join(f"{time};{user};{item}\n" for user, item, _, time in ROWS))
    else:
        columns = {"item_id": [r[1] for r in ROWS], "user_id": [r[0] for r in ROWS]}
        columns["ts"] = pa.array([r[3] for r in ROWS], pa.timestamp("s"))
        pq.write_table(pa.table(columns), path, row_group_size=7)
    return path


def sequences_of(source):
    """user -> items, read back through a task's examples."""
    task = prepare(source, split="last", history=100)
    users = source.tables["users"]["id"].to_pylist()
    items = source.tables["items"]["id"].to_pylist()
    found = {}
    for split in (task.train, task.val, task.test):
        for i in range(len(split)):
            user, before = int(users[split.users[i]]), split.items[split.start[i] : split.end[i]]
            whole = [int(items[at]) for at in [*before, split.positives[i]]]
            if len(whole) > len(found.get(user, [])):
                found[user] = whole
    return found


TEXT_FORMS = [(form, ending) for form in ("dat", "csv", "sas", "own") for ending in ("", ".gz", ".xz", ".zst")]


@pytest.mark.parametrize(("form", "ending"), [*TEXT_FORMS, ("parquet", "")])
def test_every_form_gives_the_same_sequences(form, ending, tmp_path):
    source = read(compress(write(form, tmp_path), ending), cache=tmp_path / "cache")
    kinds = {"dat": "movielens", "csv": "movielens", "sas": "sasrec"}
    assert source.kind == kinds.get(form, "interactions")
    assert sequences_of(source) == {user: items for user, items in in_order(ROWS).items() if len(items) >= 2}


def test_a_folder_with_ratings_is_movielens(tmp_path):
    write("dat", tmp_path)
    (tmp_path / "movies.dat").write_text("1::A::B\n")
    assert read(tmp_path, cache=tmp_path / "cache").kind == "movielens"


@pytest.fixture
def source(tmp_path):
    return read(write("dat", tmp_path), cache=tmp_path / "cache")


def expected(split, users, items):
    """(train, val, test) as sets of (user, items before, next), by the words of the definition."""
    found = (set(), set(), set())
    for user, sequence in in_order(ROWS).items():
        coded = [items.index(str(item)) for item in sequence]
        number = users.index(str(user))
        for at in range(1, len(coded)):
            part = 0
            if split == "last" and len(coded) >= 3:
                part = {len(coded) - 1: 2, len(coded) - 2: 1}.get(at, 0)
            found[part].add((number, tuple(coded[:at]), coded[at]))
    return found


def as_sets(task):
    return tuple(
        {(int(s.users[i]), tuple(s.items[s.start[i] : s.end[i]].tolist()), int(s.positives[i])) for i in range(len(s))}
        for s in (task.train, task.val, task.test)
    )


def test_leave_last_out(source):
    task = prepare(source)
    users, items = (source.tables[name]["id"].to_pylist() for name in ("users", "items"))
    assert as_sets(task) == expected("last", users, items)
    short = sum(len(s) < 3 for s in in_order(ROWS).values())
    assert task.notes == ((f"{short} users with fewer than 3 items are in training only",) if short else ())


def test_known_is_what_training_has_and_seen_is_everything(source):
    task = prepare(source)
    users, items = (source.tables[name]["id"].to_pylist() for name in ("users", "items"))
    count = np.zeros(task.n_items, int)
    for user, sequence in in_order(ROWS).items():
        coded = [items.index(str(item)) for item in sequence]
        taught = coded[:-2] if len(coded) >= 3 else coded
        number = users.index(str(user))
        assert task.train_exclusions[number].tolist() == sorted(set(taught))
        assert task.eval_exclusions[number].tolist() == sorted(set(coded))
        np.add.at(count, taught, 1)
    assert task.popularity.tolist() == count.tolist()


def test_split_by_user_keeps_users_apart(source):
    task = prepare(source, split="user", shares=SplitSizes(val=0.25, test=0.25))
    train, val, test = (set(s.users.tolist()) for s in (task.train, task.val, task.test))
    assert not train & val and not train & test and not val & test
    for split in (task.val, task.test):
        assert sorted(split.users.tolist()) == sorted(set(split.users.tolist()))  # one example a user: the last item
        for i in range(len(split)):
            assert len(task.train_exclusions[split.users[i]]) == 0
            assert split.end[i] == split.items.tolist().index(split.positives[i], split.start[i])


def test_split_by_time_follows_the_clock(source):
    task = prepare(source, split="time", shares=SplitSizes(test_days=3, val_days=2))
    last = max(time for *_, time in ROWS) // 86400
    days = {(user, item): time // 86400 for user, item, _, time in ROWS}
    users, items = (source.tables[name]["id"].to_pylist() for name in ("users", "items"))
    for split, inside in (
        (task.test, lambda day: day > last - 3),
        (task.val, lambda day: last - 5 < day <= last - 3),
        (task.train, lambda day: day <= last - 5),
    ):
        for user, item in zip(split.users, split.positives, strict=True):
            assert inside(days[int(users[user]), int(items[item])])
    total = sum(len(items) - 1 for items in in_order(ROWS).values())
    assert len(task.train) + len(task.val) + len(task.test) == total


def test_too_few_days_is_an_error_that_says_what_to_type(source):
    with pytest.raises(InputError, match=r"13 days, 2000-12-31 to 2001-01-12; .* needs 32 or more.*--split user"):
        prepare(source, split="time", shares=SplitSizes(test_days=30))


def test_batches_hold_the_last_places(source):
    task = prepare(source, history=3)
    index = np.arange(len(task.train))
    query, positives, groups = task.train.batch(index)
    assert query.items.shape == (len(index), 3) and query.positions is None
    for i in index:
        before = task.train.items[task.train.start[i] : task.train.end[i]].tolist()[-3:]
        assert query.items[i].tolist() == before + [0] * (3 - len(before))
        assert query.mask[i].tolist() == [True] * len(before) + [False] * (3 - len(before))
    assert positives.tolist() == task.train.positives.tolist()
    assert groups.tolist() == query.users.tolist() == task.train.users.tolist()


def test_windows_cut_training_from_the_end(source):
    task = prepare(source, history=3)
    windows = task.windows
    query = windows.batch(range(len(windows)))
    rows = [items[mask].tolist() for items, mask in zip(query.items, query.mask, strict=True)]
    items = source.tables["items"]["id"].to_pylist()
    users = source.tables["users"]["id"].to_pylist()
    for user, sequence in in_order(ROWS).items():
        coded = [items.index(str(item)) for item in sequence]
        taught = coded[:-2] if len(coded) >= 3 else coded
        mine = [row for row, owner in zip(rows, query.users.tolist(), strict=True) if owner == users.index(str(user))]
        assert mine == [taught[max(0, end - 3) : end] for end in range(len(taught), 0, -3)]


OWN = "user,item,time,impression,label\n"


def test_own_impressions(tmp_path):
    rows = [("a", 1, 5, "x", 1), ("a", 2, 5, "x", 0), ("b", 1, 6, "y", 0), ("b", 3, 6, "y", 1), ("a", 3, 9, "z", 0),
            ("a", 4, 9, "z", 1), ("a", 5, 9, "z", 0), ("c", 5, 9, "q", 1), ("c", 1, 9, "q", 0)]  # fmt: skip
    path = tmp_path / "own.csv"
    path.write_text(OWN + "".join(",".join(map(str, row)) + "\n" for row in reversed(rows)))
    source = read(path, cache=tmp_path / "cache")
    items = source.tables["items"]["id"].to_pylist()
    users = source.tables["users"]["id"].to_pylist()
    task = prepare(source, split="user", shares=SplitSizes(val=0.3, test=0.3))
    assert task.name == "impressions"
    found = {}
    for split in (task.train, task.val, task.test):
        for i in range(len(split)):
            history = [items[at] for at in split.items[split.start[i] : split.end[i]]]
            others = {items[at] for at in task.negatives[split.groups[i]]}
            found[users[split.users[i]], items[split.positives[i]]] = (history, others)
    assert found == {
        ("a", "1"): ([], {"2"}),
        ("b", "3"): ([], {"1"}),
        ("a", "4"): (["1"], {"3", "5"}),
        ("c", "5"): ([], {"1"}),
    }
    report = inspect(path, cache=tmp_path / "cache")
    assert report.label_balance == 4 / 9 and report.negatives.most == 2


def test_an_item_shown_twice_and_clicked_once_is_no_negative(tmp_path):
    rows = [f"u{n},1,{n},x{n},1\nu{n},1,{n},x{n},0\nu{n},2,{n},x{n},0\n" for n in range(6)]
    path = tmp_path / "own.csv"
    path.write_text(OWN + "".join(rows))
    source = read(path, cache=tmp_path / "cache")
    task = prepare(source, split="user")
    items = source.tables["items"]["id"].to_pylist()
    assert {tuple(items[at] for at in task.negatives[group]) for group in range(6)} == {("2",)}


def test_too_few_users_to_split(tmp_path):
    path = tmp_path / "log.txt"
    path.write_text("".join(f"1 {item}\n" for item in range(1, 9)))
    with pytest.raises(InputError, match=r"split='user' of 1 users; .* need 3 or more"):
        prepare(read(path, cache=tmp_path / "cache"), split="user")


def test_labels_without_impressions_become_given_negatives(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("user,item,time,label\na,1,1,1\na,2,2,0\na,3,3,1\na,4,4,1\na,5,5,1\n")
    source = read(path, cache=tmp_path / "cache")
    task = prepare(source)
    items = source.tables["items"]["id"].to_pylist()
    assert [items[at] for at in task.negatives[0]] == ["2"]
    assert [items[at] for at in task.test.items[task.test.start[0] : task.test.end[0]]] == ["1", "3", "4"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 2\n1 x\n", ["line 2", "user item"]),
        ("1::2::3::4\n1::2::3\n", ["line 2", "user::item::rating::time"]),
        ("userId,movieId,rating,timestamp\n1,2,3,4\n1,2\n", ["line 3", "2 cells"]),
        ("user,item,time\na,b,3\na,b,yesterday\n", ["line 3", "yesterday", "ISO"]),
        ("user,item,label\na,b,1\na,b,2\n", ["line 3", "label '2'"]),
        ("user,item\na,b\n,b\n", ["line 3", "no user"]),
        ('user,item\na,b\na,"b\n', ["line 3", "not a row"]),
        ("User ID,item-id\na,b\n,b\n", ["line 3", "no user"]),
    ],
)
def test_a_bad_row_names_its_line(text, words, tmp_path):
    path = tmp_path / "data.txt"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read(path, cache=tmp_path / "cache")
    assert all(word in str(caught.value) for word in [str(path), "skip_bad", *words])
    source = read(path, skip_bad=1, cache=tmp_path / "cache")
    assert len(source.problems) == 1 and source.tables["interactions"].num_rows == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        (" \n\n", "empty"),
        ("user,item,time\n", "without a single row"),
        ("user,item\ra,b\r", "line 1: not a header"),
        ('[{"left": "a", "right": "b"}]\n', "one object per line. Type: jq"),
        ("1,2,3.5,99\n", "Use such names in the header"),
        ("colour,shape\nred,round\n", "neither interactions"),
        ("1\tU2\t11/11/2019 1:00:00 AM\tN1\tN2-1\n", "Pass its folder"),
        ("user,item,impression\na,b,c\n", "label"),
        ("user,user_id,item\na,b,c\n", "user could be any of user, user_id"),
    ],
)
def test_what_cannot_be_told_is_an_error(text, words, tmp_path):
    path = tmp_path / "data.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        read(path, cache=tmp_path / "cache")


def test_blank_lines_before_the_header_are_no_header(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes(b"\xef\xbb\xbf  \r\n\r\nuser,item\r\na,b\r\n \r\na,c\r\n")
    source = read(path, cache=tmp_path / "cache")
    assert source.tables["users"]["id"].to_pylist() == ["a"]
    assert source.tables["items"]["id"].to_pylist() == ["b", "c"]


def test_every_line_that_an_open_quote_takes_is_a_bad_row(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text('user,item\na,b\nc,"d\ne,f\n\ng,h\n')
    with pytest.raises(InputError, match=r"line 3: .*began in line 3: is a quote not closed.*--skip-bad 4 "):
        read(path, skip_bad=1, cache=tmp_path / "cache")
    found = read(path, skip_bad=4, cache=tmp_path / "cache").problems
    assert [problem.where for problem in found] == ["line 3", "line 4", "line 5", "line 6"]


def test_a_row_is_named_by_its_first_line(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text('user,item,note\na,b,"x\ny"\n,d,"x\ny"\n')
    with pytest.raises(InputError, match="line 4: no user"):
        read(path, cache=tmp_path / "cache")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_another_encoding_says_how_to_change_it(encoding, tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("user,item\na,b\n", encoding=encoding)
    with pytest.raises(InputError, match=r"not UTF-8 text.*iconv"):
        read(path, cache=tmp_path / "cache")


def test_a_folder_of_news_alone(tmp_path):
    (tmp_path / "news.tsv").write_text("N1\tc\ts\ttitle\t\t\t[]\t[]\n")
    with pytest.raises(InputError, match=r"news.tsv without behaviors.tsv"):
        read(tmp_path, cache=tmp_path / "cache")


def test_clicks_are_made_and_not_read(tmp_path):
    with pytest.raises(InputError, match=r"negwise.datasets.clicks\(\)"):
        read("clicks", cache=tmp_path)


def test_parquet_as_others_write_it(tmp_path):
    path = tmp_path / "log.parquet"
    clock = pa.array([1573290000123456789, 1573290001000000001], pa.timestamp("ns", "UTC"))
    pq.write_table(pa.table({"user": [b"a", b"b"], "item": [1.0, 2.0], "time": clock}), path)
    source = read(path, cache=tmp_path / "cache")
    assert source.tables["users"]["id"].to_pylist() == ["a", "b"]
    assert source.tables["items"]["id"].to_pylist() == ["1", "2"]
    assert source.tables["interactions"]["time"].to_pylist() == [1573290000123, 1573290001000]


def test_a_damaged_parquet_file_is_an_error(tmp_path):
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({"user": list(range(9999)), "item": list(range(9999))}), path, compression="gzip")
    whole = path.read_bytes()
    path.write_bytes(whole[:300] + bytes(300) + whole[600:])
    with pytest.raises(InputError, match=r"log.parquet, after row 0: reading failed.*complete"):
        read(path, cache=tmp_path / "cache")
    path.write_bytes(whole[:-5])
    with pytest.raises(InputError, match=r"log.parquet: cannot be read as Parquet"):
        read(path, cache=tmp_path / "cache")


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
def test_a_truncated_archive_is_an_error(ending, tmp_path):
    path = compress(write("dat", tmp_path), ending)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="complete"):
        read(path, cache=tmp_path / "cache")


def test_bytes_that_are_no_text_are_a_bad_row(tmp_path):
    path = tmp_path / "log.txt"
    path.write_bytes(b"1 2\n1 \xff\n1 3\n")
    with pytest.raises(InputError, match="line 2: not UTF-8"):
        read(path, cache=tmp_path / "cache")
    assert read(path, skip_bad=1, cache=tmp_path / "cache").tables["interactions"].num_rows == 2


def test_columns_can_be_named(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("who,what\na,b\n")
    source = read(path, columns={"user": "who", "item": "what"}, cache=tmp_path / "cache")
    assert source.tables["users"]["id"].to_pylist() == ["a"]


def test_users_with_one_item_are_told_of(tmp_path):
    path = tmp_path / "log.csv"
    rows = [f"a{user},{item}" for user in range(40) for item in range(4)] + [f"b{user},1" for user in range(30)]
    path.write_text("user,item\n" + "\n".join(rows) + "\n")
    task = prepare(read(path, cache=tmp_path / "cache"), split="user")
    assert any("30 users with a single item" in note for note in task.notes)
    assert "user" in inspect(path, cache=tmp_path / "cache").splits
    path.write_text("user,item\n" + "\n".join(rows[-30:]) + "\na,1\na,2\n")
    assert "user" not in inspect(path, cache=tmp_path / "cache").splits


def test_days_as_numbers_are_refused(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("user,item,time\na,1,20191112\nb,2,20191113\n")
    with pytest.raises(
        InputError, match=r"every time looks like a day \(the last: 20191113\).*Write days as 2019-11-13"
    ):
        read(path, cache=tmp_path / "cache")
    path.write_text("user,item,time\na,1,20191112\nb,2,20191399\n")  # no day, so seconds since some beginning
    assert read(path, cache=tmp_path / "cache").tables["interactions"]["time"].to_pylist()[1] == 20191399000


def test_long_cells_are_read_and_the_limit_of_others_stays(tmp_path):
    path = tmp_path / "log.csv"
    long = "x" * 200_000
    path.write_text(f'user,item\na,{long}\nb,"2"y\nb,3\n')  # text after a quote: the csv module has to cut it
    before = csv.field_size_limit()
    assert before < 200_000
    source = read(path, skip_bad=1, cache=tmp_path / "cache")
    assert source.tables["items"]["id"].to_pylist() == [long, "3"] and source.problems[0].where == "line 3"
    assert csv.field_size_limit() == before
