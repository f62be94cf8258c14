"""The folder where models lie on this machine: one sub-folder per model, whole or absent.

A folder gets its final name only when all of it is written and synced, so a killed process leaves
nothing that a later start takes for whole. One lock file per folder lets one process build it while
others wait; the lock dies with its process. Knows nothing of wheels, hubs or tensors.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

#: Called with the stage's text and the part of it that is done, 0 to 1, or None where nobody knows.
Progress = Callable[[str, float | None], None]

_STAMP_FILE = "origin.json"


class ModelError(RuntimeError):
    """A model that cannot be made ready: bad checksum, full disk, broken conversion; one line with the way out."""


def cache_folder() -> Path:
    """`$PCD_CACHE`, else `$XDG_CACHE_HOME/pcd`, else `~/.cache/pcd`; on a Mac too."""
    if own := os.environ.get("PCD_CACHE"):
        return Path(own).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared).expanduser() if shared else Path.home() / ".cache").absolute() / "pcd"


def require_room(needed: int, folder: Path, what: str, variable: str = "PCD_CACHE") -> None:
    """Raises `ModelError` where `folder`'s disk has fewer than `needed` bytes free."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelError(
            f"{what} needs {gigabytes(needed)} free in {folder} and {gigabytes(free)} are free; "
            f"free some space or set {variable} to a folder on a larger disk"
        )


def tells_full_disk(said: str) -> bool:
    """Whether these last words of a program, or of a library that knows no `OSError`, are those of a full disk."""
    return os.strerror(errno.ENOSPC) in said


def more_room(variable: str = "PCD_CACHE") -> str:
    """The way out where a disk is full."""
    return f"free some space or set {variable} to another folder"


def gigabytes(count: int) -> str:
    return f"{count / 1e9:.2f} GB"


def bytes_under(folder: Path) -> int:
    """Bytes in `folder` and below, also while another process adds and moves files there."""
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.path.getsize(os.path.join(directory, name))
    return total


def is_whole(folder: Path, stamp: str) -> bool:
    """Whether `folder` was published with this stamp and still has every file at its full size."""
    try:
        origin = json.loads((folder / _STAMP_FILE).read_text("utf-8"))
        known, files = origin["stamp"], origin["files"].items()
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):  # none, or a damaged one
        return False
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    return known == stamp and all(sizes.get(name) == size for name, size in files)


@contextmanager
def sole_builder(target: Path, progress: Progress) -> Iterator[None]:
    """Holds the lock of `target` and clears what dead builders left beside it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(target.parent / f".{target.name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress(f"waiting for another process that prepares {target.name}", None)
        lock.acquire()
    try:
        for leftover in target.parent.glob(f".{target.name}.new-*"):
            # An orphaned child may still write there for a moment; what stays goes next time.
            shutil.rmtree(leftover, ignore_errors=True)
        yield
    finally:
        lock.release()


@contextmanager
def published(target: Path, stamp: str) -> Iterator[Path]:
    """A new empty folder that becomes `target` if the block ends well and vanishes otherwise."""
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.new-", dir=target.parent))
    try:
        yield folder
        _seal(folder, stamp)
        if target.exists():  # incomplete, or of an older conversion
            target.rename(folder.with_name(folder.name + "-old"))
        folder.rename(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(folder.with_name(folder.name + "-old"), ignore_errors=True)


def _seal(folder: Path, stamp: str) -> None:
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    (folder / _STAMP_FILE).write_text(json.dumps({"stamp": stamp, "files": sizes}, indent=1), "utf-8")
    for path in folder.iterdir():
        sync(path)


def sync(path: Path) -> None:
    """Forces a file to the disk: a rename may survive a power cut that its contents do not."""
    with path.open("r+b") as file:  # Windows refuses to sync a file opened to read
        os.fsync(file.fileno())
