"""What people are told of an error that ended their request: one line."""

from __future__ import annotations

import logging
import re

from core.grammar import GrammarError
from core.owner import Cancelled, Unavailable
from core.prompt import PromptTooLong
from core.request import RequestError
from core.schema import SchemaError
from core.vocabulary import TokenizationError

log = logging.getLogger(__name__)

#: In the words of torch on a CPU, of MLX, and of CUDA where it is no error class of its own.
_NO_MEMORY = re.compile(r"can't allocate memory|unable to allocate|attempting to allocate|out of memory", re.IGNORECASE)


#: Errors of which people can mend the cause, each in words of our own. A framework raises ValueErrors too.
MENDABLE = (SchemaError, RequestError, PromptTooLong, TokenizationError, GrammarError, ArithmeticError, Unavailable)


def told(error: BaseException, what: str) -> str:
    """What can be mended is told in its own words.

    No word of an error of the engine's own, which may be of a text or a path: the log has it, as that of `what`.
    """
    if isinstance(error, MENDABLE):
        return str(error)
    if isinstance(error, Cancelled):
        return "stopped"
    log.error("%s failed", what, exc_info=error)
    if is_out_of_memory(error):
        return (
            "out of memory: there is not enough for this request; "
            "shorten the text or the schema, or choose a smaller model"
        )
    return f"the engine failed: {type(error).__name__}; the log has more"


def is_out_of_memory(error: BaseException) -> bool:
    """Of the machine or of a device, whichever framework says it."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's; not imported for this
        return True
    return isinstance(error, RuntimeError) and bool(_NO_MEMORY.search(str(error)))
