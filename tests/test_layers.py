"""The shape of the code, pinned: imports go down only, siblings do not know each other, importing stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import negwise

ROOT = Path(negwise.__file__).parent

# From the top down; names on one line are siblings. docs/architecture.md shows the same table.
LAYERS = [
    ["cli", "verbs"],
    ["terminal"],
    ["jobs"],
    ["training", "inference", "integrations", "report"],
    ["tasks", "schedule", "curves"],
    ["theory", "metrics", "samplers", "losses", "datasets", "models"],
    ["requests", "protocols", "records", "distributed", "draws", "files", "host_copy", "stages", "words"],
    ["errors"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
# The bottom layer's seams are spelled in terms of each other; the order within it keeps them free of cycles.
BOTTOM = {
    "words": 0,
    "requests": 0,
    "distributed": 0,
    "files": 0,
    "host_copy": 0,
    "stages": 0,
    "draws": 0,
    "records": 1,
    "protocols": 1,
}


def part_of(path: Path) -> str:
    """The part of negwise that a module belongs to: its package, or itself."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Every part of negwise that a module imports, anywhere in it, type checking included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports in full"
            names = [node.module or ""] if node.module != "negwise" else [f"negwise.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("negwise.")}
    return found


MODULES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=[str(path.relative_to(ROOT)) for path in MODULES])
def test_imports_go_down_only(path):
    me = part_of(path)
    if me in ("__init__", "__main__"):
        return  # the headline API fetches its names from everywhere; nothing imports the other
    assert me in LEVEL, f"{me} is in no layer: give it a place in LAYERS and in docs/architecture.md"
    for other in imported(path) - {me}:
        assert other in LEVEL, f"{path} imports negwise.{other}, which is in no layer"
        if LEVEL[other] == LEVEL[me] and me in BOTTOM:
            assert BOTTOM[other] < BOTTOM[me], f"{me} imports {other}: against the order of the bottom layer"
        else:
            assert LEVEL[other] > LEVEL[me], f"{me} imports {other}: up or sideways"


def module_name(path: Path) -> str:
    return ".".join(["negwise", *path.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__")


def test_modules_have_no_cycle():
    names = {module_name(path) for path in MODULES}
    graph = {}
    for path in MODULES:
        graph[module_name(path)] = edges = set()
        # Imports at the top of a module; one inside a function runs later and closes no cycle.
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ImportFrom) and node.module in names:
                parts = {f"{node.module}.{alias.name}" for alias in node.names}
                edges |= parts & names or {node.module}  # a submodule by name is that submodule alone
    done, open_ = set(), []

    def visit(name):
        assert name not in open_, " -> ".join([*open_, name])
        if name in done or name not in graph:
            return
        open_.append(name)
        for other in sorted(graph[name]):
            if other != name:
                visit(other)
        done.add(open_.pop())

    for name in graph:
        visit(name)


def test_documented_layers_are_these():
    page = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()
    table = page.split("```text\n")[1].split("```")[0].strip().splitlines()
    assert [line.split("#")[0].replace(",", " ").split() for line in table] == LAYERS


HEAVY = ["torch", "altair", "vl_convert", "pyarrow", "matplotlib", "jinja2", "numba", "lightning_fabric", "pandas"]


@pytest.mark.parametrize(
    "code",
    [
        "import negwise",
        "import negwise as nw; nw.optimal_k(train_auc=0.75); nw.AnsK(peak=20); nw.mi_bound(1.0, 4)",
        "import negwise.cli",
        "import negwise.curves",
        "import negwise.schedule",
        "import negwise.metrics",
        "import negwise.report",
        "import negwise.theory",
    ],
)
def test_core_stays_light(code):
    check = f"{code}; import sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_importing_negwise_loads_not_even_numpy():
    check = "import negwise, sys; print([name for name in ('numpy', 'scipy', 'rich', 'typer') if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


FRAMEWORKS = ["sentence_transformers", "transformers", "datasets", "lightning", "pytorch_lightning", "accelerate"]


def test_integrations_import_no_framework_that_is_not_asked_for():
    check = f"import negwise.integrations, sys; print([name for name in {FRAMEWORKS!r} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["sentence_transformers", "cross_encoder", "transformers", "lightning"])
def test_a_framework_that_is_missing_says_what_to_install(name):
    package = "sentence_transformers" if name == "cross_encoder" else name
    check = f"import sys; sys.modules[{package!r}] = None; import negwise.integrations.{name}"
    out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert f"pip install 'negwise[{package.replace('_', '-')}]'" in out.stderr
