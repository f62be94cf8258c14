"""What anybody may read who can ask the service or open the page: no path of this server, no address of another."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from core.address import ADDRESS, is_url
from core.trace import Event, RunEnded, RunStarted

#: An absolute path: in quotes, or as far as folders go and to the next space. Its last part is the group that matches.
_PATH = re.compile(
    r"""(?<=['"])(?:~|[A-Za-z]:)?[/\\][^'"]*?([^'"/\\]+)(?=['"])"""
    r"""|(?<![\w'"/\\.])(?:~|[A-Za-z]:)?[/\\](?:[^'"/\\,;:\n]+[/\\])*([^\s'"/\\]+)"""
)

#: In the place of addresses, of one or several.
A_SERVER = "a vLLM server"


def public_name(model: str) -> str:
    """A model's name for clients: of a path only its last part, of a server's address nothing."""
    if is_url(model):
        return A_SERVER
    try:
        place = Path(model).expanduser()
        is_path = model.startswith((".", "~")) or place.is_absolute() or bool(model) and place.exists()
        return place.absolute().name if is_path else model
    except (OSError, RuntimeError):  # a name as long as no file's; the folder of a user who is not here
        return model.rpartition("/")[2]


def pathless(text: str) -> str:
    """The text with the last part of a path in the path's place: the server's folders are nobody's business.

    Nor is where its model runs.
    """
    return _PATH.sub(lambda match: match[1] or match[2], ADDRESS.sub(A_SERVER, text))


def public_text(text: str, model: str | None) -> str:
    """The text without paths; `model`: the name of the model that runs, which may be a path of any form."""
    return pathless(text.replace(model, public_name(model)) if model else text)


def public_event(event: Event, model: str) -> Event:
    """The event without paths where it speaks of the server; what people sent stays as it is."""
    match event:
        case RunStarted():
            return replace(event, model=public_name(event.model), why=pathless(event.why))
        case RunEnded():
            return replace(event, message=named_model(event.message, model))
    return event


def named_model(text: str, model: str) -> str:
    """The text with the model's public name in the place of the path that it was loaded from."""
    return text.replace(model, public_name(model))
