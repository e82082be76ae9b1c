"""A folder that can be taken elsewhere: the files of ``model/``, the weights, a model card; histories if asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from safetensors.torch import save

from negwise.errors import InputError, require
from negwise.files import new_folder
from negwise.inference.encoding import Floats
from negwise.inference.model_card import model_card
from negwise.inference.model_folder import ModelFolder
from negwise.records import ITEMS, TOKENIZER, USERS, read_checked, with_manifest
from negwise.records.checkpoint_records import WEIGHTS
from negwise.tasks.model_files import arrow_file

CARD, VECTORS = "README.md", "vectors"
ONNX = "encoder.onnx"


def export_model(
    home: ModelFolder,
    network: Any,
    folder: str | PathLike[str],
    *,
    vectors: tuple[Sequence[str], Floats] | None = None,
    onnx: bool = False,
    histories: bool = False,
) -> Path:
    """Write ``folder``, which must be new or empty; it is whole or absent. ``vectors`` are ids and vectors of items."""
    with new_folder(folder, "export") as temporary:
        _write(temporary, home, network, vectors, onnx, histories)
    return Path(folder)


def _write(
    folder: Path,
    home: ModelFolder,
    network: Any,
    vectors: tuple[Sequence[str], Floats] | None,
    onnx: bool,
    histories: bool,
) -> None:
    record = replace(
        home.record,
        outcome=home.outcome,
        example=home.record.example if histories else None,
        provenance=_without_folders(home.record.provenance),
    )
    files = {
        name: read_checked(home.files, name, home.record) for name in (TOKENIZER, ITEMS) if name in home.record.files
    }
    users = home.table(USERS)
    if users is not None:
        if histories and "history" not in users.column_names:
            raise InputError(f"histories: {home.path} has none: it was exported without them. Export from the run.")
        if histories:
            files[USERS] = read_checked(home.files, USERS, home.record)
        elif hasattr(network, "users"):  # it has a vector of each user, which their ids belong to
            files[USERS] = arrow_file({"id": users["id"]})
    elif histories:
        raise InputError(f"histories: {home.path} has none. Export from the run.")
    files[WEIGHTS] = save({name: values.cpu().contiguous() for name, values in network.state_dict().items()})
    for name, content in with_manifest(record, files).items():
        (folder / name).write_bytes(content)
    extras = []
    if vectors is not None:
        write_vectors(folder, *vectors)
        extras.append(f"`{VECTORS}.npy` and `{VECTORS}.parquet`: vectors of all items")
    if onnx:
        from negwise.inference.onnx_export import export_onnx

        extras.append(f"`{ONNX}`: {export_onnx(record, network, folder / ONNX)}")
    (folder / CARD).write_text(model_card(record, home.outcome, bool(files.get(USERS)) and histories, extras))


def _without_folders(provenance: dict[str, Any]) -> dict[str, Any]:
    """Files by their names alone: where they lay on this machine is nobody's business."""
    names = {name: PurePath(provenance[name]).name for name in ("data", "vectors") if provenance.get(name)}
    return {**provenance, **names}


def write_vectors(folder: Path, ids: Sequence[str], vectors: Floats) -> None:
    """``vectors.npy`` (N, D), and ``vectors.parquet`` with the columns ``id`` and ``vector``."""
    pa, parquet = require("pyarrow", extra="train"), require("pyarrow.parquet", extra="train")
    np.save(folder / f"{VECTORS}.npy", vectors, allow_pickle=False)
    flat = pa.array(vectors.reshape(-1), pa.float32())
    column = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    parquet.write_table(pa.table({"id": pa.array(ids, pa.string()), "vector": column}), folder / f"{VECTORS}.parquet")
