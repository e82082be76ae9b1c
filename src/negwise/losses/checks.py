"""Checks of the losses' arguments. Messages say what came, what was expected, and what to type.

Shapes: B rows, K negatives, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real

import torch
from torch import Tensor

from negwise.errors import InputError

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def compute_dtype(tensors: Mapping[str, Tensor]) -> torch.dtype:
    """The dtype to compute in: float64 if all tensors are float64, else float32, also for half precision."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise InputError(f"{name} is a {type(tensor).__name__}; expected a torch tensor")
        if tensor.dtype not in FLOATS:
            raise InputError(
                f"{name} has dtype {tensor.dtype}; expected float16, bfloat16, float32 or float64: {name}.float()"
            )
    double = {name: tensor.dtype == torch.float64 for name, tensor in tensors.items()}
    if all(double.values()):
        return torch.float64
    if any(double.values()):
        names = ", ".join(f"{name} {tensor.dtype}" for name, tensor in tensors.items())
        raise InputError(f"float64 does not mix with other types: {names}. Type .double() or .float() on all")
    return torch.float32


def check_tensors(arguments: Mapping[str, object]) -> None:
    """Check that optional arguments are tensors or None."""
    for name, value in arguments.items():
        if value is not None and not isinstance(value, Tensor):
            raise InputError(f"{name} is a {type(value).__name__}; expected a torch tensor: torch.tensor({name})")


def check_same_device(tensors: Mapping[str, Tensor | None]) -> None:
    """Check that all tensors are on the device of the first."""
    (first, reference), *others = ((name, tensor) for name, tensor in tensors.items() if tensor is not None)
    for name, tensor in others:
        if tensor.device != reference.device:
            raise InputError(
                f"{name} is on {tensor.device}, {first} on {reference.device}: {name}.to({str(reference.device)!r})"
            )


def check_vectors(query: Tensor, positive: Tensor, negatives: Tensor | None) -> torch.dtype:
    """Check ``query`` and ``positive`` (B, D), B and D at least 1, on one device. Return the dtype to compute in."""
    vectors = {"query": query, "positive": positive} | ({} if negatives is None else {"negatives": negatives})
    dtype = compute_dtype(vectors)
    check_same_device(vectors)
    if query.dim() != 2 or 0 in query.shape:
        raise InputError(f"query has shape {tuple(query.shape)}; expected (rows, width), neither of them 0")
    if positive.shape != query.shape:
        raise InputError(f"positive has shape {tuple(positive.shape)}, query {tuple(query.shape)}; expected the same")
    return dtype


def check_scores(positive: Tensor, negatives: Tensor) -> None:
    """Check ``positive`` (B,) and ``negatives`` (B, K), B at least 1."""
    if positive.dim() != 1 or len(positive) == 0:
        raise InputError(f"positive has shape {tuple(positive.shape)}; expected one score per row, (rows,)")
    if negatives.dim() != 2 or len(negatives) != len(positive):
        raise InputError(
            f"negatives has shape {tuple(negatives.shape)}; expected scores ({len(positive)}, K), rows x negatives"
        )


def check_temperature(
    temperature: float | Tensor, like: Tensor, dtype: torch.dtype, check_values: bool = True
) -> float | Tensor:
    """The temperature: a number above 0, or a tensor in ``dtype`` with one or B values, shaped to divide ``like``.

    ``check_values=False`` does not read the values of a tensor, because that would wait for a GPU.
    """
    if not isinstance(temperature, Tensor):
        came: object = temperature  # callers without types pass anything
        if isinstance(came, bool) or not isinstance(came, Real):
            raise InputError(f"temperature is a {type(came).__name__}; expected a number above 0, or a tensor")
        if not temperature > 0 or temperature == float("inf"):
            raise InputError(f"temperature={temperature!r}; expected a finite number above 0")
        return temperature
    rows = like.shape[0]
    if temperature.shape not in ((), (1,), (rows,), (rows, 1)):
        raise InputError(
            f"temperature has shape {tuple(temperature.shape)}; expected one number, or one per row ({rows},)"
        )
    if temperature.device != like.device and temperature.dim():
        raise InputError(f"temperature is on {temperature.device}: temperature.to({str(like.device)!r})")
    values = temperature.detach()
    if check_values and not bool(((values > 0) & torch.isfinite(values)).all()):
        raise InputError(f"temperature is {values.flatten()[:4].tolist()}; expected finite numbers above 0")
    temperature = temperature.to(dtype)
    return temperature.reshape(-1, *[1] * (like.dim() - 1)) if temperature.dim() else temperature


def check_finite(outputs: tuple[Tensor, ...], inputs: Mapping[str, Tensor | None]) -> None:
    """Raise an error if an output is not finite. It names the input that causes it and its first bad row.

    The outputs are small, (B,), so the check is cheap. Inputs are searched only if it fails.
    """
    if torch.compiler.is_compiling() or all(bool(torch.isfinite(out.detach()).all()) for out in outputs):
        return
    for name, tensor in inputs.items():
        if tensor is None:
            continue
        flat = tensor.detach().reshape(len(tensor), -1) if tensor.dim() else tensor.detach().reshape(1, 1)
        for start in range(0, len(flat), 4096):  # in pieces, since the mask of a large table is large too
            bad = ~torch.isfinite(flat[start : start + 4096])
            if bool(bad.any()):
                row, col = bad.nonzero()[0].tolist()
                raise InputError(
                    f"{name} is not finite: {float(flat[start + row, col])} first in row {start + row}. "
                    f"Find them with (~torch.isfinite({name})).nonzero()"
                )
    largest = {name: float(t.detach().abs().max()) for name, t in inputs.items() if t is not None and t.numel()}
    raise InputError(
        f"the scores overflow although every input is finite; largest magnitudes: {largest}. "
        "Normalise the vectors or raise the temperature"
    )
