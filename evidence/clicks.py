r"""A world with known truth: predicted against measured best K, and what each assumption of the framework costs.

The affinity of a world is the best score there is. Of a positive, let :math:`u_A` be the share of its own impression's
non-clicks with a lower affinity, :math:`u_B` with a lower model score, :math:`u_{AB}` with both. K negatives drawn from
them all stand below the positive with probability :math:`u^K`, so that P(A), P(B) and P(A and B) are means of
powers: no Gaussian, no independence. P positives, T evaluations of the pilot.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evidence.protocol import Protocol
from evidence.provenance import code
from evidence.record import Record, rounded
from evidence.tasks import EvidenceTask, base_training, sized
from negwise import metrics
from negwise.datasets import ClickWorld, clicks
from negwise.files import lock_folder, write_atomically, write_json
from negwise.jobs import fit_task, machine, parallelism, versions
from negwise.records import read_result, read_run
from negwise.requests import TrainRequest
from negwise.tasks import evaluation_splits, make_task

Floats = NDArray[np.float64]

SIZE: dict[str, Any] = {"users": 400, "items": 500, "impressions": 4000, "shown": 50, "history": 40, "dimensions": 4}
WORLDS: tuple[dict[str, Any], ...] = (
    *({"shape": "gaussian", "noise": noise} for noise in (0.15, 0.3, 0.6, 1.0, 2.0, 4.0)),
    *({"shape": shape, "noise": 1.0} for shape in ("logistic", "heavy", "users")),
)
"""Six levels of noise, and at one level three shapes that are not Gaussian."""
TASK = EvidenceTask(
    name="clicks",
    of="clicks",
    what="Simulated clicks",
    where="(a small one) in worlds with known truth",
    models=("nrms",),
    fields={"split": "user", "settings": {"heads": 4, "head_dim": 8, "embedding": 32, "pooling": 32}},
    size={"batch_size": 64, "title_words": 4, "history": 40},
    peaks=(),
    ks=(1, 2, 4, 8, 16, 32),
    rate=6e-3,
    steps=720,
    judges=3,
    top_n="ndcg@10",
)
TRUTH_KS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)


def world_name(world: Mapping[str, Any]) -> str:
    return f"{world['shape']}-{world['noise']:g}"


def reproduce_clicks(
    out: str | Path,
    *,
    k: tuple[int, ...] | None = None,
    seeds: int | None = None,
    steps: int | None = None,
    worlds: Sequence[Mapping[str, Any]] = WORLDS,
    jobs: int | None = None,
    tell: Callable[[str], None] = print,
) -> list[Path]:
    """Every world by the protocol without schedules, on the CPU; writes ``clicks.json`` of what is done."""
    folder = Path(out)
    task = sized(TASK, k, seeds, steps)
    number = tuple(range(task.seeds))
    side_by_side, _ = parallelism(jobs, "cpu", len(task.ks) * task.seeds)
    sizes = [{**SIZE, **world} for world in worlds]
    protocols = []
    for world, size in zip(worlds, sizes, strict=True):
        more = {"world": size, "history": size["history"], "title_words": size["dimensions"]}
        base = base_training(task, "clicks", vectors=None, device="cpu", more=more)
        protocols.append(Protocol(folder / world_name(world), task, base, task.ks, number, side_by_side))
    made: list[Record] = []
    with lock_folder(folder, "job"):
        for protocol in protocols:
            protocol.check()
        try:
            for protocol, size in zip(protocols, sizes, strict=True):
                tell(f"clicks: {protocol.out.name}")
                protocol.run(tell)
                made.append(_record(protocol, size))
        finally:
            if made:
                write_json(folder / "clicks.json", _whole(task, number, made))
    return [folder / "clicks.json"]


def _whole(task: EvidenceTask, seeds: Sequence[int], worlds: Sequence[Record]) -> Record:
    """The record of these worlds."""
    return {
        "task": task.name,
        "title": task.title,
        "code": code(),
        "versions": versions(),
        "machine": machine("cpu"),
        "steps": task.steps,
        "seeds": list(seeds),
        "ks": list(task.ks),
        "top_n": task.top_n,
        "worlds": rounded(worlds),
    }


def _record(protocol: Protocol, size: Mapping[str, Any]) -> Record:
    """What came out of one world."""
    world = clicks(**size)
    arms = []
    for k in protocol.fixed:
        found = [read_result(protocol.folder(str(k), seed)) for seed in protocol.seeds]
        runs = [result.evaluations for result in found if result is not None]
        arms.append(
            {
                "k": k,
                "val": [scores["val"].auc for scores in runs],
                "test": [scores["test"].auc for scores in runs],
                "test_top": [scores["test"].metrics[TASK.top_n] for scores in runs],
            }
        )
    return {
        "world": dict(size),
        "digest": world.digest,
        "label_auc": world.auc,
        "label_separation": world.separation,
        "k_star": protocol.k_star,
        "k_best": protocol.k_best,
        "rates": {str(k): protocol.rate_near(k) for k in protocol.tuned_ks},
        "estimate": {
            name: value
            for name, value in protocol.estimate.to_dict().items()
            if name in ("k", "k_int", "flat", "interval", "verdict", "basis", "label_separation", "horizon", "k_by_lam")
        },
        "arms": arms,
        "truth": truth_of(protocol, world),
    }


@dataclass(eq=False)
class Watched:
    """A split that remembers the scores of each evaluation; in all else the split that it wraps."""

    split: Any
    scores: list[Floats]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.split, name)

    def ranks(self, queries: Tensor, positives: Any, groups: Any, vectors: Any) -> metrics.Ranks:
        shown = self.split.impressions.take(groups)
        own = vectors.at(torch.from_numpy(shown.ids).to(queries.device))  # (N, D)
        rows = torch.from_numpy(shown.rows).to(queries.device)
        self.scores.append((queries[rows] * own).sum(1).double().cpu().numpy())
        found: metrics.Ranks = self.split.ranks(queries, positives, groups, vectors)
        return found


def truth_of(protocol: Protocol, world: ClickWorld) -> Record:
    """P(A), P(B) and P(A and B) at some K, at each evaluation of the pilot (trained once more, to see its scores)."""
    request = replace(
        protocol.base, k="1", learning_rate=protocol.rate_near(1), seed=protocol.seeds[0], evaluate_training=True
    )
    scores, steps, split = _watched(request, protocol.out / "watched")
    shares = [_shares(world, split, score) for score in scores]
    ks = np.array(TRUTH_KS, float)
    return {
        "ks": list(TRUTH_KS),
        "steps": steps,
        "p_a": _powers(shares[0][0], ks).tolist(),
        "p_b": [_powers(share[1], ks).tolist() for share in shares],
        "p_ab": [_powers(share[2], ks).tolist() for share in shares],
        "auc_a": float(shares[0][0].mean()),
        "auc_b": [float(share[1].mean()) for share in shares],
    }


def _watched(request: TrainRequest, out: Path) -> tuple[list[Floats], list[int], Any]:
    task = make_task(request)
    val = evaluation_splits(task.data)["val"]
    watched = Watched(val, [])
    kept = out.with_suffix(".scores.npy")
    if not kept.exists():
        shutil.rmtree(out, ignore_errors=True)  # scores of a run that was cut off went with its process: from the start
        fit_task(request, replace(task, splits={"val": watched}), out, show=False)
        evals = len(read_run(out).of_split("val"))
        flat = np.stack([np.concatenate(part) for part in np.array_split(np.array(watched.scores, object), evals)])
        body = io.BytesIO()
        np.save(body, flat.astype(np.float64), allow_pickle=False)
        write_atomically(kept, body.getvalue())
    scores = np.load(kept, allow_pickle=False)
    return list(scores), [int(record.step) for record in read_run(out).of_split("val")], val


def _shares(world: ClickWorld, split: Any, score: Floats) -> tuple[Floats, Floats, Floats]:
    """u_A, u_B and u_AB of every positive that has a negative beside it, (P,) each; ties count half."""
    shown, labels, users = split.impressions, split.labels, world.impressions.users
    found: list[tuple[float, float, float]] = []
    at = 0
    for group in split.groups:
        first, last = shown.offsets[group], shown.offsets[group + 1]
        model = score[at : at + last - first]
        at += last - first
        truth = world.items[shown.ids[first:last]] @ world.users[users[group]]
        clicked = labels[first:last] == 1
        if not clicked.any() or clicked.all():
            continue
        below_a, below_b = (
            (values[clicked, None] > values[~clicked]) + 0.5 * (values[clicked, None] == values[~clicked])
            for values in (truth, model)
        )
        found += zip(below_a.mean(1), below_b.mean(1), (below_a * below_b).mean(1), strict=True)
    a, b, both = np.array(found).T
    return a, b, both


def _powers(share: Floats, ks: Floats) -> Floats:
    return (share[:, None] ** ks).mean(0)
