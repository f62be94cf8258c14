"""Fields: a name with a closed list of choices.

The one place where a field is checked; past it, a `FieldDefinition` is trusted.
Knows nothing of prompts, tokens or models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from core.wording import shown

#: A choice is a JSON scalar. `1`, `"1"` and `true` are three different choices.
Choice = str | bool | int | None
#: `const` has one choice, which is never scored.
FieldType = Literal["boolean", "enum", "const"]

MAX_FIELDS = 128
MAX_CHOICES = 1024
MAX_NAME_BYTES = 128
MAX_CHOICE_BYTES = 256
MAX_DESCRIPTION_BYTES = 1024

_FIELD_KEYS = ("type", "choices", "titles", "description", "depends_on")


class SchemaError(ValueError):
    """A schema that cannot be decided; the message names the field, the bad value and the way out."""


@dataclass(frozen=True)
class FieldDefinition:
    """One field of a schema.

    `choices` of a boolean are always `(True, False)`; leave them out. `titles` say what each choice
    means, in their order, "" where a choice says it itself. A field that depends on others is decided
    after them, with their answers before its eyes.
    Raises `SchemaError` for anything outside the limits of this module.
    """

    name: str
    field_type: FieldType
    description: str = ""
    choices: tuple[Choice, ...] = ()
    depends_on: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_text(f"field name {shown(self.name)}", self.name, MAX_NAME_BYTES)
        if not self.name:
            raise SchemaError("a field has an empty name; give it one")
        _check_text(f"{self._where}: the description", self.description, MAX_DESCRIPTION_BYTES)
        object.__setattr__(self, "choices", self._checked_choices())
        object.__setattr__(self, "titles", self._checked_titles())
        object.__setattr__(self, "depends_on", self._checked_dependencies())

    @classmethod
    def of(cls, name: str, spec: Mapping[str, Any]) -> FieldDefinition:
        """The field of `{"type", "choices", "titles", "description", "depends_on"}`."""
        if not isinstance(spec, Mapping):
            raise SchemaError(f"field {shown(name)}: expected an object with 'type', got {shown(spec)}")
        if unknown := [key for key in spec if key not in _FIELD_KEYS]:
            raise SchemaError(
                f"field {shown(name)}: unknown key {shown(unknown[0])}; a field has {', '.join(_FIELD_KEYS)}"
            )
        if "type" not in spec:
            raise SchemaError(f"field {shown(name)}: no type; use 'boolean' or 'enum'")
        lists = {key: spec.get(key, ()) for key in ("choices", "depends_on", "titles")}
        return cls(name, spec["type"], spec.get("description", ""), **lists)

    def to_json(self) -> dict[str, Any]:
        """The mapping that `of` takes."""
        spec: dict[str, Any] = {"type": self.field_type}
        if self.field_type != "boolean":
            spec["choices"] = list(self.choices)
        if self.titles:
            spec["titles"] = list(self.titles)
        if self.description:
            spec["description"] = self.description
        if self.depends_on:
            spec["depends_on"] = list(self.depends_on)
        return spec

    @property
    def key(self) -> tuple[Any, ...]:
        """Identity, the choices' types and order included."""
        choices = tuple(map(choice_key, self.choices))
        return (self.name, self.field_type, self.description, self.depends_on, self.titles, choices)

    @property
    def _where(self) -> str:
        return f"field {shown(self.name)}"

    def _checked_dependencies(self) -> tuple[str, ...]:
        given = self.depends_on
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise SchemaError(f"{self._where}: depends_on must be a list of field names, got {shown(given)}")
        if len(given) > MAX_FIELDS:
            raise SchemaError(
                f"{self._where}: depends_on has {len(given)} names; a schema has at most {MAX_FIELDS} fields"
            )
        for i, name in enumerate(given):
            if not isinstance(name, str):
                raise SchemaError(f"{self._where}: depends_on holds {shown(name)}; it is a list of field names")
            if name in given[:i]:
                raise SchemaError(f"{self._where}: depends_on names {shown(name)} twice; once is enough")
        return tuple(given)

    def _checked_choices(self) -> tuple[Choice, ...]:
        given = self.choices
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise SchemaError(f"{self._where}: choices must be a list, got {shown(given)}")
        for choice in given:
            check_choice(self._where, choice)
        if self.field_type == "boolean":
            if given and set(map(choice_key, given)) != {choice_key(True), choice_key(False)}:
                raise SchemaError(
                    f"{self._where}: a boolean has no choices of its own, got {shown(given)}; leave them out"
                )
            return (True, False)
        if self.field_type == "const":
            if len(given) != 1:
                raise SchemaError(f"{self._where}: {len(given)} choices; a const has exactly 1")
            return tuple(given)
        if self.field_type != "enum":
            raise SchemaError(
                f"{self._where}: type {shown(self.field_type)} is unknown; use 'boolean' or 'enum', "
                "or 'const' for a value that is always the same"
            )
        if not given:
            raise SchemaError(f"{self._where}: no choices; an enum needs at least 2")
        if len(given) < 2:
            raise SchemaError(f"{self._where}: only one choice, {shown(given[0])}; an enum needs at least 2")
        if len(given) > MAX_CHOICES:
            raise SchemaError(f"{self._where}: {len(given)} choices; at most {MAX_CHOICES} are allowed")
        if (twice := repeated(given)) is not None:
            raise SchemaError(f"{self._where}: choice {shown(given[twice])} appears twice; each choice must be unique")
        return tuple(given)

    def _checked_titles(self) -> tuple[str, ...]:
        given = self.titles
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise SchemaError(f"{self._where}: titles must be a list, got {shown(given)}")
        if given and len(given) != len(self.choices):
            raise SchemaError(f"{self._where}: {len(given)} titles for {len(self.choices)} choices; give one for each")
        for choice, title in zip(self.choices, given, strict=bool(given)):
            _check_text(f"{self._where}: the title of {shown(choice)}", title, MAX_DESCRIPTION_BYTES)
        return tuple(given) if any(given) else ()


def choice_key(choice: Choice) -> tuple[str, Choice]:
    """A choice with its JSON type, because Python takes `True == 1` for true."""
    return (type(choice).__name__, choice)


def repeated(choices: Sequence[Choice]) -> int | None:
    """Where the first choice stands that was there before."""
    seen: set[tuple[str, Choice]] = set()
    for i, key in enumerate(map(choice_key, choices)):
        if key in seen:
            return i
        seen.add(key)
    return None


def check_choice(where: str, choice: object) -> None:
    """Raises `SchemaError` for what is no scalar of JSON, or past a limit."""
    if isinstance(choice, str):
        _check_text(f"{where}: choice {shown(choice)}", choice, MAX_CHOICE_BYTES)
    elif isinstance(choice, int):
        if abs(choice) >= 10**MAX_CHOICE_BYTES:
            raise SchemaError(f"{where}: an integer choice has more than {MAX_CHOICE_BYTES} digits")
    elif choice is not None:
        raise SchemaError(
            f"{where}: choice {shown(choice)} is a {type(choice).__name__}; "
            "a choice is a string, an integer, true, false or null"
        )


def _check_text(what: str, text: object, limit: int) -> None:
    if not isinstance(text, str):
        raise SchemaError(f"{what} must be a string, got {shown(text)}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise SchemaError(f"{what} holds half a character (a lone surrogate); remove it") from None
    if size > limit:
        raise SchemaError(f"{what} has {size} bytes; at most {limit} are allowed")
