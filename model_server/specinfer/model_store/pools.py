"""From what `--ssm` names to folders of SSMs: a pool's members, a shipped pool, a known model."""

from collections.abc import Iterable
from pathlib import Path

from specinfer.model_store.store import resolve_model


def resolve_ssms(names: Iterable[str | Path]) -> tuple[Path, ...]:
    """Return the folders of the SSMs meant; a folder wins over a shipped pool, that over a model.

    Raises ModelStoreError or ModelFolderError.
    """
    from specinfer.ssm import pool_members, shipped_pool  # brings torch

    found: list[Path] = []
    for name in names:
        folder = Path(name).expanduser()
        pool = folder if folder.is_dir() else shipped_pool(str(name))
        if pool is None:
            found.append(resolve_model(name, tokenizer=False))
        else:
            found += pool_members(pool)
    return tuple(found)
