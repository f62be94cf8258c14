"""The contract: requests to the service as Pydantic models, which are its OpenAPI too. Answers: `core/replies.py`.

A model looks at names and JSON types alone. What a schema, a context or an option may be is
checked where it is for everybody, in `core/schema.py` and `core/request.py`; here are only the limits
that are REST's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, get_args

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from core.field import MAX_CHOICE_BYTES, MAX_DESCRIPTION_BYTES, MAX_FIELDS, MAX_NAME_BYTES
from core.grammar import MODES
from core.prompt import Style
from core.request import Request, check_one_of
from core.result import Prior, Scoring
from core.schema import Choice, FieldDefinition, OnUnsupported, SchemaError, StructuredSchema
from core.schema_import import as_object
from core.trace import Lane
from core.wording import shown

MOST_CHOICES = 256
MOST_CONTEXT_BYTES = 65_536
MOST_CONTEXTS = 256


class Wire(BaseModel):
    """Named in camelCase outside; keys that nobody knows are let be."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", frozen=True)


# What the OpenAPI says of a key whose value is checked elsewhere.


def _text(least: int, most: int) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "minLength": least, "maxLength": most})


def _one_of(values: Sequence[str], otherwise: str) -> WithJsonSchema:
    return WithJsonSchema({"enum": list(values), "default": otherwise})


_CHOICES = {
    "description": "false and true, or 2 to 256 different texts",
    "anyOf": [
        {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2, "uniqueItems": True},
        {
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": MAX_CHOICE_BYTES},
            "minItems": 2,
            "maxItems": MOST_CHOICES,
            "uniqueItems": True,
        },
    ],
}


class FieldSpec(Wire):
    """One field: a boolean where the choices are false and true, else an enum of texts. Sizes are in UTF-8 bytes."""

    name: Annotated[Any, _text(1, MAX_NAME_BYTES)]
    description: Annotated[Any, _text(0, MAX_DESCRIPTION_BYTES)]
    choices: Annotated[Any, WithJsonSchema(_CHOICES)]

    def definition(self) -> FieldDefinition:
        """Raises `SchemaError`."""
        choices, where = self.choices, f"field {shown(self.name)}"
        if not isinstance(choices, list):
            raise SchemaError(f"{where}: choices must be a list, got {shown(choices)}")
        _check_count(where, len(choices))
        kinds = {type(choice) for choice in choices}
        if not kinds <= {str} and not kinds <= {bool}:
            raise SchemaError(
                f"{where}: choices must be all texts, or false and true, got {shown(choices)}; "
                "a JSON Schema under 'schema' takes numbers and null as well"
            )
        if "" in choices:
            raise SchemaError(f"{where}: a choice is empty; name it, such as NONE")
        if kinds == {bool} and len(choices) == 2 and choices[0] != choices[1]:
            return FieldDefinition(self.name, "boolean", self.description)
        return FieldDefinition(self.name, "enum", self.description, choices)


_FIELDS = [
    {"name": "priority", "description": "how urgent it is", "choices": ["LOW", "NORMAL", "HIGH"]},
    {"name": "refund", "description": "a refund is asked for", "choices": [False, True]},
]


def _documented(example: dict[str, Any]) -> ConfigDict:
    """An example for the reference, and that a schema comes in one of two keys."""

    def add(schema: dict[str, Any]) -> None:
        for key in schema["properties"].values():
            if key.get("default", ...) is None:
                del key["default"]
        schema["oneOf"] = [{"required": ["fields"]}, {"required": ["schema"]}]
        schema["examples"] = [{**example, "fields": _FIELDS}]

    return ConfigDict(json_schema_extra=add)


