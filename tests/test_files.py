import pytest

from negwise.files import write_atomically


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
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    for target in (tmp_path / "folder", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match=r"\[Errno") as caught:
            write_atomically(target, "text")
        assert caught.value.filename == str(target)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "folder"]
