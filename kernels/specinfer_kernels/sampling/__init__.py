"""Sampling on the device: warp whole batches of rows, draw tokens, verify trees (paper, 4.3).

Every function takes its random numbers as an argument, and nothing waits for a GPU.
"""

from typing import Protocol

import torch
from torch import Tensor

from specinfer_kernels.backend import choose_backend
from specinfer_kernels.errors import KernelError
from specinfer_kernels.sampling.arguments import RULES, Draws, Rule, Warp, require, require_rows

__all__ = ["Draws", "Rule", "Warp", "draw_tokens", "walk_trees", "warp_rows"]


def warp_rows(logits: Tensor, warp: Warp, *, backend: str | None = None) -> Tensor:
    """Return the laws of logits, both [N, V]; each sums to 1.

    Top-k on the logits, softmax at the temperature, top-p, min-p; of equals the lower ids stay.
    """
    require_rows("logits", logits)
    warp.check(logits)
    return _implementation(logits, backend).warp_rows(logits, warp)


def draw_tokens(
    laws: Tensor, uniforms: Tensor, *, replacement: bool = True, backend: str | None = None
) -> Tensor:
    """Return [N, K] int64: where each row's distribution function passes its uniform numbers.

    laws are [N, V] in proportion to probabilities, uniforms [N, K] float64 in [0, 1).  Without
    replacement the tokens drawn before are left out.  -1 where nothing is left to be drawn; never
    a token of probability 0.
    """
    require_rows("laws", laws)
    wanted = len(laws), uniforms.shape[-1]
    require("uniforms", uniforms, wanted, torch.float64, laws.device)
    return _implementation(laws, backend).draw_tokens(laws, uniforms, replacement)


def walk_trees(
    laws: Tensor, draws: Draws, uniforms: Tensor, *, rule: Rule, backend: str | None = None
) -> Tensor:
    """Verify B trees at once by the LLM's laws after their nodes, [N, V], warped.

    Returns [B, 3] int64: the last accepted node (0: none but the root), the token after it, and
    how many of the tree's uniforms [B, U] float64 were used: one a try (a draw is accepted where
    its number lies below its chance), then one for the last token, in the order of Algorithm 2
    (paper) or of traversal verification (arXiv 2505.12398).  A tree of d draws uses d + 2 at most.
    """
    require_rows("laws", laws)
    draws.check(laws)
    wanted = draws.trees, uniforms.shape[-1]
    require("uniforms", uniforms, wanted, torch.float64, laws.device)
    if rule not in RULES:
        raise KernelError(f"rule is {rule!r}; choose from {', '.join(RULES)}")
    return _implementation(laws, backend).walk_trees(laws, draws, uniforms, rule)


class _Implementation(Protocol):
    """A module that does it, for arguments already checked."""

    def warp_rows(self, logits: Tensor, warp: Warp) -> Tensor: ...

    def draw_tokens(self, laws: Tensor, uniforms: Tensor, replacement: bool) -> Tensor: ...

    def walk_trees(self, laws: Tensor, draws: Draws, uniforms: Tensor, rule: Rule) -> Tensor: ...


def _implementation(rows: Tensor, backend: str | None) -> _Implementation:
    if choose_backend(rows.device, backend) == "triton":
        from specinfer_kernels.sampling import triton

        return triton
    from specinfer_kernels.sampling import reference

    return reference
