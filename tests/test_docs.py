"""The documentation names what exists: files, public names, options, links."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import pkgutil
import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

import negwise
from negwise.cli import app

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/negwise"
PAGES = sorted(page for page in [ROOT / "README.md", *ROOT.glob("docs/*.md")] if page.name != "evidence.md")
PACKAGES = sorted(one.name for one in pkgutil.iter_modules([str(SOURCE)]) if one.ispkg)


def blocks(page, *languages):
    """The code blocks of a page in one of ``languages``."""
    found = re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), flags=re.S | re.M)
    return [text for language, text in found if language in languages]


def commands(page):
    """Each ``negwise ...`` that a page tells to type, as words."""
    text = page.read_text()
    lines = [line for block in blocks(page, "sh", "console") for line in block.splitlines()]
    lines += re.findall(r"`(negwise [^`]*)`", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))
    for line in lines:
        line = line.removeprefix("$ ")
        if " -m negwise " in line:
            line = "negwise " + line.split(" -m negwise ")[1]
        if line.startswith("negwise "):
            yield shlex.split(line, comments=True)[1:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page):
    for words in commands(page):
        verb, at = get_command(app), 0
        while at < len(words) and words[at] in getattr(verb, "commands", {}):
            verb, at = verb.commands[words[at]], at + 1
        assert at > 0, f"negwise {' '.join(words)}"
        known = {flag for one in verb.params for flag in (*one.opts, *one.secondary_opts)} | {"--help"}
        for word in words[at:]:
            if word.startswith("--"):
                assert word.split("=")[0] in known, f"negwise {' '.join(words)}"


def names_of(module):
    """What can be imported from a module; of a framework's file, whose framework is not here, what it defines."""
    try:
        return dir(importlib.import_module(module))
    except negwise.MissingExtra:
        tree = ast.parse(SOURCE.joinpath(*module.split(".")[1:]).with_suffix(".py").read_text())
        return [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_use_names_that_exist(page):
    for block in blocks(page, "python"):
        tree = ast.parse(block)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "negwise":
                defined = names_of(node.module)
                assert all(name.name in defined for name in node.names), ast.unparse(node)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "nw":
                assert hasattr(negwise, node.attr), ast.unparse(node)
    for name in re.findall(r"`nw\.(\w+)", page.read_text()):
        assert hasattr(negwise, name), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_dotted_names_exist(page):
    for name in re.findall(r"`(negwise(?:\.\w+)+)", page.read_text()):
        parts = name.split(".")
        home, rest = importlib.import_module(parts[0]), parts[1:]
        for number, part in enumerate(rest):
            if not hasattr(home, part):
                module = ".".join(parts[: number + 2])
                if number + 1 == len(rest):
                    assert names_of(module)
                    break
                home = importlib.import_module(module)
            else:
                home = getattr(home, part)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_exist(page):
    """Python files, by their path from the root or within the package; a module's bare name occurs once."""
    for name in re.findall(r"`([\w*./-]+\.py)`", page.read_text()):
        assert list(ROOT.glob(name)) or list(SOURCE.glob(name)) or list(SOURCE.rglob(name)), name


def test_the_architecture_names_every_package_and_every_module_of_the_main_ones():
    text = (ROOT / "docs/architecture.md").read_text()
    for package in PACKAGES:
        assert f"{package}/" in text, package
    for package in ("theory", "curves", "schedule", "samplers", "metrics", "jobs", "tasks"):
        for module in (SOURCE / package).glob("[a-z]*.py"):
            assert module.name in text, module


def public_names():
    for package in PACKAGES:
        home = importlib.import_module(f"negwise.{package}")
        for name in getattr(home, "__all__", ()):
            yield package, name, getattr(home, name)


def test_the_reference_has_every_public_name():
    """`automodule` takes all of a package's ``__all__``; the names of `negwise` itself are listed."""
    text = (ROOT / "docs/api.md").read_text()
    listed = set(re.findall(r"automodule:: negwise\.(\w+)", text))
    assert {package for package, _, _ in public_names()} <= listed
    for name in negwise.__all__:
        assert re.search(rf"`nw\.{name}\b", text), name


def test_every_public_name_has_a_docstring():
    for package, name, value in public_names():
        if inspect.isroutine(value) or inspect.isclass(value):
            assert inspect.getdoc(value), f"negwise.{package}.{name}"


@pytest.mark.parametrize("record", ["cpu", "reading", "serving"])
def test_the_tables_of_the_benchmarks_are_those_of_their_records(record):
    lines = (ROOT / "docs/benchmarks.md").read_text().splitlines()
    rows = json.loads((ROOT / f"benchmarks/results/{record}.json").read_text())["rows"]
    for row in (row for part in rows.values() for row in part):
        told = [line.split(" | ")[2] for line in lines if line.startswith(f"| {row['work']} | {row['measure']} |")]
        assert len(told) == 1, (row["work"], row["measure"])
        assert float(told[0].split()[0].replace(",", "")) == pytest.approx(row["value"], rel=1e-3)
