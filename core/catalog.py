"""The catalogue: models of this machine that a client may select, each by an id.

An id is compared with those that are here and never becomes a path. Knows nothing of how a model is loaded.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from core.address import is_url
from core.hub import is_model_folder
from core.models import known_models

#: What `is_model_folder` meets in an index that is none: no JSON, other JSON, JSON without an end.
_NO_INDEX = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


#: What a server is selected by: its address is nobody's business.
SERVER_ID = "vllm-server"


@dataclass(frozen=True)
class Entry:
    id: str
    size: int  # bytes on the disk
    source: str  # name, gguf, folder or server
    target: str | Path  # what `Resident.switch` takes


def is_of(target: str | Path, model: str) -> bool:
    """Whether an entry's target is the model that an engine was loaded as."""
    if isinstance(target, str) and is_url(target):
        return True  # the only one where it is one at all
    return target == (model if isinstance(target, str) else Path(model).expanduser().absolute())


class Catalog:
    """The names of `core/models.py` that are here, and the models that lie directly in a folder.

    `server`: the address of a model that runs elsewhere, which is then the only one.
    """

    def __init__(self, folder: Path | None = None, server: str = "") -> None:
        self._folder = folder.absolute() if folder else None
        self._server = server

    def entries(self) -> list[Entry]:
        """What is here now, by id. Looks at the disk and asks no network."""
        if self._server:
            return [Entry(SERVER_ID, 0, "server", self._server)]
        found = {entry.id: entry for entry in self._in_folder()}
        # A name means the same model everywhere: a folder called alike is not to be had by it.
        found |= {one.name: Entry(one.name, one.size, "name", one.name) for one in known_models() if one.is_here}
        return [found[id] for id in sorted(found)]

    def find(self, id: str) -> Entry | None:
        return next((entry for entry in self.entries() if entry.id == id), None)

    def _in_folder(self) -> list[Entry]:
        if self._folder is None:
            return []
        try:
            with os.scandir(self._folder) as found:
                inside = [entry for entry in found if not entry.is_symlink() and not entry.name.startswith(".")]
        except OSError:  # not there, or not to be read: no models
            return []
        entries = (_entry(Path(one.path)) for one in inside if one.name.isprintable())  # half characters are not
        return [entry for entry in entries if entry is not None]


def _entry(path: Path) -> Entry | None:
    try:
        if path.is_file():
            is_gguf = path.suffix.lower() == ".gguf"
            return Entry(path.name, path.stat().st_size, "gguf", path) if is_gguf else None
        if path.is_dir() and _stays_inside(path) and is_model_folder(path):
            size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
            return Entry(path.name, size, "folder", path)
    except _NO_INDEX:
        pass  # gone meanwhile, or a folder whose index cannot be read: nothing that could be loaded
    return None


def _stays_inside(folder: Path) -> bool:
    """Whether nothing in a folder leads out of it: no link, and no shard whose name is a path."""
    if any(file.is_symlink() for file in folder.iterdir()):
        return False
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return True
    shards = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
    return all(shard == Path(shard).name for shard in shards)
