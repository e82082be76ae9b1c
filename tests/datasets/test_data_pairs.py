"""Text pairs: reading, near-equal bodies, exclusions and given negatives, against plain loops over the texts."""

import itertools
import json
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_files import compress

from negwise.datasets import Ragged, SplitSizes, inspect, near_duplicates, prepare, read
from negwise.datasets.near_duplicates import THRESHOLD, WIDTH, equal_texts, near_duplicate_groups
from negwise.datasets.pairs import PairTable, pair_task
from negwise.errors import InputError
from negwise.tasks import tokenize
from negwise.words import split_words

PAIRS = [("a first title", "the body, of\nthe first"), ("second", 'quoted "body" here'), ("third", "one more body")]
NEGATIVES = [["no match", "none at all"], [], ["no match"]]


def write(form, folder):
    path = folder / "pairs"
    if form == "jsonl":
        rows = [{"left": a, "right": b, "negatives": n} for (a, b), n in zip(PAIRS, NEGATIVES, strict=True)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif form == "query-pos-neg":
        rows = [{"query": a, "pos": [b], "neg": n} for (a, b), n in zip(PAIRS, NEGATIVES, strict=True)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif form == "csv":
        cells = [[a, b, json.dumps(n) if n else ""] for (a, b), n in zip(PAIRS, NEGATIVES, strict=True)]
        quoted = [",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in cells]
        path.write_text("left,right,negatives\n" + "".join(row + "\n" for row in quoted))
    else:
        left, right = zip(*PAIRS, strict=True)
        pq.write_table(pa.table({"left": left, "right": right, "negatives": NEGATIVES}), path)
    return path


FORMS = [(form, ending) for form in ("jsonl", "query-pos-neg", "csv") for ending in ("", ".gz", ".xz", ".zst")]


@pytest.mark.parametrize(("form", "ending"), [*FORMS, ("parquet", "")])
def test_every_form_reads_the_same(form, ending, tmp_path):
    source = read(compress(write(form, tmp_path), ending), cache=tmp_path / "cache")
    assert source.kind == "pairs"
    rows = source.tables["pairs"].to_pylist()
    texts = source.tables["texts"]["text"].to_pylist()
    assert [(row["left"], row["right"]) for row in rows] == PAIRS
    assert [[texts[at] for at in row["negatives"]] for row in rows] == NEGATIVES
    assert texts == ["no match", "none at all"]
    vocabulary = source.tables["words"]["id"].to_pylist()
    assert [[vocabulary[at] for at in row["right_words"]] for row in rows] == [split_words(right) for _, right in PAIRS]


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ('{"left": "a", "right": ""}', "right is ''"),
        ('{"left": "a"}', "right is None"),
        ('{"left": 3, "right": "b"}', "left is 3"),
        ('{"left": "a", "right": "b", "negatives": [1]}', "negatives are [1]"),
        ('{"left": "a", "right": "b", "negatives": ["..."]}', "negatives are ['...']"),
        ('{"left": "?!", "right": "b"}', "left is '?!', expected text with words"),
        ('{"left": "a", "right": ["b", "-"]}', "expected text with words"),
        ('{"left": "a", "right": ', "not JSON"),
        ("[1]", "expected an object"),
    ],
)
def test_a_bad_row_names_its_line(row, what, tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"left": "a", "right": "b", "negatives": []}\n' + row + "\n")
    with pytest.raises(InputError) as caught:
        read(path, cache=tmp_path / "cache")
    assert f"{path}, line 2: " in str(caught.value) and what in str(caught.value)
    assert len(read(path, skip_bad=1, cache=tmp_path / "cache").problems) == 1


def test_negatives_may_come_with_later_rows_only(tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = [{"query": f"q {row}", "pos": [f"p {row}"]} for row in range(30)]
    rows += [{"query": "a", "pos": ["b"], "neg": ["c", "d"]}, {"query": "e", "pos": ["f"], "negatives": ["g"]}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = read(path, cache=tmp_path / "cache")
    texts = source.tables["texts"]["text"].to_pylist()
    found = [[texts[at] for at in row] for row in source.tables["pairs"]["negatives"].to_pylist()]
    assert found == [[]] * 30 + [["c", "d"], ["g"]]
    path.write_text(path.read_text() + '{"query": "a", "pos": ["b"], "neg": ["c"], "negatives": ["d"]}\n')
    with pytest.raises(InputError, match="line 33: both neg and negatives"):
        read(path, cache=tmp_path / "cache")


def test_several_positives_are_several_pairs(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"query": "q", "pos": ["one", "two"], "neg": []}\n')
    rows = read(path, cache=tmp_path / "cache").tables["pairs"].to_pylist()
    assert [(row["left"], row["right"]) for row in rows] == [("q", "one"), ("q", "two")]


def jaccard(a, b):
    """The definition, on Python sets of word tuples."""
    first, second = ({tuple(t[i : i + WIDTH]) for i in range(max(1, len(t) - WIDTH + 1))} for t in (a, b))
    return len(first & second) / len(first | second)


def corpus(seed, n=60):
    """Texts of word numbers with copies, near copies at every distance, and short ones."""
    rng = random.Random(seed)
    texts = []
    for _ in range(n):
        kind = rng.random()
        if texts and kind < 0.5:
            text = list(rng.choice(texts))
            for _ in range(rng.choice([0, 1, 1, 2, 4])):
                if text:
                    text[rng.randrange(len(text))] = rng.randrange(40)
            texts.append(text)
        else:
            texts.append([rng.randrange(40) for _ in range(rng.choice([0, 1, 3, 5, 30, 60]))])
    return texts


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("threshold", [THRESHOLD, 0.5, 1.0])
def test_near_groups_are_the_components_of_exact_jaccard(seed, threshold):
    texts = corpus(seed)
    group = list(range(len(texts)))
    for a, b in itertools.combinations(range(len(texts)), 2):
        if jaccard(texts[a], texts[b]) >= threshold and group[a] != group[b]:
            old = group[b]
            group = [group[a] if g == old else g for g in group]
    numbers = {g: n for n, g in enumerate(dict.fromkeys(group))}
    assert near_duplicate_groups(Ragged.of(texts), threshold).tolist() == [numbers[g] for g in group]
    assert len(numbers) < len(texts)  # there was something to find


def test_equal_texts_are_equal_sequences():
    texts = [*corpus(9), [1, 2, 3], [3, 2, 1], [1, 2, 3], [], [0], [0, 0]]
    found = equal_texts(Ragged.of(texts))
    for a, b in itertools.combinations(range(len(texts)), 2):
        assert (found[a] == found[b]) == (texts[a] == texts[b])


@pytest.fixture
def messy(tmp_path):
    """(source, pairs, negatives by left side): repeated titles, equal bodies, near-equal bodies, given negatives."""
    rng = random.Random(5)
    bodies = [" ".join(f"w{rng.randrange(300)}" for _ in range(30)) for _ in range(50)]
    for at in range(50, 70):
        text = bodies[rng.randrange(50)].split()
        text[3] = f"other{at}"
        bodies.append(" ".join(text))
    pairs = [(f"title {number}", body) for number, body in enumerate(bodies)]
    pairs += [("title 1", bodies[5]), ("title 60", bodies[5]), pairs[7], ("a title of its own", bodies[9].upper())]
    negatives = [
        [rng.choice(bodies), f"only a negative {rng.randrange(9)}"] if n % 2 else [] for n in range(len(pairs))
    ]
    path = tmp_path / "messy.jsonl"
    rows = [{"left": a, "right": b, "negatives": n} for (a, b), n in zip(pairs, negatives, strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read(path, cache=tmp_path / "cache"), pairs, negatives


def item_texts(task):
    """The words of each item's left and right side, back from the token tables."""
    texts = tokenize(task, title_words=20, body_words=60)
    table = texts.tokenizer.words
    return [
        tuple(tuple(table[token] for token in texts.tokens[side][item] if token) for side in ("title", "body"))
        for item in range(task.n_items)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_no_body_has_a_near_one_in_another_split(messy, seed):
    source, pairs, _ = messy
    task = prepare(source, shares=SplitSizes(val=0.2, test=0.2), seed=seed)
    texts = item_texts(task)
    part = {}
    for number, split in enumerate((task.train, task.val, task.test)):
        for item in range(*split.candidates):
            part[texts[item]] = number
    # a held-out word that training lacks reads back as <unk>; pairs are looked up by what the vocabulary knows
    known = set(tokenize(task).tokenizer.words)

    def side(title, body):
        return part[tuple(tuple(w if w in known else "<unk>" for w in split_words(t)) for t in (title, body))]

    near = crossing = 0
    for (a, b), (c, d) in itertools.combinations(pairs, 2):
        if jaccard(split_words(b), split_words(d)) >= THRESHOLD:
            near += 1
            crossing += side(a, b) != side(c, d)
    assert near > 20 and crossing == 0
    assert len(set(part.values())) == 3
    assert task.train.candidates[0] == 0 and task.test.candidates[1] == task.n_items


def test_exclusions_are_every_body_that_some_pair_joins_with_the_title(messy):
    source, pairs, _ = messy
    task = prepare(source, shares=SplitSizes(val=0.01, test=0.01))
    texts = item_texts(task)
    joined = {}
    for title, body in pairs:
        joined.setdefault(tuple(split_words(title)), set()).add(tuple(split_words(body)))
    assert {(a, b) for a, b in texts if a and "<unk>" not in a + b} <= {
        (tuple(split_words(a)), tuple(split_words(b))) for a, b in pairs
    }
    checked = 0
    for split in (task.train,):
        for i in range(len(split)):
            title, _ = texts[split.positives[i]]
            expected = {j for j, (_, body) in enumerate(texts) if body in joined[title]}
            assert set(task.train_exclusions[split.groups[i]].tolist()) == expected
            assert split.positives[i] in expected
            checked += len(expected) > 1
    assert checked >= 4
    assert "1 pairs repeat another pair and were left out" in task.notes


def test_given_negatives_stay_within_their_split(messy):
    source, pairs, negatives = messy
    task = prepare(source, shares=SplitSizes(val=0.2, test=0.2))
    texts = item_texts(task)
    low, high = task.train.candidates
    inside = {body for _, body in texts[low:high]}
    given, own = {}, {}
    for (title, body), listed in zip(pairs, negatives, strict=True):
        given.setdefault(tuple(split_words(title)), set()).update(tuple(split_words(text)) for text in listed)
        own.setdefault(tuple(split_words(title)), set()).add(tuple(split_words(body)))
    found_any = 0
    for i in range(len(task.train)):
        title, _ = texts[task.train.positives[i]]
        mine = {texts[j][1] for j in task.negatives[task.train.groups[i]]}
        assert mine == (given[title] & inside) - own[title]
        found_any += len(mine)
    assert found_any > 10
    assert any(given[title] & own[title] for title in given)  # there was one to leave out
    assert any("given negatives are right texts of the same left text" in note for note in task.notes)
    assert any("given negatives are in another split" in note for note in task.notes)


def test_too_few_bodies_to_split(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(f'{{"left": "title {n}", "right": "one and the same body"}}\n' for n in range(30)))
    with pytest.raises(InputError, match=r"30 pairs, which form 1 groups of near-equal texts; .* 3 or more"):
        prepare(read(path, cache=tmp_path / "cache"))


def test_a_pair_that_is_left_out_still_joins_its_title_with_its_body():
    """Held out, (title 0, body 1) is near training and left out; in training body 1 is no negative of title 0."""
    left, right = Ragged.of([[0], [1], [2], [3], [0]]), Ragged.of([[10], [11], [12], [13], [11]])
    nothing = Ragged.of([])
    folder = np.array([0, 0, 1, 2, 1])
    data = PairTable(left, right, nothing, Ragged.of([[]] * 5), np.array([0, 1, 2, 3, 1]), folder)
    task = pair_task(data, "folders", SplitSizes(), 0, "made").task
    assert [len(split) for split in (task.train, task.val, task.test)] == [2, 1, 1]
    assert [task.train_exclusions[group].tolist() for group in task.train.groups] == [[0, 1], [1]]


def test_a_pair_asks_with_its_own_left_side(messy):
    source, *_ = messy
    task = prepare(source)
    query, positives, _ = task.val.batch(np.arange(len(task.val)))
    assert query.items[:, 0].tolist() == positives.tolist() and query.mask.all() and query.items.shape[1] == 1


def test_vocabulary_is_that_of_training(messy):
    source, *_ = messy
    task = prepare(source, shares=SplitSizes(val=0.3, test=0.3))
    vocabulary = source.tables["words"]["id"].to_pylist()
    low, high = task.train.candidates
    texts = tokenize(task)
    used = {token for side in ("title", "body") for token in np.unique(texts.tokens[side][low:high]).tolist()}
    assert 1 not in used  # training knows all of its own words
    assert used - {0} == set(range(2, len(texts.tokenizer)))
    assert len(texts.tokenizer) - 2 < len(vocabulary)
    assert (texts.tokens["body"][high:] == 1).any()


def test_report_counts_pairs(messy, tmp_path):
    source, pairs, negatives = messy
    report = inspect(source.path, cache=tmp_path / "cache")
    assert report.counts["pairs"] == len(pairs)
    assert report.counts["distinct_bodies"] == len({tuple(split_words(body)) for _, body in pairs})
    assert report.counts["body_length"] == np.mean([len(split_words(body)) for _, body in pairs])
    bodies = [tuple(split_words(body)) for _, body in pairs]
    assert report.negatives.most == max(len(pairs) - bodies.count(body) for body in bodies)
    own = sum(bool(listed) for listed in negatives)
    assert f"{own} pairs bring negatives of their own, which come first" in report.negatives.source
    assert report.counts["given_negatives"] == sum(len(n) for n in negatives)


def test_a_template_is_not_compared_pair_by_pair(monkeypatch):
    """A thousand texts that differ in a word are half a million near pairs; a chain of them is enough."""
    compared = []
    plain = near_duplicates._jaccard
    monkeypatch.setattr(
        near_duplicates, "_jaccard", lambda sets, pairs: compared.append(len(pairs)) or plain(sets, pairs)
    )
    rng = random.Random(0)
    template = [rng.randrange(5000) for _ in range(60)]
    texts = [[*template[:at], 9000 + n, *template[at + 1 :]] for n in range(1000) for at in [rng.randrange(60)]]
    assert set(near_duplicate_groups(Ragged.of(texts)).tolist()) == {0}
    assert sum(compared) < 30_000
    # the same beginning and many endings: too far apart, and seen to be so without a comparison
    compared.clear()
    texts = [template[:48] + list(range(10_000 + 12 * n, 10_012 + 12 * n)) for n in range(1000)]
    assert jaccard(texts[0], texts[1]) < THRESHOLD
    assert len(set(near_duplicate_groups(Ragged.of(texts)).tolist())) == 1000
    assert sum(compared) == 0


@pytest.mark.parametrize(("threshold", "short"), [(0.5, 5), (0.7, 7), (1.0, 10)])
def test_a_text_cut_off_exactly_at_the_threshold_is_near(threshold, short):
    """The tightest case of prefix filtering: all that the longer text has alone is rarer than what they share."""
    long = list(range(14))  # ten shingles
    cut = long[: short + WIDTH - 1]
    assert jaccard(long, cut) == threshold
    assert near_duplicate_groups(Ragged.of([long, cut]), threshold).tolist() == [0, 0]
    if short > 5:
        assert near_duplicate_groups(Ragged.of([long, cut[:-1]]), threshold).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('{"left": ' + "[" * 100_000 + "]" * 100_000 + "}", "line 2: not JSON"),
        (r'{"left": "half a pair \ud800", "right": "a body"}', "line 2: half of a surrogate pair"),
        (r'{"left": "a title", "right": "[\"\ud800 text\"]"}', "line 2: half of a surrogate pair"),
    ],
    ids=["nested", "surrogate", "surrogate in a list"],
)
def test_json_that_is_no_text_is_a_bad_row(tmp_path, row, said):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"left": "a title", "right": "a body"}\n' + row + "\n")
    with pytest.raises(InputError, match=said):
        read(path, cache=tmp_path / "cache")
    path.write_text(row + "\n" + '{"left": "a title", "right": "a body"}\n')
    assert len(read(path, cache=tmp_path / "cache", skip_bad=1).tables["pairs"]) == 1


@pytest.mark.parametrize("cell", [r'["\ud800 text"]', '["' + '",["' * 100_000], ids=["surrogate", "nested"])
def test_a_json_list_in_a_cell_that_is_no_text_is_a_bad_row(tmp_path, cell):
    path = tmp_path / "pairs.csv"
    path.write_text('left,right\na title,a body\na title,"' + cell.replace('"', '""') + '"\n')
    with pytest.raises(InputError, match=r"line 3: right is .*expected text with words"):
        read(path, cache=tmp_path / "cache")


NUMBERED = [("neg_1", "neg_2"), ("negative_1", "negative_2"), ("Negative 1", "NEGATIVE2"), ("neg_2", "neg_11")]


@pytest.mark.parametrize("names", NUMBERED)
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_numbered_columns_of_negatives_are_read_in_their_order(tmp_path, names, form):
    first, second = names
    rows = [
        {"anchor": "a title", "positive": "its body", second: "second wrong", first: "first wrong"},
        {"anchor": "another", "positive": "other body", second: "", first: "only wrong"},
    ]
    path = tmp_path / f"pairs.{form}"
    if form == "csv":
        path.write_text(",".join(rows[0]) + "\n" + "".join(",".join(row.values()) + "\n" for row in rows))
    elif form == "jsonl":
        path.write_text("".join(json.dumps({k: v for k, v in row.items() if v}) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    tables = read(path, cache=tmp_path / "cache").tables
    texts = tables["texts"]["text"].to_pylist()
    listed = [[texts[at] for at in row] for row in tables["pairs"]["negatives"].to_pylist()]
    assert listed == [["first wrong", "second wrong"], ["only wrong"]]


def test_given_negatives_keep_the_order_of_the_file(tmp_path):
    dice = random.Random(3)
    bodies = [f"body number {n} of them" for n in range(60)]
    rows = [
        {"left": f"title {n}", "right": bodies[n], "neg": dice.sample(bodies[:n] + bodies[n + 1 :], 6)}
        for n in range(60)
    ]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = read(path, cache=tmp_path / "cache")
    task = prepare(source)

    def number_of(item):  # the word that tells bodies apart
        return task.texts.fields["body"][item].split()[2]

    checked = 0
    for positive, group in zip(task.train.positives, task.train.groups, strict=True):
        mine = [number_of(item) for item in task.negatives[group]]
        wanted = [text.split()[2] for text in rows[int(number_of(positive))]["neg"]]
        assert mine == [number for number in wanted if number in mine]
        checked += len(mine) > 1
    assert checked > 20
