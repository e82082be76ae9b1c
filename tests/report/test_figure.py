import csv
import io
import json

import pytest

import negwise as nw
from negwise.errors import InputError
from negwise.report.estimate_figure import estimate_figure
from negwise.report.figure import Figure

CURVE = {"train_auc": [0.7, 0.8, 0.82, 0.83], "val_auc": [0.65, 0.74, 0.76, 0.75], "steps": [1, 2, 3, 4]}


@pytest.mark.parametrize(
    "found",
    [
        nw.optimal_k(0.75),
        nw.optimal_k(0.9, 0.85, n_queries=400),
        nw.optimal_k(**CURVE, n_queries=2000),
        nw.optimal_k(0.85, CURVE["val_auc"], steps=CURVE["steps"]),
        nw.optimal_k(0.998, max_k=50),
        nw.optimal_k(0.55),
    ],
    ids=["alone", "pair", "curve", "constant training", "capped", "vacuous"],
)
def test_every_kind_of_estimate_has_a_figure(found, tmp_path):
    made = estimate_figure(found)
    png, svg, table = made.save_all(tmp_path)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert found.headline() in svg.read_text()
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    drawn = [(float(row["k"]), float(row["effectiveness"])) for row in rows if row["k"]]
    assert drawn == list(zip(found.curve.k, found.curve.v, strict=True))


def test_the_curves_and_t_are_in_the_picture():
    found = nw.optimal_k(**CURVE)
    svg = estimate_figure(found).svg()
    for text in ("training", "validation", f"T = {found.horizon:g}", "K* ="):
        assert text in svg


def test_endings(tmp_path):
    made = estimate_figure(nw.optimal_k(0.75))
    assert json.loads(made.save_as(tmp_path / "a.json").read_text())["$schema"]
    assert made.save_as(tmp_path / "a.SVG").read_text().startswith("<svg")
    assert made.save_as(tmp_path / "a.csv").read_text().startswith("k,effectiveness")
    with pytest.raises(InputError, match=r"ending '.pdf'.*expected a name that ends in .png"):
        made.save_as(tmp_path / "a.pdf")


def test_rows_with_different_columns_make_one_table():
    text = Figure("x", "", "", (), [{"a": 1, "b": 2}, {"b": 3, "c": None}]).csv()
    assert text == "a,b,c\n1,2,\n,3,\n"
