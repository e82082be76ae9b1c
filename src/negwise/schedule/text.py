"""A rule as people type it on a command line: ``4``, ``ans:20``, ``warm:20:0.2``."""

from __future__ import annotations

from negwise.errors import InputError
from negwise.schedule.rules import AnsK, ConstantK, OpenLoop, WarmK

_RULES = {"ans": AnsK, "warm": WarmK}


def rule_from_text(text: str) -> OpenLoop:
    """``"4"`` is ``ConstantK(4)``, ``"ans:20"`` is ``AnsK(20)``, ``"warm:20"`` is ``WarmK(20)``.

    A second number is the turning point or the end of the warm-up: ``"ans:20:0.2"`` is ``AnsK(20, 0.2)``.
    """
    try:
        match text.strip().lower().split(":"):
            case [k] if _is_number(k):
                return ConstantK(_number(k))
            case [name, *numbers] if name in _RULES and len(numbers) in (1, 2) and all(map(_is_number, numbers)):
                return _RULES[name](*map(_number, numbers))
    except InputError as error:  # it names the rule's argument, which is not what was typed
        raise InputError(f"cannot train with K {text!r}: {error}") from None
    raise InputError(
        f"cannot read K from {text!r}. Expected a number such as 4 or 2.5, or a schedule up to a peak: "
        "ans:20 or warm:20, with its turning point where 0.1 does not suit: ans:20:0.2"
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number(text: str) -> float:
    """The number in ``text``; whole ones stay ``int`` so that ``repr`` reads as it was typed."""
    try:
        return int(text)
    except ValueError:
        return float(text)
