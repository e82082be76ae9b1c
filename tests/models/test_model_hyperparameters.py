"""The paper's table of hyper-parameters against its LaTeX; the defaults against the table; the builder."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from model_world import content

from negwise.errors import InputError
from negwise.models import CHOICES, MODELS, PAPER, PaperSettings, build
from negwise.models.layers import Dropout
from negwise.tasks.recipes import paper_recipe

TEX = Path(__file__).parents[2].parent / "shared" / "paper" / "rethinking-infonce.tex"
ROWS = ["# attention heads", "output head dim", "hidden dim", "dropout", "optimizer", "learning rate"]
ROWS += ["batch size", "total epoch"]
COLUMNS = {
    "NRMS": "nrms",
    "LSTUR": "lstur",
    "NAML": "naml",
    "Siamese Transformer": "siamese-transformer",
    "CNN": "siamese-cnn",
    "LSTM": "siamese-lstm",
    "BERT4Rec": "bert4rec",
}


def published_table():
    """The table of the paper as {column: {row: text}}."""
    tex = TEX.read_text(encoding="utf-8")
    body = tex[tex.index(r"\label{hyper}") :]
    body = body[body.index(r"\begin{tabular}{|l") : body.index(r"\end{table}")]
    body = re.sub(r"\\begin\{tabular\}\[c\]\{@\{\}c@\{\}\}(.*?)\\\\ *(.*?)\\end\{tabular\}", r"\1 \2", body)
    body = re.sub(r"\\multicolumn\{1\}\{\|c\|\}\{(.*?)\}", r"\1", body)
    lines = [line for line in body.replace(r"\#", "#").split(r"\\") if "&" in line]
    cells = [[re.sub(r"\\hline|\s+", " ", cell).strip() for cell in line.split("&")] for line in lines]
    header = cells[0][1:]
    return {name: {row[0]: row[1 + i] for row in cells[1:]} for i, name in enumerate(header)}


@pytest.mark.skipif(not TEX.exists(), reason="the paper is not here: ../shared/paper/rethinking-infonce.tex")
def test_settings_are_those_of_the_paper():
    table = published_table()
    assert list(table) == list(COLUMNS)
    assert [COLUMNS[name] for name in table] == list(PAPER)
    for name, column in table.items():
        assert list(column) == ROWS
        ours = PAPER[COLUMNS[name]]
        kinds = [type(value) for value in vars(ours).values()]
        theirs = [kind(0 if text == "-" else text) for kind, text in zip(kinds, column.values(), strict=True)]
        assert ours == PaperSettings(*theirs), name


def test_defaults_are_the_settings():
    assert set(MODELS) == set(PAPER)
    for name, model in MODELS.items():
        defaults = {key: value.default for key, value in inspect.signature(model).parameters.items()}
        paper = PAPER[name]
        for key in ("heads", "head_dim", "hidden", "dropout"):
            if key in defaults:
                assert defaults[key] == getattr(paper, key), (name, key)
        if paper.heads:
            assert paper.heads * paper.head_dim == paper.hidden
            assert {"heads", "head_dim"} <= set(defaults)
        else:
            assert "hidden" in defaults


@pytest.mark.parametrize("name", MODELS)
def test_models_have_the_size_of_the_paper(name):
    import torch

    model = build(name, content())
    width = model.encode_candidates(torch.tensor([0, 1])).shape[1]
    assert width == PAPER[name].hidden + (200 if name == "lstur" else 0)
    rates = {module.p for module in model.modules() if isinstance(module, Dropout)}
    assert rates == {0.2}


def test_choices_speak_of_models_that_are_there():
    assert {name for choice in CHOICES for name in choice.models} == set(MODELS)
    assert len({(choice.what, choice.models) for choice in CHOICES}) == len(CHOICES)
    for choice in CHOICES:
        assert choice.value, choice.what
        assert choice.why, choice.what


STATED = {
    "embedding": "width of word embeddings",
    "pooling": "width inside additive attention",
    "window": "window of the CNN",
    "category_width": "width of category embeddings",
    "variant": "variant of LSTUR",
    "user_mask_rate": "masking of the long-term user vector",
    "temperature": "score of two texts",
    "layers": "layers, inner width",
    "max_len": "length of a sequence",
    "mask_rate": "share of items masked",
}


@pytest.mark.parametrize("name", MODELS)
def test_every_default_is_the_papers_or_a_stated_choice(name):
    for word, parameter in inspect.signature(MODELS[name]).parameters.items():
        if parameter.default is parameter.empty or word == "vectors" or hasattr(PAPER[name], word):
            continue
        values = {choice.what: choice.value for choice in CHOICES if name in choice.models}
        if word == "last_rate":
            assert values["rows with only the last item masked"] == f"1 in {round(1 / parameter.default)}"
        else:
            (stated,) = [value for what, value in values.items() if what.startswith(STATED[word])]
            assert re.search(rf"(?<![\d.]){re.escape(str(parameter.default))}(?![\d.])", stated), word


def test_lengths_are_those_of_the_data():
    (kept,) = [choice.value for choice in CHOICES if choice.what == "words and clicks kept"]
    usual = paper_recipe("nrms")
    words = f"titles {usual['title_words']}, abstracts and bodies {usual['body_words']}"
    assert kept == f"{words}, histories {usual['history']}"


def test_a_typo_gets_the_names():
    with pytest.raises(InputError, match=r"no model 'nrsm'; did you mean 'nrms'\? The models are nrms, naml, lstur, "):
        build("nrsm", content())
    with pytest.raises(InputError, match=r"no model 'word2vec'\. The models are .*siamese-lstm, bert4rec"):
        build("word2vec", content())


def test_what_is_missing_or_unknown_is_named():
    data = content()
    del data["abstract"], data["subcategory"], data["n_subcategories"]
    with pytest.raises(InputError, match="naml needs abstract, subcategory, n_subcategories; the content has category"):
        build("naml", data)
    with pytest.raises(InputError, match="bert4rec has no setting head; it has heads, head_dim, layers"):
        build("bert4rec", data, head=3)
    with pytest.raises(InputError, match="nrms has no setting title"):
        build("nrms", data, title=3)


def test_categories_are_counted_where_nobody_says():
    data = content()
    del data["n_categories"], data["n_subcategories"]
    model = build("naml", data)
    assert model.category_view.embedding.num_embeddings == data["category"].max() + 1
    assert model.subcategory_view.embedding.num_embeddings == data["subcategory"].max() + 1


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("title", np.zeros((4, 3)), r"title is torch.float64 of shape \(4, 3\), expected token ids"),
        ("title", np.zeros(4, int), r"title is torch.int64 of shape \(4,\)"),
        (
            "title",
            np.full((4, 3), 60),
            r"title has token ids 60..60, expected 0 \(padding\) to n_words - 1 = 59",
        ),
        ("title", np.full((4, 3), -1), r"title has token ids -1..-1"),
        ("title", np.array([[1, 2, 0], [1, 0, 2]]), r"title: item 1 has padding \(0\) before a word"),
        ("category", np.zeros((4, 1), int), r"category is torch.int64 of shape \(4, 1\), expected integers"),
        ("category", np.full(4, 9), r"category has ids 9..9, expected 0 to 4"),
        (
            "vectors",
            np.zeros((3, 5)),
            r"vectors have shape \(3, 5\), expected numbers of shape \(60, width\), one row per word",
        ),
    ],
)
def test_bad_content_is_refused(field, value, message):
    with pytest.raises(InputError, match=message):
        build("lstur", content() | {field: value})


def test_bad_settings_are_refused():
    with pytest.raises(InputError, match="variant='both', expected 'ini' or 'con'"):
        build("lstur", content(), variant="both")
    with pytest.raises(InputError, match="window=4, expected an odd number"):
        build("naml", content(), window=4)
    with pytest.raises(InputError, match="temperature=0, expected a number above 0"):
        build("siamese-cnn", content(), temperature=0)


def test_memory_mapped_tables_are_taken(tmp_path):
    data = content()
    np.save(tmp_path / "title.npy", data["title"])
    data["title"] = np.load(tmp_path / "title.npy", mmap_mode="r")
    assert (build("nrms", data).title.numpy() == data["title"]).all()
