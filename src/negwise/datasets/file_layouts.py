"""Which files a path means: a file, a folder of shards, a pattern, or a layout that others publish data in.

A folder may be MIND's, MovieLens's, RecBole's (the file that ends in .inter), one that Hugging Face's ``save_to_disk``
wrote, one with shards in it, in its ``data/``, in folders named ``key=value`` or in a single other folder. Of files
that are named after splits, training is read: negwise makes splits of its own. What is left out is told.
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from negwise.datasets.partitions import Partition, check_partitions, is_partitioned, partition_folders
from negwise.errors import InputError

COMPRESSED_ENDINGS = ("", ".gz", ".xz", ".zst")
SPLIT_FOLDERS = ("train", "dev", "test")
RATINGS = ("ratings.dat", "ratings.csv")
_SPLIT = re.compile(r"(train|training|validation|valid|val|dev|test|eval)(?![a-z0-9])", re.IGNORECASE)
_NO_DATA = re.compile(
    r"(readme|licen[cs]e|dataset_infos?|dataset_dict|state)\b.*|.*\.(md|ya?ml|lock|crc|py)", re.IGNORECASE
)
OTHER_SPLIT = "another split; negwise makes its own from the training data. Pass it by name to read it"

OTHER_FOLDER = "a folder beside the files that are read. Pass it by name to read it"


@dataclass(frozen=True)
class Layout:
    """``files`` to read as one; ``parts`` of MIND; ``ignored``: (name, why) of what is not read.

    ``partitions`` are the values that the folders of each file have in their names, or there are none.
    """

    files: tuple[Path, ...]
    parts: tuple[str, ...] = ()
    ignored: tuple[tuple[str, str], ...] = ()
    partitions: tuple[Partition, ...] = ()


def find_files(path: Path, hint: str = "") -> Layout:
    """The files that ``path`` means. ``hint`` ends the message where there is nothing."""
    if path.is_dir():
        return _of_folder(path)
    if path.is_file():
        return Layout((path,))
    if path.exists():
        raise InputError(f"{path}: neither a file nor a folder.")
    if glob.has_magic(str(path)):
        names = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 (a Path has no glob for an absolute pattern)
        found = [Path(name) for name in names if Path(name).is_file()]
        if not found:
            raise InputError(f"{path}: no file has such a name.")
        files, ignored = _sorted_out(found)
        return Layout(tuple(files), ignored=tuple(ignored)) if files else Layout(tuple(found))
    raise InputError(f"{path}: no such file or folder.{hint}")


def _of_folder(path: Path) -> Layout:
    mind = _mind(path)
    if mind is not None:
        return mind
    ratings = [file for name in RATINGS if (file := _find_file(path, name)) is not None]
    if len(ratings) == 1:
        return Layout(tuple(ratings))
    if (path / "dataset_dict.json").is_file():
        return _saved_splits(path)
    if (path / "state.json").is_file():
        return Layout(_saved(path))
    if inter := [file for ending in COMPRESSED_ENDINGS for file in sorted(path.glob(f"*.inter{ending}"))]:
        return _one_of(path, inter)
    for place in (path, path / "data"):
        if place.is_dir() and is_partitioned(place):
            return _partitioned(place)
    for folders in ([path], [path / "data"], _split_folders(path)):
        files, ignored = _data_files(folders)
        if files:
            others = [(f"{one.name}/", OTHER_FOLDER) for one in _subfolders(path) if one not in folders]
            above = [] if folders == [path] else _data_files([path])[1]
            return _training(path, files, [*above, *ignored, *others])
    return _only_subfolder(path)


def _partitioned(path: Path) -> Layout:
    """Files in folders named ``key=value``, each with the values of its folders."""
    values: dict[Path, Partition] = {}
    ignored = []
    for folder, partition in partition_folders(path):
        files, left = _data_files([folder])
        values |= dict.fromkeys(files, partition)
        ignored += left
    if not values:
        raise _nothing(path, ignored)
    check_partitions(path, values)
    layout = _training(path, list(values), ignored)
    return replace(layout, partitions=tuple(values[file] for file in layout.files))


def _only_subfolder(path: Path) -> Layout:
    """The layout of the one folder in ``path`` that has data, such as the configuration of a dataset repository."""
    found = [folder for folder in _subfolders(path) if any(_files_below(folder))]
    ignored = _data_files([path])[1]
    if not found:
        raise _nothing(path, ignored)
    if len(found) > 1:
        names = ", ".join(folder.name for folder in found[:8])
        raise InputError(f"{path}: the folders {names} have data. Pass one of them, as {found[0]}.")
    layout = _of_folder(found[0])
    return replace(layout, ignored=(*ignored, *layout.ignored))


def _nothing(path: Path, ignored: list[tuple[str, str]]) -> InputError:
    left = f" but {', '.join(f'{name} ({why})' for name, why in ignored[:4])}" if ignored else ""
    return InputError(
        f"{path}: expected MIND, ratings.dat, ratings.csv or data files, found nothing{left}. Pass the file."
    )


def _mind(path: Path) -> Layout | None:
    if _find_file(path, "behaviors.tsv") is not None:
        return Layout(_mind_files(path), parts=("",))
    if _find_file(path, "news.tsv") is not None:
        raise InputError(f"{path}: news.tsv without behaviors.tsv; a MIND folder has both.")
    folders = sorted(
        folder for folder in path.iterdir() if folder.is_dir() and _find_file(folder, "behaviors.tsv") is not None
    )
    if not folders:
        return None
    by_split = {
        part: [f for f in folders if re.search(rf"(^|[^a-z]){part}$", f.name.lower())] for part in SPLIT_FOLDERS
    }
    strange = [f.name for f in folders if not any(f in found for found in by_split.values())]
    twice = [part for part, found in by_split.items() if len(found) > 1]
    if strange or twice:
        names = ", ".join(folder.name for folder in folders)
        raise InputError(f"{path}: MIND folders {names}; expected at most one each of train, dev and test.")
    files = [file for part in SPLIT_FOLDERS for folder in by_split[part] for file in _mind_files(folder)]
    return Layout(tuple(files), parts=tuple(part for part in SPLIT_FOLDERS if by_split[part]))


def _saved_splits(path: Path) -> Layout:
    """A DatasetDict that ``save_to_disk`` wrote: a folder for each split."""
    try:
        splits = list(json.loads((path / "dataset_dict.json").read_text())["splits"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path / 'dataset_dict.json'}: not what save_to_disk writes ({error}).") from error
    chosen = "train" if "train" in splits else splits[0] if len(splits) == 1 else None
    if chosen is None:
        raise InputError(f"{path}: the splits {', '.join(splits)}, none of them train. Pass the folder of one.")
    return Layout(_saved(path / chosen), ignored=tuple((name, OTHER_SPLIT) for name in splits if name != chosen))


def _saved(path: Path) -> tuple[Path, ...]:
    """The shards that ``save_to_disk`` wrote, in the order of its state.json."""
    try:
        names = [entry["filename"] for entry in json.loads((path / "state.json").read_text())["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path / 'state.json'}: not what save_to_disk writes ({error}).") from error
    files = tuple(path / os.path.basename(name) for name in names)  # noqa: PTH119 (a name of the file, not a path)
    missing = [file.name for file in files if not file.is_file()]
    if missing or not files:
        raise InputError(f"{path}: {', '.join(missing) or 'no shard'} is missing. Is the folder complete?")
    return files


def _training(path: Path, files: list[Path], ignored: list[tuple[str, str]]) -> Layout:
    """Of files that are named after splits those of training; else all of them."""
    splits = {file: _split_of(file, path) for file in files}
    if not any(splits.values()):
        return Layout(tuple(files), ignored=tuple(ignored))
    unnamed = [file for file, split in splits.items() if split is None]
    training = [file for file, split in splits.items() if split in ("train", "training")]
    if unnamed or not training:
        names = ", ".join(file.name for file in files[:8])
        raise InputError(f"{path}: found {names}; which of them is the training data? Pass the file, or a pattern.")
    others = [(file.name, OTHER_SPLIT) for file in files if file not in training]
    return Layout(tuple(training), ignored=(*ignored, *others))


def _split_of(file: Path, folder: Path) -> str | None:
    """``train`` for train-00000-of-00002.parquet, for train/0.parquet and for split=train/0.parquet."""
    for part in (file, *(part for part in file.parents if part != folder and folder in part.parents)):
        name = part.name.removeprefix("split=")
        if "=" in name and part != file:
            continue
        if match := _SPLIT.match(name):
            return match[1].lower()
    return None


def _one_of(path: Path, files: list[Path]) -> Layout:
    """RecBole's layout: one file, or one for each split."""
    if len(files) == 1:
        return Layout(tuple(files))
    by_split = [file for file in files if ".train." in file.name]
    if len(by_split) != 1:
        raise InputError(f"{path}: found {', '.join(file.name for file in files[:8])}. Pass one of them.")
    return Layout(tuple(by_split), ignored=tuple((file.name, OTHER_SPLIT) for file in files if file not in by_split))


