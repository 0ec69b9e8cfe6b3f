"""API keys: hashes in one Secrets Manager secret, any number valid at once, so keys can rotate.

The secret is {"keys": [{"name": "alice", "sha256": "<64 hex digits>"}, ...]}.  A new key is added
next to the old one, callers move over, the old one is taken out.
"""

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from botocore.exceptions import BotoCoreError, ClientError

from specinfer_gateway.deadline import Clock
from specinfer_gateway.errors import GatewayError

# An unknown key may be one just added, so the secret is read again, but no oftener than this:
# guessing must not run up Secrets Manager's rate or bill.
MIN_REFRESH_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class KeyList:
    """Names by hash, as read at one moment of the clock."""

    names: Mapping[str, str]
    read_at: float


class ApiKeys:
    """Tells whose key a request carries."""

    def __init__(self, fetch: Callable[[], str], max_age: float, clock: Clock) -> None:
        self._fetch = fetch
        self._max_age = max_age
        self._clock = clock
        self._list: KeyList | None = None

    def owner(self, headers: Mapping[str, str]) -> str:
        """Return the name of the key in x-api-key or Authorization; raises GatewayError 401."""
        key = _presented(headers)
        if key is None:
            message = "an API key is needed, in x-api-key or as Authorization: Bearer"
            raise GatewayError(401, "missing_api_key", message)
        digest = hashlib.sha256(key.encode()).hexdigest()
        name = self._find(digest, self._max_age) or self._find(digest, MIN_REFRESH_SECONDS)
        if name is None:
            raise GatewayError(401, "invalid_api_key", "the API key is not known")
        return name

    def _find(self, digest: str, max_age: float) -> str | None:
        """Compare with every hash, in a time that does not depend on which one fits."""
        found = None
        for known, name in self._current(max_age).items():
            if hmac.compare_digest(known, digest):
                found = name
        return found

    def _current(self, max_age: float) -> Mapping[str, str]:
        now = self._clock()
        if self._list is None or now - self._list.read_at > max_age:
            self._list = KeyList(self._read(), now)
        return self._list.names

    def _read(self) -> Mapping[str, str]:
        """Read the secret; while it cannot be read, the keys known so far stay valid."""
        try:
            entries = json.loads(self._fetch())["keys"]
            return {entry["sha256"].lower(): str(entry["name"]) for entry in entries}
        except (BotoCoreError, ClientError, ValueError, KeyError, TypeError, AttributeError):
            if self._list is not None:
                return self._list.names
            message = "API keys cannot be checked at the moment"
            raise GatewayError(503, "keys_unavailable", message, retry_after=5) from None


def _presented(headers: Mapping[str, str]) -> str | None:
    key = headers.get("x-api-key")
    if key:
        return key
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None
