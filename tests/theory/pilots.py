"""Pilots with a known shape: training and validation rise like 1 - e^(-t / tau)."""

import numpy as np

import negwise as nw


def curves(mu=2.4, ratio=0.9, tau=700.0, stop=4000, n=40, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    t = np.linspace(0, stop, n + 1)[1:]
    rise = mu * (1 - np.exp(-t / tau))
    train = nw.auc(rise + rng.normal(0, noise, n))
    return t, train, nw.auc(ratio * rise + rng.normal(0, noise, n))
