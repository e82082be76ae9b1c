"""The result of `optimal_k`: K*, its uncertainty, the verdict, and the curves behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from negwise.errors import InputError
from negwise.files import REPAIR
from negwise.records import decode, encode
from negwise.theory.gain import Share, shares_of
from negwise.theory.optimum import in_flat
from negwise.theory.separation import auc
from negwise.theory.verdict import Verdict

Numbers = tuple[float, ...]


@dataclass(frozen=True)
class EffectivenessCurve:
    """v at each K; the estimate is its maximum."""

    k: Numbers
    v: Numbers


@dataclass(frozen=True)
class Rising:
    """A training AUC that still rose at the end of the pilot: K* as measured, and its forecast."""

    k_measured: float
    k_forecast: float | None
    separation_measured: float
    separation_forecast: float | None
    separation_se: float | None
    settles_at: float | None
    more_steps: float | None


@dataclass(frozen=True)
class Pilot:
    """The curves behind the estimate."""

    train_steps: Numbers
    train_auc: Numbers
    val_steps: Numbers
    val_auc: Numbers


@dataclass(frozen=True)
class Estimate:
    """The K that maximises training effectiveness, with its uncertainty, verdict and inputs.

    - ``k`` is real-valued, ``k_int`` the best whole number.
    - ``flat`` is the smallest and the largest K that are as good (v within 1%; None: no upper end).
    - ``interval`` is the 90% interval from the sampling error of AUC (None without counts).
    - ``margin`` is v(k) - (1 - lam), the gain over a K so large that every sample is "easy".
    - ``basis`` is the kind of ``k``: "measured", "forecast", "lower bound" or "unsettled".
    - ``source`` is the kind of training curve: "curve", "pair" or "simulated".
    - ``horizon`` is the step T at which the curve ends.
    - ``k_by_pilot`` is K* from the first half ("0.5") and the first three quarters ("0.75") of the pilot.
    """

    k: float
    k_int: int
    flat: tuple[int, int | None]
    interval: tuple[float, float] | None
    margin: float
    verdict: Verdict
    reasons: tuple[str, ...]
    label_separation: float
    horizon: float | None
    lam: float
    max_k: float
    basis: str
    source: str
    label_step: float | None
    rising: Rising | None
    k_by_horizon: dict[str, float]
    k_by_lam: dict[str, float]
    pilot: Pilot
    curve: EffectivenessCurve
    k_by_pilot: dict[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        parts = [f"k={self.k:.4g}", f"flat={_flat_text(self.flat)}"]
        if self.interval is not None:
            parts.append(f"interval={self.interval[0]:.3g}..{self.interval[1]:.3g}")
        parts += [f"margin={self.margin:.3g}", f"verdict={self.verdict!r}"]
        if self.basis != "measured":
            parts.append(f"basis={self.basis!r}")
        return f"Estimate({', '.join(parts)})"

    def explain(self) -> str:
        """The estimate as text, one fact per line."""
        facts = [f"{name}: {value}" for name, value in self.facts()]
        reasons = [f"- {reason}" for reason in self.reasons]
        return "\n".join([self.headline(), "", *facts, *([""] if reasons else []), *reasons])

    @property
    def determined(self) -> bool:
        """Whether the curves determine K: the verdict is "ok" or "capped"."""
        return self.verdict in ("ok", "capped")

    @property
    def settled(self) -> bool:
        """Whether the pilot was long enough: training had converged or can be forecast, and less of it says the same.

        K* of the first half and of the first three quarters of the pilot, ``k_by_pilot``, then lie in ``flat``.
        """
        return self.basis in ("measured", "forecast") and all(map(self.as_good, self.k_by_pilot.values()))

    @property
    def shares(self) -> tuple[Share, ...]:
        """The share of the gain in AUC that some K bring; empty where the curves do not determine K."""
        return shares_of(self)

    def as_good(self, k: float) -> bool:
        """Whether ``k`` lies in ``flat``, the range of K that are as good."""
        return in_flat(self.flat, k)

    def headline(self) -> str:
        """One sentence that says what to do."""
        flat = _flat_text(self.flat)
        if self.verdict == "ok":
            bound = " at least" if self.basis == "lower bound" else ""
            return f"Train with{bound} K = {self.k_int} negatives; {flat} are as good."
        if self.verdict == "capped":
            return f"K = {self.k_int} is the best found, but its size is not pinned down; {flat} are as good."
        if self.verdict == "vacuous":
            return "These curves do not determine K."
        if self.verdict == "incomplete":
            return "These curves do not determine K: their start is missing."
        return "These curves contradict each other; no K should be read from them."

    def facts(self) -> list[tuple[str, str]]:
        """(name, value) of each number, the most important first."""
        label = f"{self.label_separation:.3f} (AUC {float(auc(self.label_separation)):.4f})"
        if self.basis == "forecast":
            label += ", forecast"
        elif self.label_step is not None:
            label += f" at step {self.label_step:g}"
        horizon = "the paper's simulated curve, t = 3" if self.horizon is None else f"step {self.horizon:g}"
        about_curves = [("verdict", self.verdict), ("label separation", label), ("horizon T", horizon)]
        if not self.determined:
            return about_curves
        pilot = {f"first {float(share):.0%}": k for share, k in self.k_by_pilot.items()}
        return [
            ("K*", f"{self.k:.2f}" + ("" if self.basis == "measured" else f" ({self.basis})")),
            ("as good (v within 1%)", _flat_text(self.flat)),
            (
                "90% interval",
                "none (no counts)" if self.interval is None else "{:.4g} .. {:.4g}".format(*self.interval),
            ),
            ("margin over K = infinity", f"{self.margin:.4f}"),
            *about_curves,
            ("share of the gain in AUC", ", ".join(f"K = {one.k:g}: {one.share:.0%}" for one in self.shares)),
            ("K* at other horizons", _table_text(self.k_by_horizon)),
            ("K* at other lambdas", _table_text(self.k_by_lam)),
            *([("K* of less of the pilot", f"{_table_text(pilot)}; {self._settled_text()}")] if pilot else []),
        ]

    def _settled_text(self) -> str:
        return "settled" if self.settled else "not settled: K* changes with the length of the pilot"

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings, ready for JSON."""
        return {**encode(self), "settled": self.settled, "shares": [share._asdict() for share in self.shares]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str = "the estimate") -> Estimate:
        """The inverse of `to_dict`. Unknown fields are ignored; ``where`` names the file in an error."""
        found = decode(cls, data, where)
        pilot, curve = found.pilot, found.curve
        for name, xs, ys in (
            ("curve", curve.k, curve.v),
            ("pilot", pilot.train_steps, pilot.train_auc),
            ("pilot", pilot.val_steps, pilot.val_auc),
        ):
            if len(xs) != len(ys):
                raise InputError(
                    f"{where}: {name} has lists of {len(xs)} and {len(ys)} numbers, expected one length. {REPAIR}"
                )
        return found


def _flat_text(flat: tuple[int, int | None]) -> str:
    return f"{flat[0]} and more" if flat[1] is None else f"{flat[0]}..{flat[1]}"


def _table_text(table: Mapping[str, float]) -> str:
    return ", ".join(f"{name}: {k:.4g}" for name, k in table.items())
