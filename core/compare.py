"""What the baseline wrote against the schema and the other lane: the six flags.

The members are those of core/answer.py, as they are read strictly; a lenient reading is told and
never counts. One rule for both lanes and for every figure of agreement, `choice_key`: values are
compared by JSON type and exact text, never trimmed, case-folded or converted. Knows nothing of
models, tokens or clocks.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from core.answer import Answer, Member, NoScalar, encodable, read_answer
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
    #: the JSON that a lenient reader would take an invalid value for; "" where there is none
    lenient: str = ""


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
    answer = read_answer(text)
    parses = finished and answer.is_json
    written: dict[str, list[Member]] = {}
    for member in answer.members:
        written.setdefault(member.name, []).append(member)

    def row(name: str, flags: tuple[Flag, ...]) -> Row:
        broken = finished and not parses
        if name not in written:
            return Row(name, "", flags, broken)
        last = written[name][-1]
        return Row(name, _drawn(last.text), flags, broken or not last.complete, _drawn(last.lenient))

    rows = tuple(row(f.name, _flags(f, written.get(f.name, ()), finished, values or {})) for f in schema)
    invented = tuple(
        row(name, (Flag.INVENTED, Flag.DUPLICATE) if len(members) > 1 else (Flag.INVENTED,))
        for name, members in written.items()
        if name not in schema
    )
    return Comparison(_outcome(answer, finished, truncated, parses), rows, invented, answer.members)


def _outcome(answer: Answer, finished: bool, truncated: bool, parses: bool) -> Outcome:
    if not finished:
        return "writing"
    if truncated:
        return "truncated"
    if parses:
        return "parsed"
    return "not_parsable" if answer.closed or answer.start is None else "truncated"


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


# --- what a person sees ---

_HIGH, _LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(
    rf"(?P<half>(?:{_HIGH})?(?:\\(?:u[0-9a-fA-F]{{0,3}})?)?\Z)|(?P<character>{_HIGH}{_LOW}|\\u[0-9a-fA-F]{{4}})|\\.",
    re.DOTALL,
)


def _drawn(written: str) -> str:
    """A value's text with its `\\u` escapes drawn as characters; one that is half written waits."""
    return encodable(_ESCAPE.sub(_character, written))


def _character(escape: re.Match[str]) -> str:
    if escape["half"] is not None:
        return ""
    if not escape["character"]:
        return escape[0]
    character = json.loads(f'"{escape[0]}"')
    # What has no shape of its own (a surrogate, a control, a direction mark) would hide or break the text.
    return character if character.isprintable() and character not in '"\\' else escape[0]
