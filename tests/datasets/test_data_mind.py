"""MIND folders against plain loops over the rows that were written."""

from datetime import UTC, datetime

import numpy as np
import pytest
from data_files import mind_behaviors, mind_news, write_mind

from negwise.datasets import SplitSizes, inspect, prepare, read
from negwise.errors import InputError
from negwise.stages import signs_of_life
from negwise.tasks import tokenize
from negwise.words import split_words

NEWS = mind_news(40)
MORE = mind_news(12, first=40)
LATE = mind_news(10, first=60)


@pytest.fixture(params=["", ".gz", ".zst"])
def flat(request, tmp_path):
    """(path, its behaviours) of a single folder over twelve days."""
    rows = mind_behaviors(80, NEWS, days=range(9, 21), seed=3)
    return write_mind(tmp_path / "MIND", NEWS, rows, request.param), rows


def published(folder, labelled=True):
    """train/ dev/ test/ as published: each with news of its own beside what it shares with training."""
    parts = {
        "train": (NEWS, mind_behaviors(60, NEWS, days=range(9, 15), seed=1)),
        "dev": (NEWS[:20] + MORE, mind_behaviors(20, NEWS[:20] + MORE, days=[15], seed=2)),
        "test": (
            NEWS[:10] + MORE[:4] + LATE,
            mind_behaviors(30, NEWS[:10] + LATE, range(16, 23), 4, labelled=labelled),
        ),
    }
    for name, (news, rows) in parts.items():
        write_mind(folder / name, news, rows)
    return parts


def examples(source, split):
    """(user, history, positive, negatives) of each example, in the file's own names."""
    news, users = source.tables["news"]["id"].to_pylist(), source.tables["users"]["id"].to_pylist()
    return [
        (
            users[split.users[i]],
            tuple(news[at] for at in split.items[split.start[i] : split.end[i]]),
            news[split.positives[i]],
        )
        for i in range(len(split))
    ]


def clicks_of(rows):
    return sorted((user, tuple(history), name) for _, user, _, history, shown in rows for name, label in shown if label)


def test_reading_loses_nothing(flat, tmp_path):
    path, rows = flat
    source = read(path, cache=tmp_path / "cache")
    news, users = source.tables["news"]["id"].to_pylist(), source.tables["users"]["id"].to_pylist()
    assert source.kind == "mind"
    table = source.tables["impressions"].to_pylist()
    assert len(table) == len(rows)
    for row, (_, user, clock, history, shown) in zip(table, rows, strict=True):
        when = datetime.strptime(clock, "%m/%d/%Y %I:%M:%S %p").replace(tzinfo=UTC)
        assert users[row["user"]] == user and row["time"] == when.timestamp() * 1000
        assert [news[at] for at in row["history"]] == history
        assert [(news[at], label) for at, label in zip(row["shown"], row["labels"], strict=True)] == shown
    file_words = source.tables["words"]["id"].to_pylist()
    for row, written in zip(source.tables["news"].to_pylist(), NEWS, strict=True):
        assert [row[name] for name in ("id", "category", "subcategory", "title", "abstract")] == written[:5]
        assert [file_words[at] for at in row["title_words"]] == split_words(written[3])


def test_time_split_holds_out_the_last_week_and_the_day_before(flat, tmp_path):
    path, rows = flat
    source = read(path, cache=tmp_path / "cache")
    task = prepare(source)
    day = {id(row): int(row[2].split("/")[1]) for row in rows}
    for split, inside in ((task.train, range(9, 13)), (task.val, [13]), (task.test, range(14, 21))):
        assert sorted(examples(source, split)) == clicks_of([row for row in rows if day[id(row)] in inside])


def test_lists_of_an_impression(flat, tmp_path):
    path, rows = flat
    source = read(path, cache=tmp_path / "cache")
    news = source.tables["news"]["id"].to_pylist()
    task = prepare(source, split="user")
    for group, (*_, shown) in enumerate(rows):
        assert {news[at] for at in task.train_exclusions[group]} == {name for name, label in shown if label}
        assert {news[at] for at in task.negatives[group]} == {name for name, label in shown if not label}
        assert [news[at] for at in task.impressions[group]] == [name for name, _ in shown]
    flat_labels = [label for *_, shown in rows for _, label in shown]
    assert task.labels.tolist() == flat_labels
    for split in (task.train, task.val, task.test):
        assert all(
            positive in task.train_exclusions[group]
            for positive, group in zip(split.positives, split.groups, strict=True)
        )
    count = np.bincount(task.train.positives, minlength=task.n_items)
    assert task.popularity.tolist() == count.tolist()
    sides = [set(split.users.tolist()) for split in (task.train, task.val, task.test)]
    assert not sides[0] & sides[1] and not sides[0] & sides[2] and not sides[1] & sides[2]


