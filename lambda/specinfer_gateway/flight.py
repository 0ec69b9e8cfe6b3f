"""One cacheable request on its way through the table: N equal callers, one generation.

The first caller takes a lease, the others poll for its answer.  The lease ends with its holder's
deadline, so a holder that dies costs the others a wait and nothing else.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from specinfer_gateway.breaker import Breaker
from specinfer_gateway.cache import Cache, CacheUnavailableError, ItemTooLargeError
from specinfer_gateway.cache_key import is_whole
from specinfer_gateway.deadline import Deadline
from specinfer_gateway.dialects import Dialect, Document
from specinfer_gateway.errors import GatewayError
from specinfer_gateway.telemetry import Meter, Tracer

# Polling a lease: often at first, as short answers take tenths of a second.
FIRST_WAIT, LONGEST_WAIT, GROWTH = 0.05, 0.5, 1.5  # seconds, seconds, factor
MIN_STORE_SECONDS = 1.0  # with less in hand the answer goes out unkept


@dataclass(frozen=True, slots=True)
class Answer:
    """JSON for the caller, and where it came from."""

    body: bytes
    cache: Literal["HIT", "MISS", "BYPASS"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """One request; shared tells whether equal ones wait for each other."""

    cache: Cache
    key: str
    owner: str
    dialect: Dialect
    generate: Callable[[], Document]
    deadline: Deadline
    meter: Meter
    tracer: Tracer
    breaker: Breaker
    sleep: Callable[[float], None]
    shared: bool

    def answer(self) -> Answer:
        """Serve the kept answer, or generate and keep it; a broken table only costs its delay."""
        try:
            kept = self._await()
        except CacheUnavailableError:
            self._failed()
            return Answer(encode(self.generate()), "BYPASS")
        if kept is not None:
            self.meter.add("CacheHit")
            return Answer(kept, "HIT")
        self.meter.add("CacheMiss")
        stored = False
        try:
            document = self.generate()
            stored = self._store(document)
        finally:
            if self.shared and not stored:
                self._release()
        return Answer(encode(document), "MISS")

    def renew(self) -> Answer:
        """Generate, whatever is kept, and keep the new answer."""
        self.meter.add("CacheBypass")
        document = self.generate()
        self._store(document)
        return Answer(encode(document), "BYPASS")

    def _await(self) -> bytes | None:
        """Return the kept answer, or None once this caller is to generate it."""
        wait = FIRST_WAIT
        while True:
            with self.tracer.section("cache.get"):
                found = self.cache.get(self.key, self._sound)
                if found.answer is not None:
                    return found.answer
                if not self.shared or (not found.leased and self._claim(found.poisoned)):
                    return None
            if self.deadline.left() <= wait:
                raise GatewayError(504, "timeout", "an equal request is still being answered")
            self.sleep(wait)
            wait = min(wait * GROWTH, LONGEST_WAIT)

    def _claim(self, over: bool) -> bool:
        return self.cache.claim(self.key, self.owner, self.deadline.left(), over=over)

    def _sound(self, kept: bytes) -> bool:
        answer = self.dialect.read(kept)
        return answer is not None and is_whole(self.dialect, answer)

    def _store(self, document: Document) -> bool:
        if not is_whole(self.dialect, document) or self.deadline.left() < MIN_STORE_SECONDS:
            return False
        try:
            with self.tracer.section("cache.put"):
                self.cache.put(self.key, encode(document))
        except ItemTooLargeError:
            self.meter.add("CacheSkippedTooLarge")
            return False
        except CacheUnavailableError:
            self._failed()
            return False
        return True

    def _release(self) -> None:
        try:
            self.cache.release(self.key, self.owner)
        except CacheUnavailableError:
            self._failed()

    def _failed(self) -> None:
        self.meter.add("CacheError")
        self.breaker.trip()


def encode(document: Document) -> bytes:
    """Return the JSON text of an answer."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
