"""Rules as they are typed: ``4``, ``all``, ``ans:20``, ``warm:20:0.2``, ``metric``, ``online``, ``online:0.3``."""

from __future__ import annotations

from negwise.errors import InputError
from negwise.protocols import Rule
from negwise.schedule.online_k import OnlineK
from negwise.schedule.rules import AnsK, ConstantK, WarmK
from negwise.theory.metric_k import k_for_metric

DEFAULT_RULE = "metric"
"""What trains where no K is typed."""
SCHEDULES = {"ans": AnsK, "warm": WarmK}
"""Schedules with a peak, by name."""


def parse_rule(text: str, *, metric: str = "auc", candidates: int | None = None, max_k: float | None = None) -> Rule:
    """The rule in ``text``: ``"4"`` is ``ConstantK(4)``, ``"ans:20"`` is ``AnsK(20)``, ``"warm:20"`` is ``WarmK(20)``.

    A second number is the turning point or the end of the warm-up: ``"ans:20:0.2"`` is ``AnsK(20, 0.2)``. ``"all"`` is
    ``max_k``. ``"metric"`` is the constant `k_for_metric`, ``"online:0.3"`` is ``OnlineK(0.3)``; both for ``metric``
    among ``candidates`` of a query, and at most ``max_k``.
    """
    try:
        match text.strip().lower().split(":"):
            case [k] if _is_number(k):
                return ConstantK(_parse_number(k))
            case [name, *numbers] if name in SCHEDULES and len(numbers) in (1, 2) and all(map(_is_number, numbers)):
                return SCHEDULES[name](*map(_parse_number, numbers))
            case ["all"]:
                if max_k is None:
                    raise InputError("the number of negatives is not known. Type a number, as 100")
                return ConstantK(int(max_k))
            case ["online"]:
                return OnlineK(metric=metric, candidates=candidates, max_k=max_k)
            case ["online", r] if _is_number(r):
                return OnlineK(_parse_number(r), metric, candidates, max_k=max_k)
            case ["metric"]:
                if candidates is None:
                    raise InputError("the number of candidates is not known. Type a number, as 100")
                return ConstantK(k_for_metric(metric, candidates, available=max_k))
    except InputError as error:  # names the rule's argument, so add what was typed
        raise InputError(f"cannot train with K {text!r}: {error}") from None
    raise InputError(
        f"cannot read K from {text!r}. Expected a number such as 4 or 2.5, all, a schedule with its peak, ans:20 or "
        "warm:20, metric, or online. A turning point other than 0.1 comes last: ans:20:0.2"
    )


def check_rule(text: str) -> None:
    """Refuse a text that `parse_rule` cannot read, before the data is there."""
    parse_rule(text, candidates=1, max_k=1)


def needs_data(text: str) -> bool:
    """Whether K follows from the data or from the model, as ``all``, ``metric`` and ``online`` do."""
    return text.strip().lower().split(":")[0] in ("all", "metric", "online")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parse_number(text: str) -> float:
    """The number in ``text``. Whole numbers stay ``int``, so that ``repr`` shows what was typed."""
    try:
        return int(text)
    except ValueError:
        return float(text)
