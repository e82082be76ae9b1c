"""``python -m evidence`` as a person meets it: its help, and what it says to a request that cannot be."""

import sys

import pytest
import torch

from evidence.__main__ import app, main
from evidence.clicks import TASK as CLICKS
from evidence.tasks import TASKS

VERBS = ("news", "matching", "items", "clicks", "seconds", "page", "gain")


@pytest.fixture
def study(monkeypatch, capsys):
    """Run the study's command line in this process: (exit code, standard output, standard error)."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["evidence", *map(str, words)])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_these_are_all_verbs():
    assert [command.name for command in app.registered_commands] == list(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(study, verb):
    code, out, _ = study(verb, "--help")
    assert code == 0 and f"python -m evidence {verb}" in out.split("Example")[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["news", "--model", "bert4rec"], "model: got 'bert4rec', expected one of nrms, naml, lstur for news."),
        (
            ["matching", "--model", "naml"],
            "model: got 'naml', expected one of siamese-transformer, siamese-cnn, siamese-lstm for matching.",
        ),
        (["items", "--turning", "0"], "turning: got 0, expected shares of the steps between 0 and 1"),
        (["items", "--turning", "0.1,1.5"], "turning: got 0.1, 1.5, expected"),
        (["items", "--turning", "soon"], "--turning: got 'soon', expected a number or numbers with commas"),
        (["items", "--precision", "half"], "precision: got 'half', expected one of 32-true, bf16-mixed, 64-true."),
        (["items", "--name", "runs/long"], "name: got 'runs/long', expected letters, digits and dashes"),
        (["news", "--paper", "--steps", "10"], "steps: got 10, but the paper's settings say 2 epochs"),
        (["items", "--device", "gpu"], "device: got 'gpu', expected one of auto, cpu, cuda."),
    ],
)
def test_wrong_requests(study, tmp_path, words, message):
    out = tmp_path / "out"
    code, said, err = study(*words, "--data", tmp_path, "--out", out)
    assert (code, said) == (2, "") and message in err and not out.exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("verb", [["items", "--data", "x"], ["seconds"]])
def test_a_gpu_that_is_not_there(study, tmp_path, verb):
    code, _, err = study(*verb, "--out", tmp_path / "out", "--device", "cuda")
    assert code == 2 and "torch finds no GPU here. Type --device cpu" in err and not (tmp_path / "out").exists()


def test_pages_that_are_not_there(study, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = study("page", "--records", tmp_path, "--docs", tmp_path)
    assert code == 2 and "no evidence.md. Expected a folder of Markdown files" in err


@pytest.mark.parametrize("task", [*TASKS.values(), CLICKS], ids=lambda task: task.name)
def test_help_says_the_plan(study, task):
    _, out, _ = study(task.name, "--help")
    said = " ".join(out.split())
    assert f"K {', '.join(map(str, task.ks))}; {task.seeds} seeds of {task.steps} steps." in said


def test_seconds_of_a_folder_that_is_no_task(study, tmp_path):
    code, out, err = study("seconds", "--out", tmp_path)
    assert (code, out) == (2, "") and "expected the folder of one task" in err


def test_what_is_asked_reaches_the_protocol(study, tmp_path, monkeypatch):
    """Every flag, in the types that the library takes."""
    seen = []
    monkeypatch.setattr("evidence.reproduce.reproduce", lambda asked, out, **_: seen.append((asked, out)) or [])
    flags = ["--k", "20,100", "--seeds", "3", "--steps", "6000", "--turning", "0.05,0.5", "--name", "items-long"]
    assert study("items", "--data", "x", "--out", tmp_path, *flags)[0] == 0
    assert study("matching", "--out", tmp_path, "--model", "siamese-cnn", "--turning", "0.3")[0] == 0
    assert study("news", "--data", "x", "--out", tmp_path, "--model", "lstur", "--paper")[0] == 0
    items, matching, news = (asked for asked, _ in seen)
    assert (items.k, items.seeds, items.steps, items.turning, items.name) == (
        (20, 100),
        3,
        6000,
        (0.05, 0.5),
        "items-long",
    )
    assert (matching.task, matching.data, matching.model, matching.turning) == (
        "matching",
        "docs",
        "siamese-cnn",
        (0.3,),
    )
    assert (news.model, news.paper, news.k, news.turning, news.name) == ("lstur", True, None, (), None)
