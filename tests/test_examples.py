"""The examples are scripts that run as they stand."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name, *words):
    return subprocess.run(
        [sys.executable, str(EXAMPLES / name), *map(str, words)], capture_output=True, text=True, check=True
    ).stdout


def test_examples_are_short():
    for script in EXAMPLES.glob("*.py"):
        most = {"own_loop": 39, "recommend": 24, "search_folder": 24}.get(script.stem, 75)
        assert len(script.read_text().splitlines()) <= most, script


def test_own_loop_trains_with_a_changing_k():
    lines = [line.split() for line in run("own_loop.py").splitlines()]
    ks, losses, aucs = ([float(line[at]) for line in lines] for at in (3, 5, -1))
    assert ks == [8.5] * 6  # the warm-up of a tenth is over
    assert losses[-1] < losses[0]
    assert aucs[-1] > 0.9


def test_recommend_from_a_csv(tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    rows = [f"u{user},i{(user + 2 * place) % 15},{place}" for user in range(30) for place in range(6)]
    (tmp_path / "log.csv").write_text("\n".join(["user,item,time", *rows]) + "\n")
    lines = run("recommend.py", tmp_path / "log.csv", tmp_path / "run", 5).splitlines()
    assert lines[0] == "u0 had i6, i8, i10 and gets:" and lines[6] == "somebody with i0 and i2 gets:"
    found = [[line.split()[0] for line in lines[at : at + 5]] for at in (1, 7)]
    assert not set(found[0]) & {f"i{2 * place}" for place in range(6)} and not set(found[1]) & {"i0", "i2"}
    scores = [float(line.split()[1]) for line in lines[1:6]]
    assert scores == sorted(scores, reverse=True)


def test_search_in_a_folder_of_texts(tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    topics = ["red apples grow on trees", "fast cars need wide roads", "old songs sound like home"]
    words = [topic.split() for topic in topics]
    pairs = [f"{words[i % 3][i % 5]},{words[i % 3][(i + 2) % 5]} {words[i % 3][(i + 3) % 5]} n{i}" for i in range(90)]
    (tmp_path / "pairs.csv").write_text("\n".join(["query,positive", *pairs]) + "\n")
    (tmp_path / "texts").mkdir()
    for place, topic in enumerate(topics):
        (tmp_path / "texts" / f"{place}.txt").write_text(topic)
    out = run("search_folder.py", tmp_path / "texts", "cars roads", tmp_path / "pairs.csv", tmp_path / "run", 60)
    assert out.split()[1] == "1.txt" and len(out.splitlines()) == 3


@pytest.mark.slow
def test_pilot_curve_makes_the_log_that_ships_with_the_package(tmp_path):
    text = run("pilot_curve.py", tmp_path / "curves.csv", 300)
    assert "K*" in text
    made = list(csv.DictReader((tmp_path / "curves.csv").read_text().splitlines()))
    from negwise.curves import read

    shipped = read(EXAMPLES.parent / "src" / "negwise" / "curves" / "example.csv")
    assert [float(row["step"]) for row in made] == shipped.val_steps[:4].tolist() == [0, 100, 200, 300]
    # Other versions of the libraries have other docstrings, so the curve is like the shipped one, not the same.
    for row, auc in zip(made, shipped.val_auc[:4], strict=True):
        assert abs(float(row["val_auc"]) - auc) < 0.05
