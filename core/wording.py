"""Values and texts as messages show them: on one line, escaped, never long."""

from __future__ import annotations

MOST_SHOWN = 60


def shown(value: object) -> str:
    """A value for an error message."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer past Python's digit limit; lists in lists
        text = f"a {type(value).__name__} too long to print"
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 3] + "..."


def escaped(text: str) -> str:
    """Text that a terminal only shows: control and formatting characters as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
