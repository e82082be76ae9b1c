"""The theory of the paper: from AUC to the number of negatives. NumPy and SciPy only.

Most of it is in ``negwise`` itself: `optimal_k`, `reliability`, `effectiveness` and more. Here is the rest.
"""

from __future__ import annotations

from negwise.theory.effectiveness import mean_effectiveness
from negwise.theory.gain import Share
from negwise.theory.reliability import reliability_slope_k, reliability_slope_separation

__all__ = ["Share", "mean_effectiveness", "reliability_slope_k", "reliability_slope_separation"]
