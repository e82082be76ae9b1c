"""Random draws that are a function of (seed, step, row): random words, and K rounded for each row."""

from negwise.draws.random_words import Key, Stream, block, philox
from negwise.draws.rounding import check_k, counts, max_count

__all__ = ["Key", "Stream", "block", "check_k", "counts", "max_count", "philox"]
