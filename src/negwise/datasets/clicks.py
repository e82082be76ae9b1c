r"""``clicks``: simulated impressions with known click probabilities, and therefore a known label separation.

User u and item i have vectors; their affinity is :math:`s_{ui} = \langle x_u, y_i \rangle` with :math:`|x_u| = 1` and
:math:`y_i \sim N(0, I)`, so that the affinities of a user are standard normal. A shown item is clicked if

.. math:: s_{ui} + \sigma_u \varepsilon > c, \qquad p_{ui} = P(\text{click}) = 1 - F\bigl((c - s_{ui}) / \sigma_u\bigr)

with noise of distribution F. No scorer beats the affinity itself, so the AUC of the affinity is the quality of the
labels. U users, I items, N impressions of S shown items.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr, ndtri, stdtr

from negwise.datasets.impression_lists import Impressions
from negwise.datasets.impressions import impression_task
from negwise.datasets.ragged import Ragged, offsets_of
from negwise.datasets.splits import SplitSizes
from negwise.datasets.task_data import TaskData, TaskTexts, Texts
from negwise.errors import InputError

Floats = NDArray[np.float64]

SHAPES: dict[str, Callable[[Floats], Floats]] = {
    "gaussian": ndtr,
    "logistic": lambda x: expit(x * np.pi / np.sqrt(3.0)),  # unit variance
    "heavy": lambda x: stdtr(3.0, x * np.sqrt(3.0)),  # Student's t with 3 degrees of freedom, unit variance
    "users": ndtr,
}
"""Distribution functions of the noise. "users": Gaussian, with a scale per user, log-normal around ``noise``."""

USER_SPREAD = 0.75
"""Standard deviation of the log of a user's noise scale, for ``shape="users"``."""

BINS = 8
"""Words per dimension: the text of an item names the eighth of the normal distribution of each coordinate."""

USERS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class ClickWorld:
    """Vectors ``users`` (U, D) and ``items`` (I, D), noise ``scales`` (U,), ``threshold`` c, and ``impressions``."""

    shape: str
    noise: float
    seed: int
    users: Floats
    items: Floats
    scales: Floats
    threshold: float
    impressions: Impressions

    def affinity(self, users: NDArray[np.int64]) -> Floats:
        """(B, I) affinities of these users with every item: the best possible scores."""
        return self.users[users] @ self.items.T

    def probability(self, users: NDArray[np.int64]) -> Floats:
        """(B, I) true probabilities that these users click an item when it is shown."""
        return _probability(self.affinity(users), self.scales[users, None], self.threshold, self.shape)

    @cached_property
    def auc(self) -> float:
        r"""The expected AUC of the affinity: over positives, the mean share of the impression's non-clicks below.

        For one user: :math:`\sum_{i \ne j} p_i (1 - p_j) [s_i > s_j] / \sum_{i \ne j} p_i (1 - p_j)`, as no item is
        shown twice. A user's weight is the expected number of clicks in impressions that also have a non-click,
        :math:`\pi_u (1 - \pi_u^{S-1})` for each impression, up to a term of order 1 / I in this weight only.
        """
        size = float(self.impressions.shown.lengths[0])
        shown = np.bincount(self.impressions.users, minlength=len(self.users))
        total = weight = 0.0
        for these in _chunks(len(self.users)):
            affinity, p = self.affinity(these), self.probability(these)
            sorted_p = np.take_along_axis(p, np.argsort(affinity, 1), 1)
            missed = 1.0 - sorted_p
            below = np.cumsum(missed, 1) - missed
            of_two = p.sum(1) * (1.0 - p).sum(1) - (p * (1.0 - p)).sum(1)
            of_user = (sorted_p * below).sum(1) / np.maximum(of_two, 1e-300)
            rate = p.mean(1)
            share = shown[these] * rate * (1.0 - rate ** (size - 1.0))
            total, weight = total + float(share @ of_user), weight + float(share.sum())
        return min(total / weight, 1.0)  # rounding of the sums

    @property
    def separation(self) -> float:
        r"""The label separation :math:`\mu = \sqrt2\,\Phi^{-1}(\mathrm{AUC})` (eq. 7); infinite without noise."""
        return float(np.sqrt(2.0) * ndtri(self.auc))

    def task(self, *, split: str = "user", shares: SplitSizes | None = None, history: int = 50) -> TaskData:
        """The task. Texts name the eighth of each coordinate, so that text models can learn the affinities."""
        task = impression_task(self.impressions, split, shares or SplitSizes(), history, self.seed, "clicks")
        return replace(task, texts=_texts(self.items), digest=self.digest)

    @cached_property
    def digest(self) -> str:
        """A hash of all data that training uses."""
        data, digest = self.impressions, hashlib.sha256()
        seen = (data.users, data.clicked, data.shown.offsets, data.shown.ids, data.labels, _bins(self.items))
        for part in seen if data.times is None else (*seen, data.times):
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()[:32]


