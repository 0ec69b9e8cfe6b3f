"""A pass's inputs in one flat buffer: one copy brings them to the device.

The kernels' launch sizes depend on the frame's shape alone (paper, section 4.2), so a captured
CUDA graph serves every pass that fits its frame: what is left over is padding.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specinfer.transfer import aligned, staging
from specinfer.tree_attention import ForwardPlan
from specinfer_kernels import TreeBatch

WORD = 64  # ancestor bits in an int64
Field = tuple[str, int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class FrameShape:
    """How much room a frame has."""

    rows: int  # N
    segments: int  # B
    wanted: int  # R, rows whose logits are asked for
    pages: int  # P, of one segment
    longest: int  # rows of one segment
    span: int  # tokens of one segment, those in the cache included
    page_size: int
    padded: bool = False  # may have room to spare

    @classmethod
    def exactly(cls, plan: ForwardPlan) -> "FrameShape":
        """Return the shape that a plan fills."""
        return cls(
            rows=len(plan.tokens),
            segments=len(plan.contexts),
            wanted=len(plan.wanted),
            pages=max(map(len, plan.pages)),
            longest=plan.longest,
            span=plan.span,
            page_size=plan.cache.page_size,
        )

    def fields(self) -> list[Field]:
        """Return name, bytes an item and shape of every array of a frame."""
        return [
            ("tokens", 8, (self.rows,)),
            ("positions", 8, (self.rows,)),
            ("slots", 8, (self.rows,)),
            ("wanted", 8, (self.wanted,)),
            ("ancestors", 8, (self.rows, -(-self.longest // WORD))),
            ("places", 4, (self.rows,)),
            ("starts", 4, (self.segments + 1,)),
            ("contexts", 4, (self.segments,)),
            ("pages", 4, (self.segments, self.pages)),
        ]


@dataclass(frozen=True, slots=True)
class Frame:
    """What the model reads in one pass, on the device of the cache."""

    buffer: Tensor  # bytes; the others are views of it
    tokens: Tensor  # [N] int64
    positions: Tensor  # [N] int64, a row's place in its sequence: committed length + depth
    slots: Tensor  # [N] int64, where each row's keys and values go
    wanted: Tensor  # [R] int64, rows whose logits are asked for
    batch: TreeBatch

    @classmethod
    def over(cls, buffer: Tensor, shape: FrameShape) -> "Frame":
        """See a buffer of `frame_bytes(shape)` bytes as a frame."""
        views = _cut({8: buffer.view(torch.int64), 4: buffer.view(torch.int32)}, shape)
        batch = TreeBatch(
            starts=views["starts"],
            contexts=views["contexts"],
            pages=views["pages"],
            page_size=shape.page_size,
            ancestors=views["ancestors"],
            positions=views["places"],
            max_rows=shape.longest,
            max_total=shape.span,
            padded=shape.padded,
        )
        return cls(
            buffer, views["tokens"], views["positions"], views["slots"], views["wanted"], batch
        )


def frame_bytes(shape: FrameShape) -> int:
    """Return the size of a frame's buffer."""
    return sum(aligned(math.prod(size) * width) for _, width, size in shape.fields())


def pack(plan: ForwardPlan, shape: FrameShape) -> Tensor:
    """Lay a plan out as a frame of the given shape, in host memory fit for sending.

    Rows of padding belong to no segment and write to the cache's spare slot, which nobody reads.
    """
    host = staging(frame_bytes(shape), plan.cache.kv.device)
    whole = host.numpy()
    arrays = _cut({8: whole.view(np.int64), 4: whole.view(np.int32)}, shape)
    rows, segments = len(plan.tokens), len(plan.contexts)
    for name in ("tokens", "positions", "wanted", "contexts"):
        values = getattr(plan, name)
        arrays[name][: len(values)] = values
        arrays[name][len(values) :] = 0
    arrays["slots"][:rows], arrays["slots"][rows:] = plan.slots, plan.cache.spare_slot
    arrays["places"][:] = arrays["positions"]
    arrays["starts"][: segments + 1], arrays["starts"][segments:] = plan.starts, rows
    arrays["ancestors"][:] = 0
    arrays["ancestors"][:rows, : plan.ancestors.shape[1]] = plan.ancestors
    arrays["pages"][:] = 0
    for line, pages in zip(arrays["pages"], plan.pages, strict=False):
        line[: len(pages)] = pages
    return host


def _cut(views: dict[int, Any], shape: FrameShape) -> dict[str, Any]:
    """Return every array of a frame; its buffer, torch's or numpy's, as items of 8 and 4 bytes."""
    parts = {}
    start = 0
    for name, width, size in shape.fields():
        first, count = start // width, math.prod(size)
        part = views[width][first : first + count]
        parts[name] = part.reshape(size) if len(size) > 1 else part
        start += aligned(count * width)
    return parts
