"""The engine: submit a prompt, receive its answer piece by piece from the worker thread."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from specinfer.choices import SeededChoices
from specinfer.config import EngineConfig
from specinfer.draft.drafter import Drafter
from specinfer.draft.expansion import Expansion
from specinfer.draft.lookup import PromptLookup
from specinfer.draft.ngram import NGram
from specinfer.draft.pool import Pool
from specinfer.errors import (
    ContextLengthError,
    EngineDeadError,
    ModelFolderError,
    ParameterError,
)
from specinfer.fingerprint import fingerprint
from specinfer.llm import CausalLM, resolve_device
from specinfer.request import Request, Sink
from specinfer.sampling import SamplingParams
from specinfer.scheduler import Scheduler
from specinfer.speculate import Speculator
from specinfer.text import TextStream
from specinfer.tokenizer import Tokenizer, has_tokenizer
from specinfer.verify import draws_with_replacement


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
        llm = CausalLM.load(config.model, config.dtype, device)
        tokenizer = Tokenizer(config.model)
        speculator = Speculator(
            llm,
            llm.new_cache(tokens=config.cache_tokens, page_size=config.page_size),
            Pool(_drafters(config, llm, tokenizer)),
            config.verifier,
        )
        return cls(
            speculator,
            tokenizer,
            config,
            model_id=llm.name,
            revision=fingerprint(config.model, str(llm.dtype)),
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

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text)

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        return self._tokenizer.encode_chat(messages)

    def decode(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(tokens)

    def submit(self, prompt: Sequence[int], params: SamplingParams, sink: Sink) -> Handle:
        """Queue a prompt; `sink` gets its deltas from the engine's thread.

        Raises ParameterError, ContextLengthError, QueueFullError or EngineDeadError.
        """
        self._check_tokens(prompt)
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
        )
        with self._work:
            if self._failure is not None or not self.alive:
                raise EngineDeadError(self._failure or "the engine is closed")
            self._scheduler.add(request)
            self._work.notify()
        return Handle(request)

    def _check_tokens(self, prompt: Sequence[int]) -> None:
        """Refuse ids that the embedding has no row for: they would take the batch down."""
        if not prompt:
            raise ParameterError("prompt", "must not be empty")
        for token in (min(prompt), max(prompt)):
            if not 0 <= token < self._vocab:
                raise ParameterError(
                    "prompt", f"token {token} is outside the vocabulary of {self._vocab}"
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


def _drafters(config: EngineConfig, llm: CausalLM, tokenizer: Tokenizer) -> list[Drafter]:
    """Build the pool that the configuration asks for."""
    drafters: list[Drafter] = []
    for folder in config.ssms:
        ssm = CausalLM.load(folder, config.dtype, llm.device)
        _check_vocabulary(folder, ssm, llm, tokenizer)
        drafters.append(
            Expansion(
                ssm,
                config.tree,
                vocab=llm.vocab,
                tokens=config.cache_tokens + config.max_batch * config.tree.nodes,
                page_size=config.page_size,
                prefill_rows=config.prefill_rows,
                replacement=draws_with_replacement(config.verifier),
            )
        )
    if config.lookup:
        drafters.append(PromptLookup(depth=config.lookup_depth, nodes=config.lookup_nodes))
        drafters.append(NGram(depth=config.lookup_depth, nodes=config.lookup_nodes))
    return drafters


def _check_vocabulary(folder: Path, ssm: CausalLM, llm: CausalLM, tokenizer: Tokenizer) -> None:
    """Refuse an SSM whose token ids mean something else; padding and added tokens may differ."""
    if not has_tokenizer(folder):
        if ssm.vocab != llm.vocab:
            raise ModelFolderError(
                f"{folder}: {ssm.vocab} tokens to the LLM's {llm.vocab}, no tokenizer to compare"
            )
        return
    own, llms = Tokenizer(folder).vocabulary(), tokenizer.vocabulary()
    shared = own.keys() & llms.keys()
    if len(shared) < 0.9 * len(llms) or any(own[token] != llms[token] for token in shared):
        raise ModelFolderError(f"{folder}: its tokenizer is not the LLM's, which an SSM needs")
