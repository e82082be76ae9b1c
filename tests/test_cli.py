"""The command line as a person meets it: exit codes, what goes to which stream, and every message."""

import bz2
import gzip
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import negwise as nw
from negwise.theory.estimate import Estimate

LOGS = Path(__file__).parent / "curves" / "logs"


def test_one_number(negwise):
    code, out, err = negwise("estimate", "--train-auc", 0.75)
    assert code == 0
    assert err == ""
    assert out.startswith("Train with K = 5 negatives; 3..7 are as good.")
    assert "\x1b" not in out  # plain text in a pipe


def test_json_is_one_object_and_equals_the_library(negwise):
    words = [
        "--train-auc",
        "0.9",
        "--val-auc",
        "0.6,0.75,0.8,0.82",
        "--steps",
        "1,2,4,8",
        "--queries",
        "500",
        "--pairs",
        "50000",
    ]
    code, out, err = negwise("estimate", *words, "--json")
    assert (code, err) == (0, "")
    found = Estimate.from_dict(json.loads(out))
    assert found == nw.optimal_k(0.9, [0.6, 0.75, 0.8, 0.82], steps=[1, 2, 4, 8], n_queries=500, n_pairs=50_000)


@pytest.mark.parametrize("log", ["metrics.csv", "trainer_state.json"])
def test_logs_of_real_frameworks(negwise, log):
    code, out, err = negwise("estimate", "--curves", LOGS / log, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["source"] == "curve"


def test_a_log_with_validation_only_takes_its_training_auc_from_the_flag(negwise, tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("step,val_auc\n1,0.6\n2,0.7\n3,0.72\n")
    code, _, err = negwise("estimate", "--curves", log)
    assert code == 2
    assert "--train-auc" in err
    assert "--train-column" in err
    code, out, _ = negwise("estimate", "--curves", log, "--train-auc", 0.8, "--queries", 100, "--json")
    assert code == 0
    assert json.loads(out)["interval"] is not None


def test_counts_in_a_log_give_the_interval(negwise, tmp_path):
    log = tmp_path / "run.jsonl"
    rows = [
        {"kind": "eval", "step": step, "split": split, "auc": auc, "auc_se": 0.004, "queries": 900, "pairs": 90_000}
        for step, train, val in ((1, 0.7, 0.65), (2, 0.8, 0.75), (3, 0.82, 0.76))
        for split, auc in (("train", train), ("val", val))
    ]
    log.write_text("\n".join(map(json.dumps, rows)) + "\n")
    code, out, _ = negwise("estimate", "--curves", tmp_path, "--json")
    assert code == 0
    expected = nw.optimal_k([0.7, 0.8, 0.82], [0.65, 0.75, 0.76], steps=[1, 2, 3], train_se=0.004, val_se=0.004)
    assert Estimate.from_dict(json.loads(out)) == expected


def test_counts_without_a_split_are_those_of_both_curves(negwise, tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("step,train_auc,val_auc,queries\n1,0.7,0.6,500\n2,0.8,0.7,500\n3,0.81,0.72,500\n")
    code, out, _ = negwise("estimate", "--curves", log, "--json")
    assert code == 0
    assert json.loads(out)["interval"] is not None


def test_counts_of_validation_only(negwise, tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("step,val_auc,val_queries\n1,0.6,500\n2,0.7,500\n3,0.72,500\n")
    code, out, _ = negwise("estimate", "--curves", log, "--train-auc", 0.8, "--json")
    assert code == 0
    assert json.loads(out)["interval"] is not None


def test_a_column_that_names_no_split_is_offered(negwise, tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("epoch,auc,val_auc\n1,0.7,0.6\n2,0.8,0.7\n")
    code, _, err = negwise("estimate", "--curves", log)
    assert code == 2
    assert "--train-column 'auc'" in err


def test_validation_at_chance_is_no_traceback(negwise):
    code, out, _ = negwise("estimate", "--train-auc", 0.8, "--val-auc", "0.5,0.5")
    assert code == 0
    assert "verdict" in out


def test_columns_by_flag(negwise, tmp_path):
    log = tmp_path / "log.tsv"
    log.write_text("when\tfit\theld out\n1\t0.7\t0.6\n2\t0.8\t0.7\n")
    code, out, _ = negwise(
        "estimate",
        "--curves",
        log,
        "--train-column",
        "fit",
        "--val-column",
        "held out",
        "--step-column",
        "when",
        "--json",
    )
    assert code == 0
    assert json.loads(out)["pilot"]["val_auc"] == [0.6, 0.7]


def test_the_example_that_ships_with_the_package(negwise, tmp_path):
    code, out, err = negwise("estimate", "--example", "--plot", tmp_path / "sub" / "figure.png")
    assert code == 0
    assert "verdict: ok" in out
    assert err.strip() == f"figure: {tmp_path / 'sub' / 'figure.png'}"
    assert (tmp_path / "sub" / "figure.png").read_bytes().startswith(b"\x89PNG")


WRONG = [
    (["estimate"], "Type: negwise estimate --train-auc 0.75"),
    (["estimate", "--train-auc", "0.7,x"], "--train-auc: got '0.7,x'"),
    (["estimate", "--train-auc", "75"], "pass 0.75"),
    (["estimate", "--train-auc", "0.7", "--lam", "0.2"], "lam: got 0.2"),
    (["estimate", "--train-auc", "0.7", "--val-auc", "0.6,0.7", "--steps", "1"], "got 1 for 2 values"),
    (["estimate", "--curves", "no/such/log.csv"], "no/such/log.csv"),
    (["estimate", "--example", "--val-auc", "0.7"], "pass one of them"),
    (["estimate", "--train-auc", "0.7", "--plot", "figure.bmp"], "expected a name that ends in"),
    (["estimate", "--train-auc", "0.7", "--queries", "many"], "queries"),
    (["estimate", "--val-auc", "0.75"], "got no training AUC"),
    (["estimate", "--train-auc", "0.8", "--train-column", "x"], "are about a log: pass one"),
    (["estimate", "--train-auc", "0.8", "--run", "a"], "are about a log: pass one"),
    (["estimate", "a.csv", "--curves", "b.csv"], "pass one of them"),
    (["estimate", "a.csv", "--example"], "pass one of them"),
    (["estimate", "no/such/log.csv"], "no/such/log.csv"),
    (["estimate", "--train-auc", "0.8", "--steps", "1,2,3"], "steps without a curve"),
    (["estimate", "--example", "--train-auc", "0.9"], "--train-auc gives another"),
    (["estimate", "--no-such-flag"], "no-such-flag"),
    (["no-such-verb"], "no-such-verb"),
]


@pytest.mark.parametrize(("words", "message"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_a_wrong_request_exits_2_and_says_what_to_type(negwise, words, message):
    code, out, err = negwise(*words)
    assert code == 2
    assert out == ""
    assert message in err
    assert "Traceback" not in err


def test_work_that_fails_exits_1(negwise, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = negwise("estimate", "--train-auc", 0.7, "--plot", tmp_path / "file" / "figure.png")
    assert code == 1
    assert "negwise: " in err


def test_a_missing_extra_exits_1_with_its_install_line(negwise, tmp_path, monkeypatch):
    from negwise import errors

    def absent(module):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(errors, "importlib", SimpleNamespace(import_module=absent))
    code, _, err = negwise("estimate", "--train-auc", 0.7123, "--plot", tmp_path / "figure.png")  # none drew it before
    assert code == 1
    assert "pip install 'negwise[plot]'" in err


def test_every_verb_has_help_with_an_example(negwise):
    for verb in (["estimate"], ["schedule"], ["data"], ["train"], ["reproduce", "theory"]):
        code, out, _ = negwise(*verb, "--help")
        assert code == 0
        assert "Example" in out
        assert f"negwise {' '.join(verb)}" in out


def test_version(negwise):
    assert negwise("--version")[1].strip() == f"negwise {nw.__version__}"


def test_a_terminal_gets_colour_and_columns():
    parent, child = pty.openpty()
    words = [sys.executable, "-m", "negwise", "estimate", "--train-auc", "0.75"]
    subprocess.run(
        words, stdout=child, stderr=child, check=True, env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    )
    os.close(child)
    text = os.read(parent, 65536).decode()
    os.close(parent)
    assert "\x1b[" in text
    assert "Train with K = 5" in text
    assert "label separation" in text


def test_shell_completion():
    environment = {**os.environ, "_NEGWISE_COMPLETE": "complete_bash", "COMP_WORDS": "negwise est", "COMP_CWORD": "1"}
    out = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv[0] = 'negwise'; from negwise.cli import main; main()"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert "estimate" in out.stdout


def test_reproduce_theory(negwise, tmp_path):
    code, out, err = negwise("reproduce", "theory", "--out", tmp_path, "--json")
    assert code == 0
    files = [Path(file) for file in json.loads(out)["files"]]
    names = {
        "score-distributions",
        "optimal-k",
        "stages-1",
        "stages-2.4",
        "stages-4.07",
        "stages-4.5",
        "effectiveness-by-lambda",
        "auc-separation",
        "ans",
    }
    assert {file.stem for file in files} == names
    assert {file.suffix for file in files} == {".png", ".svg", ".csv"}
    assert all(file.stat().st_size > 1000 for file in files)
    assert err.count("\n") == len(names)


def test_a_place_that_cannot_be_written_is_named(negwise, tmp_path):
    code, _, err = negwise("explore", "--no-open", "--out", tmp_path)
    assert code == 2
    assert err == f"negwise: {tmp_path}: a folder, expected a file that can be replaced, or a new name.\n"


LOG = b"step,train_auc,val_auc\n1,0.7,0.6\n2,0.8,0.7\n3,0.82,0.71\n"


def test_a_log_packed_with_gzip(negwise, tmp_path):
    plain, packed = tmp_path / "log.csv", tmp_path / "log.csv.gz"
    plain.write_bytes(LOG)
    packed.write_bytes(gzip.compress(LOG))
    assert negwise("estimate", packed, "--json") == negwise("estimate", "--curves", plain, "--json")
    packed.write_bytes(gzip.compress(LOG)[:-9])
    code, _, err = negwise("estimate", packed)
    assert code == 2
    assert f"{packed}: a gzip file that is broken or cut short" in err


def test_a_log_packed_otherwise_is_called_compressed(negwise, tmp_path):
    log = tmp_path / "log.csv.bz2"
    log.write_bytes(bz2.compress(LOG))
    code, _, err = negwise("estimate", log)
    assert code == 2
    assert "a compressed file" in err


@pytest.mark.parametrize("data", [LOG, gzip.compress(LOG, mtime=0), b'{"step": 1, "train_auc": 0.7, "val_auc": 0.6}\n'])
def test_a_log_from_standard_input(data, tmp_path):
    done = subprocess.run([sys.executable, "-m", "negwise", "estimate", "-", "--json"], input=data, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    (tmp_path / "log").write_bytes(data)
    assert Estimate.from_dict(json.loads(done.stdout)) == nw.curves.read(tmp_path / "log").estimate()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "standard input: the file is empty"),
        (b"step,val_auc\n1,high\n", "standard input, line 2: 'high' in column 'val_auc'"),
        (gzip.compress(LOG, mtime=0)[:20], "standard input: a gzip file that is broken or cut short"),
        (None, "standard input: "),
    ],
)
def test_standard_input_that_is_no_log(data, message):
    words = [sys.executable, "-m", "negwise", "estimate", "-"]
    if data is None:  # closed
        done = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", *words], capture_output=True)
    else:
        done = subprocess.run(words, input=data, capture_output=True)
    assert done.returncode == 2
    assert message in done.stderr.decode() and "Traceback" not in done.stderr.decode()


def test_columns_of_a_log_for_a_report(negwise, tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("when,fit,held\n" + "".join(f"{n},{0.6 + n / 40},{0.55 + n / 50}\n" for n in range(1, 9)))
    code, _, err = negwise("report", log, "--out", tmp_path / "page.html")
    assert code == 2 and "--val-column NAME" in err
    words = ["--train-column", "fit", "--val-column", "held", "--step-column", "when"]
    code, _, err = negwise("report", log, *words, "--out", tmp_path / "page.html")
    assert code == 0, err
    assert (tmp_path / "page.html").exists()


@pytest.mark.parametrize("package", ["torch", "pyarrow"])
@pytest.mark.parametrize("verb", ["run", "train --data docs --model nrms --out x", "sweep --out x", "data docs"])
def test_a_missing_extra_is_named_by_every_verb(verb, package, tmp_path):
    if verb == "data docs" and package == "torch":
        pytest.skip("data needs no torch")
    code = f"import sys; sys.modules[{package!r}] = None; sys.argv = ['negwise', *{verb.split()!r}]; "
    own = {**os.environ, "NEGWISE_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code + "from negwise.cli import main; main()"],
        capture_output=True, text=True, cwd=tmp_path, env=own,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"{package!r}, which is not installed. Type: pip install 'negwise[train]'" in done.stderr
