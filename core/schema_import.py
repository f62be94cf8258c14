"""Imports: JSON Schema and Pydantic models, as fields to decide and a shape for their values.

The one door for schemas that people already have. What is bounded is taken exactly; what is not is
listed by its place with the reason. Knows nothing of prompts, tokens or models.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from core.field import FieldDefinition, SchemaError
from core.json_schema import Document
from core.pydantic_model import complaints, document_of, is_old
from core.schema_part import Unbounded
from core.schema_walk import Path, Remark, Walk
from core.shape import Decided, Members
from core.wording import escaped, shown

Source = Literal["fields", "json_schema", "pydantic"]
OnUnsupported = Literal["error", "skip"]

#: Where a named tool or response format holds its schema.
_WRAPPED = ("schema", "parameters", "input_schema", "inputSchema")


class UnsupportedSchema(SchemaError):
    """Parts of an import cannot be decided; all of them are in `parts`, and the message names them."""

    def __init__(self, parts: Sequence[Remark], decidable: Sequence[str]) -> None:
        skip = 'on_unsupported="skip" (--on-unsupported skip)'
        rest = f"; {skip} decides the rest: {escaped(', '.join(decidable))}" if decidable else ""
        count = f"{len(parts)} part{'s' * (len(parts) > 1)} of the schema cannot be decided"
        super().__init__(f"{count}: {'; '.join(map(str, parts))}{rest}")
        self.parts = tuple(parts)


@dataclass(frozen=True)
class Imported:
    """What was made of what somebody has."""

    fields: tuple[FieldDefinition, ...]
    source: Source
    shape: Members | None = None  # None: as flat as the fields
    unsupported: tuple[Remark, ...] = ()
    notes: tuple[Remark, ...] = ()  # what was taken in a form of its own


def imported(given: Any, on_unsupported: OnUnsupported, source: Source | None = None, at: str = "") -> Imported:
    """Fields as they are, JSON Schema or a Pydantic model; `source` says which, None finds out.

    `at` is the reference of the part of a JSON Schema that is meant, such as `#/components/schemas/Ticket`.
    Raises `UnsupportedSchema`, or `SchemaError` for anything else that is wrong.
    """
    if on_unsupported not in get_args(OnUnsupported):
        raise SchemaError(f"on_unsupported {shown(on_unsupported)} is unknown; use 'error' or 'skip'")
    source = source or source_of(given)
    if source == "pydantic":
        return _of_model(given, on_unsupported)
    if source == "json_schema":
        if not isinstance(given, Mapping):
            raise SchemaError(f"a JSON Schema is an object, got {shown(given)}")
        if at and not at.startswith("#/"):
            raise SchemaError(
                f"at {shown(at)} is no reference within the document; write it as #/components/schemas/NAME"
            )
        return _taken(*_walked(given if at else _unwrapped(given), at), source, on_unsupported)
    if isinstance(given, Mapping):
        given = [FieldDefinition.of(name, spec) for name, spec in given.items()]
    if isinstance(given, str) or not isinstance(given, Sequence):
        given = as_object(given)
    return Imported(tuple(given), source)


def as_object(data: Any) -> dict[str, Any]:
    """The data of a text, if a schema can be made of it; raises `SchemaError`."""
    if not isinstance(data, dict):
        is_place = isinstance(data, str | pathlib.Path)
        way_out = "; from_text reads a text, core.schema_file.read_schema a file" if is_place else ""
        raise SchemaError(f"a schema is an object of fields, got {shown(data)}{way_out}")
    return data


def source_of(given: Any) -> Source:
    """Fields are objects with a `type` of their own; JSON Schema has keywords in their place."""
    if isinstance(given, type) or hasattr(given, "model_json_schema"):
        return "pydantic"
    if not isinstance(given, Mapping):
        return "fields"
    if _unwrapped(given) is not given:
        return "json_schema"
    is_text = any(isinstance(given.get(key), str) for key in ("$schema", "$ref", "type", "openapi", "swagger"))
    is_list = any(isinstance(given.get(key), list) for key in ("type", "enum", "anyOf", "oneOf", "allOf", "required"))
    objects = [given.get(key) for key in ("properties", "$defs", "definitions", "components")]
    has_members = any(isinstance(found, Mapping) and not isinstance(found.get("type"), str) for found in objects)
    return "json_schema" if is_text or is_list or has_members else "fields"


def _unwrapped(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The JSON Schema inside a response format or a tool, as model providers want them."""
    if not isinstance(given.get("name"), str) and given.get("type") not in ("json_schema", "function"):
        return given
    for key in ("json_schema", "function"):
        if isinstance(given.get(key), Mapping):
            return _unwrapped({"name": "", **given[key]})
    return next((given[key] for key in _WRAPPED if isinstance(given.get(key), Mapping)), given)


