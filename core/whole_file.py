"""Files that are whole or not touched."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(file: Path, content: str | bytes) -> None:
    """The file with this content, or as it was: never half of it. Raises `OSError`."""
    if isinstance(content, str):
        content = content.encode("utf-8", "backslashreplace")
    file = file.resolve()  # a link stays one
    descriptor, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=file.parent)
    part = Path(name)
    try:
        with open(descriptor, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        part.chmod(0o666 & ~_umask())  # as any new file; mkstemp's is its owner's alone
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def _umask() -> int:
    """The process's, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
