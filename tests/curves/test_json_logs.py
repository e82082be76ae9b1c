"""run.jsonl and other JSON: resumes, half-written lines, broken records, against dictionaries and loops."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from negwise.curves import read
from negwise.errors import InputError


def evaluation(step: object, split: object, auc: object, **more: object) -> dict[str, object]:
    common = {"auc_se": 0.015625, "queries": 500, "pairs": 50_000, "metrics": {"auc_100": 0.1, "ndcg": 0.2}}
    return {"kind": "eval", "step": step, "split": split, "auc": auc, **common, **more}


def resume(step: object) -> dict[str, object]:
    return {"kind": "event", "event": "resume", "step": step}


def lines(*records: object) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def test_run_log(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(
        lines(
            {"kind": "event", "event": "start", "step": 0},
            evaluation(0, "train", 0.5),
            evaluation(0, "validation", 0.5, queries=400),
            {"kind": "step", "step": 1, "time": 0.1, "k": 1.0, "k_used": 1.0, "loss": 0.7, "win_rate": 0.5},
            evaluation(50, "test", 0.25),
            evaluation(50, "validation", 0.625, queries=400),
            evaluation(60, "train", 0.75),
        )
    )
    curves = read(path)
    assert curves.kind == "run"
    assert curves.columns["val_queries"] == "validation/queries"
    for steps, auc, queries, expected in (
        (curves.train_steps, curves.train_auc, curves.train_queries, [(0, 0.5, 500), (60, 0.75, 500)]),
        (curves.val_steps, curves.val_auc, curves.val_queries, [(0, 0.5, 400), (50, 0.625, 400)]),
    ):
        np.testing.assert_array_equal(np.stack([steps, auc, queries], axis=1), expected)
    np.testing.assert_array_equal(curves.val_se, [0.015625, 0.015625])
    np.testing.assert_array_equal(curves.train_pairs, [50_000, 50_000])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_a_resumed_run_reads_as_one_run(tmp_path_factory: pytest.TempPathFactory, stops: list[int], random) -> None:
    """A run of 12 steps that stops at ``stops`` and resumes at the last checkpoint (every fourth step)."""
    records: list[dict[str, object]] = []
    last_account: dict[int, float] = {}
    start = 0
    for stop in [*stops, 12]:
        for step in range(start + 1, max(stop, start) + 1):
            last_account[step] = round(random.random(), 3)
            records += [{"kind": "step", "step": step}, evaluation(step, "val", last_account[step])]
        start = max(stop, start) // 4 * 4
        records.append(resume(start))
    for step in range(start + 1, 13):
        last_account[step] = 0.5
        records.append(evaluation(step, "val", 0.5))
    path = tmp_path_factory.mktemp("run") / "run.jsonl"
    path.write_text(lines(*records))
    curves = read(path)
    np.testing.assert_array_equal(curves.val_steps, range(1, 13))
    np.testing.assert_array_equal(curves.val_auc, [last_account[step] for step in range(1, 13)])


def test_every_prefix_of_a_run_log_is_a_prefix_of_its_curve(tmp_path: Path) -> None:
    text = lines(*(evaluation(step, "val", step / 8) for step in range(1, 5)))
    path = tmp_path / "run.jsonl"
    seen = set()
    for end in range(1, len(text) + 1):
        path.write_text(text[:end])
        complete = sum(1 for line in text[:end].split("\n") if line.endswith("}}"))
        seen.add(complete)
        if complete:
            np.testing.assert_array_equal(read(path).val_auc, [step / 8 for step in range(1, complete + 1)])
        else:
            with pytest.raises(InputError, match=r"run\.jsonl, line 1: not JSON"):
                read(path)
    assert seen == {0, 1, 2, 3, 4}


DEEP = "[" * 100_000 + "]" * 100_000
FAULTS = {
    "half line inside": (
        lines(resume(0)) + '{"kind": "eval", "st\n' + lines(resume(0)),
        r"line 2: not JSON \(.*Delete it",
    ),
    "half line ended": (lines(evaluation(1, "val", 0.5)) + '{"kind": "eval", "st\n', r"line 2: not JSON"),
    "no object": (lines(resume(0), 3), r"line 2: expected a JSON object, not 3"),
    "list line": (lines(resume(0), [1]), r"line 2: expected a JSON object, not \[1\]"),
    "no split": (lines(evaluation(1, None, 0.5)), r'line 1: "split" must be text \("train", "val", \.\.\.\), not None'),
    "no step": (lines(resume(0), evaluation("1", "val", 0.5)), r"line 2: \"step\" must be a number, not '1'"),
    "step is NaN": (
        lines(evaluation(1, "val", 0.5), resume(float("nan"))),
        r'line 2: "step" must be a number, not nan',
    ),
    "step is true": (lines(evaluation(True, "val", 0.5)), r'line 1: "step" must be a number, not True'),
    "step is huge": (
        lines(evaluation(10**400, "val", 0.5)),
        r"line 1: 10+\.\.\. in column 'step' is not a finite number",
    ),
    "auc is text": (lines(evaluation(1, "val", "high")), r"line 1: 'high' in column 'val/auc' is not a finite number"),
    "auc is true": (lines(evaluation(1, "val", True)), r"line 1: True in column 'val/auc' is not a finite number"),
    "auc is NaN": (
        lines(evaluation(1, "val", float("nan"))),
        r"line 1: nan in column 'val/auc' is not a finite number",
    ),
    "auc is a list": (lines(evaluation(1, "val", [0.5])), r"line 1: \[0.5\] in column 'val/auc' is not a finite"),
    "percent": (lines(evaluation(1, "val", 65.3)), r"line 1: 65.3 in column 'val/auc' is above 1.*divide it by 100"),
    "back": (lines(evaluation(2, "val", 0.5), evaluation(1, "val", 0.5)), r"line 2:.*after step 2, back to step 1"),
    "two names": (
        lines(evaluation(1, "val", 0.5), evaluation(1, "validation", 0.5)),
        r"val_auc may be any of 'val/auc', 'validation/auc'",
    ),
    "se once": (
        lines(evaluation(1, "val", 0.5), evaluation(2, "val", 0.5, auc_se=None)),
        r"line 2: no value in column 'val/auc_se'",
    ),
    "no evaluation": (lines({"kind": "step", "step": 1}), r"nothing logged yet: no line holds an evaluation"),
    "only test": (lines(evaluation(1, "test", 0.5)), r"no column is named like.*'test/auc'"),
    "deep line": (lines({"a": 1}) + f'{{"val_auc": {DEEP}}}\n', r"line 2: not JSON \(nested too deep\)"),
    "deep state": (f'{{\n"log_history": {DEEP}}}', r"not JSON \(nested too deep\)"),
    "deep value": (f'{{"val_auc": {"[" * 500}{"]" * 500}}}\n', r"row 0: \[+\.\.\. in column 'val_auc'"),
    "long number": (f'{{\n"log_history": {"9" * 5000}}}', r"not JSON \(a number too long to read\)"),
    "torn state": ('{\n  "log_history": [\n    {"eval_auc": 0.5,\n', r"line 4: not JSON \(.*Pass a complete file"),
    "no history": ('{\n"a": 1}', r'JSON without a list "log_history"'),
    "odd history": ('{"log_history": {"step": 1}}', r'JSON without a list "log_history"'),
    "odd entry": ('{"log_history": [{"step": 1}, 5]}', r"log_history\[1\]: expected a JSON object, not 5"),
    "entry": (
        '{"log_history": [{"step": 1}, {"step": 2, "eval_auc": "x"}]}',
        r"log_history\[1\]: 'x' in column 'eval_auc'",
    ),
    "empty history": ('{"log_history": []}', r"nothing logged yet: no line holds a value"),
    "list of objects and more": ('[{"step": 1, "val_auc": 0.5}, 3]', r"\[1\]: expected a JSON object, not 3"),
    "empty list": ("[]", r"nothing logged yet: no line holds a value"),
    "columns of two lengths": ('{"step": [1, 2], "val_auc": [0.5]}', r"different lengths \('step: 2', 'val_auc: 1'\)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults(tmp_path: Path, fault: str) -> None:
    text, message = FAULTS[fault]
    path = tmp_path / "log"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))
    assert len(str(caught.value)) < len(str(path)) + 400
