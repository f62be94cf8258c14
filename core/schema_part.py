"""A part of a JSON Schema document, its references followed: what type it has, and what bounds its values.

Any draft, and OpenAPI's dialect. Knows nothing of the document around it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from core.field import Choice, SchemaError, check_choice
from core.wording import shown

#: An integer between bounds is a closed list of at most this many choices.
MAX_RANGE = 256
#: Of the numbers that bound others.
MAX_BOUND = 10**300

#: What a reference may have beside it without changing which values are valid.
ANNOTATIONS = frozenset(
    "title description default example examples deprecated readOnly writeOnly $comment $schema $id $anchor $defs "
    "definitions components format contentEncoding contentMediaType discriminator xml externalDocs".split()
)
NULLABLE = ("nullable", "x-nullable")
#: Conditions on top of a type that are not decided here, by what they are about.
CONDITIONS = ("not", "if", "then", "else", "disallow", "extends", "$dynamicRef", "$recursiveRef")
VALUE_CONDITIONS = (*CONDITIONS, "divisibleBy")
ARRAY_CONDITIONS = (*CONDITIONS, "contains")
OBJECT_CONDITIONS = (
    *CONDITIONS, "dependencies", "dependentRequired", "dependentSchemas", "propertyNames", "minProperties",
    "maxProperties",
)  # fmt: skip
#: Keywords that list values, or schemas of them.
LISTS = ("anyOf", "oneOf", "const", "enum")
_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")


class Unbounded(Exception):
    """A part without a closed list of values: where it stands, and why."""

    def __init__(self, pointer: str, reason: str) -> None:
        super().__init__(reason)
        self.pointer, self.reason = pointer, reason


@dataclass(frozen=True)
class Part:
    keywords: Mapping[str, Any]
    pointer: str  # RFC 6901, of where the keywords stand
    trail: tuple[str, ...]  # the pointers of what it was reached through
    title: str  # written at the place itself, not behind a reference
    beside: Mapping[str, str]  # the pointers of keywords that stand beside a reference to here

    def __contains__(self, keyword: str) -> bool:
        return keyword in self.keywords

    def __getitem__(self, keyword: str) -> Any:
        return self.keywords[keyword]

    def below(self, keyword: str, *steps: object) -> str:
        return self.place(keyword) + pointer_to((keyword, *steps))

    def place(self, keyword: str) -> str:
        """The pointer of the object in which a keyword stands."""
        return self.beside.get(keyword, self.pointer)

    def unbounded(self, reason: str, keyword: str = "") -> Unbounded:
        return Unbounded(self.place(keyword), reason)

    def first(self, keywords: Sequence[str]) -> str | None:
        """The first of the keywords that stands here."""
        return next((keyword for keyword in keywords if keyword in self), None)

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
    def is_object(self) -> bool:
        is_untyped = not self._named_types and self.first(("properties", "additionalProperties")) is not None
        return self.types == ("object",) or is_untyped

    @property
    def is_array(self) -> bool:
        return self.types == ("array",) or (not self._named_types and "items" in self)

    @property
    def is_container(self) -> bool:
        return self.is_object or self.is_array

    @property
    def _named_types(self) -> tuple[str, ...]:
        given = self.keywords.get("type", ())
        kinds = (given,) if isinstance(given, str) else given
        if not isinstance(kinds, list | tuple) or not all(kind in _TYPES for kind in kinds):
            raise self.unbounded(f"type {shown(given)} is unknown")
        return tuple(kinds)

    # --- bounds ---

    def listed(self, value: Any) -> Choice:
        """A value of a list, an integer where JSON takes it for one; raises `Unbounded` for one that bounds refuse.

        Null is taken where it is listed, whatever the type beside it says: so people write that a value may be missing.
        """
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        try:
            check_choice("the list", value)
        except SchemaError as error:
            raise self.unbounded(str(error).removeprefix("the list: ")) from None
        if value is None:
            return None
        is_number = isinstance(value, int) and not isinstance(value, bool)
        name, kinds = {bool: "boolean", int: "integer", str: "string"}[type(value)], self._named_types
        if kinds and name not in kinds and not (is_number and "number" in kinds):
            raise self.unbounded(f"{shown(value)} is listed and not of type {' or '.join(kinds)}")
        if is_number and not self._holds(value):
            raise self.unbounded(f"{shown(value)} is listed and outside of the bounds beside the list")
        if isinstance(value, str) and not self._bound("minLength", 0) <= len(value) <= self._bound(
            "maxLength", math.inf
        ):
            raise self.unbounded(f"{shown(value)} is listed and not of the length beside the list")
        return value

    def integers(self) -> range:
        """The integers between the bounds; raises `Unbounded`."""
        low, high = self._limits()
        if missing := [name for name, bound in (("minimum", low), ("maximum", high)) if abs(bound) == math.inf]:
            raise self.unbounded(f"an integer without {' and '.join(missing)}")
        step = self._step().numerator or 1  # an integer is a multiple of p/q in lowest terms if it is one of p
        first, last = -(-math.ceil(low) // step) * step, math.floor(high)
        count = (last - first) // step + 1
        if count < 1:
            raise self.unbounded("no integer lies between its bounds")
        if count > MAX_RANGE:
            raise self.unbounded(f"its bounds leave {shown(count)} integers; at most {MAX_RANGE} become choices")
        return range(first, last + 1, step)

    def size(self, keyword: str, otherwise: int) -> int:
        """A count, such as `minItems`."""
        size = self._bound(keyword, otherwise)
        if size < 0 or size != int(size):
            raise self.unbounded(f"{keyword} is {shown(size)} and no count", keyword)
        return int(size)

    def _holds(self, value: int) -> bool:
        low, high = self._limits()
        return low <= value <= high and (not self._step() or value % self._step() == 0)

    def _limits(self) -> tuple[float, float]:
        """The least and the greatest integer, or infinities. Draft 4 has `exclusiveMinimum: true` beside `minimum`."""
        low, high = self._bound("minimum", -math.inf), self._bound("maximum", math.inf)
        above, below = self.keywords.get("exclusiveMinimum"), self.keywords.get("exclusiveMaximum")
        if above is True:
            low = _after(low)
        elif above is not None and above is not False:
            low = max(low, _after(self._bound("exclusiveMinimum", low)))
        if below is True:
            high = -_after(-high)
        elif below is not None and below is not False:
            high = min(high, -_after(-self._bound("exclusiveMaximum", high)))
        return low, high

    def _step(self) -> Fraction:
        """`multipleOf`, 0 where there is none."""
        step = self._bound("multipleOf", 0)
        if step < 0 or ("multipleOf" in self and step == 0):
            raise self.unbounded(f"multipleOf is {shown(step)} and not above 0", "multipleOf")
        return Fraction(str(step))

    def _bound(self, keyword: str, otherwise: float) -> Any:
        """A keyword's number; raises `Unbounded` for anything else that stands there."""
        value = self.keywords.get(keyword, otherwise)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if keyword in self and not (is_number and -MAX_BOUND <= value <= MAX_BOUND):
            raise self.unbounded(f"{keyword} is {shown(value)} and no number of a usable size", keyword)
        return value


def pointer_to(steps: Sequence[object]) -> str:
    """The JSON pointer of a path (RFC 6901)."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def text_of(keywords: Mapping[str, Any], keyword: str) -> str:
    """An annotation in one line, "" where there is none."""
    value = keywords.get(keyword)
    return " ".join(value.split()) if isinstance(value, str) else ""


def _after(bound: float) -> float:
    return bound if abs(bound) == math.inf else math.floor(bound) + 1
