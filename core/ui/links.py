"""Share links: inputs of a race in the part of an address behind its `#`, and back.

A scenario is named; a person's own text and schema are in the link themselves, as JSON, deflated (raw), in base64url.
What comes from a link is anybody's: it is bounded before and after it is unpacked, and taken whole or not at all.
"""

from __future__ import annotations

import base64
import json
import math
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import parse_qsl, urlencode

from core.presets import Preset
from core.trace import Lane
from core.ui.modes import MODES, STYLES
from core.ui.views import schema_text
from core.wording import escaped, shown

#: Characters behind the `#`. Mail and chat programs cut longer addresses.
LONGEST = 8_000
#: Bytes that a link may unpack to: the longest context and a schema of the most fields fit.
MOST_UNPACKED = 512 * 1024

_SPACE = re.compile(r"[\w.-]+/[\w.-]+")


class LinkError(ValueError):
    """A link that cannot be made or read; the message says why and what to do."""


@dataclass(frozen=True)
class Shared:
    """The settings of a race, as the page starts with them."""

    mode: str = "json"
    style: str = "pretty"
    cache: bool = True
    first: Lane = "pcd"
    temperature: float = 1.0


@dataclass(frozen=True)
class Link:
    context: str
    schema: str  # as it stands in the editor
    settings: Shared = Shared()
    preset: Preset | None = None  # the scenario whose text and schema these are


def link_to(link: Link) -> str:
    """The part of an address from its `#` on. Raises `LinkError`."""
    settings = {field.name: _told(getattr(link.settings, field.name)) for field in fields(Shared)}
    told = urlencode(({"preset": link.preset.id} if link.preset else {"own": _packed(link)}) | settings)
    if len(told) > LONGEST:
        raise LinkError(
            f"the link would have {len(told):,} characters, and programs cut links of more than {LONGEST:,}; "
            "shorten the text or the schema, or take the report or the trace away and send that"
        )
    return f"#{told}"


def read_link(part: str, presets: Sequence[Preset]) -> Link:
    """What a link says, from the part of the address behind its `#`. Raises `LinkError`."""
    told = _pairs(part.removeprefix("#"))
    places = [name for name in ("preset", "own") if name in told]
    if len(places) != 1:
        raise LinkError("the link names no scenario and has no inputs of its own, or both; ask for it again")
    settings = _settings({name: text for name, text in told.items() if name not in places})
    if places == ["own"]:
        return Link(*_unpacked(told["own"]), settings)
    preset = next((preset for preset in presets if preset.id == told["preset"]), None)
    if preset is None:
        raise LinkError(f"the link's scenario {_shown(told['preset'])} is none of this page's; choose one of these")
    return Link(preset.context, schema_text(preset.schema), settings, preset)


def space_page(space: str | None) -> str:
    """The address of a Space's page, from its `SPACE_ID`; the app inside it has another. Empty outside of a Space."""
    return f"https://huggingface.co/spaces/{space}" if space and _SPACE.fullmatch(space) else ""


def _pairs(part: str) -> dict[str, str]:
    if len(part) > LONGEST:
        raise LinkError(f"the link has {len(part):,} characters behind its #; at most {LONGEST:,} are read")
    try:
        pairs = parse_qsl(part, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=16)
    except ValueError:
        raise LinkError("the link is damaged; ask for it again") from None
    if len(dict(pairs)) < len(pairs):
        raise LinkError("the link says something twice; ask for it again")
    return dict(pairs)


def _packed(link: Link) -> str:
    try:
        data = json.dumps([link.context, link.schema], ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise LinkError("the text or the schema holds half a character (a lone surrogate); type it again") from None
    deflate = zlib.compressobj(9, wbits=-15)
    return base64.urlsafe_b64encode(deflate.compress(data) + deflate.flush()).rstrip(b"=").decode()


def _unpacked(text: str) -> tuple[str, str]:
    inflate = zlib.decompressobj(wbits=-15)
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        data = inflate.decompress(packed, MOST_UNPACKED)
        if inflate.unconsumed_tail:
            raise LinkError(f"the link unpacks to more than {MOST_UNPACKED // 1024} KiB, and is not read")
        context, schema = json.loads(data.decode())
        if not (inflate.eof and isinstance(context, str) and isinstance(schema, str)):
            raise ValueError
        (context + schema).encode()  # no halves of characters
    except LinkError:
        raise
    except (ValueError, TypeError, zlib.error, RecursionError):
        raise LinkError("the inputs in the link are damaged; ask for it again") from None
    return context, schema


def _settings(told: Mapping[str, str]) -> Shared:
    for name in told:
        if name not in _READ:
            raise LinkError(f"the link's setting {_shown(name)} is unknown; this page has {', '.join(_READ)}")
    return Shared(**{name: _READ[name](text) for name, text in told.items()})


def _told(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _one_of(what: str, known: Mapping[str, Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if text not in known:
            raise LinkError(f"the link's {what} {_shown(text)} is unknown; use one of: {', '.join(known)}")
        return known[text]

    return read


def _temperature(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise LinkError(f"the link's temperature {_shown(text)} is no number above 0")
    return number


def _shown(text: str) -> str:
    return escaped(shown(text))


#: How each setting is read from its text.
_READ: Mapping[str, Callable[[str], Any]] = {
    "mode": _one_of("mode", {name: name for name in MODES}),
    "style": _one_of("style", {name: name for name in STYLES}),
    "cache": _one_of("cache", {"on": True, "off": False}),
    "first": _one_of("first", {"pcd": "pcd", "ar": "ar"}),
    "temperature": _temperature,
}
