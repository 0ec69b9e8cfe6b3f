"""Many copies of the server behind one address, as a Ray Serve application: `specinfer.fleet:app`.

Ray is imported when `app` or `build` is asked for, as `serve run` and KubeRay do.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    if name not in ("app", "build"):
        raise AttributeError(name)
    from specinfer.fleet.application import build

    return build if name == "build" else build({})
