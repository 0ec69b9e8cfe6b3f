"""From what `--ssm` names to folders of SSMs: a pool's members, a shipped pool, a known model."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from specinfer.model_store import catalogue
from specinfer.model_store.store import resolve_model

NONE = "none"
VARIABLE = "SPECINFER_SSMS"


def resolve_ssms(names: Sequence[str | Path], model: str | Path | None = None) -> tuple[Path, ...]:
    """Return the folders of the SSMs meant; a folder wins over a shipped pool, that over a model.

    Where none is named, those shipped for a model asked for by its name; `none` keeps them away.
    Raises ModelStoreError or ModelFolderError.
    """
    from specinfer.ssm import pool_members, shipped_pool  # brings torch

    if [str(name) for name in names] == [NONE]:
        return ()
    if not names and model is not None:
        names = _shipped(str(model))
    found: list[Path] = []
    for name in names:
        folder = Path(name).expanduser()
        pool = folder if folder.is_dir() else shipped_pool(str(name))
        if pool is None:
            found.append(resolve_model(name, tokenizer=False))
        else:
            found += pool_members(pool)
    return tuple(found)


def ssms_to_serve(
    names: Sequence[str | Path], model: str, environ: Mapping[str, str]
) -> tuple[Path, ...] | None:
    """Return the SSMs that a command line asks for; None where the environment is to say it."""
    if not names and VARIABLE in environ:
        return None
    return resolve_ssms(names, model)


def _shipped(model: str) -> list[str]:
    """Return the name of the pool that comes with the package for a known model's name, if any."""
    from specinfer.ssm import shipped_pool

    known = catalogue.find(model, catalogue.CATALOGUE)
    if known is None or Path(model).expanduser().is_dir() or shipped_pool(known.name) is None:
        return []
    return [known.name]
