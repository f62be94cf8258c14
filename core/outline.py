"""An exception without its words: its kinds and where it came from. Words may be of a text that somebody sent."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

_FIRST = "Where it came from (most recent call last):"


def outline(error: BaseException) -> str:
    """Lines as those of a traceback, for the error and what it came from. Never its words, nor values."""
    parts = [_one(one) for one in _chain(error)]
    return "\nWhich led to:\n".join(reversed(parts))


def add_outline(error: BaseException) -> None:
    """For an error that loses its traceback: `outline` finds it in a note."""
    error.add_note(outline(error))


def _one(error: BaseException) -> str:
    kept = [note for note in getattr(error, "__notes__", ()) if note.startswith(_FIRST)]
    if kept and error.__traceback__ is None:
        return kept[0]
    frames = "".join(traceback.format_tb(error.__traceback__))
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{_FIRST}\n{frames}{name}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    coming: list[BaseException | None] = [error]
    while coming:
        one = coming.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        coming += [one.__cause__ or (None if one.__suppress_context__ else one.__context__)]
        coming += one.exceptions if isinstance(one, BaseExceptionGroup) else ()
