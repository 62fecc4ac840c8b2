"""The API keys that this process has lately looked up, so that reading one job again asks no database who is calling.

A key is known for KNOWN_SECONDS from before it was read: what an operator changes (a key revoked, a tenant's limits)
and a key's expiry are heeded by then. Only reads rely on it; whoever writes is looked up. The plain text is not kept.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from tenants.models import ApiKey

KNOWN_SECONDS: Final = 4.0
MOST_KEYS: Final = 10_000


class KnownKeys:
    """Keys with their tenants, the ones used last. Safe to use from many threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, tuple[float, ApiKey]] = OrderedDict()

    def recall(self, plain: str) -> ApiKey | None:
        """The live key that `plain` was a moment ago; None where this process has not looked lately."""
        name = _name(plain)
        with self._lock:
            known = self._known.get(name)
            if known is None:
                return None
            if self._clock() >= known[0]:
                del self._known[name]
                return None
            self._known.move_to_end(name)
            return known[1]

    def look_up(self, plain: str) -> ApiKey | None:
        """What the database says of `plain`, and keep it. One query, as `ApiKey.find`."""
        good_until = self._clock() + KNOWN_SECONDS
        key = ApiKey.find(plain)
        with self._lock:
            if key is None:
                self._known.pop(_name(plain), None)
            else:
                self._known[_name(plain)] = (good_until, key)
                if len(self._known) > MOST_KEYS:
                    self._known.popitem(last=False)
        return key


def _name(plain: str) -> bytes:
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).digest()


SHARED: Final = KnownKeys()
"""This process's."""
