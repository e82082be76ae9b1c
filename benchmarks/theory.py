"""The full estimate for a long curve and every K, against the same mixture one power per K, and NumPy per step."""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_limits

import negwise as nw
from benchmarks.table import Row, peak_extra_mb, seconds
from negwise.theory import mean_effectiveness
from negwise.theory.model_reliability import expected_power_every_k, mixture_density, reliability_from_curve
from negwise.theory.reliability import grid
from negwise.theory.separation import Floats

STEPS, MAX_K = 10_000, 131_072


def run() -> list[Row]:
    """Rows for a curve of 10,000 steps and every K up to 131,072, on one core."""
    steps = np.arange(1.0, STEPS + 1)
    mu = 2.4 * (1 - np.exp(-steps / 2000))
    train, val = nw.auc(mu), nw.auc(0.9 * mu)

    def full() -> Floats:
        """`optimal_k` with its interval and sensitivities, then v at every whole K."""
        found = nw.optimal_k(train, val, steps=steps, n_queries=2000, n_pairs=200_000)
        model = reliability_from_curve(steps, nw.separation(val), int(np.searchsorted(steps, found.horizon or STEPS)))
        nodes, log_below = grid()
        label = mixture_density(np.array([found.label_separation]), np.ones(1), nodes)
        return mean_effectiveness(
            expected_power_every_k(label, log_below, MAX_K), expected_power_every_k(*model.density, MAX_K), found.lam
        )

    side = reliability_from_curve(steps, nw.separation(val), STEPS - 1)
    density, log_below = side.density
    below = np.exp(log_below)

    def one_power_per_k() -> Floats:
        """The same density, one vectorised power for each K."""
        return np.array([density @ below**k for k in range(MAX_K + 1)])

    few = 8

    def numpy_per_step() -> Floats:
        """No mixture: each step on its own, for a few K only."""
        return np.stack([nw.reliability(point, np.arange(1.0, few + 1)) for point in side.separations]).mean(axis=0)

    with threadpool_limits(1):
        memory = peak_extra_mb(full)  # before anything has warmed the allocator
        every = expected_power_every_k(density, log_below, MAX_K)
        some = np.array([0, 1, 20, 5000, MAX_K])
        # Phi itself, near 1, is rounded; its power at K = 131,072 magnifies that, ours starts from log Phi.
        np.testing.assert_allclose(every[some], [density @ below**k for k in some], rtol=1e-11)
        took = seconds(
            {
                "full": full,
                "every k": lambda: expected_power_every_k(density, log_below, MAX_K),
                "with its mixture": lambda: expected_power_every_k(
                    *reliability_from_curve(steps, nw.separation(val), STEPS - 1).density, MAX_K
                ),
            }
        )
        slow = seconds({"one power per k": one_power_per_k, "per step": numpy_per_step}, repeats=2, warmup=0)
    work = f"estimate, {STEPS:,} steps, every K to {MAX_K:,}, 1 core"
    per_step = slow["per step"] / few * MAX_K  # every K costs what these few cost
    return [
        Row(work, "time", 1e3 * took["full"], 100.0, "lower", "ms"),
        Row(work, "extra memory", memory, 50.0, "lower", "MB"),
        Row("mixture at every K", "speed against one power per K", slow["one power per k"] / took["every k"], 20.0),
        Row(
            "mixture at every K",
            f"speed against NumPy per step (scaled from {few} K)",
            per_step / took["with its mixture"],
        ),
    ]
