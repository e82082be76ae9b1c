"""The measurements behind what negwise recommends: the same protocol on each task, cell by cell, and its records."""
