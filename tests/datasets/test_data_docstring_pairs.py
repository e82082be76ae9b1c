"""Docstrings found by the lexer against a full parse, and the pairs that are made of them."""

import ast
import inspect
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from negwise.datasets import prepare
from negwise.datasets.docstring_pairs import (
    by_parsing,
    docstrings,
    read_docstring_pairs,
    source_files,
    source_roots,
    title_body_pairs,
)
from negwise.datasets.source import Source
from negwise.datasets.table_cache import open_tables
from negwise.tasks import model_content, tokenize

STDLIB = Path(sysconfig.get_path("stdlib"))

MODULE = '''#!/usr/bin/env python
"""The module.

More of it, "quoted" and all.
"""
import os  # """no docstring"""

X = """neither

is this"""

class Thing(object):  # a comment: here
    r"""A Thing.

    It has \\d and 'quotes'.
    """

    def method(self, a={"x": 1}, *, b: "str" = ':', c=(1,
               2)) -> dict[str, int]:
        # said before
        """Do it.

        With care, \\N{BULLET}.
        """
        if a:
            """not a docstring

            but looks like one"""

    async def go(self):
        \'\'\'Goes.

        On.\'\'\'

def one(): return """no

doc"""

def f(): pass
if X:
    """nothing

    here"""
'''


def test_the_lexer_finds_what_a_parse_finds():
    assert sorted(docstrings(MODULE)) == sorted(by_parsing(MODULE))
    assert [name for name, _ in docstrings(MODULE)] == ["", "Thing", "method", "go"]


@pytest.mark.parametrize("package", ["json", "email", "asyncio", "logging", "collections", "unittest", "importlib"])
def test_the_lexer_agrees_with_a_parse_on_the_standard_library(package):
    """Independent referee: CPython's own parser, on every docstring of two paragraphs or more."""
    compared = 0
    for file in sorted((STDLIB / package).rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        expected, found = (
            sorted(entry for entry in get(source) if "\n\n" in entry.text) for get in (by_parsing, docstrings)
        )
        assert found == expected, file
        compared += len(expected)
    assert compared > 5


def test_names_of_functions_documented_from_outside():
    source = 'add_docstr(torch.abs, r"""\nabs(input) -> Tensor\n\nComputes it.\n\nFor each abs element.""")\n'
    source += (
        'add_newdoc("numpy", "ndarray", ("shape",\n    """Tuple of dimensions.\n\nThe shape property is usual."""))\n'
    )
    assert [name for name, _ in docstrings(source)] == ["abs", "shape"]


def test_pairs_are_the_first_paragraph_and_the_rest_without_the_name():
    source = '''
def loadData(x):
    """Load the rowData of
    some_table now.

    Parameters
    ----------
    x : int
        What loadData takes; see loadDataset and HTTPServer.
    """

def single():
    """Return three whole words. The rest of this paragraph follows."""

def short():
    """Too short.

    No."""
'''
    assert list(title_body_pairs(source)) == [
        ("Load the row Data of some table now.", "Parameters x : int What takes; see load Dataset and HTTP Server."),
        ("Return three whole words.", "The rest of this paragraph follows."),
    ]


def test_files_that_are_no_text_are_named_and_passed_over(tmp_path):
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "a.py").write_text('"""A title of words.\n\nA body of words."""\n')
    (folder / "b.py").write_bytes(b"\xff\xfe\x00")
    (folder / "c.py").write_text('def f(:\n    """Broken header, is it.\n\nStill text in here."""\n')
    (folder / "d.py").write_text('"""A title of words.\n\nA body of words."""\n')
    made, facts = read_docstring_pairs(tmp_path / "cache", [folder])
    assert facts["unread"] == [str(folder / "b.py")] and facts["files"] == 4
    rows = open_tables(made)["pairs"].to_pylist()
    assert (rows[0]["left"], rows[0]["right"]) == ("A title of words.", "A body of words.")
    assert facts["pairs"] == len(rows) == len({(row["left"], row["right"]) for row in rows})


def test_the_hash_is_that_of_the_content(tmp_path):
    digests = []
    for number, text in enumerate(["A body of words.", "A body of words.", "Another body of words."]):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "a.py").write_text(f'"""A title of words.\n\n{text}"""\n')
        digests.append(read_docstring_pairs(tmp_path / "cache", [folder])[1]["digest"])
    assert digests[0] == digests[1] != digests[2]


def test_nothing_is_imported(tmp_path):
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "a.py").write_text('"""A title of words.\n\nA body of words."""\nraise SystemExit("imported")\n')
    code = (
        "import sys; from pathlib import Path; "
        "from negwise.datasets.docstring_pairs import read_docstring_pairs, source_roots; "
        f"read_docstring_pairs(Path({str(tmp_path / 'cache')!r}), [Path({str(folder)!r})]); source_roots(); "
        "print([name for name in ('torch', 'scipy.linalg', 'idlelib') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_sources_are_where_python_has_them():
    roots = source_roots()
    assert roots[0] == STDLIB and {"numpy", "scipy"} <= {root.name for root in roots[1:]}
    names = {entry.path for entry in source_files(STDLIB)}
    assert inspect.getsourcefile(ast) in names
    assert not any("site-packages" in Path(name).relative_to(STDLIB).parts for name in names)


def test_a_task_of_docs(tmp_path):
    folder, facts = read_docstring_pairs(tmp_path, [STDLIB / "asyncio", STDLIB / "email", STDLIB / "unittest"])
    source = Source("docs", "pairs", open_tables(folder), facts["digest"], folder)
    task = prepare(source)
    assert task.digest == facts["digest"]
    assert len(task.train) + len(task.val) + len(task.test) == facts["pairs"] > 200
    assert set(model_content(task, tokenize(task))) >= {"left", "right", "n_words", "n_items"}
