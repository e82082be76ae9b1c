"""Texts into vectors without reading their padding. N texts, L words, D width."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from negwise.models.words import Words

CHUNKS = 6
"""Chunks of a table of texts on a CPU: more of them save little padding."""
CHUNK_PLACES = 2**11
"""Places that are worth a chunk, padding included."""


def read(tokens: Tensor, words: Words, encoder: nn.Module) -> Tensor:
    """``encoder(*words(tokens))``, (N, L) -> (N, D), for an encoder that padding cannot be seen through.

    Most of a table of titles is padding. On a CPU texts go by length, in chunks that are as wide as their longest. A
    GPU reads the table as it is: on an H200 the launches of a second chunk take longer than the padding does.
    """
    chunks = min(CHUNKS, tokens.numel() // CHUNK_PLACES, len(tokens))
    if chunks < 1 or tokens.device.type != "cpu":
        return encoder(*words(tokens))
    length, order = (tokens != 0).sum(1).sort(stable=True)
    # One column stays, so that layers which cannot take an empty text never see one.
    widths = [max(1, int(part[-1])) for part in length.tensor_split(chunks)]
    parts = [
        encoder(*words(tokens[part][:, :width])) for part, width in zip(order.tensor_split(chunks), widths, strict=True)
    ]
    return torch.cat(parts).index_select(0, order.argsort())
