"""Pydantic models: the JSON Schema of what one validates.

Pydantic itself is imported only where there is a model of it; its models, dataclasses and `TypedDict`s are
taken, and the models of Pydantic 1.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from core.field import SchemaError, shown


def is_old(model: Any) -> bool:
    """Whether it is a model of Pydantic 1."""
    return not hasattr(model, "model_json_schema") and hasattr(model, "__fields__")


def document_of(model: Any) -> dict[str, Any]:
    """The JSON Schema of what a Pydantic model validates."""
    if not isinstance(model, type):
        raise SchemaError(f"a Pydantic model is a class, got {shown(model)}; give the class")
    try:
        if is_old(model):
            document = copy.deepcopy(model.schema())  # type: ignore[attr-defined]  # the model keeps it
            for part in (document, *document.get("definitions", {}).values()):
                part.setdefault("required", [])  # left out where nothing is
            return document
        from pydantic import TypeAdapter  # here: only who has such a model needs it
        from pydantic.json_schema import GenerateJsonSchema
        from typing_extensions import is_typeddict

        class Open(GenerateJsonSchema):
            def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> dict[str, Any]:
                return {}  # any value, which is then listed as such, instead of an error for the whole model

            def enum_schema(self, schema: Any) -> dict[str, Any]:
                return super().enum_schema({**schema, "members": list(schema["cls"])})  # each once, by its first name

        if hasattr(model, "model_json_schema"):
            return model.model_json_schema(schema_generator=Open)
        if dataclasses.is_dataclass(model) or is_typeddict(model):
            return TypeAdapter(model).json_schema(schema_generator=Open)
    except ImportError:
        raise SchemaError(f"{shown(model)} needs Pydantic: pip install pydantic") from None
    except Exception as error:  # a model's own code runs here, and raises what it likes
        first = str(error).strip().partition("\n")[0]
        raise SchemaError(f"{shown(model)} gives no JSON Schema: {first or type(error).__name__}") from None
    raise SchemaError(f"{shown(model)} is no Pydantic model; give a model, fields or a JSON Schema")
