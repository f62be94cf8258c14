"""The key that guards the service: what may be one, and the proofs of it, which are a header or a cookie.

A cookie holds a time and a signature that is made from the key, so that whoever reads one cannot tell the key, and
it holds for as long as the key and that time. Everything is compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Iterator

from starlette.datastructures import Headers

#: Fewer can be tried out.
LEAST_CHARACTERS = 16
MOST_CHARACTERS = 256
#: After which the form is shown again.
COOKIE_DAYS = 30

#: What a header carries unchanged everywhere.
_KEY = re.compile(r"[!-~]*")
#: scrypt's cost for logins (RFC 7914): 50 ms once at the start, and as much for each guess at a cookie's key.
_SCRYPT = {"n": 2**14, "r": 8, "p": 1}
_WAY_OUT = 'make one with python -c "import secrets; print(secrets.token_urlsafe())"'


class ApiKey:
    """Raises `ValueError` for a text that is no good as a key; the message never has the key in it."""

    def __init__(self, key: str) -> None:
        if not _KEY.fullmatch(key):
            raise ValueError(f"the key has a space, or a character that is not ASCII; {_WAY_OUT}")
        if not LEAST_CHARACTERS <= len(key) <= MOST_CHARACTERS:
            bounds = f"{LEAST_CHARACTERS} to {MOST_CHARACTERS}"
            raise ValueError(f"the key has {len(key)} characters, and must have {bounds}; {_WAY_OUT}")
        self._digest = _digest(key)
        self._secret = hashlib.scrypt(key.encode(), salt=b"pcd cookie", dklen=32, **_SCRYPT)
        # Cookies do not know ports: two services on one host would take each other's away.
        self.cookie_name = f"pcd-{self._signed('name')[:8]}"

    def __repr__(self) -> str:
        return "ApiKey(...)"

    def matches(self, given: str) -> bool:
        return hmac.compare_digest(_digest(given), self._digest)

    def cookie(self) -> str:
        """A value that proves the key for `COOKIE_DAYS`."""
        until = str(int(time.time()) + COOKIE_DAYS * 86_400)
        return f"{until}.{self._signed(until)}"

    def has_cookie(self, headers: Headers) -> bool:
        """Whether a request carries a cookie that still holds."""
        return any(self._holds(value) for value in _cookies(headers, self.cookie_name))

    def _holds(self, value: str) -> bool:
        until, _, signature = value.partition(".")
        is_ours = hmac.compare_digest(signature.encode(), self._signed(until).encode())
        return is_ours and int(until) > time.time()

    def _signed(self, text: str) -> str:
        return hmac.digest(self._secret, text.encode(errors="replace"), "sha256").hex()


def given_key(headers: Headers) -> str | None:
    """The key in a request's headers; `X-API-Key` first: `Authorization` may be for a proxy, as on a private Space."""
    if (key := headers.get("x-api-key")) is not None:
        return key
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


def _digest(text: str) -> bytes:
    """So that a comparison takes as long whatever the lengths."""
    return hashlib.sha256(text.encode(errors="replace")).digest()


def _cookies(headers: Headers, name: str) -> Iterator[str]:
    for header in headers.getlist("cookie"):
        for part in header.split(";"):
            found, _, value = part.strip().partition("=")
            if found == name:
                yield value
