"""Negatives that came with the data: each row trains on its own, first and in order; and they are worth having."""

import json
import random

import pytest
import torch
from task_world import write_csv

import negwise as nw
from negwise.draws import Key
from negwise.records import CONFIG, RunConfig, decode, read_record
from negwise.requests import TrainRequest
from negwise.tasks import load_data, make_task

N = 50
TINY = {"model": "siamese-cnn", "settings": {"hidden": 8, "embedding": 8, "pooling": 8}, "device": "cpu"}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))


def texts(row):
    """The given negatives of a row, in order."""
    found = []
    for name, cell in row.items():
        if name not in ("query", "pos") and cell:
            found += json.loads(cell) if cell.startswith("[") else [cell]
    return found


def drawn_texts(file, k, step=0, **options):
    """(query, positive, negatives, how many of them were given) of every training row, as texts."""
    task = make_task(TrainRequest(data=str(file), **TINY, **options))
    title, body = (task.data.texts.fields[name] for name in ("title", "body"))
    query, positives, groups = task.data.train.batch(range(len(task.data.train)))
    found = task.sampler(positives, k, Key(5, step), owner=groups)
    given = [None] * len(positives) if found.given is None else found.given.tolist()
    for at, item in enumerate(positives.tolist()):
        assert torch.equal(query.items[at], torch.tensor([item]))
        yield title[item], body[item], [body[i] for i in found.ids[at][found.mask[at]].tolist()], given[at]


def make_rows(*names, n=N):
    """Rows with a column of their own negatives for each of ``names``."""
    return [
        {"query": f"q{i} asks", "pos": f"a{i} says"} | {name: f"{name.replace('_', '')}x{i} lies" for name in names}
        for i in range(n)
    ]


SPELLINGS = [("neg_1", "neg_2"), ("negative_1", "negative_2"), ("Neg 1", "NEG2"), ("neg",), ("negative",)]


@pytest.mark.parametrize("names", [*SPELLINGS, ("negatives",)], ids=" ".join)
@pytest.mark.parametrize("k", [1, 2, 4, 2.5])
def test_a_row_draws_its_given_negatives_first_and_in_order(tmp_path, names, k):
    rows = {row["query"]: row for row in make_rows(*names)}
    seen = 0
    for query, positive, negatives, given in drawn_texts(write_csv(tmp_path / "p.csv", list(rows.values())), k):
        mine = texts(rows[query])
        assert len(mine) == len(names)
        assert positive == rows[query]["pos"]
        assert negatives[: len(mine)] == mine[: len(negatives)]
        assert given == min(len(mine), len(negatives))
        others = negatives[len(mine) :]
        assert not {positive, *mine} & set(others)
        assert len(negatives) in ({2, 3} if k == 2.5 else {k})
        seen += 1
    assert seen >= 0.7 * N


def test_columns_may_stand_in_any_order_and_a_cell_may_be_empty(tmp_path):
    rows = [
        {"neg_2": f"second{i} lies" if i % 2 else "", "pos": f"a{i} says", "neg_1": f"first{i} lies", "query": f"q{i}"}
        for i in range(N)
    ]
    lengths = set()
    for query, _, negatives, given in drawn_texts(write_csv(tmp_path / "p.csv", rows), 3):
        i = int(query.split()[0][1:])
        mine = [f"first{i} lies", f"second{i} lies"][: 1 + i % 2]
        assert negatives[: len(mine)] == mine
        assert given == len(mine)
        assert len(negatives) == 3
        lengths.add(len(mine))
    assert lengths == {1, 2}


def test_a_cell_may_hold_a_list(tmp_path):
    rows = make_rows()
    for i, row in enumerate(rows):
        row["negatives"] = json.dumps([f"lie{i} number{j}" for j in range(1 + i % 3)])
    by_query = {row["query"]: row for row in rows}
    for query, _, negatives, given in drawn_texts(write_csv(tmp_path / "p.csv", rows), 4):
        mine = texts(by_query[query])
        assert (negatives[:given], given) == (mine, len(mine))


def test_negatives_that_are_right_texts_of_training_are_kept_and_others_are_not(tmp_path):
    """A text of the validation or test split is no negative in training."""
    rows = [row | {"neg_1": f"a{(i + 1) % N} says", "neg_2": f"own{i} lies"} for i, row in enumerate(make_rows())]
    found = list(drawn_texts(write_csv(tmp_path / "p.csv", rows), 3))
    training = {positive for _, positive, _, _ in found}
    dropped = 0
    for query, positive, negatives, given in found:
        i = int(query.split()[0][1:])
        mine = [text for text in texts(rows[i]) if text in training or text.startswith("own")]
        assert negatives[:given] == mine
        assert positive not in negatives
        dropped += len(mine) == 1
    assert 0 < dropped < len(found) / 2


