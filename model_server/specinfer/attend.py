"""Our attention as transformers calls it: plan and cache are keyword arguments of the model."""

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specinfer.kv_cache import KVCache
from specinfer_kernels import AttentionPlan, tree_attention


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    *,
    step: "Pass",
    **_: Any,
) -> tuple[Tensor, None]:
    """Write the rows' keys and values into the cache and let every row see what it may.

    query [1, H, N, D]; key, value [1, K, N, D]; returns [1, N, H, D].
    """
    assert s_aux is None, "attention sinks are refused when the model is loaded"
    keys, values = step.cache.layer(int(module.layer_idx))  # type: ignore[arg-type]
    keys.index_copy_(0, step.slots, key[0].transpose(0, 1))
    values.index_copy_(0, step.slots, value[0].transpose(0, 1))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    rows = tree_attention(
        query[0].transpose(0, 1),
        keys,
        values,
        step.attention,
        scale=scale,
        softcap=softcap,
        window=sliding_window,
    )
    return rows[None], None


@dataclass(frozen=True, slots=True)
class Pass:
    """What every layer needs of a pass beside its rows."""

    slots: Tensor  # [N] int64, where each row's keys and values go
    attention: AttentionPlan
    cache: KVCache


@functools.cache
def tree_attention_name() -> str:
    """Register our attention with transformers; return the name by which models ask for it."""
    from transformers import AttentionInterface

    AttentionInterface.register(name := "specinfer_tree", attend)
    return name
