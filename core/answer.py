"""The JSON object in what a model wrote: where it stands, its members one by one, and whether it is strict JSON.

Works on text that is still growing, in one pass, without recursion, and repairs nothing:
whether the whole is JSON is for Python's strict parser alone to say, and what a lenient reader
would take an invalid value for is told beside it. Knows nothing of schemas.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn

from core.schema import Choice


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

    @property
    def lenient(self) -> str:
        """The JSON that a lenient reader would take an invalid value for; "" where the strict reading stands."""
        return lenient(self.text) if self.value is NoScalar.INVALID else ""


@dataclass(frozen=True)
class Answer:
    """The object that is the answer, as far as it is written."""

    text: str
    #: characters at which its brace stands; None while the text has no object
    start: int | None = None
    #: where its members begin: behind the brace, or behind what the model wrote before them
    body: int = 0
    members: tuple[Member, ...] = ()
    closed: bool = False

    @property
    def is_json(self) -> bool:
        """Whether it is strict JSON, once what stands around it is set aside: prose, fences, thinking blocks."""
        if self.start is None or not self._stands_alone():
            return False
        try:
            _STRICT.raw_decode("{" + self.text[self.body :])
        except (ValueError, RecursionError):  # ValueError: also an integer past Python's digit limit
            return False
        return True

    def _stands_alone(self) -> bool:
        own = _own_brace(self.text)
        if own is None or own != self.start:  # an object inside the prompt's own brace: `{{"a": 1}}` is not JSON
            return own is None
        return _WRAPPING.fullmatch(_CLOSING.split(self.text[own + 1 : self.body])[-1]) is not None


def read_answer(text: str) -> Answer:
    """What a careful person would call the answer: the first object with a member.

    Thinking blocks and blocks of shell code are passed over; one that never closes hides the rest. A text
    that begins with a brace (the prompt's own) may go on with its members at the start of a later line.
    Where the text breaks the rules of JSON, reading goes on at the next quoted key.

    A longer text never takes back a member, with one exception: a closing thinking tag without an
    opening one makes a draft of what stands before it, once an object with a member follows.
    """
    own, answer, is_open = _own_brace(text), Answer(text), True  # open to another object
    position = 0
    while piece := _PIECE.search(text, position):
        position = piece.end()
        if piece["thought"]:
            is_open = True
        elif piece["empty"]:
            if answer.start is None:
                closed = text.startswith("}", _BLANKS.match(text, position).end())
                answer = Answer(text, position - 1, position, closed=closed)
                is_open = not (closed and position - 1 == own)
        elif piece["object"] or piece["member"] and own is not None and is_open:
            start, body = (position - 1, position) if piece["object"] else (own, position - 1)
            members, closed, position = _read(text, body)
            if is_open and (members or answer.start is None and not closed):
                answer, is_open = Answer(text, start, body, members, closed), not members
    return answer


def _own_brace(text: str) -> int | None:
    """Where the brace stands that the text begins with: the prompt's, in all that the baseline writes."""
    start = _BLANKS.match(text).end()
    return start if text.startswith("{", start) else None


# --- the strict verdict ---


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_STRICT = json.JSONDecoder(parse_constant=_refuse)


def _scalar(written: str) -> Choice | float | NoScalar:
    try:
        return _STRICT.decode(written)
    except ValueError:
        return NoScalar.INVALID


# --- the tolerant reader ---

# Possessive, or lazy up to the end of the text, and no lookahead passes another brace or unescaped quote:
# no input makes a pattern backtrack, or read a stretch more than a few times.
_BLANKS, _SPACES = re.compile(r"\s*+"), re.compile(r"[^\S\n]*+")
_OPENS, _CLOSES = (f"<{slash}[\\w:]{{0,9}}think(?:ing)?>" for slash in ("", "/"))
_THINKING, _CLOSING = rf"{_OPENS}.*?(?:{_CLOSES}|\Z)", re.compile(_CLOSES)
# To the closing quote, or to the end of the text.
_STRING = r'"(?:[^"\\]++|\\.?)*+(?P<closed>")?'
_QUOTED = r"""(?:"(?:[^"\\]++|\\.)*+"|'[^'"\n]*+')"""
_BEGINS = r"""(?:["'{\[0-9-]|[tT]rue|[fF]alse|null|None)"""  # a value, and no prose about a key
_SHELLS = "bash|sh|shell|zsh|console|powershell|cmd"

# `object` asks for little: whether the braces hold a member shows when they are read.
_PIECE = re.compile(
    rf"""
    {_THINKING}
    | (?P<thought>{_CLOSES})
    | (?<!`)(?P<fence>`{{3,}}+)(?:{_SHELLS})\b.*?(?:(?P=fence)|\Z)
    | (?P<object>\{{(?=\s*+["'/\#]))
    | (?P<empty>\{{(?=\s*+(?:\}}|\Z)))
    | (?P<member>(?:^|(?<=think>)|(?<=thinking>))[^\S\n]*+(?={_QUOTED}\s*+:\s*+{_BEGINS})["'])
    """,
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
_WRAPPING = re.compile(r"\s*+(?:`{3,}+\w*+\s*+)?+")
_KEY = re.compile(rf"""({_STRING}|'[^'"\n]*+')\s*+:\s*+""", re.DOTALL)
_QUOTED_VALUE = re.compile(rf"""{_STRING}|'(?:[^'\\\n]++|\\.?|'(?=\w))*+'?+""", re.DOTALL)
_WORD = r"""[^\s,"{}\[\]]"""
_BARE, _MORE = re.compile(f"{_WORD}*+"), re.compile(rf"(?:[^\S\n]++(?![/#]){_WORD}++)*+")
_FILLER = re.compile(rf"""{_THINKING}|{_STRING}|[^"'{{}}\[\]<]++|.""", re.DOTALL)
_BRACKET = re.compile(rf"{_STRING}|[{{}}\[\]]", re.DOTALL)
_DEPTH = {"{": 1, "[": 1, "}": -1, "]": -1}


def _read(text: str, position: int) -> tuple[tuple[Member, ...], bool, int]:
    """The members that stand from here on, whether the object closes, and where reading ended."""
    members: list[Member] = []
    while position < len(text):
        if text[position] == "}":
            return tuple(members), True, position + 1
        if key := _KEY.match(text, position):
            members.append(_member(text, key))
            position = members[-1].end
        elif text[position] == "{" and not members or _CLOSING.match(text, position):
            break  # another object, or the end of a thought
        elif text[position] in "{[":
            position, _ = _nested_end(text, position)
        else:
            position = _FILLER.match(text, position).end()
    return tuple(members), False, position


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
    return encodable(name)


def _value_end(text: str, start: int) -> tuple[int, bool]:
    """Where the value that starts here ends, and whether it can grow no more."""
    if text.startswith(("{", "["), start):
        return _nested_end(text, start)
    if quoted := _QUOTED_VALUE.match(text, start):
        # After an apostrophe the string may go on: `'it's'`.
        return quoted.end(), bool(quoted["closed"]) or text[start] == "'" and quoted.end() < len(text)
    end = _BARE.match(text, start).end()
    if _scalar(text[start:end]) is NoScalar.INVALID:  # `not sure` is one value; `true` is whole
        end = _MORE.match(text, end).end()
        return end, start < end and _SPACES.match(text, end).end() < len(text)
    # `1` may still become `10`: a bare value is complete when something else follows it.
    return end, end < len(text)


def _nested_end(text: str, start: int) -> tuple[int, bool]:
    depth = 0
    for token in _BRACKET.finditer(text, start):
        depth += _DEPTH.get(token[0], 0)
        if depth == 0:
            return token.end(), True
    return len(text), False


def encodable(text: str) -> str:
    """The text with half characters (lone surrogates) as escapes, so that it can be sent."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


# --- the lenient reading ---

_PYTHON = {"None": "null", "True": "true", "False": "false"}
_PYTHON_STRING = re.compile(r"""(?P<quote>["'])(?P<inner>(?:[^\\]|\\.)*)(?P=quote)""", re.DOTALL)
_ILL_WRITTEN = re.compile(r"""\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|(?P<apostrophe>\\')|(?P<bare>["\\\x00-\x1f])""")


def lenient(written: str) -> str:
    """The JSON that a lenient reader would take a whole scalar for that is none; "" where readers differ.

    Python's names and strings in single quotes; in strings, raw control characters and backslashes
    that escape nothing stand for themselves. Bare words, NaN and Infinity have no such reading.
    """
    if string := _PYTHON_STRING.fullmatch(written):
        return f'"{_ILL_WRITTEN.sub(_well_written, string["inner"])}"'
    return _PYTHON.get(written, "")


def _well_written(piece: re.Match[str]) -> str:
    if piece["apostrophe"]:
        return "'"
    return json.dumps(piece[0])[1:-1] if piece["bare"] else piece[0]
