"""A small world for each model: the model, its examples, its sampler, and the work of a step on them."""

import numpy as np
import torch
from train_world import N_ITEMS, make_world

from negwise.draws import Key
from negwise.models import build
from negwise.protocols import Query
from negwise.samplers import Impression, Lists, Pool, Popularity, Uniform
from negwise.training.batches import draw_negatives, load_batch, plan_negatives
from negwise.training.forward_pass import StepInputs

PLACES = 6


def bert4rec(dropout=0.0):
    torch.manual_seed(0)
    return build("bert4rec", {"n_items": N_ITEMS}, heads=2, head_dim=4, max_len=PLACES, dropout=dropout, mask_rate=0.5)


def nrms():
    return texts("nrms")


SMALL = {
    "nrms": {"heads": 2, "head_dim": 4},
    "naml": {"hidden": 6, "category_width": 3},
    "lstur": {"hidden": 6, "category_width": 3, "user_mask_rate": 0.0},
    "siamese-transformer": {"heads": 2, "head_dim": 4},
    "siamese-cnn": {"hidden": 6},
    "siamese-lstm": {"hidden": 6},
}
MODELS = ("bert4rec", *SMALL)


def texts(name):
    """A small model that reads texts of up to five words."""
    torch.manual_seed(0)
    dice = np.random.default_rng(0)
    tables = ("left", "right") if name.startswith("siamese") else ("title", "abstract")
    content = {table: dice.integers(1, 30, (N_ITEMS, 5)) for table in tables} | {"n_words": 30, "n_users": N_ITEMS}
    for table, count in (("category", 4), ("subcategory", 6)):
        content |= {table: dice.integers(0, count, N_ITEMS)}
    content |= {"n_categories": 4, "n_subcategories": 6}
    return build(name, content, embedding=6, pooling=5, dropout=0.0, **SMALL[name])


class Pairs:
    """Item n's left side asks for its right side."""

    def __len__(self):
        return N_ITEMS

    def batch(self, indices):
        own = torch.as_tensor(indices)
        return Query(own[:, None], torch.ones(len(own), 1, dtype=torch.bool), own), own, own


class Sequences:
    """Rows of a few items each, whose owners are their own numbers."""

    def __init__(self, rows=96):
        dice = np.random.default_rng(1)
        self.mask = np.arange(PLACES) < dice.integers(1, PLACES + 1, rows)[:, None]
        self.items = dice.integers(0, N_ITEMS, (rows, PLACES)) * self.mask

    def __len__(self):
        return len(self.items)

    def batch(self, indices):
        users = torch.as_tensor(indices)
        query = Query(torch.from_numpy(self.items[indices]), torch.from_numpy(self.mask[indices]), users)
        return query, users, users


def world(name):
    """A model in float64, its examples, its sampler and how it hides."""
    if name == "bert4rec":
        model = bert4rec().double()
        return model, Sequences(), Popularity(torch.arange(N_ITEMS) + 1, 0.5), model.mask_items
    if name.startswith("siamese"):
        return texts(name).double(), Pairs(), Pool(Uniform(N_ITEMS), 12), None
    data = make_world(shown=True)
    lists = Lists(torch.from_numpy(data.impressions.offsets), torch.from_numpy(data.impressions.ids))
    return texts(name).double(), data.train, Impression(lists), None


def inputs_for(parts, step, k, rows=10, correct=False, lazy=False):
    model, examples, sampler, mask_items = parts
    key = Key(5, step)
    batch = load_batch(examples, np.arange(step, step + rows) % len(examples), slice(0, rows), key, mask_items)
    drawn = plan_negatives(sampler, batch, k, key) if lazy else draw_negatives(sampler, batch, k, key)
    return StepInputs.of(batch.query, batch.positives, drawn, model, N_ITEMS, correct)
