"""What can be asked of a trained model: vectors of texts and articles, recommendations, a folder to take elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from negwise.errors import InputError
from negwise.requests.option_fields import check_choice, check_count, option, split_commas
from negwise.requests.training_requests import DEVICES

SIDES = ("left", "right")
UNKNOWN_IDS = ("error", "skip")
EMPTY_HISTORIES = ("error", "skip", "serve")
_MODEL = "The folder of a job or a run, or a folder that export made."
_DEVICE = "auto, cpu or cuda."
_BATCH_SIZE = "Rows at a time."
_ROWS = ".csv, .tsv, .jsonl (these also as .gz) or .parquet"
_ARTICLE = "title, and if there are any abstract (or body), category, subcategory"


@dataclass(frozen=True, kw_only=True)
class EncodeRequest:
    """Vectors of the texts, or of the news articles, of a file."""

    model: str = option(help=_MODEL, argument=True)
    texts: str = option(
        help=f"Texts: .txt (one a line), {_ROWS}. For a news model, articles with the columns {_ARTICLE}.",
        argument=True,
    )
    out: str = option(help=f"The file for the vectors: .npy, {_ROWS}.")
    column: str | None = option(
        None, help="The column of the texts, or of the titles.", show_default="text (news: title), or the only one"
    )
    side: str = option("right", help="right: texts that are found. left: texts that ask. News has no sides.")
    batch_size: int = option(1024, help=_BATCH_SIZE)
    device: str = option("auto", help=_DEVICE)

    def __post_init__(self) -> None:
        check_choice("side", self.side, SIDES)
        check_count("batch_size", self.batch_size)
        check_choice("device", self.device, DEVICES)


@dataclass(frozen=True, kw_only=True)
class RecommendRequest:
    """Items for users of the data, or for histories."""

    model: str = option(help=_MODEL, argument=True)
    users: tuple[str, ...] = option(
        default_factory=tuple, flag="--user", parse=tuple, repeatable=True, help="The id of a user. May be repeated."
    )
    history: tuple[str, ...] | None = option(
        None,
        parse=split_commas,
        help="The items of a person who is not in the data: ids with commas, the oldest first.",
    )
    input: str | None = option(
        None, help="A file with a column user, a column history (a list, or ids with spaces), or both."
    )
    out: str | None = option(None, help=f"The file for the rows: {_ROWS}.", show_default="the terminal")
    n: int = option(10, flag="--n", help="How many items each user gets.")
    exclude_seen: bool = option(True, flag="--exclude-seen/--include-seen", help="Leave out items of the history.")
    candidates: str | None = option(
        None, help="Choose among the items of this file, which has a column item.", show_default="all"
    )
    items: str | None = option(None, help=f"For a news model, a file of new articles with the columns id, {_ARTICLE}.")
    unknown: str = option("error", help="What to do with unknown ids: error or skip.")
    empty: str | None = option(
        None,
        help="What to do with empty histories: error, skip, or serve as evaluation does.",
        show_default="what --unknown says",
    )
    batch_size: int = option(1024, help=_BATCH_SIZE)
    device: str = option("auto", help=_DEVICE)

    def __post_init__(self) -> None:
        check_count("n", self.n)
        check_choice("unknown", self.unknown, UNKNOWN_IDS)
        check_choice("empty", self.empty, EMPTY_HISTORIES)
        check_count("batch_size", self.batch_size)
        check_choice("device", self.device, DEVICES)
        given = [bool(self.users), self.history is not None, self.input is not None]
        if sum(given) != 1:
            raise InputError(
                f"got {sum(given)} of --user, --history and --input, expected one of them, as --user 42 --user 43."
            )
        if self.input is not None and self.out is None:
            raise InputError("--out: got nothing, expected a file for the rows of --input, as --out found.csv.")


@dataclass(frozen=True, kw_only=True)
class ExportRequest:
    """A self-contained folder with weights, settings and a model card."""

    model: str = option(help=_MODEL, argument=True)
    out: str = option(help="A new folder.")
    vectors: bool = option(False, flag="--vectors", help="Add vectors of all items, as .npy and .parquet.")
    onnx: bool = option(False, flag="--onnx", help="Add the encoder as ONNX, checked against torch.")
    histories: bool = option(False, flag="--histories", help="Add users and their histories.")
