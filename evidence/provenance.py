"""What made a record: negwise's own code, by its content and, where git knows it, by its commit."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import negwise

CHANGED = "+changes"


def code() -> dict[str, str]:
    """Version, hash of the source, and commit, which is left out where there is none."""
    root = Path(negwise.__file__).parent
    found = {"negwise": negwise.__version__, "source": source_digest(root)}
    commit = commit_of(root)
    return found if commit is None else found | {"commit": commit}


def source_digest(root: Path) -> str:
    """A hash of the Python files under ``root``."""
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def commit_of(root: Path) -> str | None:
    """The commit that has the folder ``root``, with "+changes" where the folder differs from it.

    None without git, and where the folder merely lies inside somebody's checkout, as a virtual environment does.
    """
    try:
        if not _git(root, "ls-files", "."):
            return None
        return _git(root, "rev-parse", "HEAD") + (CHANGED if _git(root, "status", "--porcelain", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()
