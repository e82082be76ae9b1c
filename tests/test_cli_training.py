"""The verbs `data` and `train` as a person meets them."""

import json

import pytest

import negwise as nw


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    """A file of text pairs: a title names its body by a word of its own."""
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "pairs.jsonl"
    rows = [
        {"left": f"word{i} of the title", "right": f"a body that says word{i} and ends {i * 7 % 97}"}
        for i in range(120)
    ]
    file.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return file


def test_data_says_what_is_there(negwise, pairs):
    code, out, err = negwise("data", pairs)
    assert code == 0, err  # a slow machine also says how far it is
    assert "pairs: 120" in out
    assert "ceiling for K: 119 in all the data, about 95 in the training split" in out
    code, out, _ = negwise("data", pairs, "--json")
    assert json.loads(out)["counts"]["pairs"] == 120


def test_data_names_the_line_of_a_bad_row_and_skips_on_request(negwise, pairs):
    pairs.write_text(pairs.read_text() + '{"left": "no right side"}\n')
    code, _, err = negwise("data", pairs)
    assert code == 2
    assert "line 121" in err
    code, out, _ = negwise("data", pairs, "--skip-bad", 1)
    assert code == 0
    assert "line 121" in out


def test_train_runs_resumes_and_estimates(negwise, pairs, tmp_path):
    words = ["--data", pairs, "--model", "siamese-cnn", "--k", 1, "--steps", 6, "--batch-size", 8, "--pool", 16]
    words += ["--eval-every", 2, "--out", tmp_path / "run", "--device", "cpu"]
    code, out, err = negwise("train", *words)
    assert code == 0, err
    assert "val: hit@5 0." in out and "  AUC 0." in out
    assert "step 6/6" in err
    assert (tmp_path / "run" / "result.json").exists()
    again = negwise("train", *words)
    assert again[:2] == (0, out)
    code, out, err = negwise("train", *words, "--seed", 1)
    assert code == 2
    assert "seed" in err
    code, out, _ = negwise("estimate", "--curves", tmp_path / "run", "--json")
    assert code == 0
    assert len(json.loads(out)["pilot"]["val_auc"]) == 4


def test_the_simulated_clicks_train_a_news_model(negwise, tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    words = ["--model", "nrms", "--steps", 2, "--batch-size", 8, "--queries", 50, "--eval-every", 1, "--device", "cpu"]
    code, out, err = negwise("train", "--data", "clicks", "--out", tmp_path / "run", *words, "--json")
    assert code == 0, err
    assert set(json.loads(out)["evaluations"]) == {"val", "test"}


def test_word_vectors_are_taken_from_a_file(negwise, pairs, tmp_path):
    file = tmp_path / "glove.txt"
    file.write_text("".join(f"word{i} {' '.join(['0.5'] * 300)}\n" for i in range(120)))
    words = ["--model", "siamese-cnn", "--steps", 1, "--batch-size", 4, "--vectors", file, "--out", tmp_path / "run"]
    code, _, err = negwise("train", "--data", pairs, *words, "--device", "cpu")
    assert code == 0, err
    code, _, err = negwise(
        "train", "--data", pairs, *words[:-1], tmp_path / "other", "--vectors", tmp_path / "none.txt"
    )
    assert code == 2
    assert "none.txt" in err


def test_a_trained_model_loads_in_two_lines(negwise, pairs, tmp_path):
    words = ["--model", "siamese-cnn", "--steps", 4, "--batch-size", 8, "--eval-every", 2, "--out", tmp_path / "run"]
    assert negwise("train", "--data", pairs, *words, "--device", "cpu")[0] == 0
    scores = nw.load(tmp_path / "run").score(["title one", "title two"], ["body", "another body"])
    assert scores.shape == (2, 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "nrsm"], "expected one of"),
        (["--model", "siamese-cnn", "--k", "many"], "cannot read K"),
        (["--model", "bert4rec"], "supports pairs"),
        (["--model", "bert4rec", "--data", "clicks"], "learns from sequences"),
        (["--model", "siamese-cnn", "--split", "moon"], "expected one of random, folders"),
        (["--model", "siamese-cnn", "--k", "0"], "k: got 0, expected more than 0"),
        (["--model", "siamese-cnn", "--k", "120"], "no row has more than 95 negatives"),
        (["--model", "siamese-cnn", "--k", "warm:20", "--pool", "16"], "no row has more than 16 negatives"),
        (["--model", "siamese-cnn", "--k", "1e9"], "no row has more than"),
        (["--model", "siamese-cnn", "--pool", "0"], "pool: got 0"),
        (["--model", "siamese-cnn", "--history", "0"], "history: got 0"),
        (["--model", "siamese-cnn", "--queries", "0"], "queries: got 0"),
        (["--model", "siamese-cnn", "--epochs", "0"], "epochs: got 0"),
        (["--model", "siamese-cnn", "--epochs", "2", "--steps", "2"], "got both"),
        (["--model", "siamese-cnn", "--learning-rate", "-1"], "learning_rate: got -1.0, expected a number above 0"),
        (["--model", "siamese-cnn", "--learning-rate", "nan"], "learning_rate: got nan"),
    ],
)
def test_a_wrong_training_exits_2(negwise, pairs, tmp_path, words, message):
    code, _, err = negwise("train", "--data", pairs, "--out", tmp_path / "run", *words)
    assert code == 2
    assert message in err
    assert not (tmp_path / "run").exists()


