"""The command line in this process, for every test that speaks to it."""

import sys

import pytest

from negwise.cli import main


@pytest.fixture
def negwise(monkeypatch, capsys):
    """Run the command line in this process: (exit code, standard output, standard error)."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["negwise", *map(str, words)])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return run
