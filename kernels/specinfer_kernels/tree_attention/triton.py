"""Tree attention on a GPU: launches the kernels, without ever waiting for the device."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from specinfer_kernels.errors import KernelError
from specinfer_kernels.tree_attention.batch import TreeBatch
from specinfer_kernels.tree_attention.kernel import attend_tile, combine_splits
from specinfer_kernels.tree_attention.launch import (
    COMBINED_AT_ONCE,
    FP_FUSION,
    MAX_SPLITS,
    Launch,
    launch_of,
    padded,
)
from specinfer_kernels.tree_attention.plan import check

STACKED = ((8, 0), (9, 0), (10, 0))  # compute capabilities of cards with HBM


@dataclass(frozen=True, slots=True)
class TritonPlan:
    """One step; launches of one stream may share its scratch, since they run one by one."""

    batch: TreeBatch
    dtype: torch.dtype
    multiprocessors: int
    stacked: bool = False  # memory: HBM, not GDDR
    scratch: dict[tuple[int, ...], tuple[Tensor, Tensor]] = field(default_factory=dict)

    @classmethod
    def of(cls, batch: TreeBatch, dtype: torch.dtype) -> "TritonPlan":
        if batch.page_size & (batch.page_size - 1):
            raise KernelError(f"page_size is {batch.page_size}; the kernel wants a power of two")
        if batch.device.type != "cuda":
            return cls(batch, dtype, multiprocessors=1)
        card = torch.cuda.get_device_properties(batch.device)
        stacked = (card.major, card.minor) in STACKED
        return cls(batch, dtype, card.multi_processor_count, stacked)

    def attend(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        scale: float,
        softcap: float | None,
        window: int | None,
    ) -> Tensor:
        check(self, query, keys, values, softcap, window)
        query = query.contiguous()
        for pool in (keys, values):
            if not pool.is_contiguous():
                raise KernelError(f"the kernel wants contiguous pools, not strides {pool.stride()}")
        launch = self._launch(query, keys, window)
        out = torch.zeros_like(query) if self.batch.padded else torch.empty_like(query)
        splits = launch.splits.count
        partial, lse = (out, out) if splits == 1 else self._scratch(query, splits)
        attend_tile[launch.grid](
            query,
            keys,
            values,
            partial,
            lse,
            self.batch.starts,
            self.batch.contexts,
            self.batch.pages,
            self.batch.ancestors,
            self.batch.positions,
            keys.shape[1],
            self.batch.pages.shape[1],
            self.batch.ancestors.shape[1],
            launch.splits.keys,
            splits,
            window or 0,
            scale,
            softcap or 0.0,
            PAGE_SIZE=self.batch.page_size,
            SPLIT=splits > 1,
            HAS_WINDOW=window is not None,
            HAS_CAP=softcap is not None,
            **launch.options(),
        )
        if splits > 1:
            rows, heads, width = query.shape
            combine_splits[(rows * heads,)](
                partial,
                lse,
                out,
                splits,
                D=width,
                D_BLOCK=padded(width),
                MAX_SPLITS=MAX_SPLITS,
                AT_ONCE=COMBINED_AT_ONCE,
                num_warps=1,  # a row is 32 vectors: more warps only wait for each other
                enable_fp_fusion=FP_FUSION,
            )
        return out

    def _launch(self, query: Tensor, keys: Tensor, window: int | None) -> Launch:
        return launch_of(
            self.batch,
            self.dtype,
            self.multiprocessors,
            heads=query.shape[1],
            kv_heads=keys.shape[1],
            width=query.shape[2],
            window=window,
            stacked=self.stacked,
        )

    def _scratch(self, query: Tensor, splits: int) -> tuple[Tensor, Tensor]:
        rows, heads, width = query.shape
        shape = rows, heads, splits, width
        if shape not in self.scratch:
            partial = query.new_empty(shape, dtype=torch.float32)
            # Rows of padding weigh nothing: no program ever writes theirs.
            self.scratch[shape] = partial, partial.new_full(shape[:-1], -torch.inf)
        return self.scratch[shape]
