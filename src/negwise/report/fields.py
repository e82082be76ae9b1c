"""JSON objects from disk, with words for whatever is wrong with them: the file, the field, what was expected."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from negwise.errors import InputError


@dataclass(frozen=True)
class Fields:
    """A JSON object and where it stands. A plain reader gives None for null and for a missing field; ``needed_...``
    readers refuse both."""

    where: str
    values: Mapping[str, Any]

    def text(self, name: str) -> str | None:
        value = self.values.get(name)
        return value if value is None or isinstance(value, str) else self.wrong(name, "text")

    def needed_text(self, name: str) -> str:
        value = self.text(name)
        return self.lacks(name) if value is None else value

    def number(self, name: str) -> float | None:
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self.wrong(name, "a number")
        return float(value)

    def needed_number(self, name: str) -> float:
        value = self.number(name)
        return self.lacks(name) if value is None else value

    def flag(self, name: str) -> bool | None:
        value = self.values.get(name)
        return value if value is None or isinstance(value, bool) else self.wrong(name, "true or false")

    def inside(self, name: str) -> Fields | None:
        value = self.values.get(name)
        if value is None:
            return None
        return Fields(f"{self.where}, {name}", value) if isinstance(value, dict) else self.wrong(name, "an object")

    def needed_inside(self, name: str) -> Fields:
        value = self.inside(name)
        return self.lacks(name) if value is None else value

    def each(self, name: str) -> list[Fields]:
        """The objects of a list; none where the field is missing."""
        items = self._list(name)
        if not all(isinstance(item, dict) for item in items):
            self.wrong(name, "a list of objects")
        return [Fields(f"{self.where}, {name}[{index}]", item) for index, item in enumerate(items)]

    def texts(self, name: str) -> tuple[str, ...]:
        items = self._list(name)
        if not all(isinstance(item, str) for item in items):
            self.wrong(name, "a list of texts")
        return tuple(items)

    def numbers_in(self, name: str) -> list[float | None]:
        """A list of numbers and nulls; an empty one where the field is missing."""
        items = self._list(name)
        return [Fields(f"{self.where}, {name}", {str(i): item}).number(str(i)) for i, item in enumerate(items)]

    def numbers(self) -> dict[str, float | None]:
        """All fields, each a number or null."""
        return {name: self.number(name) for name in self.values}

    def _list(self, name: str) -> list[Any]:
        value = self.values.get(name)
        return [] if value is None else value if isinstance(value, list) else self.wrong(name, "a list")

    def lacks(self, name: str) -> NoReturn:
        raise InputError(f"{self.where}: no {name!r}, which is needed. {_MEND}")

    def wrong(self, name: str, expected: str) -> NoReturn:
        came = repr(self.values.get(name))
        raise InputError(f"{self.where}: {name!r} is {came[:80]}, expected {expected}. {_MEND}")


_MEND = "Restore the file, or remove it and run the job again"


def read_object(path: Path) -> Fields:
    """The JSON object that the file ``path`` holds."""
    try:
        text = path.read_bytes().decode("utf-8")
        value = json.loads(text, parse_constant=_refuse)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: not JSON ({error.msg}). {_MEND}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error}). {_MEND}") from error
    if not isinstance(value, dict):
        raise InputError(f"{path}: holds {type(value).__name__}, expected a JSON object. {_MEND}")
    return Fields(str(path), value)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")
