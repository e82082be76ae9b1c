"""K in the loops that people already have: a controller, two losses that hold one, and a file for each framework.

`StepControl` knows K of the step that runs. `KInfoNCE` takes vectors, `KCrossEntropy` takes scores in the place of
``nn.CrossEntropyLoss``; both keep K of the negatives that they get. The frameworks' own files are imported by name, as
``negwise.integrations.sentence_transformers``, and import their framework then.
"""

from __future__ import annotations

from negwise.errors import require

require("torch", extra="torch")

from negwise.integrations.k_losses import KCrossEntropy, KInfoNCE
from negwise.integrations.step_control import StepControl

__all__ = ["KCrossEntropy", "KInfoNCE", "StepControl"]
