"""A container server without an engine: `python -m fake_container serve --model FOLDER …`.

The last message tells it what to do: "hang" writes the file `hanging` into the model folder and
never answers, "exit" ends the process, "invalid" is refused, anything else is echoed.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

SPECULATION = {"steps": 2, "drafted": 9, "accepted": 3, "tokens_per_step": 2.5, "tree_nodes": 11}


def app(folder: Path) -> Starlette:
    async def ping(_: Request) -> Response:
        return Response(status_code=200)

    async def models(_: Request) -> Response:
        return JSONResponse({"data": [{"id": folder.name, "revision": "r1"}]})

    async def invocations(request: Request) -> Response:
        text = _text(json.loads(await request.body()))
        if text == "hang":
            (folder / "hanging").touch()
            await asyncio.sleep(600)
        if text == "exit":
            print("specinfer: told to end", file=sys.stderr, flush=True)
            os._exit(7)
        if text == "invalid":
            return JSONResponse({"error": {"message": "the model says no"}}, 400)
        return JSONResponse(_chat(text))

    return Starlette(
        routes=[
            Route("/ping", ping),
            Route("/v1/models", models),
            Route("/invocations", invocations, methods=["POST"]),
        ]
    )


def _text(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"])


def _chat(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": f"echo {text}"}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": "fake",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 5,
            "total_tokens": 8,
            "speculation": SPECULATION,
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("verb")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    args = parser.parse_args()
    if args.model.name == "broken":
        sys.exit("specinfer: the model is broken")
    uvicorn.run(app(args.model), host=args.host, port=args.port, log_level="warning")


if __name__ == "__main__":
    main()
