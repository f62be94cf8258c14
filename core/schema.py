"""Schemas: an ordered list of fields, and the shape of the values that they make.

The one place where a schema is checked; past it, a `StructuredSchema` is trusted.
Knows nothing of prompts, tokens or models.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from core.field import MAX_FIELDS, Choice, FieldDefinition, FieldType, SchemaError, choice_key
from core.notation import parsed
from core.schema_import import Imported, OnUnsupported, Source, UnsupportedSchema, as_object, imported
from core.schema_walk import Remark
from core.shape import Members, Value
from core.wording import shown

if TYPE_CHECKING:
    from core.result import Decision

__all__ = [
    "Choice", "FieldDefinition", "FieldType", "OnUnsupported", "Remark", "SchemaError", "Source", "StructuredSchema",
    "UnsupportedSchema", "choice_key",
]  # fmt: skip


class StructuredSchema:
    """An ordered, checked list of fields.

    Takes a mapping `{name: {"type", "choices", "description"}}`, a sequence of `FieldDefinition`, a
    JSON Schema or a Pydantic model; `source` says which it took. With `on_unsupported="skip"`, what
    cannot be decided is left out and listed in `unsupported`.
    Order is kept; names that differ only by case are two names. Raises `SchemaError`.
    """

    def __init__(
        self,
        fields: Mapping[str, Any] | Sequence[FieldDefinition] | type | Imported,
        *,
        on_unsupported: OnUnsupported = "error",
    ) -> None:
        taken = fields if isinstance(fields, Imported) else imported(fields, on_unsupported)
        #: `fields`, `json_schema` or `pydantic`.
        self.source: Source = taken.source
        #: Parts of an import that cannot be decided, and parts that were taken in a form of their own.
        self.unsupported, self.notes = taken.unsupported, taken.notes
        self.fields: tuple[FieldDefinition, ...] = _checked(taken.fields)
        self._by_name = {field.name: field for field in self.fields}
        self._check_dependencies()
        flat = Members(tuple((name, Value(name)) for name in self._by_name))
        #: How decisions become values: flat, unless an import was nested.
        self.shape: Members = taken.shape or flat
        self.is_flat = self.shape == flat
        #: The fields in waves: a field stands in the first one by which all that it depends on is decided.
        self.waves: tuple[tuple[FieldDefinition, ...], ...] = tuple(self._waves())
        #: Identity of what is asked, order included: what caches are keyed by.
        self.key = tuple(field.key for field in self.fields)
        self._hash = hash(self.key)
        #: The same in 64 characters, equal in every process.
        self.digest = hashlib.sha256(repr(self.key).encode()).hexdigest()

    @classmethod
    def from_json_schema(
        cls, document: Mapping[str, Any], *, at: str = "", on_unsupported: OnUnsupported = "error"
    ) -> StructuredSchema:
        """The schema of an object in JSON Schema of any draft, or in OpenAPI's form of it.

        `at` is the reference of a part of the document, such as `#/components/schemas/Ticket`. Nested
        objects become fields with names such as `address.country`, an array one boolean for each of its
        items; values come back in the shape of the document. Raises `UnsupportedSchema` with all parts
        that cannot be decided, `SchemaError` for anything else.
        """
        return cls(imported(document, on_unsupported, "json_schema", at))

    @classmethod
    def from_pydantic(cls, model: type, *, on_unsupported: OnUnsupported = "error") -> StructuredSchema:
        """The schema of a Pydantic model, by the names of its JSON; `values` are what the model validates.

        Also of a dataclass or a `TypedDict`. Raises as `from_json_schema` does.
        """
        return cls(imported(model, on_unsupported, "pydantic"))

    @classmethod
    def from_text(cls, text: str, *, on_unsupported: OnUnsupported = "error") -> StructuredSchema:
        """The schema in a JSON or YAML text: fields or a JSON Schema."""
        return cls(as_object(parsed(text)), on_unsupported=on_unsupported)

    def values(self, decisions: Iterable[Decision]) -> dict[str, Any]:
        """What comes back: the decisions of all fields in the shape of the source."""
        values = self.shape.value({decision.name: decision for decision in decisions})
        assert values is not None, "the outermost object is always given"
        return values

    def to_json(self) -> dict[str, dict[str, Any]]:
        """The fields as the mapping that the constructor takes; an import's shape is not in it."""
        return {field.name: field.to_json() for field in self.fields}

    def to_json_schema(self) -> dict[str, Any]:
        """JSON Schema (2020-12) of the values that come back."""
        dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
        return dialect | self.shape.json_schema(self._by_name)

    def _check_dependencies(self) -> None:
        for field in self.fields:
            for name in field.depends_on:
                if name not in self._by_name:
                    known = shown(", ".join(self._by_name))
                    raise SchemaError(
                        f"field {shown(field.name)}: depends_on names {shown(name)}, which is no field; "
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

    def __iter__(self) -> Iterator[FieldDefinition]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, name: str) -> FieldDefinition:
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StructuredSchema) and (self.key, self.shape) == (other.key, other.shape)

    def __hash__(self) -> int:
        return self._hash


def _checked(fields: Sequence[FieldDefinition]) -> tuple[FieldDefinition, ...]:
    if not fields:
        raise SchemaError("the schema has no fields; add at least one")
    if len(fields) > MAX_FIELDS:
        raise SchemaError(f"the schema has {len(fields)} fields; at most {MAX_FIELDS} are allowed")
    names: set[str] = set()
    for field in fields:
        if not isinstance(field, FieldDefinition):
            raise SchemaError(f"a schema is a list of FieldDefinition, got {shown(field)}")
        if field.name in names:
            raise SchemaError(f"field {shown(field.name)} appears twice; each name must be unique")
        names.add(field.name)
    return tuple(fields)


def _circle(waiting: Sequence[FieldDefinition]) -> str:
    """One circle among fields each of which waits for another of them: `'a' -> 'b' -> 'a'`."""
    by_name = {field.name: field for field in waiting}
    path = [waiting[0].name]
    while path[-1] not in path[:-1]:
        path.append(next(name for name in by_name[path[-1]].depends_on if name in by_name))
    return " -> ".join(map(shown, path[path.index(path[-1]) :]))
