"""JSON Schema, read one part at a time: references followed, and the closed list of a part's values.

Of all drafts and of OpenAPI's dialect what bounds a value is read exactly; any other condition makes the
part unbounded, which is raised with its place. Never fetches anything. Knows nothing of fields or shapes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any
from urllib.parse import unquote

from core.field import MAX_CHOICES, Choice, SchemaError, check_choice, choice_key, shown

#: An integer between bounds is a closed list of at most this many choices.
MAX_RANGE = 256
#: Of the numbers that bound others.
MAX_BOUND = 10**300
#: Parts that are visited, references followed: a few of them, each twice in the next, can stand for billions.
MAX_PARTS = 4_000
#: Values that are listed, once for each part that holds them: 7 microseconds each.
MAX_VALUES = 300_000
#: References and alternatives inside one another.
MAX_DEPTH = 64

#: What a reference may have beside it without changing which values are valid.
ANNOTATIONS = frozenset(
    "title description default example examples deprecated readOnly writeOnly $comment $schema $id $anchor $defs "
    "definitions components format contentEncoding contentMediaType discriminator xml externalDocs".split()
)
NULLABLE = ("nullable", "x-nullable")
#: Conditions on top of a type that are not decided here.
CONDITIONS = (
    "pattern", "not", "if", "then", "else", "dependencies", "dependentRequired", "dependentSchemas", "propertyNames",
    "minProperties", "maxProperties", "contains", "prefixItems", "$dynamicRef", "$recursiveRef",
)  # fmt: skip
_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")


class Unbounded(Exception):
    """A part without a closed list of values: where it stands, and why."""

    def __init__(self, pointer: str, reason: str) -> None:
        super().__init__(reason)
        self.pointer, self.reason = pointer, reason


@dataclass(frozen=True)
class Part:
    """A part of a document, its references followed."""

    keywords: Mapping[str, Any]
    pointer: str  # RFC 6901, of where the keywords stand
    trail: tuple[str, ...]  # the pointers of what it was reached through
    title: str  # written at the place itself, not behind a reference

    def __contains__(self, keyword: str) -> bool:
        return keyword in self.keywords

    def __getitem__(self, keyword: str) -> Any:
        return self.keywords[keyword]

    def below(self, *steps: object) -> str:
        return "/".join([self.pointer, *(str(step).replace("~", "~0").replace("/", "~1") for step in steps)])

    def unbounded(self, reason: str) -> Unbounded:
        return Unbounded(self.pointer, reason)

    @property
    def description(self) -> str:
        return text_of(self.keywords, "description")

    @property
    def types(self) -> tuple[str, ...]:
        """The types that are named, without null."""
        return tuple(kind for kind in self._named_types if kind != "null")

    @property
    def is_nullable(self) -> bool:
        """Whether null is allowed beside what else is, in any dialect."""
        flags = any(self.keywords.get(flag) is True for flag in NULLABLE)
        return flags or ("null" in self._named_types and bool(self.types))

    @property
    def is_null(self) -> bool:
        listed = [self["const"]] if "const" in self else self.keywords.get("enum")
        return self._named_types == ("null",) or listed == [None]

    @property
    def _named_types(self) -> tuple[str, ...]:
        given = self.keywords.get("type", ())
        kinds = (given,) if isinstance(given, str) else given
        if not isinstance(kinds, list | tuple) or not all(kind in _TYPES for kind in kinds):
            raise self.unbounded(f"type {shown(given)} is unknown")
        return tuple(kinds)


class Document:
    """A JSON Schema with all that its references can point to; `start` is the reference to where it begins."""

    def __init__(self, root: Mapping[str, Any], start: str = "") -> None:
        self._root, self._start = root, start
        self._parts = 0
        self._values = 0

    @property
    def root(self) -> Part:
        return self.part({"$ref": self._start} if self._start else self._root, "", ())

    def child(self, parent: Part, *steps: str | int) -> Part:
        schema: Any = parent.keywords
        for step in steps:
            schema = schema[step]
        return self.part(schema, parent.below(*steps), parent.trail)

    def part(self, schema: Any, pointer: str, trail: tuple[str, ...]) -> Part:
        """Follows `$ref` and an `allOf` of one; raises `Unbounded`."""
        title = text_of(schema, "title") if isinstance(schema, Mapping) else ""
        beside: dict[str, Any] = {}
        before = pointer
        while True:
            self._parts += 1
            if self._parts > MAX_PARTS:
                raise SchemaError(
                    f"the schema has more than {MAX_PARTS} parts, its references followed; make it smaller"
                )
            if pointer in trail:
                raise Unbounded(before, "recursion: the part holds itself")
            if len(trail) >= MAX_DEPTH:
                raise Unbounded(pointer, f"more than {MAX_DEPTH} references and parts inside one another")
            trail, before = (*trail, pointer), pointer
            if not isinstance(schema, Mapping):
                reasons = {True: "any value is allowed", False: "no value is allowed"}
                known = reasons[schema] if isinstance(schema, bool) else f"{shown(schema)} is no schema"
                raise Unbounded(pointer, known)
            if clash := [key for key in beside if key in schema and key not in ANNOTATIONS | set(NULLABLE)]:
                raise Unbounded(pointer, f"{clash[0]!r} stands here and beside the reference to here; keep one of them")
            if "$ref" in schema:
                beside = _without(schema, "$ref") | beside
                schema, pointer = self._target(schema["$ref"], pointer)
            elif "allOf" in schema:
                if not isinstance(schema["allOf"], list) or len(schema["allOf"]) != 1:
                    raise Unbounded(pointer, "allOf joins several schemas; write them as one")
                beside = _without(schema, "allOf") | beside
                schema, pointer = schema["allOf"][0], pointer + "/allOf/0"
            else:
                return Part({**schema, **beside}, pointer, trail, title)

    def choices(self, part: Part) -> list[tuple[Choice, str]]:
        """The values that a part allows, in their order, each with what it means. Raises `Unbounded`."""
        found = list(self._listed(part))
        self._values += len(found)
        if self._values > MAX_VALUES:
            raise SchemaError(
                f"the schema lists more than {MAX_VALUES} values, its references followed; make it smaller"
            )
        if part.is_nullable and all(choice is not None for choice, _ in found):
            found.append((None, ""))
        return found

    def _listed(self, part: Part) -> Iterator[tuple[Choice, str]]:
        lists = [key for key in ("anyOf", "oneOf", "const", "enum") if key in part]
        if len(lists) > 1:
            raise part.unbounded(f"{lists[0]!r} and {lists[1]!r} stand beside one another; keep one of them")
        is_text = part.types == ("string",) and not lists
        if (condition := next((key for key in CONDITIONS if key in part), None)) and not is_text:
            raise part.unbounded(f"{condition!r} is a condition that a closed list does not express")
        if lists and lists[0] in ("anyOf", "oneOf"):
            yield from self._united(part, lists[0])
        elif lists:
            values = [part["const"]] if lists[0] == "const" else part["enum"]
            if not isinstance(values, list):
                raise part.unbounded(f"enum {shown(values)} is no list")
            if len(values) > MAX_CHOICES:
                raise part.unbounded(f"{len(values)} choices; at most {MAX_CHOICES} are allowed")
            for value in values:
                yield _checked(part, value), ""
        elif part.is_null:
            yield None, ""
        elif len(part.types) > 1:
            for kind in part.types:
                yield from self._listed(Part({**part.keywords, "type": kind}, part.pointer, part.trail, part.title))
        elif part.types == ("boolean",):
            yield from ((True, ""), (False, ""))
        elif part.types == ("integer",):
            yield from ((number, "") for number in _range(part))
        else:
            raise part.unbounded(_why_open(part))

    def _united(self, part: Part, keyword: str) -> Iterator[tuple[Choice, str]]:
        seen = set()
        for branch in self.branches(part, keyword):
            values = self.choices(branch)
            for value, title in values:
                _checked(part, value)
                key = choice_key(value)
                if key not in seen:
                    yield value, title or (_meaning(branch, value) if len(values) == 1 else "")
                elif keyword == "oneOf":
                    raise branch.unbounded(f"{shown(value)} is in two schemas of a oneOf, which then refuses it")
                seen.add(key)

    def branches(self, part: Part, keyword: str) -> list[Part]:
        if not isinstance(part[keyword], list) or not part[keyword]:
            raise part.unbounded(f"{keyword} {shown(part[keyword])} is no list of schemas")
        return [self.child(part, keyword, number) for number in range(len(part[keyword]))]

    def _target(self, reference: Any, pointer: str) -> tuple[Any, str]:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise Unbounded(pointer, f"the reference {shown(reference)} leads to another document; put that into $defs")
        target = unquote(reference[1:])
        if target and not target.startswith("/"):
            raise Unbounded(pointer, f"the reference {shown(reference)} names an anchor; use #/$defs/NAME")
        found: Any = self._root
        for step in target.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and step in found:
                found = found[step]
            elif isinstance(found, list) and step in map(str, range(len(found))):
                found = found[int(step)]
            else:
                raise Unbounded(pointer, f"the reference {shown(reference)} leads nowhere")
        return found, target


def text_of(keywords: Mapping[str, Any], keyword: str) -> str:
    """An annotation in one line, "" where there is none."""
    value = keywords.get(keyword)
    return " ".join(value.split()) if isinstance(value, str) else ""


def plain(text: str) -> str:
    """Letters and digits alone: `risk_level` and `Risk Level` are the same."""
    return "".join(filter(str.isalnum, text)).casefold()


def _without(schema: Mapping[str, Any], keyword: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != keyword}


def _meaning(branch: Part, value: Choice) -> str:
    """What the only value of an alternative means, by its title and description."""
    title = text_of(branch.keywords, "title")
    parts = [] if plain(title) == plain(str(value)) else [title]
    return ": ".join(filter(None, [*parts, branch.description]))


def _checked(part: Part, value: Any) -> Any:
    """A listed value, an integer where JSON takes it for one. Raises `Unbounded` for one that other keywords refuse.

    Null is taken where it is listed, whatever the type beside it says: so people write that a value may be missing.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        check_choice("the list", value)
    except SchemaError as error:
        raise part.unbounded(str(error)) from None
    kinds = part.types
    if value is None:
        return value
    is_number = isinstance(value, int) and not isinstance(value, bool)
    names = {bool: "boolean", int: "integer", str: "string"}
    if kinds and names.get(type(value)) not in kinds and not (is_number and "number" in kinds):
        raise part.unbounded(f"{shown(value)} is listed and not of type {' or '.join(kinds)}")
    if is_number and not _is_within(part, value):
        raise part.unbounded(f"{shown(value)} is listed and outside of the bounds beside the list")
    if isinstance(value, str) and not _bound(part, "minLength", 0) <= len(value) <= _bound(part, "maxLength", math.inf):
        raise part.unbounded(f"{shown(value)} is listed and not of the length beside the list")
    return value


