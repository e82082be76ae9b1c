"""A small world of news, texts and readers, with every kind of gap in it, and one small model of each kind."""

import numpy as np
import torch

from negwise.models import build
from negwise.protocols import Query

N_ITEMS, N_WORDS, N_USERS, N_CATEGORIES, N_SUBCATEGORIES = 40, 60, 33, 5, 7
EMPTY_TITLE, EMPTY_ABSTRACT, NO_CATEGORY, NOTHING = 3, 4, 5, 6

SMALL = {"dropout": 0.2, "embedding": 6, "pooling": 5}
HEADS = {"heads": 2, "head_dim": 4}
# A name, and settings that make it small; the second of a pair takes the other road.
CASES = {
    "nrms": ("nrms", {**SMALL, **HEADS}),
    "naml": ("naml", {**SMALL, "hidden": 8, "category_width": 3}),
    "lstur": ("lstur", {**SMALL, "hidden": 8, "category_width": 3}),
    "lstur-con": ("lstur", {**SMALL, "hidden": 9, "category_width": 3, "variant": "con"}),
    "siamese-transformer": ("siamese-transformer", {**SMALL, **HEADS}),
    "siamese-cnn": ("siamese-cnn", {**SMALL, "hidden": 8, "window": 5}),
    "siamese-lstm": ("siamese-lstm", {**SMALL, "hidden": 8}),
    "siamese-dot": ("siamese-cnn", {**SMALL, "hidden": 8, "temperature": None}),
    "bert4rec": ("bert4rec", {"dropout": 0.2, **HEADS, "max_len": 9}),
}
NEWS = ("nrms", "naml", "lstur", "lstur-con")
TEXTS = ("siamese-transformer", "siamese-cnn", "siamese-lstm", "siamese-dot")


def texts(rng, longest, empty=()):
    """(N_ITEMS, longest) numbers of words, 0 on the right; the last item is as long as can be."""
    length = rng.integers(1, longest + 1, N_ITEMS)
    length[list(empty)] = 0
    length[-1] = longest
    table = rng.integers(1, N_WORDS, (N_ITEMS, longest))
    return np.where(np.arange(longest) < length[:, None], table, 0).astype(np.int32)


def content(seed=0):
    rng = np.random.default_rng(seed)
    category = rng.integers(1, N_CATEGORIES, N_ITEMS)
    subcategory = rng.integers(1, N_SUBCATEGORIES, N_ITEMS)
    category[[NO_CATEGORY, NOTHING]] = subcategory[NOTHING] = 0
    title = texts(rng, 7, [EMPTY_TITLE, NOTHING])
    abstract = texts(rng, 9, [EMPTY_ABSTRACT, NOTHING])
    return {
        "title": title,
        "abstract": abstract,
        "left": title,
        "right": abstract,
        "category": category,
        "subcategory": subcategory,
        "n_words": N_WORDS,
        "n_categories": N_CATEGORIES,
        "n_subcategories": N_SUBCATEGORIES,
        "n_users": N_USERS,
        "n_items": N_ITEMS,
    }


def make(case, *, seed=0, shaken=True, data=None, **changes):
    """The case's model; ``shaken``: every weight drawn afresh, so that none is 0, not even a bias."""
    torch.manual_seed(seed)
    name, settings = CASES[case]
    model = build(name, content() if data is None else data, **{**settings, **changes})
    if shaken:
        with torch.no_grad():
            for weight in model.parameters():
                weight.copy_(0.7 * torch.randn(weight.shape) + 0.1)
            for module in model.modules():
                if isinstance(module, torch.nn.Embedding) and module.padding_idx is not None:
                    module.weight[module.padding_idx] = 0
    return model


def histories():
    """Clicked items of six readers: padding on the right, on the left, within, none, all, all but one."""
    items = torch.tensor(
        [[5, 9, 2, 0, 0], [0, 0, 7, 3, 3], [8, 0, 4, 0, 6], [1, 2, 9, 0, 11], [0, 0, 0, 0, 0], [0, 0, 0, 6, 0]]
    )
    mask = torch.tensor(
        [[1, 1, 1, 0, 0], [0, 0, 1, 1, 1], [1, 0, 1, 0, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [0, 0, 0, 1, 0]]
    ).bool()
    return Query(items, mask, torch.tensor([4, 0, 32, 7, 9, 1]))


EMPTY_ROW = 4


def queries(case):
    if case in TEXTS:
        items = torch.tensor([[0], [EMPTY_TITLE], [7], [N_ITEMS - 1], [12], [9]])
        mask = torch.tensor([[True], [True], [True], [True], [False], [True]])
        return Query(items * mask, mask, torch.arange(6))
    return histories()


def run(model, query, ids=None):
    """(candidates, queries) as a loop would have them: each candidate once, then looked up."""
    candidates = model.encode_candidates(torch.arange(N_ITEMS) if ids is None else ids)
    return candidates, model.encode_queries(query, lambda items: candidates[items])
