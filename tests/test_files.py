import os
import subprocess
import sys
import time

import pytest

from negwise import files
from negwise.errors import InputError, NegwiseError
from negwise.files import LOCK, PATIENCE, _umask, lock_folder, new_folder, replacing, write_atomically


def test_writes_whole_files_in_new_folders(tmp_path):
    target = write_atomically(tmp_path / "a" / "b.txt", "text")
    assert target.read_text() == "text"
    assert [file.name for file in target.parent.iterdir()] == ["b.txt"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    target = write_atomically(tmp_path / "a.bin", b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.bin"]


def test_permissions_are_those_of_an_ordinary_file(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("")
    assert write_atomically(tmp_path / "ours", "").stat().st_mode == plain.stat().st_mode


def test_an_error_names_what_was_asked_for(tmp_path):
    (tmp_path / "file").write_text("")
    target = tmp_path / "file" / "below"
    with pytest.raises(OSError, match=r"\[Errno") as caught:
        write_atomically(target, "text")
    assert caught.value.filename == str(target)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_link_is_followed_and_stays(tmp_path):
    real = write_atomically(tmp_path / "real" / "page.html", "old")
    link, dangling = tmp_path / "link.html", tmp_path / "dangling.html"
    link.symlink_to(real)
    dangling.symlink_to(tmp_path / "real" / "later.html")
    assert write_atomically(link, "new") == link
    write_atomically(dangling, "first")
    assert link.is_symlink() and dangling.is_symlink()
    assert real.read_text() == "new"
    assert (tmp_path / "real" / "later.html").read_text() == "first"


def test_what_is_no_regular_file_is_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    for name, kind in (("folder", "a folder"), ("pipe", "a pipe"), ("link", "a device")):
        with pytest.raises(InputError, match=rf"{name}: .*{kind}.*expected a file"):
            write_atomically(tmp_path / name, "text")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["folder", "link", "pipe"]


def test_a_read_only_file_is_refused_and_permissions_are_kept(tmp_path):
    target = write_atomically(tmp_path / "page.html", "old")
    target.chmod(0o444)
    with pytest.raises(InputError, match=r"read-only\. Type: chmod u\+w"):
        write_atomically(target, "new")
    assert target.read_text() == "old"
    target.chmod(0o600)
    assert write_atomically(target, "new").stat().st_mode & 0o777 == 0o600


def test_text_beyond_utf8_is_escaped(tmp_path):
    assert write_atomically(tmp_path / "a", "name\udcff").read_bytes() == b"name\\udcff"


HOLD = """
import sys, time
from pathlib import Path
from negwise.files import lock_folder

with lock_folder(Path(sys.argv[1]), "job"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_the_lock_of_a_process_that_was_killed_is_taken_over(tmp_path, monkeypatch):
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout.readline() == "held\n"
            monkeypatch.setattr(files, "PATIENCE", 0.1)
            with pytest.raises(NegwiseError, match="another process works on this job"):
                lock_folder(tmp_path, "job").__enter__()
        finally:
            holder.kill()
    assert holder.returncode == -9
    assert (tmp_path / LOCK).exists()  # nobody was left to tidy up
    began = time.monotonic()
    with lock_folder(tmp_path, "job"):
        assert time.monotonic() - began < PATIENCE


def test_a_long_file_is_there_when_it_is_whole(tmp_path):
    target = tmp_path / "deep" / "a.txt"
    with replacing(target) as temporary:
        temporary.write_text("half")
        assert not target.exists()
    assert target.read_text() == "half" and target.stat().st_mode & 0o777 == 0o666 & ~_umask()
    with pytest.raises(RuntimeError), replacing(target) as temporary:
        temporary.write_text("worse")
        raise RuntimeError
    assert target.read_text() == "half" and [file.name for file in target.parent.iterdir()] == ["a.txt"]
    with pytest.raises(InputError, match="a folder"), replacing(tmp_path / "deep"):
        pass


def test_a_folder_is_there_when_it_is_whole(tmp_path):
    with new_folder(tmp_path / "a", "export") as temporary:
        (temporary / "file").write_text("x")
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a" / "file").exists() and (tmp_path / "a").stat().st_mode & 0o777 == 0o777 & ~_umask()
    with pytest.raises(InputError, match="is there and not empty"), new_folder(tmp_path / "a", "export"):
        pass
    with pytest.raises(RuntimeError), new_folder(tmp_path / "b", "export"):
        raise RuntimeError
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]
