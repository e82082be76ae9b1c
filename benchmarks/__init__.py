"""Measurements behind every claim of speed, memory and coverage. Run ``python -m benchmarks --help``."""
