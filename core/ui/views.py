"""What the page says, as values: no events, no gradio."""

from __future__ import annotations

import json
from collections.abc import Sequence

from core.presets import Preset
from core.resident import Status
from core.schema import Remark, SchemaError, StructuredSchema, UnsupportedSchema
from core.ui.note import Note

#: Parts of a schema that the note under the editor lists.
MOST_REMARKS = 50


def model_note(status: Status, switching: Status | None = None, trouble: str = "") -> Note:
    """The model line at the top of the page; `switching`: how far another model has come; `trouble`: the engine's."""
    if status.state == "loading":
        return Note(f"Loading the model: {status.stage}", "busy", status.fraction)
    if switching:
        return Note(f"{status.message}\nLoading another: {switching.stage}", "busy", switching.fraction)
    if trouble and status.state == "ready":
        return Note(f"{status.message}\n{trouble}; the next run asks it again", "error")
    tones = {"ready": "good", "failed": "error", "absent": "plain"}
    return Note(status.message, tones[status.state])


def preset_note(preset: Preset) -> Note:
    lines = [preset.description, f"Watch: {preset.look_for}"]
    if preset.pcd_loses:
        lines.append(f"PCD loses here: {preset.pcd_loses}")
    return Note("\n".join(lines))


def change_words(preset: Preset, context: str) -> str:
    """On the button that changes one fact of a scenario, for the text as it stands."""
    assert preset.change, "there is no such button without one"
    if preset.change.before in context:
        return f"Change one fact: {preset.change.label}"
    return "Change it back" if preset.change.after in context else "The sentence to change is gone"


def edited_schema(text: str) -> StructuredSchema | SchemaError:
    """The schema in the editor without what cannot be decided, or what is wrong with it."""
    try:
        return StructuredSchema.from_text(text, on_unsupported="skip")
    except SchemaError as error:
        return error


def schema_note(schema: StructuredSchema | SchemaError) -> Note:
    """What stands under the schema: its size and what of it is left out, or what is wrong with it."""
    if isinstance(schema, UnsupportedSchema):
        return Note("\n".join(["Nothing in this JSON Schema can be decided:", *_listed(schema.parts)]), "error")
    if isinstance(schema, SchemaError):
        return Note(str(schema), "error")
    choices = sum(len(field.choices) for field in schema)
    kind = "JSON Schema, taken as " if schema.source == "json_schema" else ""
    lines = [f"{kind}{len(schema)} field{'s' * (len(schema) > 1)}, {choices} choices"]
    if schema.unsupported:
        lines += [f"Left out, {len(schema.unsupported)} of its parts:", *_listed(schema.unsupported)]
    if schema.notes:
        lines += ["Taken in a form of its own:", *_listed(schema.notes)]
    return Note("\n".join(lines), "warn" if schema.unsupported else "good")


def _listed(remarks: Sequence[Remark]) -> list[str]:
    more = len(remarks) - MOST_REMARKS
    return [*map(str, remarks[:MOST_REMARKS]), *([f"and {more} more"] if more > 0 else [])]


def schema_text(schema: StructuredSchema) -> str:
    """The schema as a person edits it: a line for each part of a field, its choices on one line."""
    return "{\n" + ",\n".join(f"  {_json(name)}: {_spec(spec)}" for name, spec in schema.to_json().items()) + "\n}"


def _spec(spec: dict[str, object]) -> str:
    return "{\n" + ",\n".join(f"    {_json(key)}: {_json(value)}" for key, value in spec.items()) + "\n  }"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
