"""What can go wrong, and the two words a caller needs: was the request wrong, or is a package missing?"""

from __future__ import annotations

import importlib
from types import ModuleType


class NegwiseError(Exception):
    """Base of every error that negwise raises on purpose."""


class InputError(NegwiseError, ValueError):
    """The request was wrong. The message says what came, what was expected and what to type."""


class MissingExtra(NegwiseError, ImportError):
    """An optional package is not installed. The message is the line that installs it."""


def require(module: str, extra: str) -> ModuleType:
    """Import ``module``, or raise `MissingExtra` with the ``pip install`` line of ``extra``."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Only the package itself being absent is a missing extra; a broken install must surface as it is.
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise MissingExtra(
            f"this needs the package {module.split('.')[0]!r}, which is not installed. "
            f"Type: pip install 'negwise[{extra}]'"
        ) from error
