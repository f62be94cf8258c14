"""The models that a client may select: what is listed of a folder, and what never becomes a path."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from core.catalog import Catalog, is_of
from core.models import known_models
from core.public import pathless, public_name

KNOWN = {model.name for model in known_models()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    models = tmp_path / "models"
    (models / "sub").mkdir(parents=True)
    (models / "alpha.gguf").write_bytes(b"a" * 10)
    (models / "BETA.GGUF").write_bytes(b"b" * 20)
    (models / "notes.txt").write_text("no model")
    (models / "archive.gguf.bak").write_bytes(b"c")
    (models / ".hidden.gguf").write_bytes(b"d")
    (models / "nested.gguf").mkdir()
    (models / "sub" / "inner.gguf").write_bytes(b"e")
    (tmp_path / "secret.gguf").write_bytes(b"f")
    (models / "link.gguf").symlink_to(tmp_path / "secret.gguf")
    return models


def listed(models: Path | None) -> list[tuple[str, int]]:
    return [(one.id, one.size) for one in Catalog(models).entries() if one.id not in KNOWN]


def test_files_lie_directly_in_the_folder_and_are_no_links(folder: Path) -> None:
    assert listed(folder) == [("BETA.GGUF", 20), ("alpha.gguf", 10)]


def test_a_folder_that_is_not_there_holds_no_models(tmp_path: Path) -> None:
    assert listed(tmp_path / "none") == listed(None) == []
    assert {one.id for one in Catalog().entries()} == {model.name for model in known_models() if model.is_here}


@pytest.mark.parametrize(
    "id",
    ["missing.gguf", "../models/alpha.gguf", "../secret.gguf", "sub/inner.gguf", "link.gguf", "alpha.gguf/", "", "."],
)
def test_an_id_is_matched_and_never_used_as_a_path(folder: Path, id: str) -> None:
    assert Catalog(folder).find(id) is None
    assert Catalog(folder).find(str(folder / "alpha.gguf")) is None
    found = Catalog(folder).find("alpha.gguf")
    assert found is not None and found.target == folder / "alpha.gguf"


def test_it_is_looked_at_anew_each_time(folder: Path) -> None:
    catalog = Catalog(folder)
    assert catalog.find("new.gguf") is None
    (folder / "alpha.gguf").rename(folder / "new.gguf")
    assert catalog.find("new.gguf") is not None and catalog.find("alpha.gguf") is None


def test_names_that_are_no_text_are_left_out(folder: Path) -> None:
    for name in (b"half-\xff.gguf", b"line\nbreak.gguf"):
        (folder / os.fsdecode(name)).write_bytes(b"x")
    assert listed(folder) == [("BETA.GGUF", 20), ("alpha.gguf", 10)]


# --- folders ---


@pytest.fixture
def tiny(tmp_path: Path, checkpoint: Callable[[str, str], Path]) -> Path:
    return shutil.copytree(checkpoint("llama", "qwen"), tmp_path / "models" / "tiny-llama")


def test_a_hugging_face_folder_is_a_model(tiny: Path) -> None:
    assert listed(tiny.parent) == [("tiny-llama", sum(file.stat().st_size for file in tiny.iterdir()))]


def linked_weights(tiny: Path) -> None:
    (tiny / "model.safetensors").rename(tiny.parents[1] / "weights")
    (tiny / "model.safetensors").symlink_to(tiny.parents[1] / "weights")


def shards(*names: object) -> Callable[[Path], None]:
    def write(tiny: Path) -> None:
        shutil.copy(tiny / "model.safetensors", tiny.parent / "outside.safetensors")
        index = {"weight_map": dict(enumerate(names))}
        (tiny / "model.safetensors.index.json").write_text(json.dumps(index))

    return write


def index(text: str) -> Callable[[Path], None]:
    return lambda tiny: (tiny / "model.safetensors.index.json").write_text(text) and None


SPOILT: dict[str, Callable[[Path], object]] = {
    "no configuration": lambda tiny: (tiny / "config.json").unlink(),
    "weights behind a link": linked_weights,
    "a shard outside": shards("../outside.safetensors"),
    "a shard by its whole path": shards("/etc/hostname"),
    "a shard that is no name": shards(7),
    "an index that is no JSON": index("{"),
    "an index of something else": index("[]"),
    "an index without an end": index("[" * 100_000),
    "the folder behind a link": lambda tiny: (
        tiny.rename(tiny.parents[1] / "t") and tiny.symlink_to(tiny.parents[1] / "t")
    ),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_folder_that_leads_out_or_is_not_whole_is_no_model(tiny: Path, spoil: Callable[[Path], object]) -> None:
    assert listed(tiny.parent)
    spoil(tiny)
    assert listed(tiny.parent) == []


def test_a_name_of_ours_means_that_model_and_no_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: Path
) -> None:
    assert [one.target for one in Catalog(tiny.parent).entries() if one.id == tiny.name] == [tiny]
    ours = [one for one in known_models()][:1]
    from dataclasses import replace

    monkeypatch.setattr("core.catalog.known_models", lambda: (replace(ours[0], name=tiny.name, is_here=True),))
    assert [one.target for one in Catalog(tiny.parent).entries()] == [tiny.name]


# --- what clients are told of paths ---


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("smollm2-135m", "smollm2-135m"),
        ("org/model-1b", "org/model-1b"),
        ("/srv/models/a b.gguf", "a b.gguf"),
        ("~/models/tiny", "tiny"),
        ("./tiny", "tiny"),
        ("../tiny/", "tiny"),
        (".", Path.cwd().name),
    ],
)
def test_of_a_path_only_the_last_part_is_told(model: str, name: str) -> None:
    assert public_name(model) == name


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("model '/srv/my models/a.gguf' is not known", "model 'a.gguf' is not known"),
        ("/srv/my models/a.gguf is neither a file, nor org/name", "a.gguf is neither a file, nor org/name"),
        ("3 GB free in /root/.cache/pcd and 2 are; set X", "3 GB free in pcd and 2 are; set X"),
        ("(~/m/a.gguf: no room)", "(a.gguf: no room)"),
        ("C:\\Users\\me\\a.gguf is gone", "a.gguf is gone"),
        ("auto: org/name, the choice on 1/2 and a / b", "auto: org/name, the choice on 1/2 and a / b"),
    ],
)
def test_a_message_keeps_the_last_part_of_a_path(said: str, told: str) -> None:
    assert pathless(said) == told


def test_of_a_model_that_runs_elsewhere_nothing_of_this_machine_can_be_selected(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path, server="http://10.0.0.7:8000")
    (entry,) = catalog.entries()
    assert (entry.id, entry.source, entry.target) == ("vllm-server", "server", "http://10.0.0.7:8000")
    assert is_of(entry.target, "whatever-it-serves") and catalog.find("smollm2-135m") is None
