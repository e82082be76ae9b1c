"""The theory of the paper: from AUC to the number of negatives. NumPy and SciPy only."""
