"""The walk over a JSON Schema document: each part becomes fields and the shape of their values, or a remark.

Knows nothing of where a document comes from.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from core.field import (
    MAX_DESCRIPTION_BYTES,
    MAX_FIELDS,
    MAX_NAME_BYTES,
    Choice,
    FieldDefinition,
    FieldType,
    SchemaError,
    choice_key,
    repeated,
)
from core.json_schema import Document, plain
from core.schema_part import (
    ANNOTATIONS,
    ARRAY_CONDITIONS,
    LISTS,
    NULLABLE,
    OBJECT_CONDITIONS,
    Part,
    Unbounded,
    pointer_to,
)
from core.shape import Items, Members, Shape, Value
from core.wording import escaped, shown

#: What follows an object's or array's own description, where a boolean is asked about it.
IS_GIVEN = "Does the text say anything of this?"
IS_ITEM = "Is {} one of them?"
_BOOLEAN = ((True, ""), (False, ""))

#: Of one import, and characters of the pointer and name of each: a small document can ask for gigabytes of them.
MAX_REMARKS, MAX_PLACE = 1_000, 500

Path = tuple[str, ...]


@dataclass(frozen=True)
class Remark:
    """Something to know of one part of an import."""

    pointer: str  # RFC 6901, in the document; "" is the document itself
    name: str  # the value's place in what comes back, such as `address.country`
    reason: str

    @classmethod
    def of(cls, pointer: str, path: Path, reason: str) -> Remark:
        return cls(_place(pointer), _place(".".join(path)), reason)

    def __str__(self) -> str:
        where = f"{self.pointer or '#'} ({self.name})" if self.name else self.pointer or "#"
        return escaped(f"{where}: {self.reason}")

    def to_json(self) -> dict[str, str]:
        return dataclasses.asdict(self)


@dataclass
class Walk:
    """One import. Raises `Unbounded` for a document that is itself no object of bounded parts, and `SchemaError`."""

    document: Document
    states_null: bool  # the source says itself where null is allowed, an optional value included
    refused: Mapping[Path, str]  # parts that are known to be unsupported, and why
    fields: list[FieldDefinition] = field(default_factory=list)
    unsupported: list[Remark] = field(default_factory=list)
    notes: list[Remark] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)

    def object(self, part: Part, path: Path = (), above: str = "") -> Members:
        """`above`: what the objects around it say of themselves. What cannot be decided of it is left out."""
        members: list[tuple[str, Shape]] = []
        for name, is_required in self._properties(part, path):
            here, fields, notes = (*path, name), len(self.fields), len(self.notes)
            try:
                shape = self._property(part, name, here, above, is_required)
            except Unbounded as open_part:
                del self.fields[fields:], self.notes[notes:]
                self._leave_out(open_part, here)
                continue
            if len(self.fields) > fields:
                members.append((name, shape))
        return Members(tuple(members))

    def _properties(self, part: Part, path: Path) -> Iterator[tuple[str, bool]]:
        """(name, is required) of each property. Where nothing is said to be required, everything is wanted."""
        properties, more = part.keywords.get("properties", {}), part.keywords.get("additionalProperties")
        if not isinstance(properties, Mapping) or not all(isinstance(name, str) for name in properties):
            raise part.unbounded(f"properties {shown(properties)} is no object of schemas", "properties")
        if not properties and "patternProperties" not in part:
            raise part.unbounded("it has no properties" if more is False else "an open map: its keys are not listed")
        for keyword in ("additionalProperties", "unevaluatedProperties"):
            if isinstance(part.keywords.get(keyword), Mapping):
                self._leave_out(Unbounded(part.below(keyword), "an open map beside the properties"), path)
        for keyword in ("patternProperties", *LISTS, *OBJECT_CONDITIONS):
            if keyword in part:
                self._leave_out(Unbounded(part.below(keyword), f"{keyword} on an object"), path)
        required = part.keywords.get("required")
        if not isinstance(required, list):  # draft 3 has a boolean in each property
            required = list(properties)
        for number, name in enumerate(required):
            if not isinstance(name, str) or name not in properties:
                missing = name if isinstance(name, str) else shown(name)
                place = part.below("required", number)
                self._leave_out(Unbounded(place, "no property says what it is"), (*path, missing))
        wanted = {name for name in required if isinstance(name, str)}
        for name in properties:
            yield name, name in wanted

    def _property(self, part: Part, name: str, path: Path, above: str, is_required: bool) -> Shape:
        size = len(".".join(path).encode(errors="surrogatepass"))
        if path in self.refused or size > MAX_NAME_BYTES:
            too_long = f"its field name has {size} bytes; at most {MAX_NAME_BYTES} are allowed"
            raise Unbounded(part.below("properties", name), self.refused.get(path, too_long))
        return self._member(self.document.child(part, "properties", name), path, above, is_required)

    def _member(self, part: Part, path: Path, above: str, is_required: bool) -> Shape:
        only, may_be_null = self._but_null(part)
        about = self._about(part, only, path, above)
        if only.is_array:
            return self._array(only, path, about, may_be_null)
        why = self._why_null(part, is_required)
        if only.is_object:
            return self._nested(only, path, about, may_be_null, why)
        choices = self.document.choices(part)
        is_open = len(choices) > 1 or "default" in part  # one value stays that value, given or not
        if why and is_open and all(choice is not None for choice, _ in choices):
            choices.append((None, ""))
            self._note(part, path, why)
        if only.is_nullable and None not in (only.keywords.get("enum") or [only.keywords.get("const")]):
            self._note(part, path, "null is allowed beside a list without it, so it can be null")
        return Value(self._add(part, path, about, choices).name)

    def _why_null(self, part: Part, is_required: bool) -> str:
        """Why a value that says nothing of null can come back as null; "" where it cannot."""
        if self.states_null:
            return ""
        if "default" in part:
            return "null is its default, so it can be null" if part["default"] is None else ""
        return "" if is_required else "not required, so it can be null"

    def _but_null(self, part: Part) -> tuple[Part, bool]:
        """The only alternative beside null, or the part itself; and whether null is allowed."""
        keyword = part.first(("anyOf", "oneOf"))
        if keyword is None or part.is_object:
            return part, part.is_nullable
        branches = self.document.branches(part, keyword)
        others = [branch for branch in branches if not branch.is_null]
        if len(others) == 1:
            [other] = others
            more = part.keywords.keys() - {keyword, *ANNOTATIONS, *NULLABLE}
            if other.is_container and more:
                raise part.unbounded(f"{min(more)!r} and {keyword!r} stand beside one another; keep one of them")
            return other, len(branches) > 1 or part.is_nullable or other.is_nullable
        if any(branch.is_container for branch in others):
            raise part.unbounded("several alternatives, at least one an object or array", keyword)
        return part, part.is_nullable

    def _nested(self, part: Part, path: Path, about: str, may_be_null: bool, why: str) -> Shape:
        first = len(self.fields)
        shape = self.object(part, path, about)
        if not shape.members or not (may_be_null or why):
            return shape
        if not may_be_null:
            self._note(part, path, why)
        presence = self._add(part, path, self._joined(part, path, about, IS_GIVEN), _BOOLEAN)
        self.fields.insert(first, self.fields.pop())  # what is asked first is whether there is an object
        return Members(shape.members, presence.name)

    def _array(self, part: Part, path: Path, about: str, is_nullable: bool) -> Shape:
        if "prefixItems" in part or isinstance(part.keywords.get("items"), list):
            raise part.unbounded("a tuple: each place has items of its own")
        if condition := part.first((*LISTS, *ARRAY_CONDITIONS)):
            raise part.unbounded(
                f"{condition!r} is a condition that items decided one by one do not express", condition
            )
        if not isinstance(part.keywords.get("items"), Mapping):
            raise part.unbounded("an array of anything")
        items = self.document.child(part, "items")
        if items.is_container:
            raise part.unbounded("an array of objects or arrays: how many there are is open")
        choices = self.document.choices(items)
        if (twice := repeated([choice for choice, _ in choices])) is not None:
            raise items.unbounded(f"choice {shown(choices[twice][0])} appears twice; each choice must be unique")
        self._require_room(part, len(choices))
        least, most = part.size("minItems", 0), min(part.size("maxItems", len(choices)), len(choices))
        if least > most:
            raise part.unbounded(f"minItems is {shown(least)}, and there are at most {most} different items")
        if least > 0 or most < len(choices):
            self._note(part, path, f"{least} to {most} items come back, the likeliest where it was decided otherwise")
        if part.keywords.get("uniqueItems") is not True:
            self._note(part, path, "each item comes at most once, in the order listed")
        pairs = []
        for choice, title in choices:
            question = self._joined(part, path, about, _item_question(choice, title))
            pairs.append((self._add(part, (*path, _label(choice)), question, _BOOLEAN).name, choice))
        return Items(tuple(pairs), least, most, is_nullable, about)

    def _add(self, part: Part, path: Path, about: str, choices: Sequence[tuple[Choice, str]]) -> FieldDefinition:
        self._require_room(part, 1)
        values, titles = tuple(choice for choice, _ in choices), tuple(title for _, title in choices)
        kind: FieldType = "const" if len(values) == 1 else "enum"
        if not any(titles) and set(map(choice_key, values)) == {choice_key(True), choice_key(False)}:
            kind = "boolean"
        name = self._name(path)
        try:
            self.fields.append(FieldDefinition(name, kind, about, values, titles=titles))
        except SchemaError as error:
            raise part.unbounded(str(error).removeprefix(f"field {shown(name)}: ")) from None
        return self.fields[-1]

    def _require_room(self, part: Part, count: int) -> None:
        if len(self.fields) + count > MAX_FIELDS:
            left = MAX_FIELDS - len(self.fields)
            raise part.unbounded(f"needs {count} of the {MAX_FIELDS} fields that a schema has, and {left} are left")

    def _name(self, path: Path) -> str:
        """`address.country`, or `/address/country` where a property's own name is that."""
        name = ".".join(path)
        if name in self._names:
            name = pointer_to(path)
        while name in self._names:
            name = "/" + name
        self._names.add(name)
        return name

    def _about(self, part: Part, only: Part, path: Path, above: str) -> str:
        """A title stands in for a description where it is more than the name."""
        title = "" if plain(part.title) == plain(path[-1]) else part.title
        own = part.description or only.description or title
        if own == "An enumeration.":  # of Pydantic 1 for every Enum
            own = ""
        return self._joined(part, path, above, own)

    def _joined(self, part: Part, path: Path, above: str, own: str) -> str:
        """Two descriptions as sentences; the outer one goes where both are too long."""
        if not above or not own:
            return above or own
        both = above + (" " if above.endswith((".", "!", "?", ":", ";")) else ". ") + own
        if len(both.encode(errors="surrogatepass")) <= MAX_DESCRIPTION_BYTES:
            return both
        self._note(part, path, "the description of what is around it is too long to stand before its own")
        return own

    def _leave_out(self, open_part: Unbounded, path: Path) -> None:
        self._remark(self.unsupported, Remark.of(open_part.pointer, path, open_part.reason))

    def _note(self, part: Part, path: Path, reason: str) -> None:
        self._remark(self.notes, Remark.of(part.pointer, path, reason))

    def _remark(self, remarks: list[Remark], remark: Remark) -> None:
        if remark not in remarks[-1:]:
            remarks.append(remark)
        if len(remarks) > MAX_REMARKS:
            raise SchemaError(f"more than {MAX_REMARKS} parts of the schema cannot be decided; take a part of it")


def _place(text: str) -> str:
    """A pointer or name as JSON and messages can hold it: no half characters, never long."""
    whole = text.encode(errors="backslashreplace").decode()
    return whole if len(whole) <= MAX_PLACE else whole[: MAX_PLACE - 3] + "..."


def _label(choice: Choice) -> str:
    return choice if isinstance(choice, str) else json.dumps(choice)


def _item_question(choice: Choice, title: str) -> str:
    question = IS_ITEM.format(json.dumps(choice, ensure_ascii=False))
    return f"{question} It means: {title}" if title else question
