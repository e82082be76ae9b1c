"""K in a CrossEncoder of sentence-transformers: ``attach(trainer, "online")`` after the trainer is made.

A cross-encoder reads each pair of texts, so a negative costs a forward pass: only the K pairs that are kept are scored.

Shapes: B rows, C columns of texts (positives, then given negatives), K negatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from negwise import distributed
from negwise.errors import InputError, require
from negwise.integrations.batch_loss import batch_sums, say_what_is_missing
from negwise.integrations.column_choice import keep_mask
from negwise.integrations.step_control import StepControl
from negwise.losses import info_nce_scores
from negwise.losses.reference import count_hits, count_wins
from negwise.protocols import Rule
from negwise.schedule import ConstantK

require("sentence_transformers", extra="sentence-transformers")

from sentence_transformers.cross_encoder import CrossEncoderTrainer
from sentence_transformers.cross_encoder.losses import MultipleNegativesRankingLoss

from negwise.integrations.trainer_callback import KTrainerCallback, add_callbacks


def attach(
    trainer: CrossEncoderTrainer,
    rule: str | Rule = "online",
    *,
    seed: int | None = None,
    run: str | Path | None = None,
) -> KTrainerCallback:
    """Let K of ``trainer``'s MultipleNegativesRankingLoss follow ``rule`` in the place of its ``num_negatives``.

    Given negatives come first, then texts of other rows are drawn. Evaluations compare with ``num_negatives`` drawn
    texts, always the same ones, and with all given ones. The rest is as in the bi-encoder's ``attach``.
    """
    if not isinstance(trainer, CrossEncoderTrainer):
        raise InputError(f"attach got a {type(trainer).__name__}, expected a CrossEncoderTrainer")
    if type(trainer.loss) is not MultipleNegativesRankingLoss:
        raise InputError(
            f"the trainer's loss is {type(trainer.loss).__name__}, and K is that of cross_encoder.losses."
            "MultipleNegativesRankingLoss. Train with that one"
        )
    callback = add_callbacks(trainer, rule, seed, run)
    trainer.loss.forward = KPairs(trainer.loss, callback).forward
    return callback


class KPairs:
    """The forward pass of a ranking loss of a cross-encoder, over the pairs that are kept."""

    def __init__(self, loss: Any, callback: KTrainerCallback) -> None:
        self.loss, self.callback = loss, callback

    def forward(
        self,
        inputs: Sequence[Sequence[str]],
        labels: Tensor | None,
        prompt: str | None = None,
        task: str | None = None,
    ) -> Tensor:
        """As the loss's own: ``inputs`` are the columns of texts, queries first."""
        del labels
        queries, columns = inputs[0], inputs[1:]
        control = self.callback.control if torch.is_grad_enabled() else self._of_evaluation(columns)
        kept, own = self._choose(columns, control)
        rows, places = kept.flatten(1).nonzero(as_tuple=True)
        texts = [text for column in columns for text in column]
        pairs = [*zip(queries, columns[0], strict=True)]
        pairs += [(queries[row], texts[place]) for row, place in zip(rows.tolist(), places.tolist(), strict=True)]
        scores = self._score(pairs, len(queries), prompt, task)
        positive = scores[: len(queries)]
        # Ragged rows side by side: each pair goes to the next free slot of its row.
        counts = kept.flatten(1).sum(1)
        slots = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows]
        width = int(counts.max()) if len(counts) else 0
        negatives = positive.new_zeros(len(queries), width).index_put(
            (rows.to(scores.device), slots.to(scores.device)), scores[len(queries) :]
        )
        result = info_nce_scores(positive, negatives, counts.to(scores.device), reduction="none")
        if not torch.is_grad_enabled():
            self.callback.eval_sums.add(result)
            return result.loss.mean()
        drawn = torch.zeros(len(queries), width, dtype=torch.bool)
        drawn[rows, slots] = ~own.flatten(1)[rows, places]
        drawn = drawn.to(scores.device)
        above, below = positive.detach(), negatives.detach()
        of_drawn = (count_wins(above, below, drawn), drawn.sum(1), count_hits(above, below, drawn))
        control.add(batch_sums(result, of_drawn))
        return result.loss.mean()

    def _choose(self, columns: Sequence[Sequence[str]], control: StepControl) -> tuple[Tensor, Tensor]:
        """The kept candidates, (B, C, B) bool, and the places of a row's own texts, (B, C, B)."""
        number, width = len(columns), len(columns[0])
        counts, order = control.draws(width, number * (width - 1), torch.device("cpu"))
        say_what_is_missing(control, number * width - 1, number - 1, "a larger batch")
        names: dict[str, int] = {}
        ids = torch.tensor([[names.setdefault(text, len(names)) for text in column] for column in columns])
        present = ids[1:].t() != names.get("", -1) if number > 1 else None
        excluded = ids[None] == ids[0][:, None, None]  # (B, C, B): texts equal to the row's positive
        if present is not None:
            excluded = excluded | torch.cat([torch.zeros(1, width, dtype=torch.bool), ~present.t()])[None]
        own = torch.eye(width, dtype=torch.bool)[:, None].expand(-1, number, -1)
        nothing = not bool((excluded & ~own).any())
        kept = keep_mask(
            order, counts, 0, number, width, present, None if nothing else excluded, control.draws_besides_given
        )
        return kept, own

    def _score(self, pairs: list[tuple[str, str]], batch: int, prompt: str | None, task: str | None) -> Tensor:
        """The scores of all pairs, in pieces of the batch's size, as the loss itself has them.

        On several ranks they are one piece: DDP takes one forward pass a step, and ranks may have different numbers.
        """
        if distributed.world_size() > 1 and torch.is_grad_enabled():
            batch = len(pairs)
        pieces = [
            self.loss.call_model_with_pairs(pairs[start : start + batch], prompt=prompt, task=task)
            for start in range(0, len(pairs), batch)
        ]
        logits = torch.cat(pieces)
        if self.loss.activation_fn:
            logits = self.loss.activation_fn(logits)
        return logits * self.loss.scale if self.loss.scale else logits

    def _of_evaluation(self, columns: Sequence[Sequence[str]]) -> StepControl:
        """The same draws at each evaluation: ``num_negatives`` beside all given ones."""
        number = self.loss.num_negatives
        drawn = len(columns) * (len(columns[0]) - 1)
        given = len(columns) - 1
        control = StepControl(
            ConstantK(given + (drawn if number is None else min(number, drawn))), 1, self.callback.seed
        )
        control.begin(0)
        return control
