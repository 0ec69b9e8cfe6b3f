"""One replica: the server's application without a port, its engine loaded before the first call."""

import os
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from specinfer.errors import EngineDeadError
from specinfer.fleet.call import Call, Part
from specinfer.fleet.inside import answered
from specinfer.model_store.folder import check_folder
from specinfer.server.app import create_app
from specinfer.server.run import build_service, load_engine
from specinfer.server.settings import load_settings

POLL_S = 0.05


class Replica:
    """What Ray runs in a process of its own, set up by the SPECINFER_* environment."""

    def __init__(
        self, environ: Mapping[str, str] = os.environ, overrides: Mapping[str, Any] = {}
    ) -> None:
        """Load the engine; raises SpecInferError, and Ray tells why the replica did not start."""
        settings = load_settings(environ, overrides)
        check_folder(settings.engine.model)
        self._service = build_service(
            settings.server,
            lambda: load_engine(settings.engine),
            replaces=settings.engine.tensor_parallel > 1,
        )
        self._app = create_app(self._service)
        self._service.backend.start()
        while self._service.backend.state == "loading":
            time.sleep(POLL_S)
        self.check_health()

    async def answer(self, call: Call) -> AsyncIterator[Part]:
        """Yield the answer's head and the pieces of its body."""
        async for part in answered(self._app, call):
            yield part

    def page(self) -> bytes:
        """Return the metrics page."""
        return self._service.meters.page()

    def check_health(self) -> None:
        """Raise once the engine is dead; Ray then starts another replica."""
        if self._service.backend.state == "failed":
            raise EngineDeadError("the engine could not be loaded, or has died")

    def close(self) -> None:
        self._service.backend.close()

    def __del__(self) -> None:
        """Close: Ray calls this when the last answer of a replica that is to go was given."""
        if hasattr(self, "_service"):  # not where __init__ was refused
            self.close()
