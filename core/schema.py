"""Schemas: an ordered list of fields, each a boolean or a closed list of choices.

The one place where a schema is checked; past it, a `StructuredSchema` is trusted.
Knows nothing of prompts, tokens or models.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

#: A choice is a JSON scalar. `1`, `"1"` and `true` are three different choices.
Choice = str | bool | int | None
FieldType = Literal["boolean", "enum"]

MAX_FIELDS = 128
MAX_CHOICES = 1024
MAX_NAME_BYTES = 128
MAX_CHOICE_BYTES = 256
MAX_DESCRIPTION_BYTES = 1024

_FIELD_KEYS = ("type", "choices", "description", "depends_on")


class SchemaError(ValueError):
    """A schema that cannot be decided; the message names the field, the bad value and the way out."""


@dataclass(frozen=True)
class FieldDefinition:
    """One field of a schema.

    `choices` of a boolean are always `(True, False)`; leave them out. A field that depends on
    others is decided after them, with their answers before its eyes.
    Raises `SchemaError` for anything outside the limits of this module.
    """

    name: str
    field_type: FieldType
    description: str = ""
    choices: tuple[Choice, ...] = ()
    depends_on: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_text(f"field name {_short(self.name)}", self.name, MAX_NAME_BYTES)
        if not self.name:
            raise SchemaError("a field has an empty name; give it one")
        _check_text(f"field {_short(self.name)}: the description", self.description, MAX_DESCRIPTION_BYTES)
        object.__setattr__(self, "choices", self._checked_choices())
        object.__setattr__(self, "depends_on", self._checked_dependencies())

    def _checked_dependencies(self) -> tuple[str, ...]:
        where, given = f"field {_short(self.name)}", self.depends_on
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise SchemaError(f"{where}: depends_on must be a list of field names, got {_short(given)}")
        if len(given) > MAX_FIELDS:
            raise SchemaError(f"{where}: depends_on has {len(given)} names; a schema has at most {MAX_FIELDS} fields")
        for i, name in enumerate(given):
            if not isinstance(name, str):
                raise SchemaError(f"{where}: depends_on holds {_short(name)}; it is a list of field names")
            if name in given[:i]:
                raise SchemaError(f"{where}: depends_on names {_short(name)} twice; once is enough")
        return tuple(given)

    def _checked_choices(self) -> tuple[Choice, ...]:
        where = f"field {_short(self.name)}"
        given = self.choices
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise SchemaError(f"{where}: choices must be a list, got {_short(given)}")
        for choice in given:
            _check_choice(where, choice)
        if self.field_type == "boolean":
            if given and set(map(choice_key, given)) != {choice_key(True), choice_key(False)}:
                raise SchemaError(f"{where}: a boolean has no choices of its own, got {_short(given)}; leave them out")
            return (True, False)
        if self.field_type != "enum":
            raise SchemaError(f"{where}: type {_short(self.field_type)} is unknown; use 'boolean' or 'enum'")
        if not given:
            raise SchemaError(f"{where}: no choices; an enum needs at least 2")
        if len(given) < 2:
            raise SchemaError(f"{where}: only one choice, {_short(given[0])}; an enum needs at least 2")
        if len(given) > MAX_CHOICES:
            raise SchemaError(f"{where}: {len(given)} choices; at most {MAX_CHOICES} are allowed")
        seen: set[tuple[str, Choice]] = set()
        for choice in given:
            if choice_key(choice) in seen:
                raise SchemaError(f"{where}: choice {_short(choice)} appears twice; each choice must be unique")
            seen.add(choice_key(choice))
        return tuple(given)


class StructuredSchema:
    """An ordered, checked list of fields.

    Takes a mapping `{name: {"type", "choices", "description"}}` or a sequence of
    `FieldDefinition`. Order is kept; names that differ only by case are two names.
    Raises `SchemaError`.
    """

    def __init__(self, fields: Mapping[str, Mapping[str, Any]] | Sequence[FieldDefinition]) -> None:
        if isinstance(fields, Mapping):
            fields = [_field(name, spec) for name, spec in fields.items()]
        if isinstance(fields, str) or not isinstance(fields, Sequence):
            raise SchemaError(f"a schema is an object of fields, got {_short(fields)}")
        if not fields:
            raise SchemaError("the schema has no fields; add at least one")
        if len(fields) > MAX_FIELDS:
            raise SchemaError(f"the schema has {len(fields)} fields; at most {MAX_FIELDS} are allowed")
        self.fields: tuple[FieldDefinition, ...] = tuple(fields)
        self._by_name: dict[str, FieldDefinition] = {}
        for field in self.fields:
            if not isinstance(field, FieldDefinition):
                raise SchemaError(f"a schema is a list of FieldDefinition, got {_short(field)}")
            if field.name in self._by_name:
                raise SchemaError(f"field {_short(field.name)} appears twice; each name must be unique")
            self._by_name[field.name] = field
        self._check_dependencies()
        #: The fields in waves: a field stands in the first one by which all that it depends on is decided.
        self.waves: tuple[tuple[FieldDefinition, ...], ...] = tuple(self._waves())
        #: Identity of the schema, order included: what caches are keyed by.
        self.key = tuple(
            (f.name, f.field_type, f.description, f.depends_on, *map(choice_key, f.choices)) for f in self.fields
        )
        self._hash = hash(self.key)
        #: The same in 64 characters, equal in every process.
        self.digest = hashlib.sha256(repr(self.key).encode()).hexdigest()

    def _check_dependencies(self) -> None:
        for field in self.fields:
            for name in field.depends_on:
                if name not in self._by_name:
                    known = _short(", ".join(self._by_name))
                    raise SchemaError(
                        f"field {_short(field.name)}: depends_on names {_short(name)}, which is no field; "
                        f"the fields are {known}"
                    )

    def _waves(self) -> Iterator[tuple[FieldDefinition, ...]]:
        decided: set[str] = set()
        while len(decided) < len(self.fields):
            waiting = [field for field in self.fields if field.name not in decided]
            wave = tuple(field for field in waiting if decided.issuperset(field.depends_on))
            if not wave:
                raise SchemaError(f"fields {_circle(waiting)} depend on each other in a circle; remove one of these")
            yield wave
            decided.update(field.name for field in wave)

    @classmethod
    def from_json(cls, text: str) -> StructuredSchema:
        """The schema in a JSON text. A name written twice is an error, not a silent overwrite."""
        if not isinstance(text, str):
            raise SchemaError(f"a schema is JSON text here, got {_short(text)}; write it with json.dumps")
        try:
            data = json.loads(text, object_pairs_hook=unique_object)
        except json.JSONDecodeError as error:
            raise SchemaError(
                f"the schema is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}"
            ) from None
        except RecursionError:
            raise SchemaError("the schema is nested too deeply; a field is one flat object") from None
        except SchemaError:
            raise
        except ValueError:  # an integer past Python's digit limit
            raise SchemaError("the schema is not valid JSON: a number is too long") from None
        if not isinstance(data, dict):
            raise SchemaError(f"a schema is a JSON object of fields, got {_short(data)}")
        return cls(data)

    def to_json(self) -> dict[str, dict[str, Any]]:
        """The mapping that the constructor takes."""
        return {field.name: _spec(field) for field in self.fields}

    def __iter__(self) -> Iterator[FieldDefinition]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, name: str) -> FieldDefinition:
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StructuredSchema) and self.key == other.key

    def __hash__(self) -> int:
        return self._hash


def choice_key(choice: Choice) -> tuple[str, Choice]:
    """A choice with its JSON type, because Python takes `True == 1` for true."""
    return (type(choice).__name__, choice)


def _field(name: str, spec: Mapping[str, Any]) -> FieldDefinition:
    if not isinstance(spec, Mapping):
        raise SchemaError(f"field {_short(name)}: expected an object with 'type', got {_short(spec)}")
    unknown = [key for key in spec if key not in _FIELD_KEYS]
    if unknown:
        raise SchemaError(
            f"field {_short(name)}: unknown key {_short(unknown[0])}; a field has {', '.join(_FIELD_KEYS)}"
        )
    if "type" not in spec:
        raise SchemaError(f"field {_short(name)}: no type; use 'boolean' or 'enum'")
    return FieldDefinition(
        name, spec["type"], spec.get("description", ""), spec.get("choices", ()), spec.get("depends_on", ())
    )


def _spec(field: FieldDefinition) -> dict[str, Any]:
    spec: dict[str, Any] = {"type": field.field_type}
    if field.field_type == "enum":
        spec["choices"] = list(field.choices)
    if field.description:
        spec["description"] = field.description
    if field.depends_on:
        spec["depends_on"] = list(field.depends_on)
    return spec


def _circle(waiting: Sequence[FieldDefinition]) -> str:
    """One circle among fields each of which waits for another of them: `'a' -> 'b' -> 'a'`."""
    by_name = {field.name: field for field in waiting}
    path = [waiting[0].name]
    while path[-1] not in path[:-1]:
        path.append(next(name for name in by_name[path[-1]].depends_on if name in by_name))
    return " -> ".join(map(_short, path[path.index(path[-1]) :]))


def _check_choice(where: str, choice: object) -> None:
    if isinstance(choice, str):
        _check_text(f"{where}: choice {_short(choice)}", choice, MAX_CHOICE_BYTES)
    elif isinstance(choice, int):
        if abs(choice) >= 10**MAX_CHOICE_BYTES:
            raise SchemaError(f"{where}: an integer choice has more than {MAX_CHOICE_BYTES} digits")
    elif choice is not None:
        raise SchemaError(
            f"{where}: choice {_short(choice)} is a {type(choice).__name__}; "
            "a choice is a string, an integer, true, false or null"
        )


def _check_text(what: str, text: object, limit: int) -> None:
    if not isinstance(text, str):
        raise SchemaError(f"{what} must be a string, got {_short(text)}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise SchemaError(f"{what} holds half a character (a lone surrogate); remove it") from None
    if size > limit:
        raise SchemaError(f"{what} has {size} bytes; at most {limit} are allowed")


def unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `json.loads(object_pairs_hook=...)`: a name written twice is a `SchemaError`."""
    unique: dict[str, Any] = {}
    for name, value in pairs:
        if name in unique:
            raise SchemaError(f"{_short(name)} appears twice in one object; each name must be unique")
        unique[name] = value
    return unique


def _short(value: object) -> str:
    """A value for an error message: one line, never long."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
