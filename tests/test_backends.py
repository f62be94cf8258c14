"""Which backend runs: by name, by machine, by what is installed. The last are tried in processes of their own."""

import subprocess
import sys
from pathlib import Path

import pytest
from transformers import FalconConfig

from core import backends, engine
from core.backend import BackendMissing, ModelUnsupported
from core.backends import candidates
from core.engine import Engine
from core.engine_torch import TorchBackend
from tests import families

MLX_MISSING = "MLX is not installed; on a Mac with Apple silicon `pip install mlx-lm`"
TORCH_MISSING = "torch is not installed; `pip install -r requirements.txt`"
WITH_MLX = pytest.mark.skipif(not families.HAS_MLX, reason="mlx is not installed")


class Other:
    """Stands for MLX's backend where only its name is asked for."""


@pytest.fixture
def machine(monkeypatch):
    """A machine of a kind, with what is installed on it."""

    def made(is_apple, *installed):
        monkeypatch.setattr(backends, "on_apple_silicon", lambda: is_apple)
        for name, kind, message in (("mlx", Other, MLX_MISSING), ("torch", TorchBackend, TORCH_MISSING)):

            def door(name=name, kind=kind, message=message):
                if name not in installed:
                    raise BackendMissing(message)
                return kind

            monkeypatch.setattr(backends, f"_{name}", door)

    return made


@pytest.mark.parametrize(
    "name, is_apple, installed, found",
    [
        ("auto", False, ("torch", "mlx"), [(TorchBackend, "")]),
        ("auto", False, ("torch",), [(TorchBackend, "")]),
        ("torch", True, ("torch", "mlx"), [(TorchBackend, "")]),
        ("mlx", False, ("torch", "mlx"), [(Other, "")]),
        ("auto", True, ("torch", "mlx"), [(Other, "MLX, the choice on Apple silicon"), (TorchBackend, "torch")]),
        ("auto", True, ("mlx",), [(Other, "MLX, the choice on Apple silicon")]),
        ("auto", True, ("torch",), [(TorchBackend, "torch, because MLX is not installed")]),
    ],
)
def test_a_name_stands_for_backends_in_the_order_in_which_they_are_tried(machine, name, is_apple, installed, found):
    machine(is_apple, *installed)
    assert [(candidate.kind, candidate.why) for candidate in candidates(name)] == found
    assert all(candidate.mlx == (candidate.kind is Other) for candidate in candidates(name))


@pytest.mark.parametrize(
    "name, is_apple, installed, words",
    [
        ("mlx", False, ("torch",), MLX_MISSING),
        ("mlx", True, ("torch",), MLX_MISSING),
        ("torch", True, ("mlx",), TORCH_MISSING),
        ("auto", False, ("mlx",), TORCH_MISSING),
        ("auto", True, (), "MLX is not installed and torch is not installed; pip install -r requirements.txt"),
        ("cuda", False, ("torch",), "backend 'cuda' is not there; use auto, torch, mlx or vllm"),
        ("vllm", False, ("torch",), "backend vllm is a server; give its address, such as --url http://"),
        ("", False, ("torch",), "backend '' is not there"),
    ],
)
def test_a_backend_that_cannot_run_is_refused_in_a_line_that_says_what_to_do(machine, name, is_apple, installed, words):
    machine(is_apple, *installed)
    with pytest.raises(BackendMissing) as refused:
        list(candidates(name))
    assert str(refused.value).startswith(words) and "\n" not in str(refused.value)
    with pytest.raises(BackendMissing):
        Engine.load("none-such", backend=name, offline=True)


# --- on Apple silicon, as far as another machine can tell ---


@pytest.fixture
def apple(monkeypatch):
    monkeypatch.setattr(backends, "on_apple_silicon", lambda: True)


@WITH_MLX
def test_auto_takes_mlx_on_apple_silicon_and_says_so(apple, checkpoint):
    loaded = Engine.load(str(checkpoint("llama", "qwen")), dtype="float32", offline=True)
    assert loaded.backend.identity.backend == "mlx"
    assert loaded.why == "its path was given; MLX, the choice on Apple silicon"


