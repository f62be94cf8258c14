"""Tables of texts: the rows of a CSV or JSON lines file, one at a time.

A row that cannot be read says why, and the rest goes on. Holds one row at a time, whatever the
file's size. Knows nothing of models.
"""

from __future__ import annotations

import csv
import json
import math
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Protocol

from core.notation import unique_object
from core.schema import SchemaError

Id = str | int | float | None

#: Characters of one cell, far beyond any model's window: a quote that is never closed ends here, not with the memory.
MAX_CELL = 16 * 2**20
SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson")
MOST_NAMES = 20  # columns that a message lists


class TableError(ValueError):
    """A file that is no table for this job; the message names the file and the way out."""


class RowFault(ValueError):
    """What is wrong with one row, in one line."""


@dataclass(frozen=True)
class Row:
    number: int  # among the data rows, from 0
    text: str = ""
    id: Id = None
    error: str = ""  # why there is no text


class _Format(Protocol):
    def check(self, columns: Iterable[str]) -> None: ...
    def records(self) -> Iterator[Any]:
        """Each data row as it stands in the file: enough to count them."""
        ...

    def cells(self, record: Any) -> Mapping[str, object]:
        """The row's values by column; raises `RowFault`."""
        ...


@dataclass(frozen=True)
class Table:
    """A file and the columns asked for. Raises `TableError`, from the constructor wherever that can be known."""

    file: Path
    text_column: str
    id_column: str | None = None

    def __post_init__(self) -> None:
        with _opened(self.file, "rb") as file:
            if file.read(2) in (b"\xff\xfe", b"\xfe\xff"):
                raise TableError(f"{self.file}: is UTF-16; save it as UTF-8")
        self._format.check([self.text_column] if self.id_column is None else [self.text_column, self.id_column])

    def count(self) -> int:
        """How many rows there are."""
        return sum(1 for _ in self._format.records())

    def rows(self) -> Generator[Row, None, None]:
        for number, record in enumerate(self._format.records()):
            yield self._row(number, record)

    @cached_property
    def _format(self) -> _Format:
        match self.file.suffix.lower():
            case ".csv":
                return _Csv(self.file, ",")
            case ".tsv":
                return _Csv(self.file, "\t")
            case ".jsonl" | ".ndjson":
                return _JsonLines(self.file)
            case other:
                raise TableError(f"{self.file}: ends in {other!r}; use one of {', '.join(SUFFIXES)}")

    def _row(self, number: int, record: Any) -> Row:
        row_id: Id = None
        try:
            cells = self._format.cells(record)
            if self.id_column is not None:
                row_id = _id(self.id_column, _cell(cells, self.id_column))
            return Row(number, _text(self.text_column, _cell(cells, self.text_column)), row_id)
        except RowFault as fault:
            return Row(number, id=row_id, error=str(fault))


