"""Notations: the JSON or YAML text of a schema, as data.

A name that is written twice is refused rather than overwritten, and so is YAML that another reader
takes for something else (`NO`, `0123`, `1:30`). Knows nothing of what the data means.
"""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from core.field import SchemaError
from core.wording import shown

#: Plain scalars that are the same number in JSON and in every version of YAML.
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+([eE][-+]?\d+)?)?", re.ASCII)
#: Plain scalars that are a boolean or null in every version of YAML; `NO` and `on` are not among them.
_WORDS = {
    form: value
    for word, value in (("true", True), ("false", False), ("null", None), ("~", None), ("", None))
    for form in (word, word.title(), word.upper())
}
#: Plain scalars that are texts to this reader of YAML and numbers to others: `08`, `1e3`, `0o17`.
_NUMBER_ELSEWHERE = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?|0o[0-7]+", re.ASCII)
#: Keywords whose values are for people; a part of a schema is a mapping, and read as one below these too.
_EXAMPLES = ("example", "examples")
#: Characters of YAML, whose reader takes about 10 seconds for a million of them.
MAX_YAML = 250_000


class _Loader(yaml.SafeLoader):
    """Without aliases: a few of them, each of others, can stand for billions of values."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise SchemaError("the schema is YAML with an alias (*name); write out what it stands for")
        return super().compose_node(parent, index)


def parsed(text: str) -> Any:
    """The data of a text: JSON where it begins as JSON does, else YAML. Raises `SchemaError`."""
    if not isinstance(text, str):
        raise SchemaError(f"a schema is JSON or YAML text here, got {shown(text)}")
    return json_data(text) if text.lstrip("\ufeff \t\r\n")[:1] in ("", "{", "[") else yaml_data(text)


def json_data(text: str) -> Any:
    """Raises `SchemaError`."""
    try:
        return json.loads(text.removeprefix("\ufeff"), object_pairs_hook=unique_object)
    except json.JSONDecodeError as error:
        raise SchemaError(
            f"the schema is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise SchemaError("the schema is nested too deeply") from None
    except SchemaError:
        raise
    except ValueError:  # an integer past Python's digit limit
        raise SchemaError("the schema is not valid JSON: a number is too long") from None


def unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `json.loads(object_pairs_hook=...)`: a name written twice is a `SchemaError`."""
    unique: dict[str, Any] = {}
    for name, value in pairs:
        if name in unique:
            raise SchemaError(f"{shown(name)} appears twice in one object; each name must be unique")
        unique[name] = value
    return unique


def yaml_data(text: str) -> Any:
    """The one document of a YAML text, its scalars read as JSON reads them. Raises `SchemaError`."""
    if len(text) > MAX_YAML:
        raise SchemaError(f"the schema has {len(text)} characters of YAML; at most {MAX_YAML} are read, so use JSON")
    try:
        node = yaml.compose(text, _Loader)
        return None if node is None else _value(node)
    except yaml.MarkedYAMLError as error:
        at = f" at line {error.problem_mark.line + 1}" if error.problem_mark else ""
        what = ", ".join(filter(None, (error.context, error.problem)))
        way_out = "a text with ? : # , or brackets in it needs quotes"
        raise SchemaError(f"the schema is not valid YAML: {what}{at}; {way_out}") from None
    except yaml.YAMLError as error:
        raise SchemaError(f"the schema is not valid YAML: {shown(str(error))}") from None
    except RecursionError:
        raise SchemaError("the schema is nested too deeply") from None


def _value(node: Any, is_example: bool = False) -> Any:
    """`is_example`: a value of which nothing is made, so that it may be unclear."""
    if node.id == "mapping":
        pairs = [(_name(key), value) for key, value in node.value]
        return unique_object([(name, _value(value, name in _EXAMPLES)) for name, value in pairs])
    if node.id == "sequence":
        return [_value(item, is_example) for item in node.value]
    kind = node.tag.rpartition(":")[2]
    is_plain = node.style is None
    if kind == "str" and is_plain and _NUMBER_ELSEWHERE.fullmatch(node.value):
        kind = "number"
    if kind in ("bool", "null") and is_plain and node.value in _WORDS:
        return _WORDS[node.value]
    if kind in ("int", "float") and is_plain and _NUMBER.fullmatch(node.value):
        return json_data(node.value)
    if kind in ("str", "timestamp") or is_example:  # JSON's \u escapes name the halves of a character
        return node.value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    raise SchemaError(
        f"line {node.start_mark.line + 1}: {shown(node.value)} is a {kind} to YAML and may be a text to you; "
        "quote it, or write it as JSON does"
    )


def _name(node: Any) -> str:
    """A name is a text, also where it is the digits of a number, as OpenAPI's status codes are."""
    name = _value(node) if node.id == "scalar" else None
    if isinstance(name, int) and not isinstance(name, bool):
        name = node.value
    if not isinstance(name, str):
        raise SchemaError(f"line {node.start_mark.line + 1}: the name {shown(node.value)} is no text to YAML; quote it")
    return name
