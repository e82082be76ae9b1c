"""``python -m negwise``: the command line."""

from negwise.cli import main

main()
