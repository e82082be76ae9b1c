"""The public contract: these names stay, and what stands beside the package uses no others."""

import ast
import functools
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import negwise as nw

HEADLINE = {
    "AnsK",
    "ConstantK",
    "Estimate",
    "FunctionK",
    "OnlineK",
    "k_for_metric",
    "load",
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
    "share_of_gain",
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
        ("negwise.inference", ["load", "TextModel", "Recommender", "TopN", "top_n"]),
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
    assert leading(nw.load, 1) == ["folder"]
    from negwise.inference import Recommender, TextModel

    assert leading(TextModel.encode, 2) == ["self", "texts"]
    assert leading(TextModel.search, 4) == ["self", "queries", "corpus", "n"]
    assert leading(TextModel.mine, 4) == ["self", "pairs", "n", "margin"]
    assert leading(Recommender.recommend, 5) == ["self", "users", "histories", "n", "exclude_seen"]
    assert leading(Recommender.similar, 3) == ["self", "items", "n"]
    assert leading(Recommender.export, 2) == leading(TextModel.export, 2) == ["self", "folder"]
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


@pytest.mark.parametrize("part", ["inference", "losses", "models", "samplers", "training"])
def test_a_part_that_needs_torch_says_so_by_itself(part):
    code = f"import sys; sys.modules['torch'] = None; import negwise as nw; nw.{part}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "MissingExtra: this needs the package 'torch'" in done.stderr
    assert f"pip install 'negwise[{'train' if part in ('inference', 'training') else 'torch'}]'" in done.stderr


SINGLE_MODULES = ("distributed", "errors", "files", "protocols", "terminal", "words")
ROOT = Path(__file__).parents[1]
OUTSIDE = sorted([*ROOT.glob("evidence/*.py"), *ROOT.glob("examples/*.py")])


@functools.cache
def public_names() -> dict[str, set[str]]:
    """The public names of each part: ``__all__`` of a package, what a single module defines without an underscore."""
    source = Path(nw.__file__).parent
    packages = [path.parent.name for path in source.glob("*/__init__.py")]
    names = {part: set(getattr(importlib.import_module(f"negwise.{part}"), "__all__", ())) for part in packages}
    for part in SINGLE_MODULES:
        defined = [names_in(node) for node in ast.parse((source / f"{part}.py").read_text()).body]
        names[part] = {name for some in defined for name in some if not name.startswith("_")}
    return {part: some for part, some in names.items() if some}


def names_in(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
    return []


def is_public(path: str) -> bool:
    """Of ``negwise``, ``negwise.auc``, ``negwise.report``, ``negwise.report.Figure``, and what these values have."""
    _, *inside = path.split(".")
    if not inside or inside[0] in nw.__all__ or inside[0] in ("__file__", "__version__"):
        return True
    part, *names = inside
    return part in public_names() and (not names or names[0] in public_names()[part])


def used(source: str) -> list[str]:
    """Everything of negwise that ``source`` imports, anywhere in it, and the attributes of what it imports."""
    tree = ast.parse(source)
    paths, bound = [], {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "negwise":
            found = {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            paths += found.values()
            bound |= found
        elif isinstance(node, ast.Import):
            found = [alias for alias in node.names if alias.name.split(".")[0] == "negwise"]
            paths += [alias.name for alias in found]
            bound |= {alias.asname or "negwise": alias.name if alias.asname else "negwise" for alias in found}
    for node in ast.walk(tree):
        inside = []
        while isinstance(node, ast.Attribute):
            node, inside = node.value, [node.attr, *inside]
        if inside and isinstance(node, ast.Name) and node.id in bound:
            paths.append(".".join([bound[node.id], *inside]))
    return paths


@pytest.mark.parametrize("path", OUTSIDE, ids=[str(path.relative_to(ROOT)) for path in OUTSIDE])
def test_evidence_and_examples_use_public_names_only(path):
    inner = [name for name in used(path.read_text()) if not is_public(name)]
    assert not inner, f"not public: {', '.join(inner)}; use a public name, or add it to the part's __all__"


@pytest.mark.parametrize(
    ("source", "inner"),
    [
        ("import negwise as nw; nw.auc(1.0); nw.draws.Key(0, 1).rows(2); nw.__version__", []),
        ("from negwise import metrics; metrics.Ranks", []),
        ("from negwise.files import write_json", []),
        ("from negwise.files import json", ["negwise.files.json"]),
        ("from negwise.files import _sync", ["negwise.files._sync"]),
        ("from negwise.report.figure import Figure", ["negwise.report.figure.Figure"]),
        ("from negwise.report import *", ["negwise.report.*"]),
        ("def f():\n    from negwise.report import series", ["negwise.report.series"]),
        ("import negwise.report.figure", ["negwise.report.figure"]),
        ("import negwise.report; negwise.report.series.thin", ["negwise.report.series.thin", "negwise.report.series"]),
        ("from negwise import verbs", ["negwise.verbs"]),
    ],
)
def test_what_counts_as_public(source, inner):
    assert [name for name in used(source) if not is_public(name)] == inner
