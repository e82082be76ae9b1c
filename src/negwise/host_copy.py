"""Numbers on their way between a device and the host, without a wait at the time of the copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class HostCopy:
    """A copy of ``numbers`` as they are now. `values` waits for them alone, and not for what was queued since."""

    def __init__(self, numbers: Tensor) -> None:
        self._event: Any = None
        on_gpu = numbers.device.type == "cuda"
        self._host = torch.empty_like(numbers, device="cpu", pin_memory=on_gpu)
        self._host.copy_(numbers, non_blocking=on_gpu)
        if on_gpu:
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record(torch.cuda.current_stream(numbers.device))

    @property
    def values(self) -> list[float]:
        return self.array.tolist()

    @property
    def array(self) -> NDArray[Any]:
        """The numbers in the shape that they had."""
        if self._event is not None:
            self._event.synchronize()
        return self._host.numpy()


def to_device(numbers: NDArray[np.int64] | Tensor, device: torch.device) -> Tensor:
    """``numbers`` on ``device``; a GPU goes on with what is queued meanwhile."""
    host = numbers if isinstance(numbers, Tensor) else torch.from_numpy(numbers)
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host.to(device)
