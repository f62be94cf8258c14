"""JSON Schema documents: references followed, and the closed list of each part's values.

What bounds a value is read exactly; any other condition makes the part unbounded, which is raised with its
place. Never fetches anything. Knows nothing of fields or shapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from core.field import MAX_CHOICES, Choice, SchemaError, choice_key
from core.schema_part import ANNOTATIONS, LISTS, NULLABLE, VALUE_CONDITIONS, Part, Unbounded, text_of
from core.wording import shown

#: Parts that are visited, references followed: a few of them, each twice in the next, can stand for billions.
MAX_PARTS = 4_000
#: Values that are listed, once for each part that holds them: 7 microseconds each.
MAX_VALUES = 300_000
#: References and alternatives inside one another.
MAX_DEPTH = 64
_INDEX = re.compile("0|[1-9][0-9]{0,8}")
_WAY_OUT = "its references followed; make it smaller, or take a part of it"


class Document:
    """A JSON Schema with all that its references can point to; `at` is the reference of the part that is meant."""

    def __init__(self, whole: Mapping[str, Any], at: str = "") -> None:
        self._whole, self._at = whole, at
        self._parts = 0
        self._values = 0
        self._bases: set[str] = set()  # pointers of parts that references inside of them are relative to

    @property
    def root(self) -> Part:
        return self.part({"$ref": self._at} if self._at else self._whole, "", ())

    def child(self, parent: Part, keyword: str, *steps: str | int) -> Part:
        schema: Any = parent[keyword]
        for step in steps:
            schema = schema[step]
        way = parent.trail[
            : parent.trail.index(parent.place(keyword)) + 1
        ]  # what stands beside a reference is not in it
        return self.part(schema, parent.below(keyword, *steps), way)

    def part(self, schema: Any, pointer: str, trail: tuple[str, ...]) -> Part:
        """Follows `$ref` and an `allOf` of one; raises `Unbounded`."""
        title = text_of(schema, "title") if isinstance(schema, Mapping) else ""
        beside: dict[str, Any] = {}
        places: dict[str, str] = {}
        before = pointer
        while True:
            self._count_part()
            if pointer in trail:
                raise Unbounded(before, "recursion: the part holds itself")
            if len(trail) >= MAX_DEPTH:
                raise Unbounded(pointer, f"more than {MAX_DEPTH} references and parts inside one another")
            trail, before = (*trail, pointer), pointer
            _check_schema(schema, pointer, beside)
            if pointer and (isinstance(schema.get("$id"), str) or isinstance(schema.get("id"), str)):
                self._bases.add(pointer)
            keyword = next((key for key in ("$ref", "allOf") if key in schema), None)
            if keyword is None:
                return Part({**schema, **beside}, pointer, trail, title, places)
            own = {key: value for key, value in schema.items() if key != keyword}
            beside, places = own | beside, dict.fromkeys(own, pointer) | places
            if keyword == "$ref":
                if not self._bases.isdisjoint(trail):
                    raise Unbounded(pointer, "a reference within a part that has an $id of its own is not followed")
                schema, pointer = self._target(schema["$ref"], pointer)
            elif not isinstance(schema["allOf"], list) or len(schema["allOf"]) != 1:
                raise Unbounded(pointer, "allOf joins several schemas; write them as one")
            else:
                schema, pointer = schema["allOf"][0], pointer + "/allOf/0"

    def choices(self, part: Part) -> list[tuple[Choice, str]]:
        """The values that a part allows, in their order, each with what it means. Raises `Unbounded`."""
        found = list(self._listed(part))
        self._values += len(found)
        if self._values > MAX_VALUES:
            raise SchemaError(f"the schema lists more than {MAX_VALUES} values, {_WAY_OUT}")
        if part.is_nullable and all(choice is not None for choice, _ in found):
            found.append((None, ""))
        return found

    def _listed(self, part: Part) -> Iterator[tuple[Choice, str]]:
        lists = [key for key in LISTS if key in part]
        if len(lists) > 1:
            raise part.unbounded(f"{lists[0]!r} and {lists[1]!r} stand beside one another; keep one of them")
        may_be_text = lists and (not part.types or "string" in part.types)
        if condition := part.first((*VALUE_CONDITIONS, *(("pattern",) if may_be_text else ()))):
            raise part.unbounded(f"{condition!r} is a condition that a closed list does not express", condition)
        if lists and lists[0] in ("anyOf", "oneOf"):
            yield from self._united(part, lists[0])
        elif lists:
            values = [part["const"]] if lists[0] == "const" else part["enum"]
            if not isinstance(values, list):
                raise part.unbounded(f"enum {shown(values)} is no list")
            if len(values) > MAX_CHOICES:
                raise part.unbounded(f"{len(values)} choices; at most {MAX_CHOICES} are allowed")
            for value in values:
                yield part.listed(value), ""
        elif part.is_null:
            yield None, ""
        elif len(part.types) > 1:
            for kind in part.types:
                yield from self._listed(replace(part, keywords={**part.keywords, "type": kind}))
        elif part.types == ("boolean",):
            yield from ((True, ""), (False, ""))
        elif part.types == ("integer",):
            yield from ((number, "") for number in part.integers())
        else:
            raise part.unbounded(_why_open(part))

    def _united(self, part: Part, keyword: str) -> Iterator[tuple[Choice, str]]:
        seen = set()
        for branch in self.branches(part, keyword):
            values = self.choices(branch)
            for value, title in values:
                part.listed(value)
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

    def _count_part(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise SchemaError(f"the schema has more than {MAX_PARTS} parts, {_WAY_OUT}")

    def _target(self, reference: Any, pointer: str) -> tuple[Any, str]:
        base = self._whole.get("$id")
        if isinstance(base, str) and isinstance(reference, str) and reference.startswith(base.rstrip("#") + "#"):
            reference = reference[len(base.rstrip("#")) :]
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise Unbounded(pointer, f"the reference {shown(reference)} leads to another document; put that into $defs")
        target = unquote(reference[1:])
        if target and not target.startswith("/"):
            raise Unbounded(pointer, f"the reference {shown(reference)} names an anchor; write it as #/ and a path")
        found: Any = self._whole
        for step in target.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and step in found:
                found = found[step]
            elif isinstance(found, list) and _INDEX.fullmatch(step) and int(step) < len(found):
                found = found[int(step)]
            else:
                names = (
                    f"; there is {shown(', '.join(map(str, found)))}" if isinstance(found, Mapping) and found else ""
                )
                raise Unbounded(pointer, f"the reference {shown(reference)} leads nowhere{names}")
        return found, target


def plain(text: str) -> str:
    """Letters and digits alone: `risk_level` and `Risk Level` are the same."""
    return "".join(filter(str.isalnum, text)).casefold()


def _check_schema(schema: Any, pointer: str, beside: Mapping[str, Any]) -> None:
    """Raises `Unbounded` for what is no object of keywords, or says otherwise than what stands beside its reference."""
    if not isinstance(schema, Mapping):
        reasons = {True: "any value is allowed", False: "no value is allowed"}
        raise Unbounded(pointer, reasons[schema] if isinstance(schema, bool) else f"{shown(schema)} is no schema")
    if clash := [key for key in beside if key in schema and key not in ANNOTATIONS | set(NULLABLE)]:
        raise Unbounded(pointer, f"{clash[0]!r} stands here and beside the reference to here; keep one of them")
    for closed, other in ((beside, schema), (schema, beside)):
        keyword = next(
            (key for key in ("additionalProperties", "unevaluatedProperties") if closed.get(key) is False), ""
        )
        if keyword and "properties" in other and "properties" not in closed:
            raise Unbounded(pointer, f"{keyword} on one side of a reference forbids the properties on the other")


def _meaning(branch: Part, value: Choice) -> str:
    """What the only value of an alternative means, by its title and description."""
    title = text_of(branch.keywords, "title")
    parts = [] if plain(title) == plain(str(value)) else [title]
    return ": ".join(filter(None, [*parts, branch.description]))


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
