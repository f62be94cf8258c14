"""Shapes: how the decisions of flat fields become the values that an import describes.

Each part of a shape makes its value from decisions by field name, and the JSON Schema of the values
that it can make. Knows nothing of where a shape comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.field import Choice, FieldDefinition

if TYPE_CHECKING:
    from core.result import Decision

Decisions = Mapping[str, "Decision"]
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

    `given` is the boolean that says whether there is one, null standing for none; "" where there always is.
    """

    members: tuple[tuple[str, Shape], ...]
    given: str = ""

    def value(self, decisions: Decisions) -> dict[str, Any] | None:
        if self.given and not decisions[self.given].value:
            return None
        return {name: shape.value(decisions) for name, shape in self.members}

    def json_schema(self, fields: Fields) -> dict[str, Any]:
        schema = {
            "type": "object",
            "properties": {name: shape.json_schema(fields) for name, shape in self.members},
            "required": [name for name, _ in self.members],
            "additionalProperties": False,
        }
        return {"anyOf": [schema, {"type": "null"}]} if self.given else schema


@dataclass(frozen=True)
class Items:
    """An array of different items, each decided by a boolean of its own; in the order in which they were declared.

    Fewer than `least` are filled up with the likeliest others, of more than `most` the likeliest stay: of
    all arrays of a size that is allowed, the likeliest. Where null is allowed, it stands for no items.
    """

    items: tuple[tuple[str, Choice], ...]  # (boolean field, item)
    least: int = 0
    most: int | None = None
    is_nullable: bool = False
    description: str = ""

    def value(self, decisions: Decisions) -> list[Choice] | None:
        likely = {name: _likelihood(decisions[name]) for name, _ in self.items}
        count = sum(decisions[name].value is True for name, _ in self.items)
        if not count and self.is_nullable:
            return None
        ranked = sorted(likely, key=likely.__getitem__, reverse=True)  # stable: equals stay in order
        kept = set(ranked[: min(max(count, self.least), self._most)])
        return [item for name, item in self.items if name in kept]

    def json_schema(self, fields: Fields) -> dict[str, Any]:
        schema: dict[str, Any] = {
            "type": "array",
            "items": {"enum": [item for _, item in self.items]},
            "uniqueItems": True,
            "minItems": self.least,
            "maxItems": self._most,
        }
        about = {"description": self.description} if self.description else {}
        return about | ({"anyOf": [schema, {"type": "null"}]} if self.is_nullable else schema)

    @property
    def _most(self) -> int:
        return len(self.items) if self.most is None else min(self.most, len(self.items))


Shape = Value | Members | Items


def _likelihood(decision: Decision) -> tuple[bool, float]:
    """Of a boolean's true; a tie goes to the value that was decided."""
    is_true = decision.value is True
    return (is_true, decision.probability if is_true else 1.0 - decision.probability)
