"""Reading without padding, against the same encoder on the whole table."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from negwise.models import text
from negwise.models.layers import Convolution, Encoder, LSTMLayer, SelfAttention
from negwise.models.text import WordEmbedding, encode_by_length
from negwise.models.transformer import TextTransformer

CONTEXTS = {
    "self-attention": lambda: SelfAttention(6, 2, 4),
    "convolution": lambda: Convolution(6, 8, 3),
    "lstm": lambda: LSTMLayer(6, 8),
    "transformer": lambda: TextTransformer(6, 2, 2, 4, 16, 0.0),
}


def texts(n, longest):
    """Lengths 0 to ``longest`` in no order, all of them there."""
    length = torch.arange(n) % (longest + 1)
    length = length[torch.randperm(n)]
    return torch.randint(1, 50, (n, longest + 3)) * (torch.arange(longest + 3) < length[:, None])


@pytest.mark.parametrize("name", CONTEXTS)
@pytest.mark.parametrize("n", [1, 2, 5, 97])
def test_trimmed_is_untrimmed(name, n, monkeypatch):
    monkeypatch.setattr(text, "CHUNK_TOKENS", 8)
    torch.manual_seed(n)
    tokens = texts(n, 12).int()
    words, encoder = WordEmbedding(50, 6, 0.0).double(), Encoder(CONTEXTS[name](), 8, 5, 0.0).double()
    weights = [*words.parameters(), *encoder.parameters()]
    seen = []
    hook = encoder.register_forward_pre_hook(lambda _, args: seen.append(args[1].shape))
    trimmed = encode_by_length(tokens, words, encoder)
    hook.remove()
    whole = encoder(*words(tokens))
    assert torch.allclose(trimmed, whole, rtol=0, atol=1e-12)
    pull = torch.randn_like(whole)
    mine, plain = (torch.autograd.grad((out * pull).sum(), weights) for out in (trimmed, whole))
    for one, other in zip(mine, plain, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-12)
    assert sum(rows for rows, _ in seen) == n
    if n == 97:
        assert len(seen) == text.CHUNKS
        assert sum(rows * width for rows, width in seen) < 0.7 * tokens.numel()


def test_few_words_are_read_at_once():
    asked = []

    class Counts(nn.Module):
        def forward(self, x, mask):
            asked.append(tuple(mask.shape))
            return x.sum(1)

    tokens = torch.ones(4, 5, dtype=torch.int32)
    assert encode_by_length(tokens, WordEmbedding(3, 2, 0.0), Counts()).shape == (4, 2)
    assert encode_by_length(tokens[:0], WordEmbedding(3, 2, 0.0), Counts()).shape == (0, 2)
    assert asked == [(4, 5), (0, 5)]
