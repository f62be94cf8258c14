"""Imports: JSON Schema and Pydantic models, as fields to decide and a shape for their values.

The one door for schemas that people already have. What is bounded is taken exactly; what is not is
listed by its place with the reason. Knows nothing of prompts, tokens or models.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from core.field import MAX_FIELDS, Choice, FieldDefinition, FieldType, SchemaError, choice_key, escaped, repeated, shown
from core.json_schema import ANNOTATIONS, CONDITIONS, NULLABLE, Document, Part, Unbounded, plain
from core.pydantic_model import document_of, is_old
from core.shape import Items, Members, Shape, Value

Source = Literal["fields", "json_schema", "pydantic"]
OnUnsupported = Literal["error", "skip"]

#: What follows an object's or array's own description, where a boolean is asked about it.
IS_GIVEN = "Does the text say anything of this?"
IS_ITEM = "Is {} one of them?"
_BOOLEAN = ((True, ""), (False, ""))


@dataclass(frozen=True)
class Remark:
    """Something to know of one part of an import."""

    pointer: str  # RFC 6901, in the document; "" is the document itself
    name: str  # the value's place in what comes back, such as `address.country`
    reason: str

    def __str__(self) -> str:
        where = f"{self.pointer or '#'} ({self.name})" if self.name else self.pointer or "#"
        return escaped(f"{where}: {self.reason}")

    def to_json(self) -> dict[str, str]:
        return dataclasses.asdict(self)


class UnsupportedSchema(SchemaError):
    """Parts of an import cannot be decided; all of them are in `parts`, and the message names them."""

    def __init__(self, parts: Sequence[Remark], decidable: Sequence[str]) -> None:
        rest = f'; on_unsupported="skip" decides the rest: {escaped(", ".join(decidable))}' if decidable else ""
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


def imported(given: Any, on_unsupported: OnUnsupported, source: Source | None = None, start: str = "") -> Imported:
    """Fields as they are, JSON Schema or a Pydantic model; `source` says which, None finds out.

    `start` is a reference to the part of a JSON Schema that is meant, such as `#/components/schemas/Ticket`.

    Raises `UnsupportedSchema`, or `SchemaError` for anything else that is wrong.
    """
    if on_unsupported not in get_args(OnUnsupported):
        raise SchemaError(f"on_unsupported {shown(on_unsupported)} is unknown; use 'error' or 'skip'")
    source = source or _source(given)
    if source == "pydantic":
        # Pydantic 1 does not tell `Optional` from a default in its JSON Schema, Pydantic 2 does.
        return _walked(document_of(given), source, on_unsupported, has_defaults=not is_old(given))
    if source == "json_schema":
        if not isinstance(given, Mapping):
            raise SchemaError(f"a JSON Schema is an object, got {shown(given)}")
        return _walked(given, source, on_unsupported, start=start)
    if isinstance(given, Mapping):
        given = [FieldDefinition.of(name, spec) for name, spec in given.items()]
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise SchemaError(f"a schema is an object of fields, got {shown(given)}")
    return Imported(tuple(given), source)


def _source(given: Any) -> Source:
    """Fields are objects with a `type` of their own; JSON Schema has keywords in their place."""
    if isinstance(given, type) or hasattr(given, "model_json_schema"):
        return "pydantic"
    if not isinstance(given, Mapping):
        return "fields"
    is_text = any(isinstance(given.get(key), str) for key in ("$schema", "$ref", "type", "openapi", "swagger"))
    is_list = any(isinstance(given.get(key), list) for key in ("type", "enum", "anyOf", "oneOf", "allOf", "required"))
    objects = [given.get(key) for key in ("properties", "$defs", "definitions", "components")]
    has_members = any(isinstance(found, Mapping) and not isinstance(found.get("type"), str) for found in objects)
    return "json_schema" if is_text or is_list or has_members else "fields"


def _walked(
    given: Mapping[str, Any],
    source: Source,
    on_unsupported: OnUnsupported,
    *,
    has_defaults: bool = False,
    start: str = "",
) -> Imported:
    walk = _Walk(Document(given, start), has_defaults)
    try:
        root = walk.document.root
        found = walk.object(root, (), "") if is_object(root) else None
    except Unbounded as open_part:
        raise UnsupportedSchema([Remark(open_part.pointer, "", open_part.reason)], ()) from None
    if found is None:
        raise SchemaError(_no_object({"$ref": start} if start else given))
    fields, shape = found
    if walk.unsupported and (on_unsupported == "error" or not fields):
        raise UnsupportedSchema(walk.unsupported, [one.name for one in fields])
    return Imported(tuple(fields), source, shape, tuple(walk.unsupported), tuple(walk.notes))


def _no_object(given: Mapping[str, Any]) -> str:
    components = given.get("components")
    for place, schemas in (
        ("components/schemas", components.get("schemas") if isinstance(components, Mapping) else None),
        ("definitions", given.get("definitions")),
        ("$defs", given.get("$defs")),
    ):
        if isinstance(schemas, Mapping) and schemas and not {"type", "$ref"} & given.keys():
            names = shown(", ".join(name for name in schemas if isinstance(name, str)))
            return f'the schema only defines others; add "$ref": "#/{place}/NAME" at the top for one of {names}'
    return 'the schema is no object; make it a property: {"type": "object", "properties": {"answer": ...}}'


Found = tuple[list[FieldDefinition], Shape]


def is_object(part: Part) -> bool:
    return part.types == ("object",) or (not part.types and ("properties" in part or "additionalProperties" in part))


def is_array(part: Part) -> bool:
    return part.types == ("array",) or (not part.types and "items" in part)


@dataclass
class _Walk:
    """One import: each part becomes its fields and the shape of its value, or a remark."""

    document: Document
    has_defaults: bool  # an optional field has a default of its own, which a null would not be
    unsupported: list[Remark] = field(default_factory=list)
    notes: list[Remark] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)
    _count: int = 0

    def object(self, part: Part, path: tuple[str, ...], above: str) -> tuple[list[FieldDefinition], Members]:
        """`above`: what the objects around it say of themselves."""
        fields: list[FieldDefinition] = []
        members: list[tuple[str, Shape]] = []
        for name, is_required in self._properties(part, path):
            here = (*path, name)
            try:
                found, shape = self._member(self.document.child(part, "properties", name), here, above, is_required)
            except Unbounded as open_part:
                self._leave_out(open_part, here)
                continue
            if found:
                fields += found
                members.append((name, shape))
        return fields, Members(tuple(members))

    def _properties(self, part: Part, path: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
        """(name, is required) of each property. Where nothing is said to be required, everything is wanted."""
        properties, more = part.keywords.get("properties", {}), part.keywords.get("additionalProperties")
        if not isinstance(properties, Mapping) or not all(isinstance(name, str) for name in properties):
            raise part.unbounded(f"properties {shown(properties)} is no object of schemas")
        if not properties and "patternProperties" not in part:
            raise part.unbounded(
                "an open map: its keys are not listed" if more is not False else "it has no properties"
            )
        if isinstance(more, Mapping):
            self._leave_out(Unbounded(part.below("additionalProperties"), "an open map beside the properties"), path)
        for keyword in ("patternProperties", "anyOf", "oneOf", "enum", "const", *CONDITIONS):
            if keyword in part:
                self._leave_out(Unbounded(part.below(keyword), f"{keyword} on an object"), path)
        required = part.keywords.get("required", list(properties))
        if not isinstance(required, list):  # draft 3 has a boolean in each property
            required = list(properties)
        for number, name in enumerate(required):
            if not isinstance(name, str) or name not in properties:
                missing = name if isinstance(name, str) else shown(name)
                self._leave_out(
                    Unbounded(part.below("required", number), "no property says what it is"), (*path, missing)
                )
        for name in properties:
            yield name, name in required

    def _member(self, part: Part, path: tuple[str, ...], above: str, is_required: bool) -> Found:
        only, may_be_null = self._but_null(part)
        about = _joined(above, self._description(part, only, path[-1]))
        defaults_to_null = "default" in part and part["default"] is None
        is_optional = defaults_to_null or not (is_required or "default" in part)
        wants_null = is_optional and not self.has_defaults
        if is_object(only):
            return self._nested(only, path, about, may_be_null or wants_null)
        if is_array(only):
            return self._array(only, path, about, may_be_null)
        choices = self.document.choices(part)
        if wants_null and all(choice is not None for choice, _ in choices):
            choices.append((None, ""))
            why = "null is its default" if defaults_to_null else "not required"
            self.notes.append(Remark(part.pointer, ".".join(path), f"{why}, so null is a choice"))
        one = self._field(part, path, about, choices)
        return [one], Value(one.name)

    def _but_null(self, part: Part) -> tuple[Part, bool]:
        """The only alternative beside null, or the part itself; and whether null is allowed."""
        keyword = next((key for key in ("anyOf", "oneOf") if key in part), None)
        if keyword is None or is_object(part):
            return part, part.is_nullable
        branches = self.document.branches(part, keyword)
        others = [branch for branch in branches if not branch.is_null]
        if len(others) == 1:
            if (is_object(others[0]) or is_array(others[0])) and (
                more := part.keywords.keys() - {keyword, *ANNOTATIONS, *NULLABLE}
            ):
                raise part.unbounded(
                    f"{min(map(str, more))!r} and {keyword!r} stand beside one another; keep one of them"
                )
            return others[0], len(branches) > 1 or part.is_nullable or others[0].is_nullable
        if any(is_object(branch) or is_array(branch) for branch in others):
            raise part.unbounded("a choice between several objects or arrays")
        return part, part.is_nullable

    def _nested(self, part: Part, path: tuple[str, ...], about: str, may_be_null: bool) -> Found:
        fields, shape = self.object(part, path, about)
        if not may_be_null or not fields:
            return fields, shape
        given = self._field(part, path, _joined(about, IS_GIVEN), _BOOLEAN)
        return [given, *fields], Members(shape.members, given.name)

    def _array(self, part: Part, path: tuple[str, ...], about: str, is_nullable: bool) -> Found:
        if condition := next((key for key in ("anyOf", "oneOf", "enum", "const", *CONDITIONS) if key in part), None):
            raise part.unbounded(f"{condition!r} is a condition that items decided one by one do not express")
        if not isinstance(part.keywords.get("items"), Mapping):
            is_tuple = isinstance(part.keywords.get("items"), list)
            raise part.unbounded("a tuple: each place has items of its own" if is_tuple else "an array of anything")
        items = self.document.child(part, "items")
        if is_object(items) or is_array(items):
            raise part.unbounded("an array of objects or arrays: how many there are is open")
        choices = self.document.choices(items)
        if (twice := repeated([choice for choice, _ in choices])) is not None:
            raise items.unbounded(f"choice {shown(choices[twice][0])} appears twice; each choice must be unique")
        if len(choices) > MAX_FIELDS:
            raise part.unbounded(f"{len(choices)} different items, each a field; at most {MAX_FIELDS} are allowed")
        least, most = (_size(part, keyword, other) for keyword, other in (("minItems", 0), ("maxItems", len(choices))))
        if least > min(most, len(choices)):
            raise part.unbounded(
                f"minItems is {shown(least)}, and there are at most {min(most, len(choices))} different items"
            )
        fields = [
            self._field(part, (*path, _label(choice)), _joined(about, _item_question(choice, title)), _BOOLEAN)
            for choice, title in choices
        ]
        if part.keywords.get("uniqueItems") is not True:
            self.notes.append(Remark(part.pointer, ".".join(path), "each item comes at most once, in the order listed"))
        pairs = tuple((one.name, choice) for one, (choice, _) in zip(fields, choices, strict=True))
        return fields, Items(pairs, least, min(most, len(choices)), is_nullable, about)

    def _field(
        self, part: Part, path: tuple[str, ...], about: str, choices: Sequence[tuple[Choice, str]]
    ) -> FieldDefinition:
        values, titles = tuple(choice for choice, _ in choices), tuple(title for _, title in choices)
        kind: FieldType = "const" if len(values) == 1 else "enum"
        if not any(titles) and set(map(choice_key, values)) == {choice_key(True), choice_key(False)}:
            kind = "boolean"
        name = self._name(path)
        try:
            one = FieldDefinition(name, kind, about, values, titles=titles)
        except SchemaError as error:
            raise part.unbounded(str(error).removeprefix(f"field {shown(name)}: ")) from None
        self._count += 1
        if self._count > MAX_FIELDS:
            raise SchemaError(f"the schema has more than {MAX_FIELDS} fields; at most {MAX_FIELDS} are allowed")
        return one

    def _name(self, path: tuple[str, ...]) -> str:
        """`address.country`, or `/address/country` where a property's own name is that."""
        name = ".".join(path)
        if name in self._names:
            name = "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in path)
        while name in self._names:
            name = "/" + name
        self._names.add(name)
        return name

    def _description(self, part: Part, only: Part, name: str) -> str:
        """A title stands in for a description where it is more than the name."""
        title = "" if plain(part.title) == plain(name) else part.title
        found = part.description or only.description or title
        return "" if found == "An enumeration." else found  # of Pydantic 1 for every Enum

    def _leave_out(self, open_part: Unbounded, path: tuple[str, ...]) -> None:
        self.unsupported.append(Remark(open_part.pointer, ".".join(path), open_part.reason))


def _joined(above: str, below: str) -> str:
    """Two descriptions as sentences."""
    if not above or not below:
        return above or below
    return above + (" " if above.endswith((".", "!", "?", ":", ";")) else ". ") + below


def _label(choice: Choice) -> str:
    return choice if isinstance(choice, str) else json.dumps(choice)


def _item_question(choice: Choice, title: str) -> str:
    question = IS_ITEM.format(json.dumps(choice, ensure_ascii=False))
    return f"{question} It means: {title}" if title else question


def _size(part: Part, keyword: str, otherwise: int) -> int:
    size = part.keywords.get(keyword, otherwise)
    if isinstance(size, float) and size.is_integer():
        size = int(size)
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise part.unbounded(f"{keyword} is {shown(size)} and no count")
    return size
