"""The bar of a run in a notebook, with a kernel that only keeps what is displayed."""

import sys
from types import SimpleNamespace

import pytest

from negwise.records import EvalRecord, StepRecord
from negwise.training import journal


@pytest.fixture
def shown(monkeypatch):
    """What a notebook displays: one entry for each element, with its drawings."""
    elements = []

    def display(content, display_id):
        assert display_id is True
        elements.append([content])
        return SimpleNamespace(update=elements[-1].append)

    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(HTML=str, display=display))
    return elements


def test_a_notebook_has_one_element(shown, monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(journal.time, "monotonic", lambda: float(next(clock)))
    with journal.display(20, 0, metric="hit@5") as bar:
        assert isinstance(bar, journal.NotebookBar)
        bar.step(StepRecord(5, k=4.0, loss=1.5))
        bar.expect(30)
        bar.evaluation(EvalRecord(step=10, split="val", auc=0.75, auc_se=0.01))
    (drawings,) = shown
    assert 'value="0" max="20"' in drawings[0] and "left" not in drawings[0]
    assert "5/20  K 4  loss 1.5000" in drawings[1] and "left" in drawings[1]
    assert 'value="10" max="30"' in drawings[-1] and "val hit@5 -  AUC 0.7500±0.0100" in drawings[-1]


def test_steps_do_not_flood_it(shown, monkeypatch):
    monkeypatch.setattr(journal.time, "monotonic", lambda: 1.0)
    with journal.display(1000, 0) as bar:
        for step in range(1000):
            bar.step(StepRecord(step, k=4.0, loss=1.5))
    assert len(shown[0]) == 2  # at the start and at the end


def test_a_terminal_of_ipython_is_no_notebook(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace()))
    assert not journal.in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert not journal.in_notebook()