@WITH_MLX
def test_auto_falls_back_to_torch_on_what_mlx_does_not_read_and_gives_the_reason(apple, tmp_path):
    folder = families.checkpoint(tmp_path, "gpt-2")
    loaded = Engine.load(str(folder), dtype="float32", offline=True)
    assert loaded.backend.identity.backend == "torch"
    assert "; torch; MLX: mlx-lm cannot load" in loaded.why


@WITH_MLX
def test_where_neither_reads_a_model_both_reasons_are_given(apple, tmp_path):
    folder = families.saved(tmp_path, FalconConfig(**families.SHAPE, **families.IDS, alibi=True))
    with pytest.raises(
        ModelUnsupported, match="^mlx-lm cannot load .*; use --backend torch; falcon models are not read"
    ):
        Engine.load(str(folder), dtype="float32", offline=True)


@WITH_MLX
def test_a_backend_that_was_asked_for_by_name_is_not_replaced(apple, tmp_path):
    folder = families.checkpoint(tmp_path, "gpt-2")
    with pytest.raises(ModelUnsupported, match="^mlx-lm cannot load"):
        Engine.load(str(folder), backend="mlx", dtype="float32", offline=True)


# --- what is not installed is not missed ---

#: Hides packages from this process, as if they were not installed.
HIDE = """
import importlib.machinery, sys
hidden, find = set(sys.argv[1].split()), importlib.machinery.PathFinder.find_spec
def found(name, path=None, target=None):
    return None if name.partition(".")[0] in hidden else find(name, path, target)
importlib.machinery.PathFinder.find_spec = found
"""
DECIDE = """
from core.conformance import SMALL
from core.engine import Engine
engine = Engine.load(sys.argv[2], backend=sys.argv[3], dtype="float32", offline=True)
print(engine.backend.identity.backend, engine.run_parallel("a text", SMALL).values)
"""
REFUSED = """
from core.backend import BackendMissing
from core.engine import Engine
try:
    Engine.load(sys.argv[2], backend=sys.argv[3], offline=True)
except BackendMissing as problem:
    print(problem)
"""


def ran(code, *arguments):
    done = subprocess.run([sys.executable, "-c", HIDE + code, *arguments], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return done.stdout


def test_the_core_is_imported_without_torch_without_mlx_and_without_gradio():
    modules = [file.stem for file in Path(engine.__file__).parent.glob("*.py")]
    of_a_framework = ("__init__", "engine_torch", "engine_mlx", "micro")
    light = [name for name in modules if name not in of_a_framework and not name.startswith(("torch_", "mlx_"))]
    assert "engine" in light and "backends" in light
    imports = "\n".join(f"import core.{name}" for name in light)
    ran(imports, "torch mlx mlx_lm gradio")
    assert ran(f"{imports}\nprint({{'torch', 'mlx', 'gradio'}} & set(sys.modules))", "") == "set()\n"


@WITH_MLX
def test_either_framework_alone_decides(checkpoint):
    folder = str(checkpoint("llama", "qwen"))
    of_mlx, of_torch = ran(DECIDE, "torch", folder, "mlx"), ran(DECIDE, "mlx mlx_lm", folder, "auto")
    assert of_mlx.startswith("mlx {") and of_torch.startswith("torch {")
    assert of_mlx.partition(" ")[2] == of_torch.partition(" ")[2]


@pytest.mark.parametrize(
    "hidden, backend, words",
    [("mlx mlx_lm", "mlx", MLX_MISSING), ("torch", "torch", TORCH_MISSING), ("torch", "auto", TORCH_MISSING)],
)
def test_a_framework_that_is_not_installed_is_missed_in_one_line(checkpoint, hidden, backend, words):
    assert ran(REFUSED, hidden, str(checkpoint("llama", "qwen")), backend).startswith(words)
