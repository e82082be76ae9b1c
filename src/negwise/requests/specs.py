"""Samplers and losses as people type them: a name with options, ``gbce:t=0.75``, or a weighted mix of samplers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from negwise.errors import InputError

SAMPLERS: Mapping[str, tuple[str, ...]] = {
    "uniform": (),
    "popularity": ("alpha",),
    "in-batch": (),
    "queue": ("capacity",),
    "impression": (),
    "given": (),
    "pool": ("size",),
    "hardest": ("candidates",),
}
"""Where negatives come from, and the options of each; a bare value is the first one: ``queue:4096``."""
LOSSES: Mapping[str, tuple[str, ...]] = {
    "info-nce": (),
    "bpr": (),
    "bce": (),
    "gbce": ("t",),
    "decoupled": (),
    "debiased": ("tau_plus",),
}


@dataclass(frozen=True)
class Spec:
    """A name with options, and its weight in a mix."""

    name: str
    options: Mapping[str, float] = field(default_factory=dict)
    weight: float = 1.0


def parse_loss(text: str) -> Spec:
    """``"gbce:t=0.75"`` as ``Spec("gbce", {"t": 0.75})``."""
    return _parse("loss", text, LOSSES)


def parse_samplers(text: str) -> tuple[Spec, ...]:
    """``"0.5*uniform+0.5*popularity:0.75"`` as two specs with their weights; one sampler is a mix of one."""
    specs = []
    for part in text.split("+"):
        weight, star, rest = part.partition("*")
        specs.append(_parse("negatives", rest if star else part, SAMPLERS, weight if star else "1"))
    names = [spec.name for spec in specs]
    if len(set(names)) < len(names):
        raise InputError(f"negatives: got {text!r}, expected each sampler once in a mix.")
    return tuple(specs)


def _parse(what: str, text: str, known: Mapping[str, tuple[str, ...]], weight: str = "1") -> Spec:
    name, _, rest = text.strip().lower().partition(":")
    if name not in known:
        raise InputError(f"{what}: got {name!r}, expected one of {', '.join(known)}.")
    options: dict[str, float] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals and known[name]:
            key, value = known[name][0], key
        if key not in known[name]:
            has = f"{name} takes {', '.join(known[name])}" if known[name] else f"{name} takes no option"
            raise InputError(f"{what}: got {part!r} in {text!r}; {has}.")
        options[key] = _number(what, text, value)
    found = _number(what, text, weight)
    if not found > 0:
        raise InputError(f"{what}: got the weight {weight} in {text!r}, expected a number above 0.")
    return Spec(name, options, found)


def _number(what: str, text: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InputError(f"{what}: got {value!r} in {text!r}, expected a number.") from None