def clicks(
    *,
    noise: float = 0.5,
    shape: str = "gaussian",
    users: int = 1000,
    items: int = 1000,
    impressions: int = 10_000,
    shown: int = 20,
    history: int = 30,
    click_rate: float = 0.1,
    dimensions: int = 8,
    days: int = 14,
    seed: int = 0,
) -> ClickWorld:
    """Simulate clicks. ``noise`` sets their noise (0: clicks follow affinity alone); ``shape`` is one of `SHAPES`.

    Impressions show ``shown`` distinct items, drawn uniformly. Histories are drawn by the true click probabilities. The
    threshold is set so that a shown item is clicked with probability ``click_rate`` on average.
    """
    _check(noise, shape, users, items, impressions, shown, history, click_rate, dimensions, days)
    random = np.random.Generator(np.random.PCG64(seed))
    user_vectors = random.standard_normal((users, dimensions))
    user_vectors /= np.linalg.norm(user_vectors, axis=1, keepdims=True)
    item_vectors = random.standard_normal((items, dimensions))
    spread = random.standard_normal(users) * (USER_SPREAD if shape == "users" else 0.0)
    scales = noise * np.exp(spread)
    threshold = _threshold(user_vectors, item_vectors, scales, shape, click_rate)

    def probability(these: NDArray[np.int64]) -> Floats:
        return _probability(user_vectors[these] @ item_vectors.T, scales[these, None], threshold, shape)

    histories = np.concatenate([_draw_distinct(random, probability(these), history) for these in _chunks(users)])
    owner = np.sort(random.integers(0, users, impressions))
    lists = np.concatenate([_draw_distinct(random, np.ones((len(c), items)), shown) for c in _chunks(impressions)])
    affinity = np.einsum("nd,nsd->ns", user_vectors[owner], item_vectors[lists])
    click_probability = _probability(affinity, scales[owner, None], threshold, shape)
    labels = (random.random(click_probability.shape) < click_probability).astype(np.int8)
    data = Impressions(
        users=owner,
        times=random.integers(0, days * 86_400_000, impressions),
        clicked=histories.reshape(-1),
        start=owner * history,
        end=(owner + 1) * history,
        shown=Ragged(offsets_of(np.full(impressions, shown)), lists.reshape(-1)),
        labels=labels.reshape(-1),
        labelled=np.ones(impressions, bool),
        n_users=users,
        n_items=items,
    )
    return ClickWorld(shape, noise, seed, user_vectors, item_vectors, scales, threshold, data)


def _probability(affinity: Floats, scale: Floats, threshold: float, shape: str) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        z = (affinity - threshold) / scale
    # F is symmetric: 1 - F(-x) = F(x). Without noise x is infinite, and exactly at the threshold there is no click.
    return SHAPES[shape](np.nan_to_num(z, nan=-np.inf, posinf=np.inf, neginf=-np.inf))


