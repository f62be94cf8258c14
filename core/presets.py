"""Presets: scenarios with a text and a schema, one JSON file each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from core.notation import parsed
from core.schema import Choice, StructuredSchema

FOLDER = Path(__file__).parents[1] / "presets"

_TEXTS = ("id", "title", "description", "context", "look_for", "pcd_loses")


class PresetError(ValueError):
    """A preset file that cannot be used; the message names the file."""


@dataclass(frozen=True)
class Change:
    """One fact of a text that may be another."""

    label: str  # the new fact, in a few words
    before: str  # stands in the text once
    after: str

    @classmethod
    def of(cls, given: Mapping[str, object], context: str) -> Change:
        """From a preset's `change`. Raises `ValueError`."""
        if not isinstance(given, Mapping) or set(given) != {"label", "from", "to"}:
            raise ValueError(f"'change' is {given!r}; give it a label, from and to")
        label, before, after = (given[key] for key in ("label", "from", "to"))
        if not all(isinstance(text, str) and text for text in (label, before, after)):
            raise ValueError(f"'change' is {given!r}; give texts that are not empty")
        if (count := context.count(before)) != 1:
            raise ValueError(f"'change' replaces {before!r}, which stands {count} times in the context; once is right")
        return cls(label, before, after)

    def flipped(self, context: str) -> str | None:
        """The text with the other fact; None where neither stands in it."""
        for one, other in ((self.before, self.after), (self.after, self.before)):
            if one in context:
                return context.replace(one, other)
        return None


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
    #: one fact that may be changed, to see what follows from it
    change: Change | None = None

    @property
    def changed(self) -> Preset | None:
        """The same scenario with its fact changed; nothing is expected of it."""
        if not self.change:
            return None
        context = self.context.replace(self.change.before, self.change.after)
        title = f"{self.title}: {self.change.label}"
        return replace(self, id=f"{self.id}_changed", title=title, context=context, expected={}, change=None)

    @classmethod
    def load(cls, file: Path) -> Preset:
        """A file needs `context` and `schema`; the rest is for people. Raises `PresetError`."""
        try:
            data = parsed(file.read_text(encoding="utf-8-sig"))
            schema = StructuredSchema(data["schema"])
            texts = {key: data[key] for key in _TEXTS if key in data}
            if bad := next((key for key, text in texts.items() if not isinstance(text, str)), None):
                raise ValueError(f"{bad!r} is {texts[bad]!r}; give a text")
            change = Change.of(data["change"], data["context"]) if "change" in data else None
            return cls(schema=schema, expected=data.get("expected", {}), change=change, **texts)
        except OSError as error:
            raise PresetError(f"{file}: {error.strerror}; give the path of a preset file") from None
        except (KeyError, TypeError) as error:
            raise PresetError(f"{file}: a preset is a JSON object with 'context' and 'schema' ({error})") from None
        except ValueError as error:
            raise PresetError(f"{file}: {error}") from None


def load_presets(folder: Path = FOLDER) -> tuple[Preset, ...]:
    """All presets of a folder, those with most fields first and where PCD loses last; raises `PresetError`."""
    found: dict[str, Preset] = {}
    for file in sorted(folder.glob("*.json")):
        preset = Preset.load(file)
        if preset.id in found:
            raise PresetError(f"{file}: its id {preset.id!r} is another preset's; give it one of its own")
        found[preset.id] = preset
    if not found:
        raise PresetError(f"{folder}: holds no presets")
    return tuple(sorted(found.values(), key=lambda preset: (bool(preset.pcd_loses), -len(preset.schema))))


def with_changed(presets: Iterable[Preset]) -> Iterator[Preset]:
    """Each preset, and after it the same with its fact changed where it has one."""
    for preset in presets:
        yield preset
        if changed := preset.changed:
            yield changed


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
