"""How a run is evaluated: on which splits, and by which metric its best weights are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from torch import nn

from negwise import metrics
from negwise.metrics.model_ranking import EvaluationSplit, rank_positives, recommend
from negwise.records import Recommended, Scores
from negwise.training.batches import Ints


@dataclass(frozen=True, eq=False)
class Evaluation:
    """``splits`` by name, the ``metric`` that decides which weights are kept, and counts of items in training.

    ``autocast`` makes the context in which the model runs.
    """

    splits: Mapping[str, EvaluationSplit]
    metric: str = "auc"
    popularity: Ints | None = None
    autocast: Callable[[], Any] = nullcontext

    @property
    def cutoffs(self) -> tuple[int, ...]:
        """Cut-offs of top-n metrics, the metric's own among them."""
        return tuple(sorted({5, 10, *(int(part) for part in self.metric.split("@")[1:])}))

    def ranks(self, name: str, model: nn.Module, between: Callable[[], None]) -> metrics.Ranks:
        """The rank of every positive of a split; ``between`` chunks a stop may end the evaluation."""
        return rank_positives(model, self.splits[name], autocast=self.autocast, between=between)

    def scores(self, ranks: metrics.Ranks) -> Scores:
        """Every metric of these ranks."""
        return Scores(**metrics.evaluate(ranks, self.cutoffs).record())

    def recommended(self, model: nn.Module, between: Callable[[], None]) -> Recommended | None:
        """What the model puts first on the test split, where popularity is known."""
        if self.popularity is None:
            return None
        found = recommend(model, self.splits["test"], self.popularity, autocast=self.autocast, between=between)
        return Recommended(**found)
