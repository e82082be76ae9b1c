"""A page of a run that was really trained: its numbers are the result's, and its two lines load the model."""

import json

import pytest
from report_pages import shown

from negwise.report.write_report import read_report_data


@pytest.mark.slow
def test_a_real_run_and_the_lines_that_load_it(tmp_path, monkeypatch):
    from negwise.jobs import train_run
    from negwise.requests import TrainRequest

    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    rows = [
        {"left": f"word{i} of title{i % 7}", "right": f"a body with word{i} that ends {i * 7 % 97}"} for i in range(120)
    ]
    file = tmp_path / "pairs.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)) + "\n")
    run = str(tmp_path / "run")
    asked = TrainRequest(
        data=str(file), out=run, model="siamese-cnn", k="warm:3", steps=6, batch_size=8, pool=16, eval_every=2
    )
    test = train_run(asked, show=False).record.evaluations["test"]

    report, page = read_report_data(tmp_path / "run"), shown(tmp_path / "run")
    assert report.missing == () and report.metrics[0] == "auc" and len(report.metrics) > 1
    assert f"{test.auc:.4f} ± {test.auc_se:.4f}" in page.text
    names = [figure["name"] for figure in json.loads(page.scripts["figures-data"])]
    assert names[:4] == ["quality_over_time", "k_over_time", "loss", "throughput"]
    lines = next(text for text in page.words if text.startswith("import negwise"))
    made = {}
    exec(lines, made)
    assert made["model"].score(["word1", "word2"], ["a body", "with word1", "ends"]).shape == (2, 3)
