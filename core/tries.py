"""Wrong keys, counted by where they come from: a few in a minute are answered, then none from there.

Nobody else is kept waiting, and a cookie that holds is never asked about: it cannot be guessed.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict

from starlette.datastructures import Headers
from starlette.types import Scope

#: Wrong keys of one place, and the seconds in which they are counted.
MOST_WRONG, WITHIN_S = 10, 60.0
#: Places that are remembered; of more, those that were heard of last.
MOST_PLACES = 4096


class Tries:
    def __init__(self) -> None:
        self._wrong: OrderedDict[str, list[float]] = OrderedDict()

    def wait_s(self, place: str) -> float:
        """Seconds until the next key of this place is looked at, 0 where it is now."""
        times = self._recent(place)
        return 0.0 if len(times) < MOST_WRONG else max(0.0, times[0] + WITHIN_S - time.monotonic())

    def note(self, place: str) -> None:
        """A wrong key came from there."""
        self._wrong[place] = [*self._recent(place), time.monotonic()][-MOST_WRONG:]
        self._wrong.move_to_end(place)
        while len(self._wrong) > MOST_PLACES:
            self._wrong.popitem(last=False)

    def _recent(self, place: str) -> list[float]:
        since = time.monotonic() - WITHIN_S
        return [moment for moment in self._wrong.get(place, ()) if moment > since]


def place_of(scope: Scope) -> str:
    """Where a request comes from: its address, of IPv6 the network that one customer has.

    Behind a proxy, which has a private address, that which the proxy has put last into its list; what a client puts
    into that list stands before it. A client with a private address of its own can still name any.
    """
    peer = (scope.get("client") or ("",))[0]
    told = Headers(scope=scope).get("x-forwarded-for", "").rpartition(",")[2].strip()
    try:
        address = ipaddress.ip_address(peer)
        if told and not address.is_global:
            address = ipaddress.ip_address(told)
    except ValueError:
        return peer
    if address.version == 6 and not address.ipv4_mapped:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)
