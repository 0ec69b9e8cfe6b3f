"""The engine: submit a prompt, receive its answer piece by piece from the worker thread."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from specinfer.assembly import assemble
from specinfer.choices import SeededChoices
from specinfer.config import EngineConfig
from specinfer.errors import (
    ContextLengthError,
    EngineDeadError,
    ParameterError,
)
from specinfer.fingerprint import fingerprint
from specinfer.grammar.compiler import Grammars
from specinfer.grammar.constraint import Constraint
from specinfer.lean import load_llm
from specinfer.llm import resolve_device
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


class Engine:
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
        self.model_id = model_id
        self.revision = revision
        cache = speculator.cache
        self.max_context = min(
            speculator.llm.max_context,
            cache.pages * cache.page_size,
            config.max_context or speculator.llm.max_context,
        )
        self.cache = cache
        self._vocab = speculator.llm.vocab
        self._tokenizer = tokenizer
        self._grammars = Grammars(
            tokenizer.definition, vocab=speculator.llm.vocab, eos=tokenizer.eos
        )
        self._scheduler = Scheduler(
            speculator,
            max_batch=config.max_batch,
            prefill_rows=config.prefill_rows,
            queue_limit=config.queue_limit,
        )
        self._work = threading.Condition()
        self._closing = False
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._serve, name="specinfer-engine", daemon=True)
        self._thread.start()

    @classmethod
    def load(cls, config: EngineConfig) -> "Engine":
        """Load all models; takes seconds.  Raises ModelFolderError or ConfigError."""
        if config.threads:
            torch.set_num_threads(config.threads)
        device = resolve_device(config.device)
        llm = load_llm(config.model, config.dtype, device, config.quantization)
        tokenizer = Tokenizer(config.model)
        speculator = assemble(config, llm, tokenizer)
        return cls(
            speculator,
            tokenizer,
            config,
            model_id=llm.name,
            revision=fingerprint(config.model, f"{llm.dtype} {config.quantization}"),
        )

    @property
    def alive(self) -> bool:
        """False once the worker thread has ended, by failure or by `close`."""
        return self._thread.is_alive() and not self._closing

    @property
    def running(self) -> int:
        """Requests in the batch."""
        return self._scheduler.running

    @property
    def queued(self) -> int:
        """Requests that wait for a place in the batch."""
        return self._scheduler.queued

    @property
    def end_tokens(self) -> frozenset[int]:
        """Token ids that end an answer."""
        return self._tokenizer.eos

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text)

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        return self._tokenizer.encode_chat(messages)

    def decode(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(tokens)

    def prepare(self, params: SamplingParams) -> None:
        """Compile the grammar, which may take a second, so that `submit` finds it ready.

        Raises ParameterError naming the grammar's field.
        """
        self._constraint(params)

    def _constraint(self, params: SamplingParams) -> Constraint | None:
        return None if params.grammar is None else self._grammars.constraint(params.grammar)

    def submit(self, prompt: Sequence[int], params: SamplingParams, sink: Sink) -> Handle:
        """Queue a prompt; `sink` gets its deltas from the engine's thread.

        Raises ParameterError, ContextLengthError, QueueFullError or EngineDeadError.
        """
        self._check_tokens(prompt, params)
        if len(prompt) >= self.max_context:
            raise ContextLengthError(len(prompt), self.max_context)
        request = Request(
            prompt=tuple(prompt),
            params=params,
            sink=sink,
            choices=SeededChoices(params.seed),
            text=TextStream(self._tokenizer.decode, params.stop),
            eos=self._tokenizer.eos,
            limit=self.max_context,
            constraint=self._constraint(params),
        )
        with self._work:
            if self._failure is not None or not self.alive:
                raise EngineDeadError(self._failure or "the engine is closed")
            self._scheduler.add(request)
            self._work.notify()
        return Handle(request)

    def _check_tokens(self, prompt: Sequence[int], params: SamplingParams) -> None:
        """Refuse ids that have no row: inside a step they would take the whole batch down."""
        if not prompt:
            raise ParameterError("prompt", "must not be empty")
        named = {
            "prompt": prompt,
            "logit_bias": params.logit_bias,
            "stop_token_ids": params.stop_token_ids,
        }
        for field, tokens in named.items():
            for token in tokens:
                if not 0 <= token < self._vocab:
                    raise ParameterError(
                        field, f"token {token} is outside the vocabulary of {self._vocab}"
                    )

    def close(self) -> None:
        """End the worker thread after its current step; unfinished requests end with an error."""
        with self._work:
            self._closing = True
            self._work.notify()
        self._thread.join()

    def _serve(self) -> None:
        try:
            while self._wait_for_work():
                self._scheduler.step()
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
