"""What people send, and the log: nothing of it is there, unless the program was told to (`--log-text`).

An exception's words may repeat a text, in a log line of ours, of the server, or of a framework: each record of the
process is made without them. Tracebacks stay, as outlines.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

from core.outline import outline
from core.schema import StructuredSchema
from core.wording import escaped

#: Characters of a text in the log.
MOST_LOGGED = 500

log = logging.getLogger(__name__)
log.setLevel(logging.CRITICAL + 1)  # whatever the levels above: a program that logs all must not log this


def start_log(texts: bool) -> None:
    """The log of a program, on its error stream; `texts`: contexts and schemas of requests, and words of errors too."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("core").setLevel(logging.INFO)
    if texts:
        log.setLevel(logging.INFO)
    else:
        withhold_words()


def withhold_words() -> None:
    """Exceptions are logged without their words from now on, whoever logs them."""
    make = logging.getLogRecordFactory()

    def record(*given: Any, **options: Any) -> logging.LogRecord:
        made = make(*given, **options)
        error = made.exc_info[1] if made.exc_info else None
        if error is not None:
            # What asyncio adds to its first line is of the task, and says the exception's words.
            said = made.getMessage().partition("\n")[0] if made.name == "asyncio" else made.getMessage()
            told = f"{said}\n{outline(error)}\n(its words are not logged without --log-text)"
            made.msg, made.args, made.exc_info = told, (), None
        return made

    logging.setLogRecordFactory(record)


def log_request(contexts: Sequence[str], schema: StructuredSchema) -> None:
    """A request's texts, each on one line and cut; nothing unless the log was started with them."""
    if log.isEnabledFor(logging.INFO):
        told = json.dumps(schema.to_json(), ensure_ascii=False)
        for context in contexts:
            log.info("context %s; schema %s", _cut(str(context)), _cut(told))


def _cut(text: str) -> str:
    line = escaped(text[:MOST_LOGGED])
    return line if len(text) <= MOST_LOGGED else f"{line}... ({len(text)} characters)"
