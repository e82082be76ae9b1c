"""Options that several verbs have, each said once. A default stands with the verb."""

from __future__ import annotations

from typing import Annotated

import typer

_BY_THE_MODEL = "by the model"

Data = Annotated[str, typer.Option(help="A file, a folder, or an embedded default: docs, clicks.")]
Column = Annotated[list[str] | None, typer.Option(help="Which column plays a role, as user=customer; repeatable.")]
SkipBad = Annotated[int, typer.Option(help="Leave out up to this many bad rows of the data, and report each.")]
Split = Annotated[str | None, typer.Option(help="time, last, user, random or folders.")]
Queries = Annotated[int | None, typer.Option(help="At most this many queries an evaluation.")]
Lam = Annotated[float, typer.Option(help="Weight of good and bad samples, 0.5 to 1.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

# Of verbs that train several runs: None leaves it to the preset for the data.
Model = Annotated[str | None, typer.Option(help="One of `train --model`.", show_default="by the data")]
BatchSize = Annotated[int | None, typer.Option(help="Examples a step.", show_default=_BY_THE_MODEL)]
Pool = Annotated[int | None, typer.Option(help="Texts encoded a step, for every K.", show_default="512")]
Precision = Annotated[str | None, typer.Option(help="32-true, bf16-mixed or 64-true.", show_default=_BY_THE_MODEL)]
Jobs = Annotated[int | None, typer.Option(help="Runs side by side.", show_default="cores, or 1 on a GPU")]

TrainColumn = Annotated[str | None, typer.Option(help="Column of the training AUC in a log.")]
ValColumn = Annotated[str | None, typer.Option(help="Column of the validation AUC in a log.")]
StepColumn = Annotated[str | None, typer.Option(help="Column of the steps in a log.")]
