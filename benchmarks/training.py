"""A training step and an evaluation, beside the usual ways to write them. One thread, float32.

- Step: NRMS at the paper's size on MIND's shapes: titles of 30 words, histories of 50 places, K = 4. The usual way is
  the same model and the same negatives, with the title of every slot encoded: B * (50 + 1 + 4) of them. Histories
  and impressions are those of MIND where it is there (NEGWISE_DATA, or shared/data beside the checkout), else drawn
  with its lengths and a popularity of news like its own (Zipf).
- Memory: a siamese transformer at K = 180, a pool of candidates for the step against K texts encoded for each row; each
  in a process of its own.
- Evaluation: impressions of about 37 news, vectors at hand, against a loop over impressions with scikit-learn.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import ndcg_score, roc_auc_score
from torch import Tensor, nn

from benchmarks import data
from benchmarks.table import Row, peak_extra_mb, seconds
from negwise.draws import Key
from negwise.losses import info_nce
from negwise.metrics.model_ranking import ImpressionRanking
from negwise.models import build
from negwise.protocols import Negatives, Query
from negwise.samplers import Pool, Uniform
from negwise.tasks import evaluate_model
from negwise.training.forward_pass import StepInputs, TrainingStep

HISTORY, WORDS, K = 50, 30, 4
BATCHES = (32, 512)
MEMORY = {"batch": 32, "k": 180, "pool": 512, "items": 20_000, "words": 30}
IMPRESSIONS, SHOWN, LOOPED = 20_000, 37, 1_000


@dataclass(frozen=True)
class Feed:
    """What a step gets: (B, H) histories, positives (B,), negatives (B, K), and the titles (n_items, L)."""

    query: Query
    positives: Tensor
    negatives: Negatives
    titles: NDArray[Any]
    n_words: int
    real: bool


def mind() -> Path | None:
    """The folder with MIND's own files, where there is one."""
    behaviors = data.find("mind/behaviors.tsv")
    return None if behaviors is None else behaviors.parent


def feed(batch: int) -> Feed:
    folder = mind()
    return _drawn(batch) if folder is None else _read(folder, batch)


def _read(folder: Path, batch: int) -> Feed:
    from negwise.datasets import prepare, read
    from negwise.samplers import Impression, Lists
    from negwise.tasks import tokenize

    task = prepare(read(folder), split="user")
    texts = tokenize(task)
    assert texts is not None and task.negatives is not None
    rows = np.random.default_rng(0).permutation(len(task.train))[:batch]
    query, positives, groups = task.train.batch(rows)
    lists = Lists(torch.from_numpy(task.negatives.offsets), torch.from_numpy(task.negatives.ids))
    negatives = Impression(lists)(positives, K, Key(0, 0), owner=groups)
    return Feed(query, positives, negatives, texts.tokens["title"], len(texts.tokenizer), True)


def _drawn(batch: int) -> Feed:
    rng = np.random.default_rng(0)
    n_items, n_words = 50_000, 30_000
    weight = 1 / np.arange(1, n_items + 1)
    news = rng.choice(n_items, (batch, HISTORY + 1 + K), p=weight / weight.sum())
    length = np.minimum(rng.geometric(1 / 30, batch), HISTORY)
    mask = np.arange(HISTORY) < length[:, None]
    query = Query(torch.from_numpy(news[:, :HISTORY] * mask), torch.from_numpy(mask), torch.arange(batch))
    ids = torch.from_numpy(news[:, HISTORY + 1 :])
    titles = rng.integers(1, n_words, (n_items, WORDS)) * (np.arange(WORDS) < rng.integers(5, 16, n_items)[:, None])
    drawn = Negatives(ids, torch.ones_like(ids, dtype=torch.bool))
    return Feed(query, torch.from_numpy(news[:, HISTORY]), drawn, titles, n_words, False)


def nrms(given: Feed) -> nn.Module:
    torch.manual_seed(0)
    return build("nrms", {"title": given.titles, "n_words": given.n_words}, dropout=0.0)


def usual(model: Any, given: Feed) -> Tensor:
    """The loss with all words of the title of every slot encoded."""
    batch, depth = len(given.positives), given.negatives.ids.shape[1]
    slots = torch.cat([given.query.items, given.positives[:, None], given.negatives.ids], 1)
    words = model.words(model.title[slots.flatten()])  # (slots, 30, ...), padding and all
    vectors = model.news(*words).view(batch, HISTORY + 1 + depth, -1)
    asked = model.encode_queries(given.query, lambda _: vectors[:, :HISTORY])
    return info_nce(asked, vectors[:, HISTORY], vectors[:, HISTORY + 1 :], mask=given.negatives.mask).loss


def distinct(step: TrainingStep, given: Feed) -> Tensor:
    """The loss as the loop has it."""
    asked = StepInputs.of(given.query, given.positives, given.negatives, step.model, len(given.titles))
    return step(asked)[0].mean()


def learn(model: nn.Module, loss: Callable[[], Tensor], curve: list[float]) -> Callable[[], object]:
    """A call that takes one step of Adam and adds the loss before it to ``curve``."""
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)

    def step() -> None:
        value = loss()
        optimizer.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        curve.append(value.item())

    return step


def steps(batch: int) -> list[Row]:
    given = feed(batch)
    ours, theirs = nrms(given), nrms(given)
    step = TrainingStep(ours)
    mine: list[float] = []
    its: list[float] = []
    calls = {
        "distinct": learn(ours, lambda: distinct(step, given), mine),
        "usual": learn(theirs, lambda: usual(theirs, given), its),
    }
    spent = seconds(calls, repeats=5 if batch < 100 else 2)
    apart = max(abs(a - b) / b for a, b in zip(mine, its, strict=True))
    work = f"NRMS step, batch {batch}, K={K}, {'MIND' if given.real else 'drawn like MIND'}"
    return [
        Row(work, "every slot encoded / distinct news", spent["usual"] / spent["distinct"], 3.0),
        Row(work, f"losses of {len(its)} steps apart (relative)", apart, 1e-4, "lower", ""),
    ]


