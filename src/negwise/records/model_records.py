"""``model.json``: what a trained model is, beside its weights, so that it can be used where its data is not.

It lies in ``model/`` of a run and at the top of an exported folder, with these files beside it, by the kind of model:

====================  =======================================================================================
``tokenizer.json``    the words of a model that reads texts
``items.arrow``       ``id`` of each item; token ids of its texts and its categories, where the model reads them
``users.arrow``       ``id`` of each user, and ``history``, all items that the data had, as row numbers of the items
====================  =======================================================================================

It has the digest of each of them and of itself. It is written last: a folder that has it was whole once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from negwise.errors import InputError
from negwise.files import read_json
from negwise.records.checkpoint_records import digest_of, own_digest
from negwise.records.decoding import decode, encode
from negwise.records.run_records import Scores

MODEL, TOKENIZER, ITEMS, USERS = "model.json", "tokenizer.json", "items.arrow", "users.arrow"
ASSETS = "model"
"""The folder inside a run's of what makes the model usable without its data."""
MODEL_FORMAT = 1
"""Raised when a reader of before could misread a folder of now."""


@dataclass(frozen=True)
class Outcome:
    """What a run came to: ``scores`` on the test split, K at the end of training, and what set or bounded it.

    ``k_origin`` says in words how a job came to the rule for K; None where a run was trained on its own.
    """

    scores: Scores | None = None
    k: float | None = None
    k_reason: str | None = None
    k_origin: str | None = None
    steps: int | None = None
    best_step: int | None = None
    parameters: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class ModelRecord:
    """``model.json``. ``task`` is "pairs", "impressions" or "sequences"; ``settings`` are all arguments of the model.

    ``sizes`` are its counts, as ``n_items``. ``lengths`` are the words of a title and of a body that it sees,
    ``history`` the items of a user. ``categories`` are names by id, 0 for none. ``k`` is the rule as it was typed.
    ``provenance`` says what it was trained on and how. ``example`` is the id of a user with a history, for the lines
    that show how to use it. ``outcome`` is set in exported folders; a run has its own records for that.
    """

    model: str
    task: str
    settings: dict[str, Any]
    sizes: dict[str, int]
    lengths: dict[str, int]
    history: int
    metric: str
    k: str
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    example: str | None = None
    outcome: Outcome | None = None
    files: dict[str, str] = field(default_factory=dict)
    format: int = MODEL_FORMAT


def lines_of_use(run: Path, shown: str) -> str:
    """The lines that load the model ``shown``, whose run is ``run``, and use it."""
    lines = f"import negwise as nw\nmodel = nw.load({json.dumps(shown, ensure_ascii=False)})"
    try:
        return f"{lines}\n{line_of_use(read_model_record(run / ASSETS))}"
    except InputError:  # a run of before, or one that is not whole: whoever loads it is told
        return lines


def line_of_use(record: ModelRecord) -> str:
    """A line of Python that uses ``model``."""
    if record.task == "pairs":
        return 'model.search(["a question"], ["one text", "another text"], n=1)[0]'
    if record.example is None:
        return 'model.recommend(histories=[["item a", "item b"]], n=10)[0]'
    return f"model.recommend([{json.dumps(record.example, ensure_ascii=False)}], n=10)[0]"


def with_manifest(record: ModelRecord, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """``files``, and at the end ``model.json`` with ``record`` and the digest of each."""
    body = encode(record) | {"files": {name: digest_of(content) for name, content in files.items()}}
    return {**files, MODEL: json.dumps({**body, "digest": own_digest(body)}, ensure_ascii=False, indent=1).encode()}


def read_model_record(folder: Path) -> ModelRecord:
    """The ``model.json`` of ``folder``; one of another version, or that was changed, is refused."""
    path = folder / MODEL
    try:
        values = read_json(path)
    except InputError as error:
        raise InputError(
            f"{path}: it was changed or cut off since it was written, and is no JSON. Copy the folder again, whole."
        ) from error
    found = values.get("format") if isinstance(values, dict) else None
    if not isinstance(found, int):
        raise InputError(
            f"{path}: it says no format, expected {MODEL_FORMAT}. A negwise of before wrote it, whose models need "
            "their data. Train again with this one: the same command with another --out."
        )
    if found > MODEL_FORMAT:
        raise InputError(
            f"{path}: format {found}, expected {MODEL_FORMAT} or less. A newer negwise wrote it: install that version."
        )
    digest = values.pop("digest", None)
    if digest != own_digest(values):
        raise InputError(f"{path}: it was changed or cut off since it was written. Copy the folder again, whole.")
    return decode(ModelRecord, values, str(path))


def read_checked(folder: Path, name: str, record: ModelRecord) -> bytes:
    """The file ``name`` of ``record``, whose content is what was written."""
    path = folder / name
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}, but {MODEL} names it. Copy the folder again, whole.") from error
    if digest_of(content) != record.files[name]:
        raise InputError(f"{path}: {len(content):,} bytes that were cut off or changed. Copy the folder again, whole.")
    return content