def test_rows_of_one_query_share_their_negatives_and_never_draw_each_others_positives(tmp_path):
    rows = []
    for i, row in enumerate(make_rows()):
        other = {"query": row["query"], "pos": f"b{i} says", "neg_1": f"late{i} lies", "neg_2": row["pos"]}
        rows += [row | {"neg_1": f"early{i} lies", "neg_2": f"b{i} says"}, other]
    checked = 0
    for query, positive, negatives, _ in drawn_texts(write_csv(tmp_path / "p.csv", rows), 6):
        i = int(query.split()[0][1:])
        assert not {f"a{i} says", f"b{i} says"} & set(negatives)
        first = [text for text in (f"early{i} lies", f"late{i} lies") if text in negatives]
        assert negatives[: len(first)] == first
        assert f"{'early' if positive.startswith('a') else 'late'}{i} lies" in first
        checked += len(first) == 2
    assert checked > N / 2


def test_given_alone_are_all_there_are(tmp_path):
    rows = {row["query"]: row for row in make_rows("neg_1", "neg_2")}
    for query, _, negatives, _ in drawn_texts(write_csv(tmp_path / "p.csv", list(rows.values())), 4, negatives="given"):
        assert negatives == texts(rows[query])


def test_what_is_drawn_beside_them_changes_and_they_do_not(tmp_path):
    file = write_csv(tmp_path / "p.csv", make_rows("neg_1", "neg_2"))
    first, second = ([row[2] for row in drawn_texts(file, 6, step)] for step in (0, 1))
    assert [row[:2] for row in first] == [row[:2] for row in second]
    assert all(one[2:] != other[2:] for one, other in zip(first, second, strict=True))


TOPICS, DETAILS, WORDS = 8, 40, 5


def topic_world(given=None):
    """A text is the words of its topic and one word of detail; the two sides have no word in common.

    A text of another topic is told apart by the topic alone. ``given`` negatives are "hard", of the same topic with
    another detail, or "easy", of another topic. Every (topic, detail) is one pair: of those held out, training has seen
    the topic and the detail, but not together.
    """
    dice = random.Random(1)

    def text(side, topic, detail):
        return " ".join([f"{side}topic{topic}word{w}" for w in range(WORDS)] + [f"{side}detail{detail}"])

    rows = []
    for topic in range(TOPICS):
        for detail in range(DETAILS):
            row = {"query": text("q", topic, detail), "pos": text("a", topic, detail)}
            others = dice.sample([d for d in range(DETAILS) if d != detail], 2)
            where = topic if given == "hard" else (topic + dice.randrange(1, TOPICS)) % TOPICS
            row |= {f"neg_{j}": text("a", where, other) for j, other in enumerate(others, 1) if given}
            rows.append(row)
    random.Random(2).shuffle(rows)
    return rows


@pytest.fixture
def trained(tmp_path):
    def train(given, seed):
        file = write_csv(tmp_path / f"{given}.csv", topic_world(given))
        return nw.train(
            file, out=tmp_path / f"{given}-{seed}", seed=seed, model="siamese-cnn", k=4, steps=50, batch_size=32,
            learning_rate=5e-3, eval_every=50, evaluate_training=False, folds=3, title_words=8, body_words=8,
            settings={"hidden": 32, "embedding": 32, "pooling": 16, "dropout": 0.0}, device="cpu", threads=1,
        )  # fmt: skip

    return train


def test_the_world_is_evaluated_on_the_same_texts_with_and_without_given_negatives(trained):
    def evaluated(given):
        config = trained(given, 0).folder / CONFIG
        data = load_data(decode(TrainRequest, read_record(RunConfig, config).run, str(config)))
        title, body = (data.texts.fields[name] for name in ("title", "body"))
        first, last = data.test.candidates
        return [title[i] for i in data.test.positives.tolist()], [body[i] for i in range(first, last)]

    queries, candidates = evaluated("hard")
    assert (queries, candidates) == evaluated(None)
    assert len(queries) > 80
    topics = [text.split("word")[0] for text in candidates]
    assert min(topics.count(topic) for topic in topics) > 5  # the topic alone does not find the positive


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_hard_negatives_that_were_given_make_a_better_model(trained, seed):
    """By the mean reciprocal rank of the test split, after as many steps with as many negatives each."""
    score = {given: trained(given, seed).record.evaluations["test"].metrics["mrr"] for given in ("hard", "easy", None)}
    assert score["hard"] > score[None] + 0.1
    assert score["hard"] > score["easy"] + 0.1
