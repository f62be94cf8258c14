"""What a Hugging Face Space asks of this repository: its front matter, its requirements, and where the app listens.

Keys and values are those of the Spaces configuration reference, versions those of the ZeroGPU page, of 2026-08.
"""

from __future__ import annotations

import re
import unicodedata
from importlib.metadata import requires
from pathlib import Path

import gradio as gr
import pytest
import yaml
from fastapi import FastAPI
from fastapi.testclient import TestClient
from packaging.requirements import Requirement

from core.flags import flags
from core.presets import load_presets
from core.ui.page import build
from tests.serving import resident_of

ROOT = Path(__file__).parents[1]
FRONT = yaml.safe_load((ROOT / "README.md").read_text(encoding="utf-8").split("---\n")[1])
REQUIRED = [
    Requirement(line) for line in (ROOT / "requirements.txt").read_text().splitlines() if line and line[0] not in "#-"
]

ZERO_GPU_TORCH = ["2.8.0", "2.9.1", "2.10.0", "2.11.0"]
ZERO_GPU_PYTHON = ["3.10", "3.12"]
COLOURS = ["red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"]
HARDWARE = [
    "cpu-basic", "cpu-upgrade", "t4-small", "t4-medium", "l4x1", "l4x4", "l40sx1", "l40sx4", "l40sx8", "a10g-small",
    "a10g-large", "a10g-largex2", "a10g-largex4", "a100-large", "a100x4", "a100x8",
]  # fmt: skip
#: The kind of each value that we could want; what is not here is a slip of the pen.
KEYS = {
    "title": str, "emoji": str, "colorFrom": str, "colorTo": str, "sdk": str, "sdk_version": str, "app_file": str,
    "python_version": str, "short_description": str, "license": str, "suggested_hardware": str, "header": str,
    "thumbnail": str, "base_path": str, "startup_duration_timeout": str, "fullWidth": bool, "pinned": bool,
    "disable_embedding": bool, "tags": list, "models": list, "datasets": list, "preload_from_hub": list,
}  # fmt: skip
NEEDED = {"title", "emoji", "colorFrom", "colorTo", "sdk", "sdk_version", "python_version", "app_file", "license"}


def test_the_front_matter_has_documented_keys_with_values_of_their_kind() -> None:
    assert NEEDED <= FRONT.keys() <= KEYS.keys()
    assert {key: type(value) for key, value in FRONT.items()} == {key: KEYS[key] for key in FRONT}
    assert all(isinstance(one, str) for key in FRONT if KEYS[key] is list for one in FRONT[key])


def test_the_front_matter_says_what_a_space_takes() -> None:
    assert unicodedata.category(FRONT["emoji"][0]) == "So" and len(FRONT["emoji"]) <= 2
    assert FRONT["colorFrom"] in COLOURS and FRONT["colorTo"] in COLOURS
    assert FRONT["sdk"] == "gradio" and (ROOT / FRONT["app_file"]).is_file()
    assert FRONT["python_version"] in ZERO_GPU_PYTHON and FRONT["license"] == "apache-2.0"
    assert 0 < len(FRONT["short_description"]) <= 60, "or the push is rejected"
    assert FRONT.get("suggested_hardware", "cpu-basic") in HARDWARE
    assert FRONT.get("header", "default") in ("default", "mini") and not FRONT.get("disable_embedding")
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", tag) for tag in FRONT["tags"])
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+", id) for key in ("models", "datasets") for id in FRONT.get(key, []))


@pytest.mark.parametrize("version", ZERO_GPU_TORCH)
def test_every_torch_of_zero_gpu_will_do(version: str) -> None:
    (torch,) = (one for one in REQUIRED if one.name == "torch")
    asked = [Requirement(line) for line in requires("transformers") or () if line.startswith("torch>")]
    assert version in torch.specifier and asked and all(version in one.specifier for one in asked)


def test_a_space_brings_gradio_and_spaces_itself() -> None:
    names = {one.name: one.specifier for one in REQUIRED}
    assert str(names["gradio"]) == f"=={FRONT['sdk_version']}" and "spaces" not in names


@pytest.mark.parametrize(
    "variables, host",
    [
        ({}, "127.0.0.1"),
        ({"SPACE_ID": "somebody/pcd"}, "0.0.0.0"),
        ({"SPACE_ID": "somebody/pcd", "GRADIO_SERVER_NAME": "10.0.0.1"}, "10.0.0.1"),
        ({"GRADIO_SERVER_NAME": ""}, "127.0.0.1"),
    ],
)
def test_a_space_is_reached_from_outside_and_nothing_else_is(
    variables: dict[str, str], host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPACE_ID", "GRADIO_SERVER_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    given = flags().parse_args([])
    assert (given.host, given.port) == (host, 7860)


def test_a_page_that_is_sent_copies_no_model() -> None:
    """Gradio copies what a component was made with for each page: four copies of the weights, with the model picker."""
    resident = resident_of(None)
    resident.engine = _NoCopies()  # type: ignore[assignment]
    with TestClient(gr.mount_gradio_app(FastAPI(), build(resident, load_presets()[:1]), path="")) as page:
        assert page.get("/").status_code == 200
    assert _NoCopies.copied == 0


class _NoCopies:
    copied = 0

    def __deepcopy__(self, memo: object) -> _NoCopies:
        _NoCopies.copied += 1
        return self
