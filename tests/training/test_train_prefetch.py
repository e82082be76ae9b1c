"""Making a step ahead of time changes nothing but when it is made."""

import threading
from contextlib import closing

import pytest
from train_world import Watching, run

from negwise import AnsK, OnlineK
from negwise.records import read_run
from negwise.training.batches import BatchPreparer, Prefetcher
from negwise.training.loop import Run


def test_what_is_made_ahead_is_what_was_asked_for():
    made = []

    def make(step, k):
        made.append((step, k, threading.current_thread() is threading.main_thread()))
        return step, k

    with closing(Prefetcher(make)) as ahead:
        assert ahead.get(0, 1.0, 2.0) == (0, 1.0)
        assert ahead.get(1, 2.0, 3.0) == (1, 2.0)
        assert ahead.get(2, 9.0, None) == (2, 9.0)  # another K than was foretold
        assert ahead.get(3, 4.0, None) == (3, 4.0)
    assert made[0] == (0, 1.0, True)
    assert (1, 2.0, False) in made
    assert (2, 9.0, True) in made
    assert made[-1] == (3, 4.0, True)


def test_what_goes_wrong_ahead_is_raised_where_it_is_needed():
    def make(step, _):
        if step == 1:
            raise ValueError("step 1")
        return step

    with closing(Prefetcher(make)) as ahead:
        assert ahead.get(0, 1.0, 1.0) == 0
        with pytest.raises(ValueError, match="step 1"):
            ahead.get(1, 1.0, None)


@pytest.mark.parametrize("rule", [AnsK(peak=5), Watching(), OnlineK(0.4, max_k=9)])
def test_a_run_that_prefetches_ends_with_the_same_weights(tmp_path, monkeypatch, rule):
    """A closed-loop rule too: what it sees is old enough to be known ahead of time."""

    def weights(name):
        run(tmp_path / name, rule=rule, steps=12, eval_every=4, lag=2)
        [file] = (tmp_path / name / "checkpoints" / "12").glob("weights*")
        return file.read_bytes()

    plain = weights("plain")
    threads = []
    before, prepare = Run.__post_init__, BatchPreparer.prepare

    def prefetching(self):
        before(self)
        self.prefetches = True

    def noted(self, step, k):
        threads.append(threading.current_thread() is threading.main_thread())
        return prepare(self, step, k)

    monkeypatch.setattr(Run, "__post_init__", prefetching)
    monkeypatch.setattr(BatchPreparer, "prepare", noted)
    assert weights("ahead") == plain
    paths = [
        [(one.k, one.k_asked, one.k_reason) for one in read_run(tmp_path / name).steps] for name in ("plain", "ahead")
    ]
    assert paths[0] == paths[1] and len(set(paths[0])) > 2
    assert threads.count(True) == 1  # the first step; all others were made ahead
    assert len(threads) == 12
