"""All parts of the laptop stack, started in order and stopped in reverse."""

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx

from specinfer.local import container
from specinfer.local.container import Container, ContainerSettings
from specinfer.local.dynamodb import REGION, TABLE, dynamodb
from specinfer.local.errors import LocalStackError
from specinfer.local.lambda_pool import FunctionSettings, LambdaPool
from specinfer.local.ports import HOST, Listeners
from specinfer.local.rest_api import RestApi, RestSettings
from specinfer.local.sagemaker_runtime import RuntimeSettings, SageMakerRuntime
from specinfer.local.serving import serving
from specinfer.model_store.progress import Progress

ENDPOINT = "specinfer"
FUNCTION = "specinfer-gateway"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSettings:
    """`gateway` is the folder of the Lambda's handler.py; `logs` gets one file a process."""

    model: Path
    gateway: Path
    logs: Path
    ssms: tuple[Path, ...] | None = None  # None: as the server's environment says
    module: str = "specinfer.server"


@dataclass(frozen=True, slots=True)
class Stack:
    """A running stack: base URLs, and the model that answers."""

    rest: str
    runtime: str
    container: Container
    dynamodb: str
    endpoint: str
    model_id: str
    client: httpx.AsyncClient


@asynccontextmanager
async def running(
    settings: StackSettings, listeners: Listeners, progress: Progress
) -> AsyncIterator[Stack]:
    """The stack once it is able to answer. Raises LocalStackError if a part cannot start."""
    async with AsyncExitStack() as parts:
        client = await parts.enter_async_context(httpx.AsyncClient(timeout=None, trust_env=False))
        server = _server(settings, listeners.hand_over_container())
        log = settings.logs / "container.log"
        child = await parts.enter_async_context(container.running(server, log))
        runtime_app = SageMakerRuntime(
            RuntimeSettings(container=child.url, endpoint=ENDPOINT), client
        ).app()
        runtime = await parts.enter_async_context(serving(runtime_app, listeners.runtime))
        table = parts.enter_context(dynamodb(listeners.dynamodb))
        await guarded(child, child.ready(client, progress))
        model_id, revision = await _model(client, child.url)
        environment = _function_environment(runtime, table, model_id, revision)
        function = FunctionSettings(folder=settings.gateway, environment=environment)
        function_log = settings.logs / "gateway.log"
        pool = await parts.enter_async_context(LambdaPool(function, function_log))
        rest_app = RestApi(pool.invoke, RestSettings()).app()
        rest = await parts.enter_async_context(serving(rest_app, listeners.rest))
        await guarded(child, _warm(client, rest, settings.logs))
        yield Stack(rest, runtime, child, table, ENDPOINT, model_id, client)


async def guarded(child: Container, work: Coroutine[Any, Any, T]) -> T:
    """`work`, unless the container ends first: then its LocalStackError."""
    death, task = asyncio.create_task(child.died()), asyncio.create_task(work)
    try:
        await asyncio.wait({death, task}, return_when=asyncio.FIRST_COMPLETED)
        if death.done():
            raise death.result()
        return task.result()
    finally:
        death.cancel()
        task.cancel()
        await asyncio.gather(death, task, return_exceptions=True)


def _server(settings: StackSettings, port: int) -> ContainerSettings:
    arguments = ["serve", "--model", str(settings.model), "--host", HOST, "--port", str(port)]
    if settings.ssms is not None:
        for ssm in settings.ssms or ("none",):
            arguments += ["--ssm", str(ssm)]
    return ContainerSettings(port=port, arguments=arguments, module=settings.module)


async def _model(client: httpx.AsyncClient, container_url: str) -> tuple[str, str]:
    """Its name, and the hash of weights and configuration that cache keys carry."""
    document = (await client.get(f"{container_url}/v1/models")).raise_for_status().json()
    model = document["data"][0]
    return model["id"], model["revision"]


async def _warm(client: httpx.AsyncClient, rest: str, logs: Path) -> None:
    """The first event imports the handler for a second or two: not at the first caller's cost."""
    answer = await client.get(f"{rest}/health")
    if answer.status_code != 200:
        raise LocalStackError(
            f"the gateway answers {answer.status_code} to GET /health: {answer.text} "
            f"(log: {logs / 'gateway.log'})"
        )


def _function_environment(
    runtime: str, table: str, model_id: str, revision: str
) -> Mapping[str, str]:
    """Everything the handler sees: the shell's AWS profile and keys are not among it."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "AWS_LAMBDA_FUNCTION_NAME": FUNCTION,
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": runtime,
        "AWS_ENDPOINT_URL_DYNAMODB": table,
        # No X-Ray daemon listens on a laptop.
        "POWERTOOLS_TRACE_DISABLED": "true",
        "POWERTOOLS_SERVICE_NAME": FUNCTION,
        "POWERTOOLS_METRICS_NAMESPACE": "SpecInfer",
        "SPECINFER_ENDPOINT": ENDPOINT,
        "SPECINFER_MODEL_ID": model_id,
        "SPECINFER_MODEL_REVISION": revision,
        "SPECINFER_CACHE_TABLE": TABLE,
    }
