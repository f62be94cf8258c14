"""Which scenario a run was of, told from the run itself: no event names it.

Both sides of the wire take the same checksum of a text and its fields; the other is in `assets/board/scenario.js`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable

from core.presets import Preset
from core.schema import StructuredSchema


def checksum(context: str, schema: StructuredSchema) -> int:
    """Of the text, and of all that a field says."""
    parts = [context]
    for name, spec in schema.to_json().items():
        parts += [name, spec["type"], spec.get("description", "")]
        parts += [*map(_json, spec.get("choices", ())), *spec.get("titles", ()), *spec.get("depends_on", ())]
    return zlib.crc32("\0".join(parts).encode(errors="replace"))


def script(presets: Iterable[Preset]) -> str:
    """The scenarios' ids and titles by their checksum, as JavaScript."""
    known = [[checksum(preset.context, preset.schema), {"id": preset.id, "title": preset.title}] for preset in presets]
    return f"const SCENARIOS = new Map({json.dumps(known)});\n"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
