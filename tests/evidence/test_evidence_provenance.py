"""Which commit a record comes from, by real git repositories."""

import subprocess

from evidence.provenance import commit_of


def git(folder, *words):
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_the_commit_of_a_folder(tmp_path):
    package, beside = tmp_path / "src" / "package", tmp_path / ".venv" / "package"
    for folder in (package, beside):
        folder.mkdir(parents=True)
        (folder / "a.py").write_text("1\n")
    assert commit_of(package) is None  # no git
    git(tmp_path, "init", "-q")
    assert commit_of(package) is None  # nothing is committed
    git(tmp_path, "add", "src")
    git(tmp_path, "commit", "-q", "-m", "one")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert commit_of(package) == head
    (tmp_path / "notes.txt").write_text("elsewhere")
    assert commit_of(package) == head
    (package / "b.py").write_text("2\n")
    assert commit_of(package) == f"{head}+changes"
    assert commit_of(beside) is None  # installed inside somebody's checkout


def test_without_git_there_is_no_commit(tmp_path, monkeypatch):
    git(tmp_path, "init", "-q")
    (tmp_path / "a.py").write_text("1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of(tmp_path) is None