def _data_files(folders: list[Path]) -> tuple[list[Path], list[tuple[str, str]]]:
    """The files of ``folders`` that are data, and (name, why) of the others."""
    return _sorted_out([file for one in folders if one.is_dir() for file in sorted(one.iterdir()) if file.is_file()])


def _sorted_out(files: list[Path]) -> tuple[list[Path], list[tuple[str, str]]]:
    """``files`` that are data, and (name, why) of the others."""
    why = {file: _why_no_data(file) for file in files}
    return [file for file in files if why[file] is None], [(file.name, said) for file, said in why.items() if said]


def _why_no_data(file: Path) -> str | None:
    """Why ``file`` is left out where others are read; None for data."""
    if file.name[0] in "._":
        return f"its name begins with {file.name[0]}, as of files that programs leave beside data"
    if _NO_DATA.fullmatch(file.name):
        return "by its name it is about the data"
    return None if file.stat().st_size else "it is empty"


def _subfolders(path: Path) -> list[Path]:
    return [entry for entry in sorted(path.iterdir()) if entry.is_dir() and entry.name[0] not in "._"]


def _split_folders(path: Path) -> list[Path]:
    """Folders that are named after splits: train/, test/."""
    return [folder for folder in _subfolders(path) if _SPLIT.fullmatch(folder.name)]


def _files_below(folder: Path) -> Iterator[Path]:
    """The files of data in ``folder`` and, at any depth, in its folders."""
    yield from _data_files([folder])[0]
    for entry in _subfolders(folder):
        yield from _files_below(entry)


def _find_file(folder: Path, name: str) -> Path | None:
    found = [folder / (name + ending) for ending in COMPRESSED_ENDINGS if (folder / (name + ending)).is_file()]
    if len(found) > 1:
        raise InputError(f"{folder}: {' and '.join(file.name for file in found)}; expected one of them.")
    return found[0] if found else None


def _mind_files(folder: Path) -> tuple[Path, Path]:
    news, behaviors = _find_file(folder, "news.tsv"), _find_file(folder, "behaviors.tsv")
    if news is None or behaviors is None:
        raise InputError(f"{folder}: behaviors.tsv without news.tsv; a MIND folder has both.")
    return news, behaviors
