"""What online K says while it trains."""

import io
import re
from dataclasses import replace

import pytest

from negwise.records import EvalRecord, StepRecord
from negwise.training.journal import display

EVALUATION = EvalRecord(step=30, split="val", auc=0.712, auc_se=0.003)
ONLINE = StepRecord(
    step=30, k=752.3, loss=5.1234, hit_rate=0.2131, k_asked=2044.0, k_reason="bounded by K for ndcg@10, 752.3"
)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "K 752 (asked 2044, ndcg@10)  hits 0.213  loss 5.1234"),
        ({"k": 50.0, "k_reason": "bounded by max_k, 50"}, "K 50 (asked 2044, max_k)  hits 0.213  loss 5.1234"),
        ({"k_reason": "bounded by validation, far behind training"}, "K 752 (asked 2044, validation)  hits 0.213"),
        ({"k": 9.0, "k_asked": 4.21, "k_reason": "min_k, 9"}, "K 9 (asked 4.21, min_k)  hits 0.213"),
        ({"k_reason": "P(K) held at 0.1"}, "K 752  hits 0.213  loss 5.1234"),  # it is what was asked for
        ({"k_reason": "P(K) held at 0.1, by the win rate", "hit_rate": None}, "K 752  loss 5.1234"),
        ({"k_asked": None, "k_reason": None}, "K 752  loss 5.1234"),  # a rule that watches nothing
    ],
)
def test_online_k_says_live_what_it_asked_for_and_what_it_met(changes, said, monkeypatch):
    monkeypatch.setattr("negwise.training.journal.SECONDS_BETWEEN_LINES", 0)
    stream = io.StringIO()
    display(100, 0, stream).step(replace(ONLINE, **changes))
    assert stream.getvalue().startswith(f"step 30/100  {said}")


def test_what_matters_least_goes_first_in_eighty_columns(monkeypatch):
    """Online K at a bound: the rate and the loss give way, not the step, K, hits or the time left."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with display(10000, 0, stream, "ndcg@10") as bar:
        bar.evaluation(replace(EVALUATION, metrics={"ndcg@10": 0.1234}))
        for step in range(1, 60):
            bar.step(replace(ONLINE, step=step))
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue().split("\r")[-1]).strip()
    pattern = r".*59/10000 .*ndcg@10 val 0\.123  K 752 \(asked 2044, ndcg@10\)  hits 0\.213 .*(\d:\d\d:\d\d|-:--:--)"
    assert re.fullmatch(pattern, last), last
