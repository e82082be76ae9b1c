"""Weights at the start, against the definitions: Glorot's bound, orthogonality, a cut normal."""

import math

import pytest
import torch
from model_world import content, make
from torch import nn

from negwise.models import build
from negwise.models.layers import SelfAttention


def is_glorot(weight):
    """Uniform on +-sqrt(6 / (fan in + fan out)): as far as that, no further, with that variance."""
    window = weight[0, 0].numel()
    bound = math.sqrt(6 / ((weight.shape[0] + weight.shape[1]) * window))
    largest = weight.detach().abs().max().item()
    assert 0.98 * bound < largest <= bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)


@pytest.mark.parametrize("name", ["nrms", "naml", "lstur", "siamese-transformer", "siamese-cnn", "siamese-lstm"])
def test_text_models_start_as_keras_starts_its_layers(name):
    torch.manual_seed(0)
    model = build(name, content())
    seen = []
    for module in model.modules():
        seen.append(type(module))
        if isinstance(module, SelfAttention):
            for part in module.projections.weight.chunk(3):  # three matrices for Keras, one for us
                is_glorot(part)
        elif isinstance(module, nn.Conv1d | nn.Linear) and len(module.weight) not in (1, 3 * 256):
            is_glorot(module.weight)
        elif isinstance(module, nn.GRU | nn.LSTM):
            is_glorot(module.weight_ih_l0)
            state = module.weight_hh_l0
            torch.testing.assert_close(state.T @ state, torch.eye(state.shape[1]), rtol=0, atol=1e-5)
    kinds = {"nrms": SelfAttention, "siamese-transformer": SelfAttention, "lstur": nn.GRU, "siamese-lstm": nn.LSTM}
    assert kinds.get(name, nn.Conv1d) in seen
    for label, weight in model.named_parameters():
        if "bias" in label:
            on = weight != 0
            forget = torch.zeros_like(on)
            if label.endswith("lstm.bias_ih_l0"):  # gates: in, forget, new, out
                forget[256:512] = True
            assert torch.equal(on, forget), label
            assert (weight[on] == 1).all(), label


def test_bert4rec_starts_from_a_cut_normal():
    torch.manual_seed(0)
    model = build("bert4rec", {"n_items": 3000})
    for label, weight in model.named_parameters():
        if weight.dim() == 2:
            assert weight.abs().max().item() <= 0.04, label
            # A normal cut at two standard deviations has 0.8796 of its standard deviation.
            assert weight.std().item() == pytest.approx(0.02 * 0.8796, rel=0.05), label
        else:
            assert (weight == (1 if "norm.weight" in label else 0)).all(), label


def test_lstur_starts_without_users():
    assert not make("lstur", shaken=False).users.weight.any()
