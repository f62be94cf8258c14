"""The schema's text as a table: a row per field, each part as JSON writes it, and what is wrong with which row.

Holds all that the text says, also where it is no schema yet: an empty name, one choice, a name that stands twice.
What is wrong `core.schema` alone says. Knows nothing of gradio.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from core.notation import json_data
from core.schema import FieldDefinition, SchemaError, StructuredSchema
from core.schema_import import source_of
from core.ui.views import edited_schema

#: `locked`: the rows are what the text was taken for, and writing them back would lose some of it.
State = Literal["fields", "locked", "unreadable"]

#: Of a fault that no row has alone.
NO_ROW = -1

_OF_JSON_SCHEMA = (
    "This text is a JSON Schema. The table shows the fields that it was taken for. Editing them here turns the text "
    "into plain fields: its nested shape, and what was left out of it, are lost."
)
_OF_YAML = (
    "This text is YAML. The table shows its fields. Editing them here turns the text into JSON: "
    "its comments and its layout are lost."
)


class _Number(str):
    """A number as it is written, so that no digit of it is lost."""


class _Members(list):
    """The members of an object as pairs, so that a name may stand there twice."""


@dataclass(frozen=True)
class Row:
    """A field as the text has it; all but the parts' names is JSON."""

    name: str
    parts: tuple[tuple[str, str | tuple[str, ...]], ...] = ()  # a list of scalars: each by itself
    whole: str = ""  # what stands in place of an object


@dataclass(frozen=True)
class Fault:
    row: int  # NO_ROW: the schema as a whole
    text: str


@dataclass(frozen=True)
class Sheet:
    text: str = ""  # that the rows are of
    state: State = "fields"
    reason: str = ""  # of a state in which the rows cannot be edited
    rows: tuple[Row, ...] = ()
    faults: tuple[Fault, ...] = ()

    @classmethod
    def of(cls, text: str) -> Sheet:
        """Of any text; never raises."""
        schema = edited_schema(text)
        members = _members(text)
        if isinstance(members, SchemaError) or source_of(dict(members)) == "json_schema":
            if isinstance(schema, SchemaError):
                return cls(text, "unreadable", str(schema))
            reason = _OF_JSON_SCHEMA if schema.source == "json_schema" else _OF_YAML
            return cls(text, "locked", reason, tuple(_rows(schema.to_json().items())))
        try:
            rows = tuple(_rows(members))
        except RecursionError:
            return cls(text, "unreadable", "the schema is nested too deeply")
        if not isinstance(schema, SchemaError):
            return cls(text, rows=rows)
        faults = tuple(_faults([name for name, _ in members], rows))
        return cls(text, rows=rows, faults=faults or (Fault(NO_ROW, str(schema)),))

    def to_json(self) -> str:
        """For the page, in ASCII: half a character has no bytes to be sent as."""
        return json.dumps(asdict(self))


def _members(text: str) -> Sequence[tuple[str, Any]] | SchemaError:
    """The members of the object in a JSON text, or why there are none; an empty text has none yet."""
    if not text.strip("\ufeff \t\r\n"):
        return ()
    try:
        data = json.loads(
            text.removeprefix("\ufeff"),
            object_pairs_hook=_Members,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_Number,
        )
    except (ValueError, RecursionError):
        return SchemaError("no JSON")
    return data if isinstance(data, _Members) else SchemaError("no object")


def _rows(members: Any) -> Iterator[Row]:
    for name, spec in members:
        if isinstance(spec, _Members | Mapping):
            pairs = spec if isinstance(spec, _Members) else spec.items()
            yield Row(written(name), tuple((key, _part(value)) for key, value in pairs))
        else:
            yield Row(written(name), whole=written(spec))


def _part(value: Any) -> str | tuple[str, ...]:
    is_list = isinstance(value, list) and not isinstance(value, _Members)
    if is_list and not any(isinstance(item, list | Mapping) for item in value):
        return tuple(map(written, value))
    return written(value)


def written(value: Any) -> str:
    """JSON on one line; half a character, which UTF-8 has no bytes for, as an escape."""
    if isinstance(value, _Members | Mapping):
        pairs = value if isinstance(value, _Members) else value.items()
        return "{" + ", ".join(f"{written(key)}: {written(item)}" for key, item in pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(written, value)) + "]"
    if isinstance(value, _Number):
        return str(value)
    text = json.dumps(value, ensure_ascii=False)
    return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)


def _faults(names: Sequence[str], rows: Sequence[Row]) -> Iterator[Fault]:
    """What is wrong with a row by itself, or else among the others."""
    stubs = dict(_stubs(names))
    first: dict[str, FieldDefinition] = {}
    for i, (name, row) in enumerate(zip(names, rows, strict=True)):
        try:
            field = FieldDefinition.of(name, json_data(_spec(row)))
            if name in first:
                StructuredSchema([first[name], field])
            first[name] = field
            if field.depends_on:
                StructuredSchema(list((stubs | {name: field}).values()))
        except SchemaError as error:
            yield Fault(i, str(error))


def _stubs(names: Sequence[str]) -> Iterator[tuple[str, FieldDefinition]]:
    """Fields without faults of their own, by name, for another field to depend on."""
    for name in names:
        try:
            yield name, FieldDefinition(name, "boolean")
        except SchemaError:  # told of its own row
            continue


def _spec(row: Row) -> str:
    parts = (f"{written(key)}: {value if isinstance(value, str) else _list(value)}" for key, value in row.parts)
    return row.whole or "{" + ", ".join(parts) + "}"


def _list(items: Sequence[str]) -> str:
    return "[" + ", ".join(items) + "]"
