"""The engine as the server offers it: token ids that callers name are of the vocabulary."""

from collections.abc import Sequence

from specinfer.engine import Engine, Handle
from specinfer.errors import ParameterError
from specinfer.request import SamplingParams, Sink


class ServedEngine(Engine):
    """Refuses what would fail inside a step, where one request's fault ends the whole batch."""

    def submit(self, prompt: Sequence[int], params: SamplingParams, sink: Sink) -> Handle:
        """Queue a prompt; raises what Engine.submit raises."""
        for field, tokens in (
            ("logit_bias", params.logit_bias),
            ("stop_token_ids", params.stop_token_ids),
        ):
            for token in tokens:
                if not 0 <= token < self._vocab:
                    problem = f"token {token} is outside the vocabulary of {self._vocab}"
                    raise ParameterError(field, problem)
        return super().submit(prompt, params, sink)