def memory_case(name: str) -> float:
    """Peak MB of one step of a siamese transformer, by a pool or row by row."""
    rng = np.random.default_rng(0)
    texts = rng.integers(1, 1000, (MEMORY["items"], MEMORY["words"]))
    torch.manual_seed(0)
    model: Any = build("siamese-transformer", {"left": texts, "right": texts, "n_words": 1000}, dropout=0.0)
    batch = MEMORY["batch"]
    positives = torch.arange(batch)
    query = Query(positives[:, None], torch.ones(batch, 1, dtype=torch.bool), positives)
    sampler = Pool(Uniform(MEMORY["items"]), MEMORY["pool"])
    drawn = sampler(positives, MEMORY["k"], Key(0, 0))
    step = TrainingStep(model)

    def by_pool() -> None:
        step(StepInputs.of(query, positives, drawn, model, MEMORY["items"]))[0].mean().backward()

    def by_row() -> None:
        negatives = model.encode_candidates(drawn.ids.flatten()).view(batch, MEMORY["k"], -1)
        asked = model.encode_queries(query, lambda ids: ids)
        info_nce(asked, model.encode_candidates(positives), negatives, mask=drawn.mask).loss.backward()  # type: ignore[no-untyped-call]

    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    return peak_extra_mb({"pool": by_pool, "row": by_row}[name])


def memory() -> list[Row]:
    peaks = {}
    for name in ("pool", "row"):
        command = [sys.executable, "-m", "benchmarks.training", name]
        peaks[name] = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    work = f"siamese transformer step, batch {MEMORY['batch']}, K={MEMORY['k']}"
    share = 100 * peaks["pool"] / peaks["row"]
    measure = f"peak memory, Pool({MEMORY['pool']}) ({peaks['pool']:,.0f} MB) / K a row ({peaks['row']:,.0f} MB)"
    return [Row(work, measure, share, 20.0, "lower", "%")]


class Vectors(nn.Module):
    """Vectors at hand: what is measured is the evaluation, not an encoder."""

    needs_items = False

    def __init__(self, users: int, items: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.users, self.items = nn.Embedding(users, 256), nn.Embedding(items, 256)

    def encode_candidates(self, ids: Tensor) -> Tensor:
        return self.items(ids)

    def encode_queries(self, query: Query, item_vectors: Callable[[Tensor], Tensor]) -> Tensor:  # noqa: ARG002
        return self.users(query.users)


@dataclass(frozen=True)
class Asking:
    """Impression r is asked by user r."""

    positives: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.positives)

    def batch(self, indices: NDArray[np.int64], /) -> tuple[Query, Tensor, Tensor]:
        users = torch.from_numpy(indices)
        query = Query(users[:, None] * 0, torch.ones(len(users), 1, dtype=torch.bool), users)
        return query, torch.from_numpy(self.positives[indices]), users


@dataclass(frozen=True)
class Lists:
    offsets: NDArray[np.int64]
    ids: NDArray[np.int64]


def evaluation() -> list[Row]:
    rng = np.random.default_rng(0)
    sizes = np.clip(rng.geometric(1 / SHOWN, IMPRESSIONS), 2, 300)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    ids = rng.integers(0, 20_000, offsets[-1])
    labels = np.zeros(offsets[-1], np.int8)
    labels[offsets[:-1] + rng.integers(0, sizes)] = 1
    every = np.arange(IMPRESSIONS)
    split = ImpressionRanking(Asking(ids[labels == 1]), every, every, Lists(offsets, ids), labels)
    few = np.arange(LOOPED)
    part = ImpressionRanking(split.examples, few, few, split.impressions, labels)
    model = Vectors(IMPRESSIONS, 20_000)
    users, items = (table.weight.detach().numpy() for table in (model.users, model.items))

    def loop() -> NDArray[np.float64]:
        found = []
        for row in range(LOOPED):
            here = slice(offsets[row], offsets[row + 1])
            scores, truth = items[ids[here]] @ users[row], labels[here]
            rank = np.argsort(np.argsort(-scores))[truth == 1] + 1
            ndcg = [ndcg_score([truth], [scores], k=k) for k in (5, 10)]
            found.append([roc_auc_score(truth, scores), *ndcg, np.mean(1 / rank)])
        return np.mean(found, axis=0)

    spent = seconds({"ours": lambda: evaluate_model(model, split), "loop": loop}, repeats=3)
    tally = evaluate_model(model, part)
    mine = [tally[name].value for name in ("auc_query", "ndcg@5", "ndcg@10", "mrr")]
    apart = float(np.abs(np.array(mine) - loop()).max())
    work = f"evaluation of impressions of {SHOWN} news"
    ratio = (spent["loop"] / LOOPED) / (spent["ours"] / IMPRESSIONS)
    return [
        Row(
            work, f"a loop with scikit-learn / negwise ({IMPRESSIONS / spent['ours']:,.0f} impressions/s)", ratio, 20.0
        ),
        Row(work, "metrics apart", apart, 1e-6, "lower", ""),
    ]


def run() -> list[Row]:
    torch.set_num_threads(1)
    return [*(row for batch in BATCHES for row in steps(batch)), *memory(), *evaluation()]


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(memory_case(sys.argv[1]))
