"""Who answers a shard: an engine of this process, or a running server or fleet.

Both get it as the body of a batch transform, application/jsonlines on /invocations, so a line may
be in any dialect and a faulty one fails alone.
"""

import asyncio
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from specinfer.batch.errors import BatchError
from specinfer.fleet.call import Call, Head
from specinfer.fleet.replica import Replica

Answer = Callable[[Sequence[bytes]], bytes]
HEADERS = ((b"content-type", b"application/jsonlines"),)
PATIENCE_S = 3600.0
# Nobody waits for an answer here, and a shard may fill the engine's batch.
ALONE = {
    "SPECINFER_BATCH_DEADLINE_S": str(PATIENCE_S),
    "SPECINFER_BATCH_PARALLEL": "32",
    "SPECINFER_MAX_PAYLOAD_MB": "1024",
}


@contextmanager
def local(environ: Mapping[str, str], overrides: Mapping[str, Any]) -> Iterator[Answer]:
    """Load the server's application into this process, without a port."""
    replica = Replica({**ALONE, **environ}, overrides)

    async def parts(rows: Sequence[bytes]) -> bytes:
        call = Call("POST", "/invocations", headers=HEADERS, body=b"\n".join(rows))
        found = [part async for part in replica.answer(call)]
        head, body = found[0], b"".join(part for part in found if isinstance(part, bytes))
        assert isinstance(head, Head)
        return _checked(head.status, body)

    try:
        yield lambda rows: asyncio.run(parts(rows))
    finally:
        replica.close()


@dataclass(frozen=True, slots=True)
class Remote:
    """A server's address, asked for one shard at a time."""

    url: str

    def __call__(self, rows: Sequence[bytes]) -> bytes:
        """Return the answers; raises BatchError when the server does not give them."""
        headers = {key.decode(): value.decode() for key, value in HEADERS}
        request = urllib.request.Request(
            f"{self.url.rstrip('/')}/invocations", b"\n".join(rows), headers
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
                body: bytes = response.read()
                return _checked(response.status, body)
        except urllib.error.HTTPError as error:
            return _checked(error.code, error.read())
        except OSError as error:
            raise BatchError(f"{self.url}: {error}; run the same command to go on") from None


def _checked(status: int, body: bytes) -> bytes:
    if status != 200:
        raise BatchError(f"the server answered {status}: {body[:200].decode(errors='replace')}")
    return body
