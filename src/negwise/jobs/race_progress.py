"""What a person sees of a race: one bar for all candidates, with one time left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

from negwise.jobs.race import RaceLog, rung_step
from negwise.records import Candidate, EvalRecord, StepRecord
from negwise.training import Display
from negwise.training.journal import display


class RaceProgress:
    """One display for the steps of all candidates."""

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self.done: dict[str, int] = {}
        self.total = 1
        self.shown: Any = None

    def __enter__(self) -> Self:
        self.shown = display(self.total, 0, metric=self.metric)
        self.shown.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.shown.__exit__(*error)

    def expect(self, candidate: Candidate, decisions: RaceLog) -> None:
        """Count on the steps of the race, and on those of ``candidate`` as the one that goes on."""
        others = [one for one in decisions.candidates if one.name != candidate.name]
        dropped = {name for decision in decisions.decisions for name in decision.dropped}
        if decisions.start is not None and not decisions.decisions:
            others += decisions.start.joins[:1]  # one of them will join
        raced = sum(self.done.get(one.name, 0) if one.name in dropped else rung_step(one) for one in others)
        own = next((one.steps for one in reversed(decisions.horizons)), candidate.steps)
        self.total = raced + own
        self.shown.expect(self.total)

    def of(self, candidate: Candidate) -> Display:
        """The display of one candidate's run."""
        return _OfCandidate(self, candidate.name)

    def say(self, line: str) -> None:
        self.shown.say(line)


class _OfCandidate:
    """Counts the steps of a candidate among those of all."""

    def __init__(self, race: RaceProgress, name: str) -> None:
        self.race, self.name = race, name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def step(self, record: StepRecord) -> None:
        self.race.shown.step(replace(record, step=self._all(record.step)))

    def evaluation(self, record: EvalRecord) -> None:
        self.race.shown.evaluation(replace(record, step=self._all(int(record.step))))

    def say(self, line: str) -> None:
        self.race.shown.say(line)

    def _all(self, step: int) -> int:
        self.race.done[self.name] = step
        return sum(self.race.done.values())
