"""A model folder's tokenizer: text and chats to token ids and back, and which ids end an answer."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerFast

from specinfer.errors import ModelFolderError, ParameterError

PLAIN = ("TokenizersBackend", "PreTrainedTokenizerFast")  # one class, by its new and its old name


class Tokenizer:
    """transformers' tokenizer behind the five things the engine asks of it."""

    def __init__(self, folder: Path) -> None:
        """Load from a model folder; raises ModelFolderError."""
        try:
            kind: Any = PreTrainedTokenizerFast if _is_plain(folder) else AutoTokenizer
            self._inner: Any = kind.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            raise ModelFolderError(f"{folder}: no usable tokenizer") from error
        self._backend: Any = _plain_backend(self._inner)
        self._pieces: dict[int, str] = {}  # texts of single tokens, which every other call is for
        self.eos = frozenset(_end_ids(folder)) or frozenset(
            token for token in [self._inner.eos_token_id] if token is not None
        )

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._inner.encode(text)
        return ids

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Render the model's chat template up to where the assistant is to speak.

        Raises ParameterError when the model has no template or the template refuses the roles.
        """
        if not self._inner.chat_template:
            raise ParameterError("messages", "this model has no chat template; send a prompt")
        try:
            text: str = self._inner.apply_chat_template(
                [dict(message) for message in messages], add_generation_prompt=True, tokenize=False
            )
        except Exception as error:  # a template is a program of the model's; any error is its "no"
            raise ParameterError("messages", f"the chat template refused them: {error}") from error
        ids: list[int] = self._inner.encode(text, add_special_tokens=False)
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        if len(tokens) != 1:
            return self._decoded(tokens)
        piece = self._pieces.get(tokens[0])
        if piece is None:
            piece = self._pieces[tokens[0]] = self._decoded(tokens)
        return piece

    def _decoded(self, tokens: Sequence[int]) -> str:
        if self._backend is not None:
            whole: str = self._backend.decode(list(tokens), skip_special_tokens=True)
            return whole
        text: str = self._inner.decode(
            list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def definition(self) -> str:
        """Return the whole tokenizer in the JSON of `tokenizers`; raises ValueError without one.

        What it would do to batches of texts is left out.
        """
        backend = getattr(self._inner, "backend_tokenizer", None)
        if backend is None:
            raise ValueError("it is not one of the tokenizers library")
        document = json.loads(backend.to_str())
        return json.dumps(document | {"padding": None, "truncation": None})

    def vocabulary(self) -> dict[str, int]:
        vocabulary: dict[str, int] = self._inner.get_vocab()
        return vocabulary


def _is_plain(folder: Path) -> bool:
    """Tell whether a folder says that its tokenizer.json is all there is.

    Then AutoTokenizer would find no other class, but read config.json by those of transformers,
    which import 60 MB.
    """
    settings = folder / "tokenizer_config.json"
    if not (settings.is_file() and (folder / "tokenizer.json").is_file()):
        return False
    found = json.loads(settings.read_text())
    return "auto_map" not in found and found.get("tokenizer_class") in PLAIN


def _plain_backend(inner: Any) -> Any:
    """Return the tokenizer of the tokenizers library, if all that decodes: it takes half the time.

    Decoding is done twice a token.
    """
    kind, plain = type(inner), PreTrainedTokenizerFast
    if not isinstance(inner, plain) or (kind.decode, kind._decode) != (plain.decode, plain._decode):
        return None
    return inner.backend_tokenizer


def _end_ids(folder: Path) -> set[int]:
    """Return the end-of-sequence ids that the folder's own settings name."""
    ids: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        value = json.loads(path.read_text()).get("eos_token_id") if path.is_file() else None
        ids.update([value] if isinstance(value, int) else value or [])
    return ids


def has_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json"))
