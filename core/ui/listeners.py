"""How the page's handlers are attached to their events."""

from typing import Any

#: No overlay on what is being watched, and no endpoint beside the two that are meant to be called.
QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
#: Past the queue, in which runs wait.
AT_ONCE: dict[str, Any] = {**QUIET, "queue": False}
