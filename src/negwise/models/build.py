"""Builds any model by name, from plain arrays."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from torch import nn

from negwise.errors import InputError
from negwise.models.bert4rec import BERT4Rec
from negwise.models.lstur import LSTUR
from negwise.models.naml import NAML
from negwise.models.nrms import NRMS
from negwise.models.siamese import siamese_cnn, siamese_lstm, siamese_transformer

MODELS: Mapping[str, Callable[..., nn.Module]] = MappingProxyType(
    {
        "nrms": NRMS,
        "naml": NAML,
        "lstur": LSTUR,
        "siamese-transformer": siamese_transformer,
        "siamese-cnn": siamese_cnn,
        "siamese-lstm": siamese_lstm,
        "bert4rec": BERT4Rec,
    }
)
"""Every model by name."""


def build(name: str, content: Mapping[str, Any], **settings: Any) -> Any:
    """The model ``name``, built from the entries of ``content`` that it needs; ``settings`` override the defaults.

    ``content`` may hold more than the model needs: ``title``, ``abstract``, ``left``, ``right`` (n_items, L) token ids;
    ``category``, ``subcategory`` (n_items,); ``n_words``, ``n_users``, ``n_items``; ``n_categories`` and
    ``n_subcategories``, which default to the largest id + 1; ``vectors`` (n_words, E).

    >>> build("bert4rec", {"n_items": 100}, layers=1).mask_id
    100
    """
    if name not in MODELS:
        close = difflib.get_close_matches(name, MODELS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise InputError(f"no model {name!r}{hint} The models are {', '.join(MODELS)}")
    parameters = inspect.signature(MODELS[name]).parameters
    given = {**_counts(content), **content}
    wanted = [word for word, parameter in parameters.items() if parameter.default is parameter.empty]
    missing = [word for word in wanted if given.get(word) is None]
    if missing:
        there = ", ".join(sorted(word for word, value in given.items() if value is not None)) or "nothing"
        raise InputError(f"{name} needs {', '.join(missing)}; the content has {there}")
    options = [word for word in parameters if word not in wanted]
    unknown = [word for word in settings if word not in options]
    if unknown:
        raise InputError(f"{name} has no setting {', '.join(unknown)}; it has {', '.join(options)}")
    if "vectors" in options and given.get("vectors") is not None:
        settings = {"vectors": given["vectors"], **settings}
    return MODELS[name](**{word: given[word] for word in wanted}, **settings)


def _counts(content: Mapping[str, Any]) -> dict[str, int]:
    """The numbers of categories, from the largest id in use."""
    pairs = (("n_categories", "category"), ("n_subcategories", "subcategory"))
    return {
        count: int(np.max(np.asarray(content[ids]))) + 1
        for count, ids in pairs
        if content.get(ids) is not None and len(content[ids])
    }
