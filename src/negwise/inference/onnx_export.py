"""The encoder as ONNX, for runtimes without torch; checked against torch on inputs that the exporter did not see.

=====================  ========================================  ===========================================
model                  inputs                                    output
=====================  ========================================  ===========================================
siamese                ``tokens`` (N, L)                         vectors (N, D) of right texts
NRMS, NAML, LSTUR      ``title`` (N, L), and what else it reads  vectors (N, D) of news
BERT4Rec               ``items`` (B, H), ``mask`` (B, H)         vectors (B, D) of histories
=====================  ========================================  ===========================================

Token 0 is padding, on the right. Left texts of a siamese model are right ones divided by its temperature.
"""

from __future__ import annotations

import inspect
import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from negwise.errors import NegwiseError, require
from negwise.protocols import Query
from negwise.records import ModelRecord

TOLERANCE = 1e-4
SIZES = ((2, 5), (3, 4), (300, 9))
"""Rows and places of the example that is exported, then of those that are checked."""


class _Texts(nn.Module):
    def __init__(self, network: Any) -> None:
        super().__init__()
        self.words, self.encoder, self.temperature = network.words, network.encoder, network.temperature

    def forward(self, tokens: Tensor) -> Tensor:
        vectors: Tensor = self.encoder(*self.words(tokens))
        return vectors if self.temperature is None else nn.functional.normalize(vectors, dim=-1)


class _News(nn.Module):
    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.network.encode_news(*inputs)


class _Histories(nn.Module):
    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, items: Tensor, mask: Tensor) -> Tensor:
        users = torch.zeros_like(items[:, 0])
        return self.network.encode_queries(Query(items, mask, users), self.network.encode_candidates)


def export_onnx(record: ModelRecord, network: Any, path: Path) -> str:
    """Write the encoder to ``path``, check it, and say in words what it takes and gives."""
    require("onnx", extra="onnx")
    require("onnxscript", extra="onnx")
    runtime = require("onnxruntime", extra="onnx")
    network = network.cpu().eval()
    names = input_names(record, network)
    module = {"pairs": _Texts, "impressions": _News, "sequences": _Histories}[record.task](network)
    rng = np.random.default_rng(0)
    most = record.history if record.task == "sequences" else max(record.lengths.values())
    example, *fresh = (_inputs(names, record, rng, rows, min(places, most)) for rows, places in SIZES)
    try:
        with torch.no_grad(), _quiet():
            program: Any = torch.onnx.export(
                module.eval(), example, dynamo=True, input_names=list(names), output_names=["vectors"],
                dynamic_shapes=_shapes(names, record), verbose=False,
            )  # fmt: skip
            program.save(str(path))
    except Exception as error:
        raise NegwiseError(
            f"onnx: the exporter of torch {torch.__version__} cannot take {record.model} ({type(error).__name__}: "
            f"{str(error).splitlines()[0][:120]}). Export without it."
        ) from error
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    worst = max(_difference(session, module, names, inputs) for inputs in (example, *fresh))
    if not worst <= TOLERANCE:
        raise NegwiseError(
            f"onnx: on fresh inputs the vectors differ from torch's by {worst:.2g}, expected {TOLERANCE:g} or less. "
            "Export without it."
        )
    return f"{', '.join(names)} to vectors (N, D), checked against torch on fresh inputs"


def _difference(session: Any, module: nn.Module, names: tuple[str, ...], inputs: tuple[Tensor, ...]) -> float:
    """The largest difference of a value, infinite where even the shapes differ."""
    found = session.run(None, {name: values.numpy() for name, values in zip(names, inputs, strict=True)})[0]
    with torch.no_grad():
        expected = module(*inputs).numpy()
    return float(np.abs(found - expected).max()) if found.shape == expected.shape else math.inf


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter says of its own workings, as that torchvision is not installed."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnx_ir", "onnxscript")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def input_names(record: ModelRecord, network: Any) -> tuple[str, ...]:
    """The inputs of the encoder."""
    if record.task == "pairs":
        return ("tokens",)
    return ("items", "mask") if record.task == "sequences" else tuple(inspect.signature(network.encode_news).parameters)


def _inputs(
    names: tuple[str, ...], record: ModelRecord, rng: np.random.Generator, rows: int, places: int
) -> tuple[Tensor, ...]:
    """Random inputs, padded on the right."""
    lengths = rng.integers(1, places + 1, rows)
    lengths[0] = places
    inside = np.arange(places) < lengths[:, None]

    def one(name: str) -> Tensor:
        if name == "mask":
            return torch.from_numpy(inside)
        if name in ("category", "subcategory"):
            return torch.from_numpy(rng.integers(0, record.sizes[f"n_{name[:-1]}ies"], rows))
        highest = record.sizes["n_items" if name == "items" else "n_words"]
        return torch.from_numpy(np.where(inside, rng.integers(1, highest, (rows, places)), 0))

    return tuple(one(name) for name in names)


def _shapes(names: tuple[str, ...], record: ModelRecord) -> Any:
    """Rows and places vary; all inputs have the same rows."""
    rows = torch.export.Dim("rows", min=1, max=1 << 20)
    places = torch.export.Dim("places", min=1, max=record.history if record.task == "sequences" else 1 << 12)
    shapes = [{0: rows} if name in ("category", "subcategory") else {0: rows, 1: places} for name in names]
    return (tuple(shapes),) if record.task == "impressions" else tuple(shapes)
