"""commit_kv on a GPU: all layers in one launch."""

from torch import Tensor

from specinfer_kernels.commit_kv.kernel import move_columns
from specinfer_kernels.errors import KernelError

# How many entries a program holds, by how many columns of each: at most 8192 elements, which are
# 64 registers a thread.
BLOCKS = {16: 128, 64: 128, 256: 32, 1024: 8}


def move(kv: Tensor, source: Tensor, target: Tensor) -> None:
    """Do what commit_kv says, for arguments already checked."""
    layers, _, slots, kv_heads, head = kv.shape
    moved, width = len(source), kv_heads * head
    if moved == 0:
        return
    if not kv.is_contiguous():
        raise KernelError(f"the kernel wants a contiguous cache, not strides {kv.stride()}")
    block = next((block for block in BLOCKS if moved <= block), None)
    if block is None:
        raise KernelError(f"{moved} entries to move at once; the limit is {max(BLOCKS)}")
    columns = BLOCKS[block]
    grid = (-(-width // columns), layers * 2)
    blocks = {"MOVED_BLOCK": block, "COLUMNS": columns}
    move_columns[grid](kv, source, target, slots, moved, width, **blocks, enable_fp_fusion=True)