class Asked(Wire):
    """What every request says beside its text: a schema, as `fields` or as `schema`, and how to decide it."""

    fields: list[FieldSpec] = Field(
        default=None, fail_fast=True, json_schema_extra={"minItems": 1, "maxItems": MAX_FIELDS}
    )
    document: Annotated[
        Any,
        Field(alias="schema", description="in place of `fields`: a JSON Schema, or fields by name; or the text of one"),
        WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "string"}]}),
    ] = None
    # Also by the name that messages of `core/schema_import.py` give it.
    on_unsupported: Annotated[Any, _one_of(get_args(OnUnsupported), "error")] = Field(
        default="error", validation_alias=AliasChoices("onUnsupported", "on_unsupported")
    )
    temperature: Annotated[Any, WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "default": 1.0})] = 1.0
    style: Annotated[Any, _one_of(get_args(Style), "pretty")] = "pretty"
    cache: Annotated[Any, WithJsonSchema({"type": "boolean", "default": True})] = True
    scoring: Annotated[Any, _one_of(get_args(Scoring), "identify")] = "identify"
    prior: Annotated[Any, _one_of(get_args(Prior), "none")] = "none"
    complete: Annotated[Any, WithJsonSchema(
        {"type": ["boolean", "null"], "default": True,
         "description": "false: only as much is read as proves the winner; null: where that is faster"}
    )] = True  # fmt: skip

    @property
    def options(self) -> dict[str, Any]:
        """Of `core.request.Request`, beside context, schema and temperature."""
        return {name: getattr(self, name) for name in ("style", "cache", "scoring", "prior", "complete")}

    @property
    def order(self) -> dict[str, list[Choice]]:
        """The choices of each field as they were sent: false may come before true."""
        return {spec.name: spec.choices for spec in self.fields or ()}

    def structured(self) -> StructuredSchema:
        """Raises `SchemaError`."""
        if self.fields is not None and self.document is not None:
            raise SchemaError("the schema is there twice; give either fields or schema")
        if self.fields is not None:
            return StructuredSchema([spec.definition() for spec in self.fields])
        if self.document is None:
            raise SchemaError("fields is missing; give a list of fields, or a JSON Schema under 'schema'")
        if isinstance(self.document, str):
            schema = StructuredSchema.from_text(self.document, on_unsupported=self.on_unsupported)
        else:
            schema = StructuredSchema(as_object(self.document), on_unsupported=self.on_unsupported)
        for field in schema:
            if field.field_type != "const":
                _check_count(f"field {shown(field.name)}", len(field.choices))
        return schema

    def request_on(self, context: str, schema: StructuredSchema) -> Request:
        """Raises `ValueError`, of which the message says what is wrong."""
        size = len(context.encode(errors="surrogatepass"))
        if size > MOST_CONTEXT_BYTES:
            raise ValueError(f"the context has {size} bytes; at most {MOST_CONTEXT_BYTES} are allowed")
        return Request(context, schema, self.temperature, **self.options)


_CONTEXT = {"type": "string", "minLength": 1, "maxLength": MOST_CONTEXT_BYTES, "description": "at most 65,536 bytes"}


class DecodeRequest(Asked):
    model_config = _documented({"context": "The parcel is wet and I paid twice."})

    context: Annotated[str, WithJsonSchema(_CONTEXT)]

    def request(self) -> Request:
        """Raises `ValueError`."""
        return self.request_on(self.context, self.structured())


class RaceRequest(DecodeRequest):
    mode: Annotated[Any, _one_of(MODES, "json")] = "json"
    lanes: Annotated[Any, WithJsonSchema(
        {"type": "array", "items": {"enum": list(get_args(Lane))}, "minItems": 1, "maxItems": 2, "uniqueItems": True}
    )] = ("pcd", "ar")  # fmt: skip

    def request(self) -> Request:
        check_one_of("baseline mode", self.mode, MODES)
        lanes = list(self.lanes) if isinstance(self.lanes, list | tuple) else []
        if lanes not in (["pcd", "ar"], ["ar", "pcd"], ["pcd"], ["ar"]):
            raise ValueError(f"lanes {shown(self.lanes)} is unknown; use a list of 'pcd' and 'ar', or of one of them")
        return super().request()


class BatchRequest(Asked):
    model_config = _documented({"contexts": ["The parcel is wet and I paid twice.", "Where is my parcel?"]})

    contexts: Annotated[list[str], Field(fail_fast=True, json_schema_extra={"minItems": 1, "maxItems": MOST_CONTEXTS})]

    def requests(self) -> list[Request | ValueError]:
        """One for each context, or what is wrong with it; raises `ValueError` for what is wrong with all."""
        if not 1 <= len(self.contexts) <= MOST_CONTEXTS:
            raise ValueError(f"{len(self.contexts)} contexts; a batch has 1 to {MOST_CONTEXTS}")
        schema = self.structured()
        self.request_on("checks the options", schema)
        return [self._request(context, schema) for context in self.contexts]

    def _request(self, context: str, schema: StructuredSchema) -> Request | ValueError:
        try:
            return self.request_on(context, schema)
        except ValueError as error:
            return error


class SelectRequest(Wire):
    id: Annotated[str, Field(description="one of GET /v1/models")]


def _check_count(where: str, count: int) -> None:
    if not 2 <= count <= MOST_CHOICES:
        raise SchemaError(f"{where}: {count} choice{'s' * (count != 1)}; 2 to {MOST_CHOICES} are allowed here")
