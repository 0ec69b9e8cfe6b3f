"""The three request bodies of the REST API, with the bounds that hold whatever the settings."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Stop = Annotated[str, Field(min_length=1, max_length=256)]
Stops = Annotated[list[Stop], Field(max_length=4)]
Tokens = Annotated[int, Field(ge=1)]
Temperature = Annotated[float, Field(ge=0, le=100)]
TopK = Annotated[int, Field(ge=-1)]
TopP = Annotated[float, Field(gt=0, le=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Text = Annotated[str, Field(min_length=1)]
Form = dict[str, Any]  # what the answer must match; the container judges it
TokenIds = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]


class Body(BaseModel):
    """Exact JSON types; unknown keys travel on to the container, which judges them."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, allow_inf_nan=False)


class TextPart(Body):
    """A piece of a message."""

    type: Literal["text"]
    text: str


class Message(Body):
    """One turn of the conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]


class StreamOptions(Body):
    """What a stream carries besides the text."""

    include_usage: bool | None = None


class OpenAiRequest(Body):
    """What chat and completions share."""

    model: str | None = None
    max_tokens: Tokens | None = None
    temperature: Temperature | None = None
    top_k: TopK | None = None
    top_p: TopP | None = None
    seed: Seed | None = None
    stop: Stop | Stops | None = None
    n: Literal[1] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    response_format: Form | None = None
    structured_outputs: Form | None = None
    guided_json: Form | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None


class ChatRequest(OpenAiRequest):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Tokens | None = None


class CompletionRequest(OpenAiRequest):
    """POST /v1/completions."""

    prompt: Text | Annotated[list[Text], Field(min_length=1, max_length=1)] | TokenIds


class GenerateParameters(Body):
    """The `parameters` of /generate, named as text-generation-inference names them."""

    max_new_tokens: Tokens | None = None
    do_sample: bool | None = None
    temperature: Temperature | None = None
    top_k: TopK | None = None
    top_p: TopP | None = None
    seed: Seed | None = None
    stop: Stops | None = None
    stop_sequences: Stops | None = None
    grammar: Form | None = None


class GenerateRequest(Body):
    """POST /generate."""

    inputs: Text
    parameters: GenerateParameters | None = None
    stream: bool | None = None
