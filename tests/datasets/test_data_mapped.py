"""Large data: lists made a block at a time, memory maps, and numbers of 32 bits."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from negwise.datasets import impression_lists, line_blocks, prepare, read
from negwise.datasets.impression_lists import Impressions, click_blocks, history_blocks, lists_of
from negwise.datasets.mapped_arrays import ArrayWriter, let_go, open_arrays, open_lists
from negwise.datasets.ragged import Ragged, difference, distinct_pairs, narrow
from negwise.errors import InputError


def made_impressions(seed: int, kind: type, *, with_times: bool = True) -> Impressions:
    """40 impressions of 9 users, of whom some have none; items repeat, and some impressions have no labels."""
    random = np.random.default_rng(seed)
    shown = Ragged.of(random.integers(0, 12, size).tolist() for size in random.integers(1, 7, 40))
    history = Ragged.of(random.integers(0, 12, size).tolist() for size in random.integers(0, 5, 40))
    labelled = random.random(40) < 0.9
    labels = (random.random(len(shown.ids)) < 0.3) & labelled[shown.rows]
    return Impressions(
        random.choice([0, 2, 3, 5, 8], 40).astype(kind),
        random.integers(0, 6, 40) if with_times else None,
        history.ids.astype(kind),
        history.offsets[:-1],
        history.offsets[1:],
        Ragged(shown.offsets, shown.ids.astype(kind)),
        labels.astype(np.int8),
        labelled,
        10,
        12,
    )


def plain_history(data: Impressions, user: int) -> list[int]:
    """The history of the last impression of ``user``, then clicks that are not in it, each once, in order of time."""
    own = [at for at in range(len(data.users)) if data.users[at] == user]
    own.sort(key=lambda at: 0 if data.times is None else data.times[at])
    found = data.clicked[data.start[own[-1]] : data.end[own[-1]]].tolist() if own else []
    known = set(found)
    for at in own:
        for place in range(data.shown.offsets[at], data.shown.offsets[at + 1]):
            item = int(data.shown.ids[place])
            if data.labels[place] == 1 and item not in known:
                known.add(item)
                found.append(item)
    return found


@pytest.mark.parametrize("block", [1, 7, 40, 1000])
@pytest.mark.parametrize("with_times", [True, False])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_lists_are_those_of_a_plain_loop_whatever_the_block(
    block: int, with_times: bool, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(impression_lists, "BLOCK", block)
    for seed in range(5):
        data = made_impressions(seed, kind, with_times=with_times)
        lists = lists_of(data)
        clicks = []
        for at in range(40):
            places = range(data.shown.offsets[at], data.shown.offsets[at + 1])
            clicked = {int(data.shown.ids[place]) for place in places if data.labels[place] == 1}
            shown = {int(item) for item in data.shown[at]} if data.labelled[at] else set()
            assert lists.clicked[at].tolist() == sorted(clicked)
            assert lists.not_clicked[at].tolist() == sorted(shown - clicked)
            clicks += [(at, int(data.shown.ids[place])) for place in places if data.labels[place] == 1]
        assert list(zip(lists.click_rows.tolist(), lists.click_items.tolist(), strict=True)) == clicks
        assert len(lists.histories) == 10
        assert [lists.histories[user].tolist() for user in range(10)] == [plain_history(data, u) for u in range(10)]


def test_blocks_tell_how_far_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impression_lists, "BLOCK", 10)
    data, shares = made_impressions(0, np.int32), []
    blocks = list(click_blocks(data, shares.append))
    assert shares == [0.25, 0.5, 0.75, 1.0]
    rows, items = (np.concatenate([block[part] for block in blocks]) for part in (0, 1))
    list(history_blocks(data, rows, items, shares.append))
    assert shares[4:] == sorted(shares[4:]) and shares[-1] == 1.0 and len(shares) > 5


def test_pairs_of_32_bits_do_not_overflow() -> None:
    rows, ids = (np.array(values, np.int32) for values in ([90_000, 3, 90_000, 3], [80_000, 2, 80_000, 70_001]))
    assert [part.tolist() for part in distinct_pairs(rows, ids)] == [[3, 3, 90_000], [2, 70_001, 80_000]]
    for made in (Ragged.of_pairs(rows, ids, 90_001), Ragged.in_order(rows, ids, 90_001)):
        assert made.ids.tolist() == [2, 70_001, 80_000] and made.ids.dtype == np.int32
        assert made[90_000].tolist() == [80_000]
    lists = Ragged.of_pairs(rows, ids, 90_001)
    left = difference(lists, Ragged.of_pairs(rows[:1], ids[:1], 90_001))
    assert left.ids.tolist() == [2, 70_001]


def test_narrow_keeps_numbers_that_do_not_fit() -> None:
    assert narrow(np.array([2**31 - 1]), 2**31).tolist() == [2**31 - 1]
    assert narrow(np.array([2**31]), 2**31 + 1).tolist() == [2**31]


def test_arrays_come_back_as_they_were_written(tmp_path: Path) -> None:
    with ArrayWriter(tmp_path) as arrays:
        arrays.write("times", np.array([5, 6], np.int64))
        arrays.write("times", np.array([7], np.int32))
        arrays.write("none", np.zeros(0, np.int32))
        arrays.write_lists("lists", Ragged.of([[3, 1], []]))
        arrays.write_lists("lists", Ragged.of([[2]]))
    found = open_arrays(tmp_path, arrays.kinds)
    assert found["times"].tolist() == [5, 6, 7] and found["none"].tolist() == []
    lists = open_lists(found, "lists")
    assert [lists[row].tolist() for row in range(3)] == [[3, 1], [], [2]]
    let_go(found["times"], found["none"], lists.ids[1:], np.arange(3))
    assert found["times"].tolist() == [5, 6, 7]


def test_a_block_that_does_not_fit_the_type_of_an_array_is_refused(tmp_path: Path) -> None:
    with ArrayWriter(tmp_path) as arrays:
        arrays.write("ids", np.array([1], np.int32))
        with pytest.raises(TypeError, match="safe"):
            arrays.write("ids", np.array([2**40], np.int64))


@pytest.mark.parametrize("damage", ["cut", "removed"])
def test_a_damaged_array_is_refused(tmp_path: Path, damage: str) -> None:
    with ArrayWriter(tmp_path) as arrays:
        arrays.write("ids", np.arange(10))
    file = tmp_path / "ids.array"
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-8])
    else:
        file.unlink()
    with pytest.raises(InputError, match=r"ids.array: the cache is damaged .* Delete its folder"):
        open_arrays(tmp_path, arrays.kinds)


def write_mind(folder: Path, impressions: int, shown: int = 10) -> Path:
    folder.mkdir()
    random = np.random.default_rng(0)
    (folder / "news.tsv").write_text("".join(f"N{n}\tc\ts\tword{n}\t\t\t[]\t[]\n" for n in range(500)))
    lines = []
    for row in range(impressions):
        past, listed = random.integers(0, 500, (2, shown))
        entries = " ".join(f"N{item}-{int(place == row % shown)}" for place, item in enumerate(listed))
        day = f"11/{9 + row % 14}/2019 1:00:00 AM"
        lines.append(f"{row}\tU{row % 997}\t{day}\t{' '.join(f'N{item}' for item in past)}\t{entries}\n")
    (folder / "behaviors.tsv").write_text("".join(lines))
    return folder


def test_a_split_does_not_hold_the_lists_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impression_lists, "BLOCK", 500)
    monkeypatch.setattr(line_blocks, "BLOCK_BYTES", 2**13)
    n, entries = 40_000, 10
    source = read(write_mind(tmp_path / "mind", n, entries), cache=tmp_path / "cache")
    for turn in ("made", "from the cache"):
        tracemalloc.start()
        task = prepare(source)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # Examples and orders by user take some 60 bytes for each impression; one list of int32 would take 40 more, and
        # there are three of them: histories, what was shown, and what was not clicked.
        assert peak < 100 * n, f"{turn}: {peak / n:.0f} bytes for each impression"
    assert len(task.train) + len(task.val) + len(task.test) == n


def test_data_that_was_split_before_is_split_the_same_from_the_cache(tmp_path: Path) -> None:
    source = read(write_mind(tmp_path / "mind", 300), cache=tmp_path / "cache")
    shares: list[float] = []
    first = prepare(source, progress=shares.append)
    assert shares == sorted(shares) and shares[-1] == 1.0
    told = len(shares)
    again = prepare(source, progress=shares.append)
    assert len(shares) == told  # nothing is made a second time
    for one, other in ((first.negatives, again.negatives), (first.histories, again.histories)):
        assert one is not None and other is not None
        assert one.ids.tolist() == other.ids.tolist() and one.offsets.tolist() == other.offsets.tolist()
    for one, other in ((first.train, again.train), (first.val, again.val), (first.test, again.test)):
        assert one.positives.tolist() == other.positives.tolist() and one.groups.tolist() == other.groups.tolist()
    batch = again.train.batch([0, 1])
    assert {str(part.dtype) for part in (batch.query.items, batch.query.users, batch.positives, batch.groups)} == {
        "torch.int64"
    }
