"""Origin: from where a browser sends a request, and under which name it knows this server. Knows no routes."""

from __future__ import annotations

import ipaddress
import re

from starlette.datastructures import Headers

_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
#: A Host header: a name, an IPv4 address, or an IPv6 address in brackets; a port or none.
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(?::\d{1,5})?", re.IGNORECASE)
#: What a request that changes nothing is made with.
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


def is_foreign(headers: Headers) -> bool:
    """Whether a page that this server has not served sends the request; what is no browser is not foreign.

    Browsers say so themselves where the page came over https or from this machine, in a header that no script can
    set and no proxy has reason to change; elsewhere their Origin is compared with the Host.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site.lower() not in ("same-origin", "none")
    origin = headers.get("origin")
    if origin is None:
        return False
    scheme, _, place = origin.lower().partition("://")
    default = _DEFAULT_PORTS.get(scheme, "")
    return not place or place.removesuffix(default) != headers.get("host", "").lower().removesuffix(default)


def is_loopback(host: str) -> bool:
    """Whether an address, or the host of a Host header without its port, can only be this machine."""
    host = host.strip("[]")
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def named_host(header: str) -> str:
    """The host of a Host header, "" where it is none."""
    found = _HOST.fullmatch(header)
    return found[1] if found else ""
