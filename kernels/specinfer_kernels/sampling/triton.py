"""Sampling on a GPU: launches the kernels, without ever waiting for the device."""

from dataclasses import dataclass

import torch
from torch import Tensor

from specinfer_kernels.errors import KernelError
from specinfer_kernels.sampling.arguments import COLDEST, Draws, Rule, Warp
from specinfer_kernels.sampling.draw_kernel import draw_row
from specinfer_kernels.sampling.walk_kernel import multi_step, traversal
from specinfer_kernels.sampling.warp_kernel import warp_row


@dataclass(frozen=True, slots=True)
class Shape:
    """How a program goes through a row: `block` tokens at a time, `blocks` times at most."""

    block: int
    blocks: int

    def check(self, rows: Tensor) -> None:
        limit = self.block * self.blocks
        if rows.dtype != torch.float32:
            raise KernelError(f"the triton backend samples from float32, not {rows.dtype}")
        if rows.shape[1] > limit:
            raise KernelError(f"a vocabulary of {rows.shape[1]}; the kernels' limit is {limit}")


# The largest that spill nothing, compiled by Triton 3.6 and 3.9 for sm_80 to sm_90: the more is on
# its way from memory at once, the less is waited for.
WARP, DRAW, WALK = Shape(2048, 256), Shape(2048, 256), Shape(4096, 128)
CUTS = 8  # of a search, weighed at once
# 16 warps of 128 registers a thread fill a multiprocessor; ptxas by itself stops at 64, and spills.
OPTIONS = {"num_warps": 16, "maxnreg": 128, "enable_fp_fusion": True}


def warp_rows(logits: Tensor, warp: Warp, shape: Shape = WARP) -> Tensor:
    """Do what the package's warp_rows says."""
    shape.check(logits)
    laws = torch.empty_like(logits)
    if len(logits):
        warp_row[(len(logits),)](
            logits,
            laws,
            warp.temperature,
            warp.top_k,
            warp.top_p,
            warp.min_p,
            logits.shape[1],
            COLDEST=COLDEST,
            CUTS=CUTS,
            BLOCK=shape.block,
            **OPTIONS,
        )
    return laws


def draw_tokens(laws: Tensor, uniforms: Tensor, replacement: bool, shape: Shape = DRAW) -> Tensor:
    """Do what the package's draw_tokens says."""
    shape.check(laws)
    tokens = torch.empty(uniforms.shape, dtype=torch.int64, device=laws.device)
    if tokens.numel():
        draw_row[(len(laws),)](
            laws,
            uniforms,
            tokens,
            laws.shape[1],
            uniforms.shape[1],
            REPLACEMENT=replacement,
            BLOCKS=shape.blocks,
            BLOCK=shape.block,
            **OPTIONS,
        )
    return tokens


def walk_trees(
    laws: Tensor, draws: Draws, uniforms: Tensor, rule: Rule, shape: Shape = WALK
) -> Tensor:
    """Do what the package's walk_trees says."""
    shape.check(laws)
    verdicts = torch.empty(draws.trees, 3, dtype=torch.int64, device=laws.device)
    count = len(draws.tokens)
    places = [proposal.data_ptr() for proposal in draws.proposals]
    aligned = laws.shape[1] % 16 == 0 and all(place % 16 == 0 for place in places)
    walk = multi_step if rule == "multi_step" else traversal
    if draws.trees:
        walk[(draws.trees,)](
            verdicts,
            laws,
            draws.starts,
            draws.roots,
            draws.children,
            draws.tokens,
            draws.proposal,
            _sent(places, laws.device),
            draws.without,
            draws.below,
            draws.following,
            draws.above,
            uniforms,
            laws.new_empty(count),
            laws.new_empty(count),
            uniforms.new_empty(count, 2),
            laws.shape[1],
            draws.without.shape[1],
            uniforms.shape[1],
            ALIGNED=aligned,
            BLOCKS=shape.blocks,
            BLOCK=shape.block,
            **OPTIONS,
        )
    return verdicts


def _sent(addresses: list[int], device: torch.device) -> Tensor:
    """Return int64 numbers on the device.

    They may be those of tensors that are let go behind the launch: their memory is given out again
    only to later work of the same stream.
    """
    host = torch.tensor(addresses, dtype=torch.int64, pin_memory=device.type == "cuda")
    return host.to(device, non_blocking=True)
