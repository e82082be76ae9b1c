"""The public contract: these names stay."""

import inspect
import subprocess
import sys

import pytest

import negwise as nw

HEADLINE = {
    "AnsK",
    "ConstantK",
    "Estimate",
    "FunctionK",
    "InputError",
    "MissingExtra",
    "NegwiseError",
    "PiecewiseK",
    "WarmK",
    "auc",
    "data",
    "effectiveness",
    "mi_bound",
    "optimal_k",
    "reliability",
    "run",
    "sample_kinds",
    "separation",
    "sweep",
    "train",
}


def test_headline_names():
    assert set(nw.__all__) == HEADLINE
    for name in HEADLINE:
        assert getattr(nw, name) is not None
        assert name in dir(nw)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'optimal_kk'"):
        _ = nw.optimal_kk


def test_version_is_the_packages_own():
    from importlib.metadata import version

    assert nw.__version__ == version("negwise")


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("negwise.draws", ["Key", "counts"]),
        ("negwise.protocols", ["Draw", "Negatives"]),
        ("negwise.schedule", ["KBatchSampler"]),
        (
            "negwise.samplers",
            ["Uniform", "Popularity", "InBatch", "Queue", "Impression", "Given", "Pool", "Hardest", "Mixture"],
        ),
        ("negwise.losses", ["info_nce", "info_nce_scores"]),
        ("negwise.curves", ["read", "Curves"]),
    ],
)
def test_names_of_the_parts(module, names):
    part = __import__(module, fromlist=names)
    for name in names:
        assert hasattr(part, name)


def test_signatures_that_other_code_relies_on():
    def leading(function, n):
        return list(inspect.signature(function).parameters)[:n]

    assert leading(nw.separation, 1) == ["auc"]
    assert leading(nw.auc, 1) == ["separation"]
    assert leading(nw.reliability, 2) == ["separation", "k"]
    assert leading(nw.effectiveness, 4) == ["label", "model", "k", "lam"]
    assert leading(nw.mi_bound, 2) == ["loss", "k"]
    assert {"train_auc", "val_auc", "steps", "n_queries", "lam", "max_k"} <= set(
        inspect.signature(nw.optimal_k).parameters
    )
    assert nw.AnsK(peak=20, turning_point=0.1) == nw.AnsK(20)
    assert nw.WarmK(peak=20, warmup=0.1) == nw.WarmK(20)


def test_attributes_of_an_estimate():
    found = nw.optimal_k(train_auc=0.75)
    for name in ("k", "k_int", "flat", "interval", "margin", "verdict", "reasons", "curve"):
        assert hasattr(found, name)
    promised = {"k", "k_int", "flat", "interval", "margin", "verdict", "reasons", "label_separation", "horizon", "lam"}
    data = found.to_dict()
    assert promised <= set(data)
    assert set(data["curve"]) == {"k", "v"}


def test_a_missing_extra_names_its_install_line(monkeypatch):
    from negwise.errors import MissingExtra, require

    with pytest.raises(MissingExtra, match=r"pip install 'negwise\[plot\]'"):
        require("negwise_no_such_package", extra="plot")
    # A package that is there but broken is not "missing".
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    with pytest.raises(ImportError):
        require("jinja2", extra="plot")


def test_packages_are_there_without_an_import_of_their_own():
    code = "import negwise as nw, sys; assert 'torch' not in sys.modules; nw.curves.read; nw.losses.info_nce"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("part", ["losses", "models", "samplers", "training"])
def test_a_part_that_needs_torch_says_so_by_itself(part):
    code = f"import sys; sys.modules['torch'] = None; import negwise as nw; nw.{part}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "MissingExtra: this needs the package 'torch'" in done.stderr
    assert f"pip install 'negwise[{'train' if part == 'training' else 'torch'}]'" in done.stderr
