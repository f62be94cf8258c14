"""Addresses of vLLM servers, which stand where a model's name may: `http://HOST:PORT`, several with commas."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from core.wording import shown

#: An address in a text, without what ends the sentence around it.
ADDRESS = re.compile(r"https?://[^\s'\"()<>;]*[^\s'\"()<>;,.:]", re.IGNORECASE)
#: A name whose parts are as long as they may be, or an IPv6 address without its brackets.
_HOST = re.compile(r"[\w-]{1,63}(?:\.[\w-]{1,63})*\.?|[\da-f:.]*:[\da-f:.]*(?:%[\w.-]+)?", re.IGNORECASE)
_LOGIN = re.compile(r"(?<=://)[^/\s'\"]*@")


class AddressError(ValueError):
    """What is no server's address; the message is one line, without a password that was in it."""


def is_url(name: str) -> bool:
    """Whether a model's name is the address of a server, or several with commas."""
    return name.strip().lower().startswith(("http://", "https://"))


def servers(name: str) -> tuple[str, ...]:
    """The addresses that a name stands for, each without a path. Raises `AddressError`."""
    found = tuple(map(_checked, name.split(",")))
    if twice := next((url for url in found if found.count(url) > 1), None):
        raise AddressError(f"url {shown(twice)} is given twice; give each server once")
    return found


def without_login(text: str) -> str:
    """The text without the user's name and password of a URL, for the log."""
    return _LOGIN.sub("", text)


def _checked(text: str) -> str:
    if "@" in text:
        raise AddressError("a url with a user's name in it would be shown with it; give the key as --server-key")
    try:
        parts = urlsplit(text.strip())
        is_whole = parts.scheme in ("http", "https") and _HOST.fullmatch(parts.hostname or "") and parts.port != 0
    except ValueError:  # a port that is none, half a bracket
        parts, is_whole = urlsplit(""), False
    if not is_whole or parts.path.strip("/") not in ("", "v1") or parts.query or parts.fragment:
        raise AddressError(f"url {shown(text.strip())} is no server's address; use http://HOST:PORT")
    return f"{parts.scheme}://{parts.netloc}"
