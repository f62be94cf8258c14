"""Shapes: how the decisions of flat fields become the values that an import describes.

Each part of a shape makes its value from decisions by field name, and the JSON Schema of the values
that it can make. Knows nothing of where a shape comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from core.field import Choice, FieldDefinition


class Decided(Protocol):
    """What of a decision a shape needs."""

    @property
    def value(self) -> Choice: ...
    @property
    def probability(self) -> float: ...


Decisions = Mapping[str, Decided]
Fields = Mapping[str, FieldDefinition]


@dataclass(frozen=True)
class Value:
    """What a field was decided to be."""

    field: str

    def value(self, decisions: Decisions) -> Choice:
        return decisions[self.field].value

    def json_schema(self, fields: Fields) -> dict[str, Any]:
        field = fields[self.field]
        about = {"description": field.description} if field.description else {}
        if field.titles:
            options = zip(field.choices, field.titles, strict=True)
            return about | {
                "oneOf": [{"const": choice} | ({"title": title} if title else {}) for choice, title in options]
            }
        if field.field_type == "boolean":
            return about | {"type": "boolean"}
        if field.field_type == "const":
            return about | {"const": field.choices[0]}
        return about | {"enum": list(field.choices)}


@dataclass(frozen=True)
class Members:
    """An object.

    `presence` is the boolean field that says whether there is one, null standing for none; None where there always is.
    """

    members: tuple[tuple[str, Shape], ...]
    presence: str | None = None

    def value(self, decisions: Decisions) -> dict[str, Any] | None:
        if self.presence is not None and not decisions[self.presence].value:
            return None
        return {name: shape.value(decisions) for name, shape in self.members}

    def presences(self) -> Iterator[str]:
        """The boolean fields that say of objects whether they are there."""
        if self.presence is not None:
            yield self.presence
        for _, shape in self.members:
            if isinstance(shape, Members):
                yield from shape.presences()

    def json_schema(self, fields: Fields) -> dict[str, Any]:
        schema = {
            "type": "object",
            "properties": {name: shape.json_schema(fields) for name, shape in self.members},
            "required": [name for name, _ in self.members],
            "additionalProperties": False,
        }
        return schema if self.presence is None else {"anyOf": [schema, {"type": "null"}]}


@dataclass(frozen=True)
class Items:
    """An array of different items, each decided by a boolean of its own; in the order in which they were declared.

    Fewer than `least` are filled up with the likeliest others, of more than `most` the likeliest stay: of
    all arrays of a size that is allowed, the likeliest. Where null is allowed, it stands for no items.
    """

    items: tuple[tuple[str, Choice], ...]  # (boolean field, item)
    least: int
    most: int
    is_nullable: bool
    description: str

    def value(self, decisions: Decisions) -> list[Choice] | None:
        likely = {name: _likelihood(decisions[name]) for name, _ in self.items}
        count = sum(decisions[name].value is True for name, _ in self.items)
        if not count and self.is_nullable:
            return None
        ranked = sorted(likely, key=likely.__getitem__, reverse=True)  # stable: equals stay in order
        kept = set(ranked[: min(max(count, self.least), self.most)])
        return [item for name, item in self.items if name in kept]

    def json_schema(self, fields: Fields) -> dict[str, Any]:
        schema: dict[str, Any] = {
            "type": "array",
            "items": {"enum": [item for _, item in self.items]},
            "uniqueItems": True,
            "minItems": self.least,
            "maxItems": self.most,
        }
        about = {"description": self.description} if self.description else {}
        return about | ({"anyOf": [schema, {"type": "null"}]} if self.is_nullable else schema)


Shape = Value | Members | Items


def _likelihood(decision: Decided) -> tuple[bool, float]:
    """Of a boolean's true; a tie goes to the value that was decided."""
    is_true = decision.value is True
    return (is_true, decision.probability if is_true else 1.0 - decision.probability)
