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


EXTRAS = {
    "plot": ("vl_convert", "jinja2"),
    "train": ("torch", "lightning_fabric", "pyarrow", "safetensors", "filelock", "numba"),
    "sentence-transformers": ("sentence_transformers", "datasets"),
    "transformers": ("transformers",),
    "lightning": ("lightning",),
    "accelerate": ("accelerate",),
    "tensorboard": ("tensorboard",),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
}
"""The packages of each optional extra, by the names under which they are imported."""


def require(module: str, extra: str) -> ModuleType:
    """Import ``module``, or raise `MissingExtra` with the ``pip install`` line of ``extra``."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Only the package itself being absent is a missing extra; a broken install must surface as it is.
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise _missing(module.split(".")[0], extra) from error


def missing_extra(error: ModuleNotFoundError) -> MissingExtra | None:
    """What to type where ``error`` is about a package of an extra; None where it is about another one."""
    package = (error.name or "").split(".")[0]
    found = next((extra for extra, packages in EXTRAS.items() if package in packages), None)
    return None if found is None else _missing(package, found)


def quote(value: object, width: int = 60) -> str:
    """``value`` for a message: one line of at most ``width`` characters."""
    try:
        text = repr(value)
    except RecursionError:  # JSON may nest deeper than repr can go
        return "a JSON list" if isinstance(value, list) else "a JSON object"
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _missing(package: str, extra: str) -> MissingExtra:
    return MissingExtra(
        f"this needs the package {package!r}, which is not installed. Type: pip install 'negwise[{extra}]' "
        f"(in a clone: pip install '.[{extra}]')"
    )