def _of_model(model: Any, on_unsupported: OnUnsupported) -> Imported:
    """Of a Pydantic model; a part whose values the model itself refuses is left out."""
    document = document_of(model)
    walk, shape = _walked(document, states_null=not is_old(model))
    if refused := _refused(model, walk, shape):
        hidden = [Remark.of("", path, why) for path, why in refused.items() if not _leads_to(shape, path)]
        walk, shape = _walked(document, states_null=not is_old(model), refused=refused)
        walk.unsupported += hidden
    return _taken(walk, shape, "pydantic", on_unsupported)


def _walked(
    document: Mapping[str, Any], at: str = "", *, states_null: bool = False, refused: Mapping[Path, str] | None = None
) -> tuple[Walk, Members]:
    walk = Walk(Document(document, at), states_null, refused or {})
    try:
        root = walk.document.root
        if not root.is_object:
            raise SchemaError(_no_object({"$ref": at} if at else document))
        return walk, walk.object(root)
    except Unbounded as open_part:
        raise UnsupportedSchema([Remark.of(open_part.pointer, (), open_part.reason)], ()) from None


def _taken(walk: Walk, shape: Members, source: Source, on_unsupported: OnUnsupported) -> Imported:
    if walk.unsupported and (on_unsupported == "error" or not walk.fields):
        raise UnsupportedSchema(walk.unsupported, [one.name for one in walk.fields])
    return Imported(tuple(walk.fields), source, shape, tuple(walk.unsupported), tuple(walk.notes))


@dataclass(frozen=True)
class _Sample:
    """A decision that nobody has taken."""

    value: Any
    probability: float = 1.0


def _refused(model: Any, walk: Walk, shape: Members) -> dict[Path, str]:
    """What the model says against values that can come out: by part, and by what it misses and its schema hides."""
    left_out = [remark.name for remark in walk.unsupported]
    refused: dict[Path, str] = {}
    for values in _samples(walk, shape):
        for place, is_missing, message in complaints(model, values):
            path = tuple(map(str, place))
            name = ".".join(path)
            if is_missing and not any(f"{name}.".startswith(f"{other}.") for other in left_out):
                refused.setdefault(path, "the model asks for it, and its JSON Schema does not name it")
            elif not is_missing and (known := _leads_to(shape, path)):
                refused.setdefault(known, f"the model refuses one of its values: {message}")
    return refused


def _samples(walk: Walk, shape: Members) -> Iterator[Any]:
    """Values in which each choice of each field comes up, and objects that may be missing are there, and are not."""
    presences = set(shape.presences())
    for number in range(max((len(one.choices) for one in walk.fields), default=0)):
        chosen: dict[str, Decided] = {
            one.name: _Sample(one.name in presences or one.choices[number % len(one.choices)]) for one in walk.fields
        }
        yield shape.value(chosen)
    yield shape.value({one.name: _Sample(one.name not in presences and one.choices[0]) for one in walk.fields})


def _leads_to(shape: Members, path: Path) -> Path:
    """As much of a path as the shape has."""
    known: list[str] = []
    found: Any = shape
    for step in path:
        found = dict(found.members).get(step) if isinstance(found, Members) else None
        if found is None:
            break
        known.append(step)
    return tuple(known)


def _no_object(given: Mapping[str, Any]) -> str:
    components = given.get("components")
    for place, schemas in (
        ("components/schemas", components.get("schemas") if isinstance(components, Mapping) else None),
        ("definitions", given.get("definitions")),
        ("$defs", given.get("$defs")),
    ):
        if isinstance(schemas, Mapping) and schemas and not {"type", "$ref"} & given.keys():
            names = shown(", ".join(name for name in schemas if isinstance(name, str)))
            reference = f"#/{place}/NAME"
            return (
                f'the schema only defines others; name one of {names}: "$ref": "{reference}" at the top, '
                f'at="{reference}" in Python, FILE{reference} for a command'
            )
    return 'the schema is no object; make it a property: {"type": "object", "properties": {"answer": ...}}'
