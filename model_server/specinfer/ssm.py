"""SSMs that lean on their LLM: they borrow its embedding and head, and know few of its tokens.

Such a folder (made by `specinfer train`) holds only what was learnt: layers as int8 rows with a
scale each, and the draft vocabulary, the ids of the LLM's tokens that the SSM can propose.  Its
file specinfer.json says so.  Any other folder is a model of its own with the LLM's tokenizer.
"""

import functools
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PretrainedConfig

from specinfer.config import EngineConfig
from specinfer.errors import ModelFolderError
from specinfer.lean import LeanLM, load_llm
from specinfer.lean.linear import Int8, MakeLinear, dense
from specinfer.lean.llm import native_library
from specinfer.lean.load import build_decoder
from specinfer.lean.native import GROUP, Block, Library, NativeDecoder, Packed
from specinfer.lean.quantize import quantize
from specinfer.lean.weights import Checkpoint
from specinfer.llm import CausalLM, read_config, tree_attention_name

log = logging.getLogger(__name__)

FILE = "specinfer.json"
WEIGHTS = "ssm.safetensors"
FORMAT = 1
INT8, SCALE = ".int8", ".scale"
PROBE = 8  # embedding rows kept to recognise the LLM by
HEAD = "lm_head.weight"
POOLS = Path(__file__).parent / "pools"


@dataclass(frozen=True, slots=True)
class SSM:
    """A drafting model; its logits are over vocabulary [D], ascending LLM ids, or all tokens."""

    model: CausalLM
    vocabulary: Tensor | None


def is_borrowing(folder: Path) -> bool:
    return (folder / WEIGHTS).is_file()


def shipped_pool(llm: str) -> Path | None:
    """Return the folder of the pool that comes with this package for an LLM by name, if any."""
    folder = POOLS / llm
    return folder if (folder / FILE).is_file() else None


def pool_members(folder: Path) -> tuple[Path, ...]:
    """Return the SSMs of a pool's folder, or the folder itself where it is one SSM.

    Raises ModelFolderError for a pool that names none, or one that is not there.
    """
    path = folder / FILE
    settings = _settings(path) if path.is_file() else {}
    if settings.get("role") != "pool":
        return (folder,)
    names = settings.get("ssms")
    if not isinstance(names, list) or not names:
        raise ModelFolderError(f"{path}: a pool names its folders in `ssms`")
    members = tuple(folder / str(name) for name in names)
    for member in members:
        if not is_borrowing(member) and not (member / "config.json").is_file():
            raise ModelFolderError(f"{path}: there is no SSM in {member}")
    return members


def load_ssm(folder: Path, llm: CausalLM, engine: EngineConfig) -> SSM:
    """Load an SSM for the LLM of an engine; raises ModelFolderError for one of another LLM."""
    if not is_borrowing(folder):
        return SSM(load_llm(folder, engine.dtype, llm.device, engine.quantization), None)
    _check_settings(folder)
    learnt = _read(folder / WEIGHTS)
    vocabulary = learnt.pop("vocabulary").long()
    lent = Checkpoint(engine.model)
    name = next(name for name in lent.names() if name.endswith("embed_tokens.weight"))
    _check_llm(folder, llm, lent[name], learnt.pop("llm_rows"), vocabulary)
    weights = Lent(restored(learnt))
    weights[name] = lent[name]
    weights[HEAD] = (lent[name] if llm.config.tie_word_embeddings else lent[HEAD])[vocabulary]
    config: Any = read_config(folder)
    config.tie_word_embeddings = False
    model = _build(folder, config, weights, llm, engine)
    return SSM(model, vocabulary.to(llm.device))


class Lent(dict[str, Tensor]):
    """The learnt and the borrowed tensors by name, as if they were one checkpoint."""

    def find(self, name: str) -> Tensor | None:
        return self.get(name)


def _build(
    folder: Path, config: PretrainedConfig, weights: Lent, llm: CausalLM, engine: EngineConfig
) -> CausalLM:
    """Build the SSM for decoder.c where it runs, whatever the LLM is: int8 is how it is stored."""
    try:
        if llm.device.type == "cpu":
            library, reason = native_library(config)
            if library is not None:
                return _native(folder, config, weights, library)
            log.warning("%s: drafts without decoder.c, which is slower: %s", folder, reason)
        build = _lean if isinstance(llm, LeanLM) else _by_transformers
        return build(folder, config, weights, llm, engine)
    except (KeyError, RuntimeError) as error:
        raise ModelFolderError(f"{folder}: weights and config.json disagree: {error}") from error


def _native(folder: Path, config: PretrainedConfig, weights: Lent, library: Library) -> CausalLM:
    room = sum((len(w) + GROUP) * w.shape[1] for w in weights.values() if w.ndim == 2)
    make = functools.partial(Packed, block=Block(room))
    decoder = build_decoder(weights, config, torch.float32, make)
    return LeanLM(NativeDecoder(decoder, library), config, folder.name)


