"""An SSM's folder on disk, and a pool's: what was learnt, and for which LLM.

Such a folder (made by `specinfer train`) holds only what was learnt: matrices as int8 rows with a
scale each, and the draft vocabulary, the ids of the LLM's tokens that the SSM can propose.  Its
file specinfer.json says so, and of which kind it is.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from specinfer.errors import ModelFolderError

FILE = "specinfer.json"
WEIGHTS = "ssm.safetensors"
FORMAT = 1
INT8, SCALE = ".int8", ".scale"
PROBE = 8  # embedding rows kept to recognise the LLM by
POOLS = Path(__file__).parents[1] / "pools"
KINDS = ("layers", "recurrent")


def is_borrowing(folder: Path) -> bool:
    return (folder / WEIGHTS).is_file()


def is_recurrent(folder: Path) -> bool:
    """Tell whether an SSM begins at the LLM's state; raises ModelFolderError."""
    return is_borrowing(folder) and read_settings(folder)["kind"] == "recurrent"


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
    _save(folder, learnt, vocabulary, embedding, {"borrows": ["embedding", "head"], **about})
    config.save_pretrained(folder)


def save_recurrent(
    folder: Path,
    learnt: Mapping[str, Tensor],
    vocabulary: Tensor,
    embedding: Tensor,
    eps: float,
    about: Mapping[str, object],
) -> None:
    """Write a recurrent SSM: what it has learnt, by the names of lean/recurrent.py.

    eps is that of the LLM's norms; the rest is as for save_ssm.
    """
    kind = {"kind": "recurrent", "borrows": ["embedding", "head", "state"], "rms_norm_eps": eps}
    _save(folder, learnt, vocabulary, embedding, {**kind, **about})


def _save(
    folder: Path,
    learnt: Mapping[str, Tensor],
    vocabulary: Tensor,
    embedding: Tensor,
    settings: Mapping[str, object],
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    stored = compact(learnt)
    stored["vocabulary"] = vocabulary.to(torch.int32).cpu()
    stored["llm_rows"] = probe(embedding)
    save_file(stored, folder / WEIGHTS)
    written = {"format": FORMAT, "role": "ssm", **settings}
    (folder / FILE).write_text(json.dumps(written, indent=2) + "\n")


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


def probe(embedding: Tensor) -> Tensor:
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


def read_settings(folder: Path) -> dict[str, Any]:
    """Read what a borrowing SSM's folder says of it, its kind included; raises ModelFolderError."""
    path = folder / FILE
    settings = {"kind": "layers", **_settings(path)}
    if settings.get("format") != FORMAT:
        raise ModelFolderError(f"{path}: not of format {FORMAT}, which this version reads")
    if settings.get("role") != "ssm":
        raise ModelFolderError(f"{path}: its role is {settings.get('role')!r}, not 'ssm'")
    if settings["kind"] not in KINDS:
        raise ModelFolderError(f"{path}: its kind is {settings['kind']!r}, not one of {KINDS}")
    return settings


def read_weights(path: Path) -> dict[str, Tensor]:
    try:
        weights = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelFolderError(f"{path}: cannot be read: {error}") from error
    if missing := {"vocabulary", "llm_rows"} - weights.keys():
        raise ModelFolderError(f"{path}: it lacks {sorted(missing)}")
    return weights
