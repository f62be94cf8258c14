"""Pydantic models: the JSON Schema of what one validates.

Pydantic itself is imported only where there is a model of it. Its models, dataclasses and `TypedDict`s are
taken, and the models of Pydantic 1.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any

from core.field import SchemaError
from core.wording import escaped, shown


def document_of(model: Any) -> dict[str, Any]:
    """Raises `SchemaError` for what is no such model, or has no JSON Schema."""
    if not isinstance(model, type):
        raise SchemaError(f"a Pydantic model is a class, got {shown(model)}; give the class")
    schema_of = _old_schema_of if is_old(model) else _schema_maker(model)
    try:
        return schema_of(model)
    except Exception as error:  # a model's own code runs here, and raises what it likes
        first = str(error).strip().partition("\n")[0]
        raise SchemaError(f"{shown(model)} gives no JSON Schema: {escaped(first) or type(error).__name__}") from None


def complaints(model: Any, values: Any) -> Iterator[tuple[tuple[str | int, ...], bool, str]]:
    """(place, whether something is missing there, message) of each complaint of the model about values."""
    try:
        if is_old(model):
            model.parse_obj(values)
        elif hasattr(model, "model_validate_json"):
            model.model_validate_json(json.dumps(values))
        else:
            from pydantic import TypeAdapter  # here: only who has such a model needs it

            TypeAdapter(model).validate_json(json.dumps(values))
    except Exception as error:  # also of the model's own validators, which raise what they like
        errors: Any = getattr(error, "errors", list)()
        yield from ((each["loc"], "missing" in each["type"], shown(each["msg"])) for each in errors)


def is_old(model: Any) -> bool:
    """Whether it is a model of Pydantic 1, whose JSON Schema does not tell `Optional` from a default."""
    return not hasattr(model, "model_json_schema") and hasattr(model, "__fields__")


def _old_schema_of(model: Any) -> dict[str, Any]:
    document = copy.deepcopy(model.schema())  # the model keeps it
    for part in (document, *document.get("definitions", {}).values()):
        part.setdefault("required", [])  # left out where nothing is
    return document


def _schema_maker(model: Any) -> Callable[[Any], dict[str, Any]]:
    try:
        from pydantic import TypeAdapter  # here: only who has such a model needs it
        from pydantic.json_schema import GenerateJsonSchema
        from typing_extensions import is_typeddict
    except ImportError:
        raise SchemaError(f"{shown(model)} needs Pydantic: pip install pydantic") from None

    class Open(GenerateJsonSchema):
        def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> dict[str, Any]:
            return {}  # any value, which is then listed as such, instead of an error for the whole model

        def enum_schema(self, schema: Any) -> dict[str, Any]:
            return super().enum_schema({**schema, "members": list(schema["cls"])})  # each once, by its first name

    if hasattr(model, "model_json_schema"):
        return lambda model: model.model_json_schema(schema_generator=Open)
    if dataclasses.is_dataclass(model) or is_typeddict(model):
        return lambda model: TypeAdapter(model).json_schema(schema_generator=Open)
    raise SchemaError(f"{shown(model)} is no Pydantic model; give a model, fields or a JSON Schema")