def test_published_folders_by_time_are_the_folders(tmp_path):
    parts = published(tmp_path / "MIND")
    source = read(tmp_path / "MIND", cache=tmp_path / "cache")
    for how in ("time", "folders"):
        task = prepare(source, split=how)
        for split, name in ((task.train, "train"), (task.val, "dev"), (task.test, "test")):
            assert sorted(examples(source, split)) == clicks_of(parts[name][1])


def test_test_without_labels(tmp_path):
    parts = published(tmp_path / "MIND", labelled=False)
    source = read(tmp_path / "MIND", cache=tmp_path / "cache")
    with pytest.raises(InputError, match=r"30 impressions have no labels.*--split folders"):
        prepare(source, split="time")
    task = prepare(source)
    assert (task.split, task.notes[0]) == (
        "folders",
        "split by folders: not all impressions have labels, which a split by time needs (--split says another)",
    )
    train = parts["train"][1]
    assert sorted(examples(source, task.test)) == clicks_of(parts["dev"][1])
    assert sorted(examples(source, task.val)) == clicks_of([row for row in train if row[2].startswith("11/14")])
    assert task.notes[1:] == ("30 impressions without labels are in no split",)
    assert prepare(source, split="folders").notes == task.notes[1:]
    report = inspect(tmp_path / "MIND", cache=tmp_path / "cache")
    assert report.counts["impressions_without_labels"] == 30


def test_folders_named_as_downloaded(tmp_path):
    published(tmp_path / "x")
    for name in ("train", "dev", "test"):
        (tmp_path / "x" / name).rename(tmp_path / "x" / f"MINDsmall_{name}")
    assert read(tmp_path / "x", cache=tmp_path / "cache").parts == ("train", "dev", "test")


def test_a_sample_without_enough_days_is_split_by_users_and_says_so(tmp_path):
    path = write_mind(tmp_path / "MIND", NEWS, mind_behaviors(30, NEWS, days=range(9, 15)))
    source = read(path, cache=tmp_path / "cache")
    said = []
    with signs_of_life(said.append):
        task = prepare(source)
        prepare(source)  # said once
    assert task.split == inspect(path, cache=tmp_path / "cache").default_split == "user"
    why = "6 days, 2019-11-09 to 2019-11-14, are too few for a split by time, which needs 9"
    assert task.notes == (f"split by user: {why} (--split says another)",)
    assert said.count(f"{path}: {task.notes[0]}") == 1
    by_user = prepare(source, split="user")
    assert by_user.notes == () and by_user.train.positives.tolist() == task.train.positives.tolist()
    with pytest.raises(InputError, match=r"6 days, 2019-11-09 to 2019-11-14.*9 or more.*--split user"):
        prepare(source, split="time")
    with pytest.raises(InputError, match=r"has no folds. Type --split user"):
        prepare(source, shares=SplitSizes(folds=3))
    with pytest.raises(InputError, match="split='folders' needs train/ and dev/"):
        prepare(source, split="folders")
    assert prepare(source, shares=SplitSizes(test_days=1)).split == "time"


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("behaviors.tsv", "1\tU1\t11/11/2019 1:00:00 AM\tN1\tN2-1 N999-0\n", "news 'N999' is not in news.tsv"),
        ("behaviors.tsv", "1\tU1\t2019-11-11\tN1\tN2-1\n", "expected the form 11/12/2019 2:14:46 PM"),
        ("behaviors.tsv", "1\tU1\t13/11/2019 1:00:00 AM\tN1\tN2-1\n", "expected the form"),
        ("behaviors.tsv", "1\tU1\t11/11/2019 1:00:00 AM\tN1\n", "4 cells, expected the 5"),
        ("behaviors.tsv", "1\tU1\t11/11/2019 1:00:00 AM\tN1\tN2-1 N3\n", "-0 or -1, or none"),
        ("behaviors.tsv", "1\tU1\t11/11/2019 1:00:00 AM\tN1\t\n", "nothing was shown"),
        ("behaviors.tsv", "1\tU1\t11/11/2019 1:00:00 AM\tN1\tN2 N3-1\n", "news 'N3-1' is not in news.tsv"),
        ("news.tsv", "N777\tnews\n", "2 cells, expected the 8"),
        ("news.tsv", "N3\tc\ts\tanother title\t\t\t[]\t[]\n", "news 'N3' is in the file twice"),
    ],
)
def test_a_bad_row_names_its_file_and_line(file, text, words, tmp_path):
    path = write_mind(tmp_path / "MIND", NEWS, mind_behaviors(30, NEWS, days=range(9, 15)))
    with (path / file).open("a") as stream:
        stream.write(text)
    line = 31 if file == "behaviors.tsv" else 41
    with pytest.raises(InputError) as caught:
        read(path, cache=tmp_path / "cache")
    assert f"{path / file}, line {line}: " in str(caught.value) and words in str(caught.value)
    source = read(path, skip_bad=1, cache=tmp_path / "cache")
    assert [problem.where for problem in source.problems] == [f"line {line}"]
    assert source.tables["impressions"].num_rows == 30


