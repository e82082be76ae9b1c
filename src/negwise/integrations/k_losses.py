"""Two losses that hold a `StepControl`: `KInfoNCE` takes vectors, `KCrossEntropy` takes scores.

In training mode they keep K of the negatives they get. In evaluation mode they use all of them, so that losses compare
over steps, and `scores` has the AUC with its error and counts.

Shapes: B rows, D width, C columns of W texts, M candidates.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from negwise.errors import InputError
from negwise.integrations.batch_loss import batch_info_nce, batch_sums, say_what_is_missing
from negwise.integrations.eval_auc import EvalSums
from negwise.integrations.rule_identity import describe
from negwise.integrations.run_folder_log import RunFolderLog, make_run_log, write_step
from negwise.integrations.step_control import StepControl
from negwise.losses import info_nce_scores
from negwise.losses.checks import check_tensors
from negwise.losses.reference import count_hits, count_wins
from negwise.protocols import Rule
from negwise.records import Scores


class HoldsControl(nn.Module):
    """What both losses share: the controller, a hook on the optimizer, the sums of an evaluation."""

    def __init__(
        self,
        rule: str | Rule | StepControl | None,
        total_steps: int | None,
        seed: int,
        optimizer: Any,
        run: str | Path | None,
    ) -> None:
        super().__init__()
        self.control: StepControl | None = None
        self.has_own_rule = rule is not None
        self._follows = False
        self.eval_sums = EvalSums()
        if run is not None and rule is None:
            raise InputError("run= came without a rule: pass both, or give run= to the callback or attach that sets K")
        self.run_log = make_run_log(run, rule, seed, {"framework": "torch"})
        if rule is not None:
            self.control = rule if isinstance(rule, StepControl) else StepControl(rule, total_steps, seed)
        if optimizer is not None:
            self.follow_optimizer(optimizer)

    @property
    def held(self) -> StepControl:
        """The controller, or an error where nobody has set one."""
        if self.control is None:
            raise InputError(
                f"{type(self).__name__}() has no rule for K: pass one, as {type(self).__name__}('online'), or add the "
                "framework's callback, which sets it"
            )
        return self.control

    def logs(self) -> dict[str, float]:
        """``k``, ``k_used`` and ``win_rate`` since the last call, for a logger; ``run`` gets them too."""
        return write_step(self._begun_log(), self.held, self.held.step)

    def scores(self, split: str = "val") -> Scores:
        """The AUC of what was evaluated since the last call, with its standard error, queries and pairs.

        ``split`` is its name in ``run``. "val" goes to the rule as well.
        """
        found = self.eval_sums.finish()
        if found is None:
            raise InputError("nothing was evaluated: call the loss in evaluation mode first, loss.eval() and loss(...)")
        scores, reliability = found
        if self.control is not None and scores.auc is not None and split == "val":
            self.control.evaluated(scores.auc, reliability)
        if (log := self._begun_log()) is not None:
            log.evaluation(max(self.held.step, 0), split, scores)
        return scores

    def finish(self, model: nn.Module, weights: str = "") -> None:
        """Training has ended: write the result to ``run``. ``weights`` is where they are."""
        if self.control is not None:
            self.control.check_losses()
        if (log := self._begun_log()) is not None:
            log.end(self.held.step, model, weights)

    def _begun_log(self) -> RunFolderLog | None:
        if self.run_log is not None and not self.run_log.begun:
            self.run_log.begin(max(self.held.step, 0))
        return self.run_log

    def follow_optimizer(self, optimizer: Any) -> None:
        """Step along with ``optimizer``: each of its steps ends one step of the controller and begins the next.

        An optimizer that ``accelerate`` has prepared steps when its gradients are complete, and so does the controller.
        """
        inner = getattr(optimizer, "optimizer", optimizer)
        if not hasattr(inner, "register_step_post_hook"):
            raise InputError(f"got {type(optimizer).__name__} for optimizer, expected a torch.optim.Optimizer")
        if self._follows:
            raise InputError(
                "this loss follows an optimizer already, and would count each step twice: pass optimizer= or call "
                "attach, and once"
            )
        self.held.begins_by_itself()
        self._follows = True
        inner.register_step_post_hook(lambda *_: self.held.advance())

    def set_control(self, control: StepControl) -> None:
        """K comes from ``control``, that of a callback; a loss with a rule of its own is refused."""
        if self.has_own_rule:
            name = type(self).__name__
            raise InputError(
                f"the model's {name} has a rule of its own, {describe(self.held.rule)}, and the callback brings one: "
                f"type {name}() without a rule"
            )
        self.control = control

    def extra_repr(self) -> str:
        return repr(self.control)


class KInfoNCE(HoldsControl):
    """InfoNCE (eq. 1) over K of a batch's candidates, K from ``rule``: ``KInfoNCE("online", optimizer=optimizer)``.

    ``loss(query, positive, given)``: ``query`` and ``positive`` (B, D), ``given`` (B, G, D) negatives that came with
    the rows. A row's candidates are its given negatives, then the other rows' positives and given negatives. Its K
    negatives are the first given ones, then drawn ones; a closed-loop rule as ``online`` sets the number of drawn ones,
    and all given ones are kept besides. ``present`` (B, G) is False where a row has no such negative.
    ``positive_ids`` (B,) and ``given_ids`` (B, G): a candidate with the id of the row's positive is left out. With
    ``gather`` the candidates are those of all ranks. The result is that of `negwise.losses.info_nce`.

    K is at most the number of candidates, in-batch the batch less one.
    """

    def __init__(
        self,
        rule: str | Rule | StepControl | None = None,
        total_steps: int | None = None,
        seed: int = 0,
        *,
        temperature: float | Tensor = 1.0,
        gather: bool = False,
        optimizer: Any = None,
        run: str | Path | None = None,
    ) -> None:
        super().__init__(rule, total_steps, seed, optimizer, run)
        self.temperature, self.gather = temperature, gather

    def forward(
        self,
        query: Tensor,
        positive: Tensor,
        given: Tensor | None = None,
        present: Tensor | None = None,
        positive_ids: Tensor | None = None,
        given_ids: Tensor | None = None,
    ) -> Tensor:
        _check_given(query, given, present, positive_ids, given_ids)
        columns = [positive] if given is None else [positive, *given.unbind(1)]
        ids = None
        if positive_ids is not None:
            ids = [positive_ids] if given_ids is None else [positive_ids, *given_ids.unbind(1)]
        result = batch_info_nce(
            query,
            columns,
            self.held if self.training else None,
            ids=ids,
            present=present,
            temperature=self.temperature,
            gather=self.gather,
            more="a larger batch" if self.gather else "a larger batch, or gather=True on several ranks",
        )
        if not self.training:
            self.eval_sums.add(result)
        return result.loss


class KCrossEntropy(HoldsControl):
    """In the place of ``nn.CrossEntropyLoss()``: the cross-entropy over the target and K of the other columns.

    ``loss(scores, target)``: ``scores`` (B, M), ``target`` (B,) the column of each row's positive. ``given`` columns
    after the target's are the row's own negatives, which come first; the others are drawn. A target of ``ignore_index``
    leaves its row out, a score of -inf its column.
    """

    def __init__(
        self,
        rule: str | Rule | StepControl | None = None,
        total_steps: int | None = None,
        seed: int = 0,
        *,
        given: int = 0,
        ignore_index: int = -100,
        optimizer: Any = None,
        run: str | Path | None = None,
    ) -> None:
        super().__init__(rule, total_steps, seed, optimizer, run)
        self.given, self.ignore_index = given, ignore_index
        self.more = "more columns of scores"
        """What gives a row more negatives."""

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        _check_score_shapes(scores, target, self.given)
        rows, width = scores.shape
        _check_targets(target, width, self.ignore_index)
        used = target != self.ignore_index
        place = target.masked_fill(~used, 0)[:, None]
        own = scores.gather(1, place)[:, 0].masked_fill(~used, 0)
        # The other columns from the target's on, around the end: the given ones, then the rest in this batch's order.
        counts, shifts = None, torch.arange(1, width, device=scores.device)
        if self.training:
            counts, order = self.held.draws(rows, width - 1 - self.given, scores.device)
            shifts = torch.cat([shifts[: self.given], order + 1 + self.given])
        others = scores.gather(1, (place + shifts) % width)  # (B, M - 1)
        usable = (others.detach() != -torch.inf) & used[:, None]
        others = others.masked_fill(~usable, 0)
        if counts is None:
            result = info_nce_scores(own, others, usable, reduction="none")
            self.eval_sums.add(result)
            return _mean_over(result.loss, used)
        if self.held.draws_besides_given:
            counts = counts + usable[:, : self.given].sum(1)
        mask = usable & (usable.cumsum(1) <= counts[:, None])
        result = info_nce_scores(own, others, mask, reduction="none")
        drawn = _drawn_counts(own, others, mask, self.given) if self.given else (result.wins, result.pairs, result.hits)
        self.held.add(batch_sums(result, drawn, used))
        if not torch.compiler.is_compiling():
            say_what_is_missing(self.held, width - 1, self.given, self.more)
        return _mean_over(result.loss, used)


def _check_given(
    query: Tensor, given: Tensor | None, present: Tensor | None, positive_ids: Tensor | None, given_ids: Tensor | None
) -> None:
    """Check what comes beside query and positive, each by its shape."""
    check_tensors({"query": query, "given": given, "present": present})
    check_tensors({"positive_ids": positive_ids, "given_ids": given_ids})
    if given is not None and (given.dim() != 3 or len(given) != len(query)):
        raise InputError(f"given has shape {tuple(given.shape)}; expected (rows, negatives, width): {len(query)} rows")
    rows, shape = (len(query),), None if given is None else tuple(given.shape[:2])
    for name, value, expected in (
        ("present", present, shape),
        ("positive_ids", positive_ids, rows),
        ("given_ids", given_ids, shape),
    ):
        if value is not None and expected is None:
            raise InputError(f"{name} came without given: it is about given negatives")
        if value is not None and tuple(value.shape) != expected:
            raise InputError(f"{name} has shape {tuple(value.shape)}; expected {expected}")
    if present is not None and present.dtype != torch.bool:
        raise InputError(f"present has dtype {present.dtype}; expected torch.bool: present.bool()")
    if given is not None and (positive_ids is None) != (given_ids is None):
        raise InputError("of positive_ids and given_ids one came without the other: pass both")


def _check_targets(target: Tensor, width: int, ignore_index: int) -> None:
    """Check that targets are columns; on a GPU the gather does, which need not wait."""
    if target.device.type != "cpu" or torch.compiler.is_compiling():
        return
    bad = (target != ignore_index) & ((target < 0) | (target >= width))
    if bad.any():
        row = int(bad.nonzero()[0])
        raise InputError(
            f"target of row {row} is {int(target[row])}; expected 0 to {width - 1}, a column of the scores, or "
            f"ignore_index={ignore_index}"
        )


def _check_score_shapes(scores: Tensor, target: Tensor, given: int) -> None:
    check_tensors({"scores": scores, "target": target})
    if scores.dim() != 2 or scores.shape[1] < 2 or target.shape != scores.shape[:1]:
        raise InputError(
            f"scores have shape {tuple(scores.shape)} and target {tuple(target.shape)}; expected (rows, columns), at "
            "least two columns, and the column of each row's positive, (rows,)"
        )
    if target.dtype.is_floating_point or target.dtype == torch.bool:
        raise InputError(f"target has dtype {target.dtype}; expected the column of each row's positive, integers")
    if not 0 <= given < scores.shape[1]:
        raise InputError(f"given={given}; expected 0 to {scores.shape[1] - 1}, the columns of a row less its positive")


def _mean_over(loss: Tensor, used: Tensor) -> Tensor:
    """The mean over the rows that are used; NaN without any, as ``nn.CrossEntropyLoss`` has it."""
    return (loss * used).sum() / used.sum()


def _drawn_counts(own: Tensor, others: Tensor, mask: Tensor, given: int) -> tuple[Tensor, Tensor, Tensor]:
    """Wins, pairs and hits (B,) over drawn negatives, those after the first ``given``."""
    kept, scores = mask[:, given:], others.detach()[:, given:]
    return count_wins(own.detach(), scores, kept), kept.sum(1), count_hits(own.detach(), scores, kept)
