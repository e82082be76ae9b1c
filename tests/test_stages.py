"""Signs of life: what long work says, from a thread of its own, and that every part of a run is told of."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable

import pytest

import negwise as nw
from negwise import stages
from negwise.cli.streams import safe_streams
from negwise.stages import Stage, signs_of_life, stage, tell

FAST = 0.02


def wait_until(there: Callable[[], bool]) -> None:
    """The test fails by what it asserts if it never comes to that."""
    end = time.monotonic() + 10
    while not there() and time.monotonic() < end:
        time.sleep(FAST / 4)


def wait_for(lines: list[str], count: int) -> None:
    wait_until(lambda: len(lines) >= count)


def test_a_line_says_what_is_left_or_how_long_it_took() -> None:
    now = [100.0]
    one = Stage("splitting log.csv", clock=lambda: now[0])
    now[0] = 100.4
    assert one.line() == "splitting log.csv ..."  # not "0 s so far"
    now[0] = 104.0
    assert one.line() == "splitting log.csv: 4 s so far"
    one.progress(0.25)
    assert one.line() == "splitting log.csv: 25%, 12 s left"
    now[0] = 110.0  # a long call since: the end comes nearer all the same
    assert one.line() == "splitting log.csv: 25%, 6 s left"
    now[0] = 190.0
    assert one.line() == "splitting log.csv: 25%, 0 s left"
    one.progress(1.0)
    assert one.line() == "splitting log.csv: 1 min 30 s so far"


def test_lines_come_while_one_call_is_on() -> None:
    said: list[str] = []
    with signs_of_life(said.append, every=FAST), stage("sorting") as progress:
        wait_for(said, 3)
        assert set(said) == {"sorting ..."}
        progress(0.5)
    ended = len(said)
    time.sleep(3 * FAST)
    assert len(said) == ended  # nothing after the end


def test_the_innermost_stage_and_the_innermost_listener_speak() -> None:
    outer: list[str] = []
    inner: list[str] = []
    with signs_of_life(outer.append, every=FAST), stage("job"):
        wait_for(outer, 1)
        with stage("part of it"):
            wait_for(outer, 3)
        with signs_of_life(inner.append, every=FAST), stage("other part"):
            wait_for(inner, 2)
    assert outer[0].startswith("job") and any(line.startswith("part of it") for line in outer)
    assert len(inner) >= 2 and all(line.startswith("other part") for line in inner)
    assert not any(line.startswith("other part") for line in outer)


def test_nothing_is_said_without_a_listener_or_between_stages(capsys: pytest.CaptureFixture[str]) -> None:
    shares: list[float] = []
    with stage("alone", shares.append) as progress:
        progress(0.5)
        time.sleep(2 * FAST)
    assert shares == [0.5]  # the caller's own progress is served in any case
    said: list[str] = []
    with signs_of_life(said.append, every=FAST):
        time.sleep(3 * FAST)
    assert said == [] and capsys.readouterr().err == ""


def test_a_failure_ends_the_stage() -> None:
    said: list[str] = []
    with signs_of_life(said.append, every=FAST):
        with pytest.raises(ValueError, match="bad"), stage("reading"):
            raise ValueError("bad")
        time.sleep(3 * FAST)
    assert said == []


def test_only_the_first_process_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    for rank, expected in (("0", True), ("1", False)):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setattr(sys, "stderr", said := io.StringIO())
        with signs_of_life(every=FAST), stage("reading"):
            if expected:
                wait_until(lambda said=said: "reading ..." in said.getvalue())
            else:
                time.sleep(5 * FAST)
        assert ("reading ..." in said.getvalue()) is expected


def test_on_a_terminal_a_line_takes_the_place_of_the_one_before_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Written by hand: what a terminal of 12 columns shows, read off the bytes that it gets."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "12")
    with safe_streams(), signs_of_life(every=FAST):  # as the command line does
        with stage("reading a long name"):
            wait_until(lambda: screen.getvalue().count("reading a l") > 1)
            assert "\n" not in screen.getvalue() and screen.getvalue().count("reading a l") > 1
            assert screen.getvalue().rsplit("\r")[-1] == "\x1b[2Kreading a l"  # one column is left for the cursor
        assert screen.getvalue().endswith("\r\x1b[2K")  # nothing is left of it
        with stage("reading a long name"):
            seen = len(screen.getvalue())
            wait_until(lambda: "reading a l" in screen.getvalue()[seen:])
            tell("three rows are left out")
            tell("three rows are left out")
        assert screen.getvalue().count("three rows are left out\n") == 1  # whole, and it stays
        assert "\x1b[2Kthree rows are left out\n" in screen.getvalue()
        print("done", file=screen)
        with stage("quick"):
            pass
        monkeypatch.setattr(sys, "stderr", bar := Terminal())  # as that of a bar, which writes whole lines
        with stage("beside a bar"):
            wait_until(lambda: "beside a bar ...\n" in bar.getvalue())
    assert screen.getvalue().endswith("\ndone\n") and "beside a bar ...\n" in bar.getvalue()


@pytest.mark.parametrize("verb", ["data", "train", "run", "sweep"])
def test_reading_splitting_and_numbering_words_are_told_of(
    verb: str, tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each stage must have a listener when it begins: then a line comes every two seconds."""
    seen: dict[str, bool] = {}

    class Noted(Stage):
        def __init__(self, what: str) -> None:
            super().__init__(what)
            seen[what] = seen.get(what, True) and stages._LISTENER.get() is not None

    monkeypatch.setattr(stages, "Stage", Noted)
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "pairs.jsonl"
    rows = [{"left": f"a{i} a{i % 7}", "right": f"b{i} b{i % 7} b{i % 11}"} for i in range(60)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    small = {"model": "siamese-cnn", "steps": 2, "batch_size": 8, "device": "cpu", "out": str(tmp_path / "out")}
    if verb == "data":
        nw.data(str(file))
    elif verb == "train":
        nw.train(str(file), k=2, **small)
    elif verb == "run":
        nw.run(str(file), k="2", race=False, **small)
    else:
        nw.sweep(str(file), k="2", seeds=1, jobs=1, **small)
    expected = {f"looking whether {file} was read before", f"reading {file}"}
    if verb != "train":
        expected.add(f"describing {file}")
    if verb == "run":
        expected.add("timing steps")
    if verb in ("train", "run"):  # of a sweep, its runs are in processes of their own, whose lines the job shows
        expected |= {f"splitting {file}", "numbering the words", "making the model", "making queries and negatives"}
    assert expected <= set(seen) and all(seen.values()), seen
    capsys.readouterr()
