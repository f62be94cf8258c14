"""README: its commands, its snippets and its Space front matter are checked, so that they cannot rot."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FRONT = yaml.safe_load(README.split("---\n")[1])

#: Of the Spaces configuration reference, as far as we could want them.
KNOWN_KEYS = {
    "title", "emoji", "colorFrom", "colorTo", "sdk", "sdk_version", "python_version", "app_file", "short_description",
    "license", "tags", "models", "thumbnail", "header", "fullWidth", "pinned", "suggested_hardware", "preload_from_hub",
}  # fmt: skip
COLOURS = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_front_matter_is_a_valid_space_configuration() -> None:
    assert set(FRONT) <= KNOWN_KEYS
    assert {FRONT["colorFrom"], FRONT["colorTo"]} <= COLOURS
    assert FRONT["sdk"] == "gradio" and (ROOT / FRONT["app_file"]).is_file()
    assert isinstance(FRONT["python_version"], str), "unquoted, 3.10 would become 3.1"
    assert len(FRONT["short_description"]) <= 60, "the hub rejects the push"


def test_the_space_and_the_requirements_name_the_same_gradio() -> None:
    assert f"gradio=={FRONT['sdk_version']}" in (ROOT / "requirements.txt").read_text()


@pytest.mark.parametrize(
    "command",
    [
        "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt && .venv/bin/python app.py",
        "python3 -m venv .venv && .venv/bin/pip install -r tests/requirements.txt && .venv/bin/python -m pytest",
    ],
)
def test_each_of_the_two_commands_is_one_line(command: str) -> None:
    assert f"```bash\n{command}\n```" in README


def test_every_picture_is_there() -> None:
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", README)
    assert pictures and all((ROOT / picture).is_file() for picture in pictures)


def test_the_head_in_the_readme_is_the_one_the_model_reads() -> None:
    from core.prompt import instructions
    from core.schema import StructuredSchema

    names: dict[str, object] = {}
    exec(python_blocks()[0].split("context =")[0], names)
    schema = names["schema"]
    assert isinstance(schema, StructuredSchema)
    assert f"```text\n{instructions(schema)}\n```" in README


@pytest.mark.model
def test_the_snippets_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PCD_MODEL", "smollm2-135m")
    *_, client = blocks = python_blocks()
    assert "gradio_client" in client and len(blocks) == 6  # the last one asks a running app
    names: dict[str, object] = {}
    for block in blocks[:-1]:
        exec(compile(block, "README.md", "exec", dont_inherit=True), names)
    assert list(names["result"].values) == ["priority", "requires_escalation"]  # type: ignore[attr-defined]
    assert list(names["ticket"].values) == ["kind", "priority", "topics", "sender"]  # type: ignore[attr-defined]
    assert capsys.readouterr().out