class _Csv:
    def __init__(self, file: Path, delimiter: str) -> None:
        self._file, self._delimiter = file, delimiter

    @cached_property
    def header(self) -> list[str]:
        first = next(self._parsed(), None)
        if first is None:
            raise TableError(f"{self._file}: is empty; its first line names the columns")
        if isinstance(first, str):
            raise TableError(f"{self._file}: its header is {first}")
        return first

    def check(self, columns: Iterable[str]) -> None:
        for column in columns:
            if (count := self.header.count(column)) != 1:
                what = "no column" if count == 0 else f"{count} columns"
                raise TableError(f"{self._file}: {what} {column!r}; the columns are {_listed(self.header)}")

    def records(self) -> Iterator[list[str] | str]:
        parsed = self._parsed()
        next(parsed)
        yield from parsed

    def cells(self, record: list[str] | str) -> Mapping[str, object]:
        if isinstance(record, str):
            raise RowFault(record)
        if len(record) != len(self.header):
            raise RowFault(f"the row has {len(record)} cells and the header names {len(self.header)} columns")
        return dict(zip(self.header, record, strict=True))

    def _parsed(self) -> Iterator[list[str] | str]:
        """Each record's cells, or what is wrong with it; blank lines are none."""
        csv.field_size_limit(MAX_CELL)
        # A byte that is no UTF-8 becomes a surrogate, and the fault of its cell alone.
        with _opened(self._file, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            # Strict: else a quote that is never closed would make one text of all rows after it, without a word.
            lines = _Lines(file)
            reader = csv.reader(lines, delimiter=self._delimiter, strict=True)
            while True:
                first = lines.begin()
                try:
                    cells = next(reader, None)
                except csv.Error as error:
                    yield f"not valid CSV: {error} (in the row that begins on line {first})"
                    lines.take_up_after_the_first()
                    reader = csv.reader(lines, delimiter=self._delimiter, strict=True)
                    continue
                if cells is None:
                    return
                if cells:
                    yield cells


class _Lines:
    """A file's lines, of which those of the record in hand can be read again: an unclosed quote takes all that follow."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._again: deque[str] = deque()
        self._record: list[str] = []
        self._given = 0

    def begin(self) -> int:
        """The number of the line at which the next record begins, from 1 on."""
        self._record = []
        return self._given + 1

    def take_up_after_the_first(self) -> None:
        again = self._record[1:]
        self._again.extendleft(reversed(again))
        self._given -= len(again)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._file)
        self._record.append(line)
        self._given += 1
        return line


class _JsonLines:
    def __init__(self, file: Path) -> None:
        self._file = file

    def check(self, columns: Iterable[str]) -> None:
        """Each line has columns of its own."""

    def records(self) -> Iterator[bytes]:
        with _opened(self._file, "rb") as file:
            is_first = True
            while line := file.readline(MAX_CELL + 1):
                line = line.removeprefix(b"\xef\xbb\xbf") if is_first else line
                is_first = False
                if len(line) > MAX_CELL and not line.endswith(b"\n"):
                    while (rest := file.readline(MAX_CELL)) and not rest.endswith(b"\n"):
                        pass
                if not line.isspace():
                    yield line

    def cells(self, record: bytes) -> Mapping[str, object]:
        if len(record) > MAX_CELL:
            raise RowFault(f"the line has more than {MAX_CELL} bytes")
        try:
            data = json.loads(record.decode().rstrip(), object_pairs_hook=unique_object)
        except UnicodeDecodeError:
            raise RowFault("the line is not UTF-8") from None
        except json.JSONDecodeError as error:
            raise RowFault(f"not valid JSON: {error.msg} at column {error.colno}") from None
        except RecursionError:
            raise RowFault("the row is nested too deeply") from None
        except SchemaError as error:
            raise RowFault(str(error)) from None
        except ValueError:  # an integer past Python's digit limit
            raise RowFault("not valid JSON: a number is too long") from None
        if not isinstance(data, dict):
            raise RowFault(f"the line is {_kind(data)} and no object")
        return data


@contextmanager
def _opened(file: Path, mode: str = "r", **options: Any) -> Iterator[IO[Any]]:
    try:
        with file.open(mode, **options) as opened:
            yield opened
    except OSError as error:
        raise TableError(f"{file}: {error.strerror or error}; give the path of a CSV or JSON lines file") from None


def _cell(cells: Mapping[str, object], column: str) -> object:
    if column not in cells:
        raise RowFault(f"no column {column!r}; the row has {_listed(cells) or 'none'}")
    return cells[column]


def _text(column: str, value: object) -> str:
    if not isinstance(value, str):
        raise RowFault(f"column {column!r} is {_kind(value)} and no string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise RowFault(f"column {column!r} holds bytes that are not UTF-8, or half a character") from None
    return value


def _id(column: str, value: object) -> Id:
    if isinstance(value, str):
        return _text(column, value)
    if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise RowFault(f"column {column!r} is {_kind(value)}; an id is a string or a finite number")


def _kind(value: object) -> str:
    """A JSON value's kind, for a message."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return {str: "a string", int: "a number", float: "a number", list: "a list", dict: "an object"}.get(
        type(value), "null"
    )


def _listed(names: Iterable[str]) -> str:
    """Column names for a message: one line, escaped, never long."""
    shown = [text if len(text := repr(name)) <= 60 else text[:57] + "..." for name in names]
    more = len(shown) - MOST_NAMES
    return ", ".join(shown[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
