"""The log of one run: what a board shows.

Append-only NDJSON, one trace event a line, so that gradio ships only what was appended.
A new id clears the board.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace

from core.schema import StructuredSchema
from core.trace import Event, RunEnded, to_lines


@dataclass(frozen=True)
class Log:
    run: str = ""
    lines: str = ""
    recorded: bool = False  # of an earlier run, saved

    @classmethod
    def prepared(cls, schema: StructuredSchema) -> Log:
        """Only the rows of a schema, so that nothing moves when a run fills them."""
        # The names apart: JavaScript does not keep the order of keys such as "10" and "2".
        line = {"kind": "prepared", "names": [field.name for field in schema], "schema": schema.to_json()}
        return cls(uuid.uuid4().hex, json.dumps(line, ensure_ascii=False) + "\n")

    @classmethod
    def of(cls, recording: Iterable[Event]) -> Log:
        """A run that is over, as it was saved."""
        return cls(uuid.uuid4().hex, to_lines(recording), recorded=True)

    @classmethod
    def refused(cls, message: str) -> Log:
        """A run that did not start, and why."""
        return cls(uuid.uuid4().hex, "").extended([failure(message)])

    def extended(self, events: Iterable[Event]) -> Log:
        return replace(self, lines=self.lines + to_lines(events))


@dataclass(frozen=True)
class Drawn:
    """What the board was last given."""

    names: tuple[str, ...] = ()  # of the fields that it has rows for
    is_recorded: bool = False  # an earlier run, or the rows for one: nothing of this session

    @classmethod
    def of(cls, schema: StructuredSchema, *, is_recorded: bool = False) -> Drawn:
        return cls(tuple(field.name for field in schema), is_recorded)


def failure(message: str) -> RunEnded:
    """The end of a run that never reached the engine."""
    return RunEnded(0.0, "failed", message, None, ())
