"""Models of a Hugging Face hub: is one here, does the hub answer, fetch it into the hub's own cache.

Fetches only what a text model needs and never remote code. The hub's address, token, proxy and cache
folder are those of `huggingface_hub`. Knows nothing of the names that we give to models.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from core.model_cache import ModelError, Progress, bytes_under, more_room, require_room, tells_full_disk

_WANTED = ["model*.safetensors", "*.json", "*.txt", "*.jinja", "*.model"]
_UNWANTED = ["*/*"]  # other precisions and formats, in folders of their own

#: Seconds for the question "does the hub answer". The thread bounds what a socket's timeout does not: name look-up.
_CONNECT_SECONDS = 3.0
_PATIENCE_SECONDS = 5.0
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Answer:
    """What the hub said about a repository."""

    size: int  # bytes of the files that we would fetch
    missing: str = ""  # why it cannot be had; "" where it can


def is_model_folder(folder: Path) -> bool:
    """Whether `folder` has a configuration, a tokenizer and every safetensors file that its index names."""
    if not (folder / "config.json").is_file():
        return False
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        return False
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return (folder / "model.safetensors").is_file()
    shards = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
    return all((folder / shard).is_file() for shard in shards)


def cached(repository: str) -> Path | None:
    """The folder of a complete snapshot on this machine; asks no network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(
            snapshot_download(repository, local_files_only=True, allow_patterns=_WANTED, ignore_patterns=_UNWANTED)
        )
    except LocalEntryNotFoundError:
        return None
    return folder if is_model_folder(folder) else None


def ask(repository: str) -> Answer | None:
    """What the hub says about `repository`, or None where no hub answers within five seconds."""
    answers: list[Answer | None] = []
    asking = threading.Thread(target=lambda: answers.append(_asked(repository)), daemon=True)
    asking.start()
    asking.join(_PATIENCE_SECONDS)
    return answers[0] if answers else None


def _asked(repository: str) -> Answer | None:
    from huggingface_hub import HfApi

    # httpx's base error under huggingface_hub 1.x, httpx2's under 2.x
    from huggingface_hub.errors import HTTPError, OfflineModeIsEnabled, RepositoryNotFoundError

    try:
        info = HfApi().model_info(repository, timeout=_CONNECT_SECONDS, files_metadata=True)
    except RepositoryNotFoundError:
        return Answer(0, "the hub has no such model, or it is private or gated: `hf auth login` may open it")
    except (HTTPError, OfflineModeIsEnabled, OSError):
        return None
    files = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    return Answer(sum(size for name, size in files.items() if _is_wanted(name)))


def _is_wanted(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in _WANTED) and not any(fnmatch(name, it) for it in _UNWANTED)


def fetch(repository: str, size: int, progress: Progress) -> Path:
    """Downloads `repository` and returns its folder; what a kill leaves is taken up again.

    `progress` is called from a thread of its own.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.errors import HTTPError

    cache = Path(HF_HUB_CACHE)
    blobs = cache / ("models--" + repository.replace("/", "--")) / "blobs"
    require_room(size - bytes_under(blobs), cache, repository, "HF_HOME")
    try:
        with _watched(blobs, size, f"downloading {repository} from the hub", progress):
            folder = snapshot_download(
                repository, allow_patterns=_WANTED, ignore_patterns=_UNWANTED, tqdm_class=_silent_bar()
            )
    except (HTTPError, OSError) as error:
        said = _first_line(error)
        out = more_room("HF_HOME") if tells_full_disk(said) else "try again"
        raise ModelError(f"{repository}: the download from the hub broke off ({said}); {out}") from error
    if not is_model_folder(Path(folder)):
        raise ModelError(f"{repository} has no safetensors weights with a config and a tokenizer; choose another model")
    return Path(folder)


def _silent_bar() -> type:
    from tqdm import tqdm

    class SilentBar(tqdm):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **{**options, "disable": True})

    return SilentBar


@contextmanager
def _watched(folder: Path, size: int, stage: str, progress: Progress) -> Iterator[None]:
    done = threading.Event()

    def look() -> None:
        while not done.wait(_POLL_SECONDS):
            progress(stage, min(bytes_under(folder) / size, 1.0) if size else None)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