def _threshold(user_vectors: Floats, item_vectors: Floats, scales: Floats, shape: str, rate: float) -> float:
    from scipy.optimize import brentq  # slow to import, and only needed here

    few = np.linspace(0, len(user_vectors) - 1, min(len(user_vectors), USERS_AT_ONCE)).astype(np.int64)
    affinity, scale = user_vectors[few] @ item_vectors.T, scales[few, None]
    edge = float(np.abs(affinity).max() + 1e3 * max(float(scale.max()), 1.0))
    return float(brentq(lambda c: _probability(affinity, scale, c, shape).mean() - rate, -edge, edge, xtol=1e-9))


def _draw_distinct(random: np.random.Generator, weight: Floats, n: int) -> NDArray[np.int64]:
    """(B, n) distinct columns of each row, drawn by ``weight`` without replacement (exponential races)."""
    with np.errstate(divide="ignore", over="ignore"):
        finish = random.standard_exponential(weight.shape) / weight
    first = np.argpartition(finish, n - 1, axis=1)[:, :n]
    if np.isinf(np.take_along_axis(finish, first, 1)).any():
        raise InputError(
            f"history={n}: a user clicks fewer items than that. Lower history, or raise click_rate or items."
        )
    return np.take_along_axis(first, np.argsort(np.take_along_axis(finish, first, 1), 1), 1)


def _chunks(n: int) -> Iterator[NDArray[np.int64]]:
    return (np.arange(at, min(at + USERS_AT_ONCE, n)) for at in range(0, n, USERS_AT_ONCE))


def _bins(items: Floats) -> NDArray[np.int64]:
    """(I, D) the eighth of the normal distribution in which each coordinate lies."""
    return np.minimum((ndtr(items) * BINS).astype(np.int64), BINS - 1)


def _texts(items: Floats) -> TaskTexts:
    """A word for each coordinate, "d3b7" where number 3 lies in eighth 7; the category is the strongest coordinate."""
    n_items, dimensions = items.shape
    words = [f"d{dimension}b{number}" for dimension in range(dimensions) for number in range(BINS)]
    ids = np.arange(dimensions) * BINS + _bins(items)
    strings = [" ".join(words[at] for at in row) for row in ids]
    texts = Texts(strings, Ragged(np.arange(n_items + 1) * dimensions, ids.ravel()), words)
    strongest = np.abs(items).argmax(1)
    upward = np.take_along_axis(items, strongest[:, None], 1)[:, 0] > 0
    category, subcategory = strongest + 1, 2 * strongest + upward + 1
    return TaskTexts(
        {"title": texts, "body": texts},
        np.arange(n_items),
        {"category": category.astype(np.int32), "subcategory": subcategory.astype(np.int32)},
        {
            "category": ("", *(f"d{dimension}" for dimension in range(dimensions))),
            "subcategory": ("", *(f"d{dimension}{sign}" for dimension in range(dimensions) for sign in "-+")),
        },
        ("<pad>", "<unk>", *words),
    )


def _check(
    noise: float, shape: str, users: int, items: int, impressions: int, shown: int, history: int, rate: float,
    dimensions: int, days: int,
) -> None:  # fmt: skip
    if shape not in SHAPES:
        raise InputError(f"shape={shape!r}, expected one of {', '.join(SHAPES)}")
    if not 0 <= noise < np.inf:
        raise InputError(f"noise={noise!r}, expected a number, 0 or more")
    if not 0 < rate < 1:
        raise InputError(f"click_rate={rate!r}, expected a probability between 0 and 1")
    if min(users, impressions, history, dimensions, days) < 1 or not 2 <= shown <= items or history > items:
        raise InputError(
            f"users={users}, items={items}, impressions={impressions}, shown={shown}, history={history}, "
            f"dimensions={dimensions}, days={days}: expected 1 or more each, 2 <= shown <= items, history <= items"
        )
