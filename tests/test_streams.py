"""Standard streams that are closed, or whose reader goes away: no traceback, nothing lost, the exit code that fits."""

import json
import os
import subprocess
import sys

import pytest

WORDS = ["--model", "siamese-cnn", "--k", "3", "--steps", "4", "--batch-size", "8", "--pool", "16", "--body-words", "8"]


@pytest.fixture
def pairs(tmp_path):
    file = tmp_path / "pairs.jsonl"
    rows = [{"left": f"word{i} of the title", "right": f"a body that says word{i}"} for i in range(60)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def shell(tmp_path):
    """Run a shell command, in which ``$negwise`` is the command line: (exit code, standard output, standard error)."""

    def run(command):
        own = {"negwise": f"{sys.executable} -m negwise", "NEGWISE_CACHE": str(tmp_path / "cache")}
        done = subprocess.run(command, shell=True, capture_output=True, cwd=tmp_path, env={**os.environ, **own})
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")

    return run


def train(out):
    return f"train --data pairs.jsonl {' '.join(WORDS)} --device cpu --out {out}"


@pytest.mark.slow
@pytest.mark.usefixtures("pairs")
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_run_with_closed_streams_ends_well(shell, tmp_path, closed):
    code, out, err = shell(f"$negwise {train('run')} --json {closed}")
    assert code == 0, err
    assert (tmp_path / "run" / "result.json").exists()
    assert "Traceback" not in err
    if closed in ("2>&-", "<&-"):
        assert json.loads(out)["steps"] == 4  # progress did not move to standard output


@pytest.mark.slow
@pytest.mark.usefixtures("pairs")
def test_a_reader_of_progress_may_go_away(shell, tmp_path):
    code, _, err = shell(f"$negwise {train('run')} 2>&1 >/dev/null | true; exit ${{PIPESTATUS:-0}}")
    assert (code, err) == (0, "")
    assert (tmp_path / "run" / "result.json").exists()


@pytest.mark.usefixtures("pairs")
def test_a_reader_of_results_may_go_away(shell):
    code, out, err = shell("bash -c '$negwise data pairs.jsonl | true; exit ${PIPESTATUS[0]}'")
    assert (code, out, err) in ((1, "", ""), (0, "", ""))  # 0 where all of it was written before


def test_a_name_that_is_not_utf8_is_shown_escaped(shell, pairs, tmp_path):
    pairs.rename(tmp_path / os.fsdecode(b"p\xff.jsonl"))
    code, out, err = shell(b"$negwise data p\xff.jsonl")
    assert (code, err) == (0, "")
    assert "p\\udcff.jsonl" in out


@pytest.mark.slow
@pytest.mark.usefixtures("pairs")
def test_a_run_in_a_folder_whose_name_is_not_utf8_has_a_page(shell, negwise, tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    code, _, err = negwise(*train("run").split())
    assert code == 0, err
    (tmp_path / "run").rename(tmp_path / os.fsdecode(b"r\xff"))
    code, _, err = shell(b"$negwise report r\xff --out page.html")
    assert (code, "Traceback" in err) == (0, False), err
    assert "udcff" in (tmp_path / "page.html").read_text()