def test_token_tables_and_a_vocabulary_of_training_alone(flat, tmp_path):
    path, rows = flat
    source = read(path, cache=tmp_path / "cache")
    task = prepare(source)
    texts = tokenize(task, title_words=5, body_words=12)
    taught = set()
    for _, _, clock, history, shown in rows:
        if int(clock.split("/")[1]) <= 12:
            taught |= {*history, *(name for name, _ in shown)}
    seen = {word for row in NEWS if row[0] in taught for cell in row[3:5] for word in split_words(cell)}
    vocabulary = texts.tokenizer
    assert set(vocabulary.words[2:]) == seen and vocabulary.words[:2] == ("<pad>", "<unk>")
    for row, title, body in zip(NEWS, texts.tokens["title"], texts.tokens["body"], strict=True):
        for cell, tokens in ((row[3], title), (row[4], body)):
            found = [vocabulary.words.index(word) if word in seen else 1 for word in split_words(cell)][: len(tokens)]
            assert tokens.tolist() == found + [0] * (len(tokens) - len(found))
    names = task.texts.category_names["category"]
    assert [names[at] for at in task.texts.categories["category"]] == [row[1] for row in NEWS]
    assert texts.tokens["title"].dtype == np.int32


def test_title_abstract_pairs_hold_out_news_that_training_never_saw(tmp_path):
    published(tmp_path / "MIND")
    source = read(tmp_path / "MIND", cache=tmp_path / "cache")
    task = prepare(source, task="pairs")
    texts = tokenize(task, title_words=30, body_words=60)
    vocabulary = texts.tokenizer

    def titles(split):
        mine = texts.tokens["title"][split.positives]
        return {tuple(token for token in row if token) for row in mine.tolist()}, len(mine)

    def written(rows):
        return {
            tuple(vocabulary.encode([row[3]], 30)[0][: len(split_words(row[3]))].tolist()) for row in rows if row[4]
        }

    found, n = titles(task.train)
    assert found == written(NEWS) and n == len(found)
    # a word that training never saw is one unknown word, so held-out titles are compared by their number
    assert titles(task.val)[1] == sum(bool(row[4]) for row in MORE)
    assert titles(task.test)[1] == sum(bool(row[4]) for row in LATE)


def test_pairs_of_a_flat_folder_want_a_choice(flat, tmp_path):
    source = read(flat[0], cache=tmp_path / "cache")
    with pytest.raises(InputError, match="--split random"):
        prepare(source, task="pairs")
    task = prepare(source, task="pairs", split="random")
    assert len(task.train) + len(task.val) + len(task.test) == sum(bool(row[4]) for row in NEWS)


def test_held_out_news_near_training_is_left_out_and_counted(tmp_path):
    parts = published(tmp_path / "MIND")
    plain = prepare(read(tmp_path / "MIND", cache=tmp_path / "cache"), task="pairs")
    copied = next(row for row in reversed(NEWS) if len(row[4].split()) > 20)
    near = ["N900", "news", "", "a title of its own", copied[4] + " end", "", "[]", "[]"]
    news, rows = parts["dev"]
    write_mind(tmp_path / "MIND" / "dev", [*news, near], rows)
    task = prepare(read(tmp_path / "MIND", cache=tmp_path / "cache"), task="pairs")
    assert len(task.val) == len(plain.val)
    assert task.notes == ("1 held-out pairs are near one of an earlier split and were left out",)
