"""Presets: scenarios with a text and a schema, one JSON file each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from core.notation import parsed
from core.schema import Choice, StructuredSchema

FOLDER = Path(__file__).parents[1] / "presets"

_TEXTS = ("id", "title", "description", "context", "look_for", "pcd_loses")


class PresetError(ValueError):
    """A preset file that cannot be used; the message names the file."""


@dataclass(frozen=True)
class Preset:
    context: str
    schema: StructuredSchema
    id: str = ""
    title: str = ""
    description: str = ""
    #: values of the fields where a careful reader is sure
    expected: Mapping[str, Choice] = field(default_factory=dict)
    #: one sentence on what to watch
    look_for: str = ""
    #: where the baseline is the faster lane: why
    pcd_loses: str = ""

    def is_of(self, context: str, schema: StructuredSchema) -> bool:
        """Whether these are its own text and schema to the letter: a run of them tells nothing of anybody."""
        return (context, schema, schema.unsupported) == (self.context, self.schema, self.schema.unsupported)

    @classmethod
    def load(cls, file: Path) -> Preset:
        """A file needs `context` and `schema`; the rest is for people. Raises `PresetError`."""
        try:
            data = parsed(file.read_text(encoding="utf-8-sig"))
            schema = StructuredSchema(data["schema"])
            texts = {key: data[key] for key in _TEXTS if key in data}
            if bad := next((key for key, text in texts.items() if not isinstance(text, str)), None):
                raise ValueError(f"{bad!r} is {texts[bad]!r}; give a text")
            return cls(schema=schema, expected=data.get("expected", {}), **texts)
        except OSError as error:
            raise PresetError(f"{file}: {error.strerror}; give the path of a preset file") from None
        except (KeyError, TypeError) as error:
            raise PresetError(f"{file}: a preset is a JSON object with 'context' and 'schema' ({error})") from None
        except ValueError as error:
            raise PresetError(f"{file}: {error}") from None


def load_presets(folder: Path = FOLDER) -> tuple[Preset, ...]:
    """All presets of a folder, by file name; raises `PresetError`."""
    found: dict[str, Preset] = {}
    for file in sorted(folder.glob("*.json")):
        preset = Preset.load(file)
        if preset.id in found:
            raise PresetError(f"{file}: its id {preset.id!r} is another preset's; give it one of its own")
        found[preset.id] = preset
    if not found:
        raise PresetError(f"{folder}: holds no presets")
    return tuple(found.values())


def known_presets() -> dict[str, Path]:
    """The files of presets/ by name."""
    return {file.stem: file for file in FOLDER.glob("*.json")}


def preset_file(name: str) -> Path:
    """The file of a preset's name, or the path that is given instead. Raises `PresetError`."""
    known, path = known_presets(), Path(name)
    if name in known:
        return known[name]
    if path.suffix == ".json" or len(path.parts) > 1 or (name and path.exists()):
        return path
    names = ", ".join(sorted(known))
    raise PresetError(f"preset {name!r} is unknown; use one of: {names}, or the path of a preset file")
