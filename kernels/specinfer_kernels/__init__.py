"""Kernels of tree-based speculative decoding: tensors in, tensors out (paper, section 4).

Shape letters: B requests, N rows in the batch (tree nodes, or the tokens of a prefill chunk),
H query heads, K key/value heads, D head width, S cache slots, P pages of a block table,
W ancestor words, L layers, M moved cache entries, V vocabulary.

Importing the package needs torch alone; Triton is imported by the first plan that wants it.
"""

from specinfer_kernels.backend import by_head, samples_together
from specinfer_kernels.commit_kv import commit_kv
from specinfer_kernels.errors import KernelError
from specinfer_kernels.sampling import Draws, Rule, Warp, draw_tokens, walk_trees, warp_rows
from specinfer_kernels.tree_attention import (
    AttentionPlan,
    TreeBatch,
    plan_attention,
    tree_attention,
)

__all__ = [
    "AttentionPlan",
    "Draws",
    "KernelError",
    "Rule",
    "TreeBatch",
    "Warp",
    "by_head",
    "commit_kv",
    "draw_tokens",
    "plan_attention",
    "samples_together",
    "tree_attention",
    "walk_trees",
    "warp_rows",
]
