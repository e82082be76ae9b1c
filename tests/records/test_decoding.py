"""The decoder against plain JSON: every type that records use, and what is wrong by its place."""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from negwise.errors import InputError
from negwise.records import FORMAT, Results, RunResult, decode, encode, read_record, write_record


@dataclass(frozen=True)
class Inner:
    name: str
    size: float | None = None


@dataclass(frozen=True)
class Outer:
    number: int
    share: float
    on: bool
    state: Literal["done", "failed"]
    pair: tuple[int, str]
    inners: tuple[Inner, ...] = ()
    table: dict[str, Inner] = field(default_factory=dict)
    anything: dict[str, Any] = field(default_factory=dict)
    format: int = FORMAT


GOOD = {
    "number": 3, "share": 1, "on": True, "state": "done", "pair": [1, "a"],
    "inners": [{"name": "x"}, {"name": "y", "size": 0.5}], "table": {"z": {"name": "z", "size": None}},
    "anything": {"a": [1, {"b": None}]},
}  # fmt: skip


def test_what_is_right_comes_back():
    found = decode(Outer, GOOD, "here")
    assert found == Outer(
        3, 1, True, "done", (1, "a"), (Inner("x"), Inner("y", 0.5)), {"z": Inner("z")}, {"a": [1, {"b": None}]}
    )
    assert decode(Outer, json.loads(json.dumps(encode(found))), "here") == found
    assert decode(Outer, {**GOOD, "unknown": 1, "inners": [{"name": "x", "more": 2}]}, "here").inners == (Inner("x"),)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"number": 1.5}, "here: number is 1.5, expected a whole number"),
        ({"number": True}, "number is True, expected a whole number"),
        ({"share": "1"}, "share is '1', expected a number"),
        ({"share": None}, "share is None, expected a number"),
        ({"on": 1}, "on is 1, expected true or false"),
        ({"state": "open"}, "state is 'open', expected 'done' or 'failed'"),
        ({"pair": [1]}, r"pair is \[1\], expected a list of 2"),
        ({"pair": [1, 2]}, r"pair\[1\] is 2, expected text"),
        ({"inners": {}}, r"inners is \{\}, expected a list"),
        ({"inners": [{"size": 1}]}, r"inners\[0\]\.name is missing, expected a value"),
        ({"table": {"z": 3}}, r"table\.z is 3, expected an object"),
        ({"anything": []}, r"anything is \[\], expected an object"),
    ],
)
def test_what_is_wrong_is_named_by_its_place(change, said):
    with pytest.raises(InputError, match=said) as caught:
        decode(Outer, {**GOOD, **change}, "here")
    assert "Restore the file" in str(caught.value)


def test_a_field_that_is_missing(tmp_path):
    with pytest.raises(InputError, match="state is missing"):
        decode(Outer, {name: value for name, value in GOOD.items() if name != "state"}, "here")
    with pytest.raises(InputError, match="its content is 3, expected an object"):
        decode(Outer, 3, "here")
    file = tmp_path / "a.json"
    for text, said in (("{", "line 1: not JSON"), ('{"number": NaN}', "NaN is no number"), ("[" * 10**5, "not JSON")):
        file.write_text(text)
        with pytest.raises(InputError, match=said):
            read_record(Outer, file)


def test_a_newer_format_is_refused_and_files_are_whole(tmp_path):
    path = write_record(tmp_path / "new" / "outer.json", decode(Outer, GOOD, "here"))
    assert read_record(Outer, path) == decode(Outer, GOOD, "here")
    path.write_text(json.dumps({**GOOD, "format": FORMAT + 1}))
    with pytest.raises(InputError, match="written by a newer negwise"):
        read_record(Outer, path)


@pytest.mark.parametrize("kind", [RunResult, Results])
def test_every_record_says_its_format(kind):
    assert kind.__dataclass_fields__["format"].default == FORMAT