def _lean(
    folder: Path, config: PretrainedConfig, weights: Lent, llm: CausalLM, engine: EngineConfig
) -> CausalLM:
    make: MakeLinear = functools.partial(dense, dtype=llm.dtype)
    if engine.quantization == "int8":
        make = Int8
    return LeanLM(build_decoder(weights, config, llm.dtype, make), config, folder.name)


def _by_transformers(
    folder: Path, config: Any, weights: Lent, llm: CausalLM, engine: EngineConfig
) -> CausalLM:
    from transformers import AutoModelForCausalLM

    embedding = llm.model.get_input_embeddings()  # type: ignore[operator]
    config.vocab_size, config.pad_token_id = len(weights[HEAD]), None
    auto: Any = AutoModelForCausalLM
    model = auto.from_config(config, attn_implementation=tree_attention_name(), dtype=llm.dtype)
    model.set_input_embeddings(embedding)
    model.load_state_dict(weights)
    if engine.quantization not in ("none", "auto"):  # auto: no such class has decoder.c's speed
        quantize(model, engine.quantization, llm.device)
    return CausalLM(model.to(llm.device), folder.name)


def save_ssm(
    folder: Path,
    config: Any,
    learnt: Mapping[str, Tensor],
    vocabulary: Tensor,
    embedding: Tensor,
    about: Mapping[str, object],
) -> None:
    """Write a borrowing SSM: what it has learnt, by the names in its checkpoint.

    embedding [V, H] is the LLM's; `about` goes into specinfer.json beside what loading needs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(folder)
    stored = compact(learnt)
    stored["vocabulary"] = vocabulary.to(torch.int32).cpu()
    stored["llm_rows"] = _probe(embedding)
    save_file(stored, folder / WEIGHTS)
    settings = {"format": FORMAT, "role": "ssm", "borrows": ["embedding", "head"], **about}
    (folder / FILE).write_text(json.dumps(settings, indent=2) + "\n")


def compact(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Round matrices to int8 rows with one scale each; vectors stay as they are."""
    stored: dict[str, Tensor] = {}
    for name, value in weights.items():
        value = value.detach().float().cpu()
        if value.ndim != 2:
            stored[name] = value.contiguous()
            continue
        scale = value.abs().amax(1).clamp(min=1e-12) / 127
        stored[name + INT8] = (value / scale[:, None]).round().to(torch.int8)
        stored[name + SCALE] = scale
    return stored


def restored(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Undo compact, up to its rounding."""
    weights = {name: value for name, value in stored.items() if not name.endswith((INT8, SCALE))}
    for name, value in stored.items():
        if name.endswith(INT8):
            plain = name.removesuffix(INT8)
            weights[plain] = value.float() * stored[plain + SCALE][:, None]
    return weights


def _probe(embedding: Tensor) -> Tensor:
    """Return a few rows of an embedding [V, H], spread over its vocabulary."""
    rows = torch.linspace(0, len(embedding) - 1, PROBE).long()
    return embedding.detach()[rows.to(embedding.device)].float().cpu().contiguous()


def _settings(path: Path) -> dict[str, Any]:
    """Read a specinfer.json of an SSM or a pool."""
    try:
        settings = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelFolderError(f"{path}: cannot be read: {error}") from error
    if not isinstance(settings, dict):
        raise ModelFolderError(f"{path}: not a JSON object")
    return settings


def _check_settings(folder: Path) -> None:
    path = folder / FILE
    settings = _settings(path)
    if settings.get("format") != FORMAT:
        raise ModelFolderError(f"{path}: not of format {FORMAT}, which this version reads")
    if settings.get("role") != "ssm":
        raise ModelFolderError(f"{path}: its role is {settings.get('role')!r}, not 'ssm'")


def _read(path: Path) -> dict[str, Tensor]:
    try:
        weights = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelFolderError(f"{path}: cannot be read: {error}") from error
    if missing := {"vocabulary", "llm_rows"} - weights.keys():
        raise ModelFolderError(f"{path}: it lacks {sorted(missing)}")
    return weights


def _check_llm(
    folder: Path, llm: CausalLM, embedding: Tensor, rows: Tensor, vocabulary: Tensor
) -> None:
    """Refuse an SSM made for another LLM, whose embedding would mean something else."""
    own = _probe(embedding)
    if own.shape != rows.shape or not torch.allclose(own, rows, rtol=0.02, atol=1e-3):
        raise ModelFolderError(f"{folder}: made for another LLM than {llm.name}")
    ascending = bool((vocabulary.diff() > 0).all()) and len(vocabulary) > 0
    if not ascending or int(vocabulary[0]) < 0 or int(vocabulary[-1]) >= llm.vocab:
        raise ModelFolderError(f"{folder}: its vocabulary is not ascending ids of {llm.name}")
