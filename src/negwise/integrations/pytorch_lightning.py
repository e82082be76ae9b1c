"""The callback of `negwise.integrations.lightning` for programs that import ``pytorch_lightning``."""

from __future__ import annotations

from negwise.errors import require
from negwise.integrations.lightning_hooks import KHooks

require("pytorch_lightning", extra="lightning")

from pytorch_lightning import Callback


class KCallback(KHooks, Callback):  # type: ignore[misc]
    __doc__ = KHooks.__doc__
