"""Frameworks have an environment of their own: `make test-frameworks`. Elsewhere these tests are not collected."""

import importlib.util

import pytest

FRAMEWORKS = ("sentence_transformers", "transformers", "datasets", "lightning")
collect_ignore_glob = []
if any(importlib.util.find_spec(name) is None for name in FRAMEWORKS):
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory):
    from tiny_bert import save_tiny_bert

    return save_tiny_bert(tmp_path_factory.mktemp("tiny-bert"))


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """No progress bars, and no questions to a hub that is not there."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TRANSFORMERS_VERBOSITY", "error")