def test_columns_by_name_and_arguments_of_the_model(negwise, tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    odd = tmp_path / "odd.csv"
    odd.write_text("customer,thing,when\n" + "".join(f"c{i % 9},t{i % 13},{i}\n" for i in range(90)))
    code, _, err = negwise("data", odd)
    assert code == 2
    assert "--column" in err
    roles = ["--column", "user=customer", "--column", "item=thing", "--column", "time=when"]
    code, out, _ = negwise("data", odd, *roles)
    assert code == 0
    assert "users: 9" in out
    words = ["--data", odd, *roles, "--model", "bert4rec", "--steps", 2, "--batch-size", 4, "--device", "cpu", "--k", 1]
    code, _, err = negwise("train", *words, "--setting", "layers=1", "--history", 5, "--out", tmp_path / "run")
    assert code == 0, err
    config = json.loads((tmp_path / "run" / "config.json").read_text())["run"]
    assert config["settings"] == {"layers": 1}
    assert config["columns"] == {"user": "customer", "item": "thing", "time": "when"}
    for bad, said in (("layers", "layers"), ("layers=many", "dropout=0.1"), ("storeys=2", "storeys")):
        code, _, err = negwise("train", *words, "--setting", bad, "--out", tmp_path / "other")
        assert code == 2
        assert said in err
    assert negwise("data", odd, "--column", "user")[0] == 2


def test_vectors_need_words_and_a_job_is_no_run(negwise, tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    log = tmp_path / "log.csv"
    log.write_text("user,item\n" + "".join(f"c{i % 9},t{i % 13}\n" for i in range(90)))
    words = ["--data", log, "--model", "bert4rec", "--steps", 2, "--batch-size", 4, "--device", "cpu", "--k", 1]
    code, _, err = negwise("train", *words, "--vectors", "glove.txt", "--out", tmp_path / "run")
    assert code == 2 and "no words for bert4rec to read" in err
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "job.json").write_text("{}")
    code, _, err = negwise("train", *words, "--out", tmp_path / "job")
    assert code == 2 and "the folder of a job" in err
    assert [file.name for file in (tmp_path / "job").iterdir()] == ["job.json"]


def test_a_run_that_was_not_a_pilot_is_told_of(negwise, pairs, tmp_path):
    usual = {"model": "siamese-cnn", "steps": 4, "batch_size": 8, "eval_every": 2, "device": "cpu"}
    for k, said in (("4", "trained with K = 4"), ("warm:3", "trained with K from 1 to 3"), ("1", None)):
        out = tmp_path / k.replace(":", "-")
        nw.train(pairs, k=k, out=out, evaluate_training=True, **usual)
        reasons = json.loads(negwise("estimate", "--curves", out, "--json")[1])["reasons"]
        assert any("K = 1" in reason for reason in reasons) is (said is not None)
        assert said is None or said in reasons[0]
