"""Reading what the baseline wrote: its members one by one, and the six flags.

Works on text that is still growing, in one pass, without recursion, and repairs nothing:
whether the whole is JSON is for Python's strict parser alone to say. One rule for both lanes:
values are compared by JSON type and exact text, never trimmed, case-folded or converted.
Knows nothing of models, tokens or clocks.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Literal, NoReturn

from core.schema import Choice, FieldDefinition, StructuredSchema, choice_key

Outcome = Literal["writing", "parsed", "truncated", "not_parsable"]


class Flag(StrEnum):
    """What the board says of one key."""

    #: the value of the other lane
    SAME = "same"
    #: a choice of the field, another than the other lane's
    DIFFERS = "differs"
    #: no whole value at the end
    OMITTED = "omitted"
    #: the key is not in the schema
    INVENTED = "invented"
    #: the value, or its JSON type, is not in the schema
    NOT_ALLOWED = "not_allowed"
    #: the key is written more than once; the verdict beside it is on the last value
    DUPLICATE = "duplicate"


class NoScalar(Enum):
    """Stands for a value that is no JSON scalar, so that no choice can equal it."""

    NESTED = "nested"
    INVALID = "invalid"
    UNFINISHED = "unfinished"


@dataclass(frozen=True)
class Member:
    """One key as written, from the moment its colon is there."""

    #: unescaped; half a character (a lone surrogate) stays an escape
    name: str
    #: characters of the whole member in the text, `end` exclusive
    start: int
    end: int
    value: Choice | float | NoScalar
    #: the value as written, quotes included; "" before its first character
    text: str
    #: the value can grow no more
    complete: bool


@dataclass(frozen=True)
class Row:
    """One line of the board. Text without flags is a value whose verdict is not known yet."""

    name: str
    #: the JSON text of the last value, so that `"true"` and `true` differ; escapes of whole characters are drawn
    text: str
    #: `duplicate` stands before the verdict, `invented` before `duplicate`
    flags: tuple[Flag, ...]
    #: the value is half written, or the finished whole does not parse
    partial: bool


@dataclass(frozen=True)
class Comparison:
    """What the baseline wrote, field by field."""

    outcome: Outcome
    #: one per field, in schema order
    rows: tuple[Row, ...]
    #: one per key outside the schema, in order of appearance
    invented: tuple[Row, ...]
    #: every member in the order of the text
    members: tuple[Member, ...]

    @property
    def counts(self) -> Counter[Flag]:
        """How often each flag is given; a key written twice is no clean match and not counted as `same`."""
        rows = (*self.rows, *self.invented)
        return Counter(flag for row in rows for flag in row.flags if flag is not Flag.SAME or row.flags == (flag,))


def compare(
    schema: StructuredSchema,
    text: str,
    *,
    finished: bool,
    truncated: bool = False,
    values: Mapping[str, Choice] | None = None,
) -> Comparison:
    """The text of the `ar` lane against the schema and the values of the `pcd` lane.

    A field without a value in `values` gets no verdict for an allowed value. `truncated`: the
    lane was stopped by its token limit, which marks the outcome even where the object closed.
    """
    read = _read_object(text)
    parses = finished and _parses(text, read.start)
    written: dict[str, list[Member]] = {}
    for member in read.members:
        written.setdefault(member.name, []).append(member)

    def row(name: str, flags: tuple[Flag, ...]) -> Row:
        last = written[name][-1] if name in written else None
        half = last is not None and not last.complete
        return Row(name, _drawn(last.text) if last else "", flags, half or finished and not parses)

    rows = tuple(row(f.name, _flags(f, written.get(f.name, ()), finished, values or {})) for f in schema)
    invented = tuple(
        row(name, (Flag.INVENTED, Flag.DUPLICATE) if len(members) > 1 else (Flag.INVENTED,))
        for name, members in written.items()
        if name not in schema
    )
    return Comparison(_outcome(read, finished, truncated, parses), rows, invented, read.members)


def read_members(text: str) -> tuple[Member, ...]:
    """The members of the first object in the text, as far as they are written.

    A longer text never takes back a member. Where the text breaks the rules of JSON, reading
    goes on at the next quoted key.
    """
    return _read_object(text).members


def _outcome(read: _Object, finished: bool, truncated: bool, parses: bool) -> Outcome:
    if not finished:
        return "writing"
    if truncated:
        return "truncated"
    if parses:
        return "parsed"
    return "not_parsable" if read.closed or read.start is None else "truncated"


def _flags(
    field: FieldDefinition, written: Sequence[Member], finished: bool, values: Mapping[str, Choice]
) -> tuple[Flag, ...]:
    duplicate = (Flag.DUPLICATE,) if len(written) > 1 else ()
    if written and written[-1].complete:
        verdict = _verdict(field, written[-1].value, values)
    else:
        verdict = Flag.OMITTED if finished else None
    return (*duplicate, verdict) if verdict else duplicate


def _verdict(field: FieldDefinition, value: Choice | float | NoScalar, values: Mapping[str, Choice]) -> Flag | None:
    if isinstance(value, float | NoScalar) or choice_key(value) not in map(choice_key, field.choices):
        return Flag.NOT_ALLOWED
    if field.name not in values:
        return None
    return Flag.SAME if choice_key(value) == choice_key(values[field.name]) else Flag.DIFFERS


# --- the strict verdict ---


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_STRICT = json.JSONDecoder(parse_constant=_refuse)


def _parses(text: str, start: int | None) -> bool:
    # An object inside the prompt's own opening brace is no answer: `{{"a": 1}}` is not JSON.
    if start is None or text[:start].lstrip().startswith("{"):
        return False
    try:
        _STRICT.raw_decode(text, start)
    except (ValueError, RecursionError):  # ValueError: also an integer past Python's digit limit
        return False
    return True


def _scalar(written: str) -> Choice | float | NoScalar:
    try:
        return _STRICT.decode(written)
    except ValueError:
        return NoScalar.INVALID


# --- the tolerant reader ---

# To the closing quote, or to the end of the text. Possessive, so that no input makes it backtrack.
_STRING = r'"(?:[^"\\]++|\\.?)*+(?P<closed>")?'

# A brace opens the answer if a key or a comment follows, or `}` where it is the prompt's own;
# any other brace with nothing behind it may yet, until one that does comes.
_OPENING = re.compile(
    r"""<think>.*?(?:</think>|\Z)|(?P<answer>\{(?=\s*+["'/#])|\A\s*+\{(?=\s*+\}))|\{(?=\s*+(?:\}|\Z))""", re.DOTALL
)
_KEY = re.compile(rf"""({_STRING}|'[^'"\n]*+')\s*+:\s*+""", re.DOTALL)
_VALUE = re.compile(rf"""(?P<string>{_STRING})|'[^'\n]*+'?+|[^\s,"{{}}\[\]]*+""", re.DOTALL)
_FILLER = re.compile(rf"""{_STRING}|[^"'{{}}\[\]]++|.""", re.DOTALL)
_BRACKET = re.compile(rf"{_STRING}|[{{}}\[\]]", re.DOTALL)
_DEPTH = {"{": 1, "[": 1, "}": -1, "]": -1}


@dataclass(frozen=True)
class _Object:
    start: int | None  # where its brace stands; None while the text has no object
    members: tuple[Member, ...]
    closed: bool


def _read_object(text: str) -> _Object:
    start = _object_start(text)
    members: list[Member] = []
    position = len(text) if start is None else start + 1
    while position < len(text):
        if text[position] == "}":
            return _Object(start, tuple(members), closed=True)
        if key := _KEY.match(text, position):
            members.append(_member(text, key))
            position = members[-1].end
        elif text[position] in "{[":
            position, _ = _nested_end(text, position)
        else:
            position = _FILLER.match(text, position).end()
    return _Object(start, tuple(members), closed=False)


def _object_start(text: str) -> int | None:
    first = None
    for opening in _OPENING.finditer(text):
        if opening["answer"]:
            return opening.end() - 1
        if first is None and opening[0] == "{":
            first = opening.start()
    return first


def _member(text: str, key: re.Match[str]) -> Member:
    start = key.end()
    end, complete = _value_end(text, start)
    written = text[start:end]
    if not complete:
        value = NoScalar.UNFINISHED
    elif written[0] in "{[":
        value = NoScalar.NESTED
    else:
        value = _scalar(written)
    return Member(_name(key[1]), key.start(), end, value, written, complete)


def _name(written: str) -> str:
    name = _scalar(written)
    if name is NoScalar.INVALID:
        name = written[1:-1]
    return _encodable(name)


def _value_end(text: str, start: int) -> tuple[int, bool]:
    """Where the value that starts here ends, and whether it can grow no more."""
    if text.startswith(("{", "["), start):
        return _nested_end(text, start)
    value = _VALUE.match(text, start)
    if value["string"]:
        return value.end(), value["closed"] is not None
    # `1` may still become `10`: a bare value is complete when something else follows it.
    return value.end(), start < value.end() < len(text)


def _nested_end(text: str, start: int) -> tuple[int, bool]:
    depth = 0
    for token in _BRACKET.finditer(text, start):
        depth += _DEPTH.get(token[0], 0)
        if depth == 0:
            return token.end(), True
    return len(text), False


# --- what a person sees ---

_HIGH, _LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(
    rf"(?P<half>(?:{_HIGH})?(?:\\(?:u[0-9a-fA-F]{{0,3}})?)?\Z)|(?P<character>{_HIGH}{_LOW}|\\u[0-9a-fA-F]{{4}})|\\.",
    re.DOTALL,
)


def _drawn(written: str) -> str:
    """A value's text with its `\\u` escapes drawn as characters; one that is half written waits."""
    return _encodable(_ESCAPE.sub(_character, written))


def _character(escape: re.Match[str]) -> str:
    if escape["half"] is not None:
        return ""
    if not escape["character"]:
        return escape[0]
    character = _STRICT.decode(f'"{escape[0]}"')
    # What has no shape of its own (a surrogate, a control, a direction mark) would hide or break the text.
    return character if character.isprintable() and character not in '"\\' else escape[0]


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
