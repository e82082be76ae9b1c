"""What messages call the data: its path; ``the data`` where it was passed as a frame, a table or a list.

Such data becomes a file of the cache, whose name tells nobody anything: ``.../frames/frame-40b9e2f1a0c3d4e5.arrow``.
"""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = "frames"
"""The folder of the cache that has data from memory."""
_NAME = re.compile(r"frame-[0-9a-f]{16}\.arrow")


def file_name(content: str) -> str:
    """The name of the file for data whose content has the hash ``content``."""
    return f"frame-{content[:16]}.arrow"


def shown(path: Path) -> str:
    """``path`` as a message has it."""
    return "the data" if path.parent.name == FOLDER and _NAME.fullmatch(path.name) else str(path)