def _is_within(part: Part, value: int) -> bool:
    low, high = _limits(part)
    return low <= value <= high and (not _step(part) or value % _step(part) == 0)


def _range(part: Part) -> Sequence[int]:
    """The integers between bounds; raises `Unbounded`."""
    low, high = _limits(part)
    if missing := [name for name, bound in (("minimum", low), ("maximum", high)) if abs(bound) == math.inf]:
        raise part.unbounded(f"an integer without {' and '.join(missing)}")
    step = _step(part).numerator or 1  # an integer is a multiple of p/q in lowest terms if it is one of p
    first, last = -(-math.ceil(low) // step) * step, math.floor(high)
    count = (last - first) // step + 1
    if count < 1:
        raise part.unbounded("no integer lies between its bounds")
    if count > MAX_RANGE:
        raise part.unbounded(f"its bounds leave {count} integers; at most {MAX_RANGE} become choices")
    return range(first, last + 1, step)


def _limits(part: Part) -> tuple[float, float]:
    """The least and the greatest integer, or infinities. Draft 4 writes `exclusiveMinimum: true` beside `minimum`."""
    low, high = _bound(part, "minimum", -math.inf), _bound(part, "maximum", math.inf)
    above, below = part.keywords.get("exclusiveMinimum"), part.keywords.get("exclusiveMaximum")
    if above is True:
        low = _after(low)
    elif above is not None and above is not False:
        low = max(low, _after(_bound(part, "exclusiveMinimum", low)))
    if below is True:
        high = -_after(-high)
    elif below is not None and below is not False:
        high = min(high, -_after(-_bound(part, "exclusiveMaximum", high)))
    return low, high


def _after(bound: float) -> float:
    return bound if abs(bound) == math.inf else math.floor(bound) + 1


def _step(part: Part) -> Fraction:
    """`multipleOf`, 0 where there is none."""
    step = _bound(part, "multipleOf", 0)
    if step < 0 or ("multipleOf" in part and step == 0):
        raise part.unbounded(f"multipleOf is {shown(part['multipleOf'])} and not above 0")
    return Fraction(str(step))


def _bound(part: Part, keyword: str, otherwise: float) -> Any:
    """A keyword's number; raises `Unbounded` for anything else that stands there."""
    value = part.keywords.get(keyword, otherwise)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if keyword in part and not (is_number and -MAX_BOUND <= value <= MAX_BOUND):
        raise part.unbounded(f"{keyword} is {shown(value)} and no number of a usable size")
    return value


def _why_open(part: Part) -> str:
    [kind] = part.types or ("",)
    if kind == "string":
        form = text_of(part.keywords, "format") or ("pattern" if "pattern" in part else "")
        return f"free text ({shown(form)})" if form else "free text"
    reasons = {
        "number": "a number; only integers between bounds are a closed list",
        "array": "an array in the place of a single value",
        "object": "an object in the place of a single value",
        "": "any value is allowed",
    }
    return reasons[kind]
