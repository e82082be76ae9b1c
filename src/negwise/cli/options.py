"""Options that several verbs have, each said once. A default stands with the verb."""

from __future__ import annotations

from pathlib import Path
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

# Of the tasks of the evidence: None leaves it to the plan.
Records = Annotated[Path, typer.Option(help="Folder for the runs and the record; the same command again goes on.")]
Ks = Annotated[str, typer.Option(help="Fixed K, with commas; 1 is always among them.", show_default="the plan's")]
Seeds = Annotated[int | None, typer.Option(help="Runs of each arm.", show_default="the plan's")]
Steps = Annotated[int | None, typer.Option(help="Updates of each run.", show_default="the plan's")]
Turning = Annotated[str, typer.Option(help="Turning points of ANS up to K*, with commas, as 0.01,0.1,0.5.")]
Paper = Annotated[bool, typer.Option("--paper", help="The paper's learning rate, batches and epochs; no tuning.")]
Name = Annotated[str | None, typer.Option(help="Name of the record, as items-long.", show_default="the task's")]
InPrecision = Annotated[str | None, typer.Option(help="32-true, bf16-mixed or 64-true.", show_default="the plan's")]
Vectors = Annotated[str | None, typer.Option(help="Word vectors at the start, as `train --vectors`.")]
TrainColumn = Annotated[str | None, typer.Option(help="Column of the training AUC in a log.")]
ValColumn = Annotated[str | None, typer.Option(help="Column of the validation AUC in a log.")]
StepColumn = Annotated[str | None, typer.Option(help="Column of the steps in a log.")]
