"""The engine: submit a prompt, receive its answer piece by piece from the worker thread."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from specinfer.assembly import assemble
from specinfer.choices import SeededChoices
from specinfer.config import EngineConfig
from specinfer.errors import ConfigError, EngineDeadError
from specinfer.fingerprint import fingerprint
from specinfer.intake import Intake
from specinfer.lean import load_llm, resolve_quantization
from specinfer.llm import CausalLM, resolve_device
from specinfer.offload import load_offloaded
from specinfer.request import Request, Sink
from specinfer.sampling import SamplingParams
from specinfer.scheduler import Scheduler
from specinfer.speculate import Speculator
from specinfer.text import TextStream
from specinfer.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Handle:
    """A submitted request, for giving it up."""

    request: Request

    def cancel(self) -> None:
        """End the request within one step; its last delta says `cancelled`."""
        self.request.cancelled = True


class Engine(Intake):
    """An LLM, its drafters and the thread that runs them.  `submit` may be called from anywhere."""

    def __init__(
        self,
        speculator: Speculator,
        tokenizer: Tokenizer,
        config: EngineConfig,
        *,
        model_id: str,
        revision: str,
    ) -> None:
        llm, cache = speculator.llm, speculator.cache
        room = min(llm.max_context, cache.pages * cache.page_size)
        super().__init__(
            tokenizer, vocab=llm.vocab, max_context=min(room, config.max_context or room)
        )
        self.model_id = model_id
        self.revision = revision
        self.cache = cache
        self._llm = llm
        self._scheduler = Scheduler(
            speculator,
            max_batch=config.max_batch,
            prefill_rows=config.prefill_rows,
            queue_limit=config.queue_limit,
            tree_rows=config.most_nodes,
            drawn=config.drafts_decide,
        )
        self._work = threading.Condition()
        self._closing = False
        self._failure: str | None = None
        self._step_began: float | None = None
        self._thread = threading.Thread(target=self._serve, name="specinfer-engine", daemon=True)
        self._thread.start()

    @classmethod
    def load(cls, config: EngineConfig) -> "Engine":
        """Load all models; takes seconds.  Raises ModelFolderError or ConfigError."""
        if config.tensor_parallel > 1:
            raise ConfigError("tensor_parallel: an engine of several ranks is no single process's")
        if config.threads:
            torch.set_num_threads(config.threads)
        device = resolve_device(config.device)
        if config.offload == "none":
            quantization = resolve_quantization(config.quantization, config.model, device)
            config = replace(config, quantization=quantization)
        return cls.over(_llm(config, device), config)

    @classmethod
    def over(cls, llm: CausalLM, config: EngineConfig) -> "Engine":
        """Build the rest of an engine around its LLM; raises ModelFolderError or ConfigError."""
        tokenizer = Tokenizer(config.model)
        speculator = assemble(config, llm, tokenizer)
        # An off-loaded LLM is as it was stored; SSMs change no answer's law.
        bare = config.quantization == "none" or config.offload != "none"
        quantized = "" if bare else f" {config.quantization}"
        return cls(
            speculator,
            tokenizer,
            config,
            model_id=llm.name,
            revision=fingerprint(config.model, f"{llm.precision}{quantized}"),
        )

    @property
    def alive(self) -> bool:
        """False once the worker thread has ended, by failure or by `close`."""
        return self._thread.is_alive() and not self._closing

    @property
    def failed(self) -> bool:
        """True once a step has gone wrong, or the engine was closed."""
        return self._failure is not None

    @property
    def step_s(self) -> float:
        """Seconds that the current step has taken so far; 0 between steps."""
        began = self._step_began
        return 0.0 if began is None else time.monotonic() - began

    @property
    def running(self) -> int:
        """Requests in the batch."""
        return self._scheduler.running

    @property
    def queued(self) -> int:
        """Requests that wait for a place in the batch."""
        return self._scheduler.queued

    def submit(self, prompt: Sequence[int], params: SamplingParams, sink: Sink) -> Handle:
        """Queue a prompt; `sink` gets its deltas from the engine's thread.

        Raises ParameterError, ContextLengthError, QueueFullError or EngineDeadError.
        """
        self.check(prompt, params)
        request = Request(
            prompt=tuple(prompt),
            params=params,
            sink=sink,
            choices=SeededChoices(params.seed),
            text=TextStream(self._tokenizer.decode, params.stop),
            eos=self._tokenizer.eos,
            limit=self.max_context,
            constraint=self.constraint(params),
        )
        with self._work:
            if self._failure is not None or not self.alive:
                raise EngineDeadError(self._failure or "the engine is closed")
            self._scheduler.add(request)
            self._work.notify()
        return Handle(request)

    def close(self) -> None:
        """End the worker thread after its current step; unfinished requests end with an error."""
        with self._work:
            self._closing = True
            self._work.notify()
        self._thread.join()
        self._llm.close()

    def _serve(self) -> None:
        try:
            while self._wait_for_work():
                self._step_began = time.monotonic()
                self._scheduler.step()
                self._step_began = None
            message = "the engine was closed"
        except Exception as error:
            message = f"the engine failed: {type(error).__name__}: {error}"
            raise
        finally:
            with self._work:
                self._failure = message
                self._scheduler.fail_all(message)

    def _wait_for_work(self) -> bool:
        with self._work:
            self._work.wait_for(lambda: self._closing or self._scheduler.busy)
            return not self._closing


def _llm(config: EngineConfig, device: torch.device) -> CausalLM:
    if config.offload == "none":
        return load_llm(config.model, config.dtype, device, config.quantization)
    if config.offload == "cpu" and device.type == "cpu":
        raise ConfigError("offload: cpu keeps weights in host memory for a GPU; there is none")
    return load_offloaded(
        config.model, config.dtype, device, config.offload, slots=config.offload_layers
    )
