"""Schema files: schemas where people keep them.

A JSON or YAML file with fields, a JSON Schema or a preset; a part of one (`openapi.yaml#/components/schemas/Ticket`);
a column of choices (`countries.csv#code`); a Pydantic model (`my_app.models:Ticket`).
"""

from __future__ import annotations

import importlib
import re
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, get_args

from core.field import FieldDefinition, SchemaError, repeated
from core.notation import parsed
from core.schema import OnUnsupported, StructuredSchema
from core.schema_import import as_object
from core.table import SUFFIXES, Table, TableError
from core.wording import escaped, shown

PLACES = "a JSON or YAML file with fields, a JSON Schema or a preset, FILE#/POINTER, FILE.csv#COLUMN or MODULE:CLASS"
MAX_CHARACTERS = 16 * 2**20
MOST_SHOWN = 300  # characters of a place in a message
_MODEL = re.compile(r"[\w.]+:\w+")


def read_schema(place: str | Path, on_unsupported: OnUnsupported = "error") -> tuple[StructuredSchema, str]:
    """The schema at a place, and the text that a preset has for it, else "". Raises `SchemaError`."""
    place = str(place)
    with _named(place):
        if _MODEL.fullmatch(place) and not Path(place).exists():
            return StructuredSchema.from_pydantic(_model(place), on_unsupported=on_unsupported), ""
        file, part = split_place(place)
        if file.suffix.lower() not in SUFFIXES:
            return _of_text(_text_of(file), part, on_unsupported)
        if not part:
            raise SchemaError(f"is a table; name the column of choices: {escaped(file.name)}#COLUMN")
    choices = column_choices(file, part)
    with _named(place):
        return StructuredSchema([FieldDefinition(part, "enum", choices=choices)]), ""


def column_choices(file: str | Path, column: str) -> tuple[str, ...]:
    """The cells of a column, each a text as it stands there: `NA` stays `NA`. Raises `SchemaError`."""
    cells: list[str] = []
    where = escaped(str(file))
    try:
        for row in Table(Path(file), column).rows():
            if row.error or not row.text:
                why = row.error or f"column {shown(column)} is empty; remove the row"
                raise SchemaError(f"{where}: data row {row.number + 1}: {why}")
            cells.append(row.text)
    except TableError as error:
        raise SchemaError(escaped(str(error))) from None
    if (twice := repeated(cells)) is not None:
        again = f"column {shown(column)} has {shown(cells[twice])} again; remove it"
        raise SchemaError(f"{where}: data row {twice + 1}: {again}")
    return tuple(cells)


def add_on_unsupported(parser: ArgumentParser) -> None:
    """The flag of the commands that read a schema."""
    words = "what to do about parts of a JSON Schema or model that cannot be decided (%(default)s)"
    parser.add_argument("--on-unsupported", choices=get_args(OnUnsupported), default="error", help=words)


def print_remarks(schema: StructuredSchema) -> None:
    """What was left out, and what was taken in a form of its own, on stderr."""
    for kind, remarks in (("left out", schema.unsupported), ("note", schema.notes)):
        for remark in remarks:
            print(f"{kind}: {remark}", file=sys.stderr)


def split_place(place: str) -> tuple[Path, str]:
    """The file, whose own name may hold a `#`, and the part of it."""
    name = place
    while "#" in name and not Path(name).exists():
        name = name.rpartition("#")[0]
    return Path(name), place[len(name) + 1 :]


@contextmanager
def _named(place: str) -> Iterator[None]:
    """What goes wrong inside is a `SchemaError` that begins with the place."""
    where = escaped(place if len(place) <= MOST_SHOWN else place[:MOST_SHOWN] + "...")
    try:
        yield
    except UnicodeDecodeError:
        raise SchemaError(f"{where}: is no text in UTF-8") from None
    except OSError as error:
        raise SchemaError(f"{where}: {error.strerror or error}; give {PLACES}") from None
    except SchemaError as error:
        raise SchemaError(f"{where}: {error}") from error


def _of_text(text: str, part: str, on_unsupported: OnUnsupported) -> tuple[StructuredSchema, str]:
    data = as_object(parsed(text))
    if part:
        return StructuredSchema.from_json_schema(data, at=f"#{part}", on_unsupported=on_unsupported), ""
    context = data.get("context")
    if "schema" not in data or not isinstance(context, str):  # in a schema, a field called `context` is an object
        return StructuredSchema(data, on_unsupported=on_unsupported), ""
    return StructuredSchema(as_object(data["schema"]), on_unsupported=on_unsupported), context


def _text_of(file: Path) -> str:
    with file.open(encoding="utf-8-sig") as opened:
        text = opened.read(MAX_CHARACTERS + 1)
    if len(text) > MAX_CHARACTERS:
        raise SchemaError(
            f"has more than {MAX_CHARACTERS} characters; put the part that is meant into a file of its own"
        )
    return text


def _model(place: str) -> Any:
    module, _, name = place.partition(":")
    try:
        with redirect_stdout(sys.stderr):  # what a module prints is no part of a command's output
            return getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:  # the module's own code runs here, and raises what it likes
        raise SchemaError(
            f"{type(error).__name__}: {shown(str(error))}; give {PLACES}, the module importable from here or PYTHONPATH"
        ) from None
