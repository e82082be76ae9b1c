"""K in sentence-transformers: ``attach(trainer, "online")`` after the trainer is made.

The user's MultipleNegativesRankingLoss stays, cached or not, inside Matryoshka or alone, one or one for each data set.
Where it compares a batch's vectors, K of the candidates are kept; scale, similarity, mini-batches and gathering are
still its own. Only the methods of that one object are replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from negwise import distributed
from negwise.errors import InputError, require
from negwise.host_copy import HostCopy
from negwise.integrations.batch_loss import batch_info_nce
from negwise.integrations.token_ids import any_equal, text_hashes
from negwise.integrations.unit_vectors import unit_vectors
from negwise.protocols import Rule

require("sentence_transformers", extra="sentence-transformers")

from sentence_transformers import SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MatryoshkaLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.util import cos_sim, dot_score

from negwise.integrations.trainer_callback import KTrainerCallback, add_callbacks

RankingLoss = MultipleNegativesRankingLoss | CachedMultipleNegativesRankingLoss


def attach(
    trainer: SentenceTransformerTrainer,
    rule: str | Rule = "online",
    *,
    seed: int | None = None,
    run: str | Path | None = None,
) -> KTrainerCallback:
    """Let K of ``trainer``'s ranking losses follow ``rule``, "online", "ans:20", 8 as "8", or a rule of one's own.

    Given negatives (further columns) come first, then texts of other rows are drawn. Texts equal to a row's positive
    are no negatives of it, and the empty text marks a negative that is not there. K, the K that rows had and the win
    rate are logged with the loss, and evaluations have ``eval_auc`` with its error and counts; the first one is before
    training. ``run`` is a folder for ``negwise report``. ``seed`` of the draws is the trainer's if None.
    """
    if not isinstance(trainer, SentenceTransformerTrainer):
        raise InputError(
            f"attach got a {type(trainer).__name__}, expected a SentenceTransformerTrainer. For a CrossEncoder use "
            "negwise.integrations.cross_encoder, for another Trainer negwise.integrations.transformers"
        )
    losses = list(dict.fromkeys(_ranking_losses(trainer.loss)))
    if not losses:
        raise InputError(
            f"the trainer's loss is {_names(trainer.loss)}, and K is that of MultipleNegativesRankingLoss or "
            "CachedMultipleNegativesRankingLoss. Train with one of them"
        )
    for loss in losses:
        _check_loss(loss)
    callback = add_callbacks(trainer, rule, seed, run)
    missing, widths = _empty_texts(trainer), _sampled_widths(trainer.loss)
    for loss in losses:
        KRankingLoss(loss, callback, missing, widths.get(id(loss))).install()
    return callback


class KRankingLoss:
    """Stands in for the methods of one ranking loss that compare vectors.

    ``widest`` is the largest width of a Matryoshka loss that takes some of its widths at random, else None.
    """

    def __init__(self, loss: Any, callback: KTrainerCallback, empty: list[int], widest: int | None = None) -> None:
        self.loss, self.callback, self.empty, self.widest = loss, callback, empty, widest
        self._features: Any = None
        self._fresh, self._trains = False, True
        self._ids: list[Tensor] | None = None
        self._present: Tensor | None = None
        self._found: HostCopy | None = None  # whether texts are equal, and missing
        self._whole: list[Tensor] = []  # vectors of the batch before they are cut to a width
        self._more = "a larger batch"
        if not isinstance(loss, CachedMultipleNegativesRankingLoss):
            self._more += ", with the cached loss where it does not fit"
        if not loss.gather_across_devices:
            self._more += ", or gather_across_devices=True on several ranks"

    def forget_batch(self) -> None:
        """The model puts its outputs into the features: kept, they would hold a batch's memory into the next one."""
        self._features, self._whole = None, []

    def install(self) -> None:
        self.callback.at_batch_end.append(self.forget_batch)
        self.loss.forward = self.forward
        if isinstance(self.loss, MultipleNegativesRankingLoss):
            self.loss.compute_loss_from_embeddings = self.from_embeddings
        elif hasattr(self.loss.calculate_loss, "fn"):  # Matryoshka has put itself around it
            self.loss.calculate_loss.fn = self.from_mini_batches
            if self.widest is not None:
                self.loss.calculate_loss = self._keep_mini_batches(self.loss.calculate_loss)
        else:
            self.loss.calculate_loss = self.from_mini_batches

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """As the loss's own. Matryoshka calls it once a width with the same features: that is one batch."""
        if len(columns := list(sentence_features)) < 2:
            raise InputError("the data has one column of texts; expected two or more: query, positive, negatives")
        self._trains = torch.is_grad_enabled()  # evaluation runs without; the loss's own flag stays where it was
        if sentence_features is not self._features:
            self._features, self._fresh = sentence_features, True
            self._look_at(columns[1:])
            self._whole = []
            if self.widest is not None and hasattr(self.loss.model.forward, "fn"):
                self._keep_vectors(self.loss.model.forward)
        return type(self.loss).forward(self.loss, sentence_features, labels)

    def from_embeddings(self, embeddings: list[Tensor], labels: Tensor | None) -> Tensor:
        """The loss of a batch from its vectors, queries first, each (B, D)."""
        del labels
        if self._fresh and self._whole:
            with torch.no_grad():  # what is counted, whichever widths are compared
                self._count(self._compare([unit_vectors(one[:, : self.widest]) for one in self._whole]))
        result = self._compare(embeddings)
        self._count(result)
        return result.loss

    def from_mini_batches(
        self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        """The same from the vectors of mini-batches; the scores are streamed, so that none need be chunked here."""
        loss = self.from_embeddings([torch.cat(parts) for parts in reps], labels)
        if with_backward:
            loss.backward()  # type: ignore[no-untyped-call]
            loss = loss.detach()
        return loss

    def _compare(self, embeddings: list[Tensor]) -> Any:
        if self.loss.similarity_fct is cos_sim:
            embeddings = [unit_vectors(vectors) for vectors in embeddings]
        self._keep_what_is_needed()
        return batch_info_nce(
            embeddings[0],
            list(embeddings[1:]),
            self.callback.control if self._trains else None,
            ids=self._ids,
            present=self._present,
            temperature=1 / self.loss.scale,
            gather=self.loss.gather_across_devices,
            more=self._more,
            stats=not self._trains,
        )

    def _count(self, result: Any) -> None:
        """Of an evaluation: the first comparison of a batch counts. In training the controller sees to that."""
        if self._fresh and not self._trains:
            self.callback.eval_sums.add(result)
        self._fresh = False

    def _keep_vectors(self, shrinking: Any) -> None:
        """Matryoshka makes a wrapper of the model for each batch; let it say what it cuts."""
        own = shrinking.fn

        def forward(*features: Any, **options: Any) -> Any:
            output = own(*features, **options)
            self._whole.append(output["sentence_embedding"].detach())
            return output

        shrinking.fn = forward

    def _keep_mini_batches(self, own: Any) -> Any:
        def calculate_loss(reps: list[list[Tensor]], *more: Any, **options: Any) -> Any:
            self._whole = [torch.cat(parts).detach() for parts in reps]
            return own(reps, *more, **options)

        return calculate_loss

    def _look_at(self, columns: list[dict[str, Tensor]]) -> None:
        """Find equal texts and missing negatives before the model runs, so that what is found arrives meanwhile."""
        self._ids = self._present = self._found = None
        hashes = [text_hashes(features) for features in columns]
        ids = [column for column in hashes if column is not None]
        if len(ids) < len(columns):  # images, or tokens that are not in rows
            return
        gather = self.loss.gather_across_devices
        everywhere = [distributed.gather(column) for column in ids] if gather else ids
        found = [any_equal(everywhere[0], everywhere[1:])]
        if len(ids) > 1:
            empty = torch.tensor(self.empty, device=ids[0].device)
            self._present = torch.stack([~torch.isin(column, empty) for column in ids[1:]], 1)
            found.append(~self._present.all())
        self._ids = ids
        told = found[0][None] if len(found) == 1 else torch.stack(found)
        # All ranks must take the same way, since they gather together.
        self._found = HostCopy(told if distributed.world_size() == 1 else distributed.total(told.double()))

    def _keep_what_is_needed(self) -> None:
        """Without equal texts, and without missing ones, the loss is faster."""
        if self._found is None:
            return
        equal, *missing = self._found.values
        self._ids = self._ids if equal else None
        self._present = self._present if any(missing) else None
        self._found = None


def _sampled_widths(loss: Any) -> dict[int, int]:
    """``id`` of each ranking loss in a Matryoshka loss that samples its widths -> the largest of them."""
    if isinstance(loss, dict):
        return {key: width for one in loss.values() for key, width in _sampled_widths(one).items()}
    found: dict[int, int] = {}
    for module in loss.modules():
        if isinstance(module, MatryoshkaLoss) and 0 < module.n_dims_per_step < len(module.matryoshka_dims):
            found |= {id(inner): max(module.matryoshka_dims) for inner in _ranking_losses(module)}
    return found


def _ranking_losses(loss: Any) -> Iterator[Any]:
    """The ranking losses in ``loss``, a module or one for each data set; not the plain one inside a cached one."""
    if isinstance(loss, dict):
        for one in dict.fromkeys(loss.values()):
            yield from _ranking_losses(one)
    elif isinstance(loss, RankingLoss):
        yield loss
    elif isinstance(loss, nn.Module):
        for name, child in loss.named_children():
            if name != "model":
                yield from _ranking_losses(child)


def _check_loss(loss: Any) -> None:
    """Refuse what has no K: other directions, other softmaxes, weights of hardness, other similarities."""
    expected = {"directions": ("query_to_doc",), "partition_mode": "joint", "hardness_mode": None}
    for name, value in expected.items():
        if getattr(loss, name, value) != value:
            raise InputError(
                f"{type(loss).__name__} has {name}={getattr(loss, name)!r}; K is the number of documents that a query "
                f"is compared with, expected {name}={value!r}"
            )
    if loss.similarity_fct not in (cos_sim, dot_score):
        raise InputError(
            f"{type(loss).__name__} has similarity_fct={loss.similarity_fct!r}; expected cos_sim or dot_score of "
            "sentence_transformers.util"
        )


def _empty_texts(trainer: SentenceTransformerTrainer) -> list[int]:
    """What the empty text comes to, alone and behind each prompt."""
    prompts = [None, *_values(trainer.args.prompts)]
    found = (text_hashes(trainer.model.preprocess([""], prompt=prompt)) for prompt in prompts)
    return [int(one) for hashes in found if hashes is not None for one in hashes]


def _values(prompts: Any) -> list[str]:
    """The texts in nested dictionaries."""
    if isinstance(prompts, dict):
        return [text for value in prompts.values() for text in _values(value)]
    return [] if prompts is None else [prompts]


def _names(loss: Any) -> str:
    losses = loss.values() if isinstance(loss, dict) else [loss]
    return ", ".join(sorted({type(one).__name__ for one in losses}))
