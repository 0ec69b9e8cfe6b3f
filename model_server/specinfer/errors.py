"""Everything the engine refuses: one class a reason, each message naming value and limit."""


class SpecInferError(Exception):
    """An expected failure, told in one sentence that a user can act on."""


class ConfigError(SpecInferError):
    """The engine cannot be built as configured."""


class ModelFolderError(SpecInferError):
    """A model folder is missing, incomplete, or does not fit the LLM it is to speculate for."""


class ParameterError(SpecInferError):
    """A request parameter is out of range."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class ContextLengthError(SpecInferError):
    """A prompt leaves no room for a single new token."""

    def __init__(self, prompt_tokens: int, limit: int) -> None:
        super().__init__(
            f"the prompt has {prompt_tokens} tokens; the model's context holds {limit} "
            "with at least one of them to be generated"
        )
        self.prompt_tokens = prompt_tokens
        self.limit = limit


class QueueFullError(SpecInferError):
    """The engine already holds as many waiting requests as it may."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} requests are already waiting")
        self.limit = limit


class EngineDeadError(SpecInferError):
    """The engine's worker thread has ended; the process should be replaced."""


def first_line(error: Exception) -> str:
    """Return the first line of what an error says; of one that says nothing, what it is."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
