"""The paper's experiments, and what goes beyond them."""

from __future__ import annotations

from negwise.errors import require

require("torch", extra="train")
