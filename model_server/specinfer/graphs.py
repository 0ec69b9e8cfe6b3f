"""CUDA graphs: a pass captured once for a bucket of shapes and replayed for all that fit it.

A pass over few rows takes a GPU less time than the host needs to launch its hundreds of kernels
one by one; a replay is one launch.  Everything but the capture itself is host logic, so tests
put a backend in its place that runs the same pass eagerly on the same buffers.
"""

import logging
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from specinfer.frame import Frame, FrameShape, frame_bytes, pack
from specinfer.kv_cache import KVCache
from specinfer.tree_attention import ForwardPlan

log = logging.getLogger(__name__)

Run = Callable[[], None]
Capture = Callable[[Run], Run]  # takes a pass and returns its replay

# Rows of padding are computed as well, so the steps are small where a pass is still short.
ROWS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
STEP = 4  # between sizes of which too much costs little: programs without rows end at once
FIRST_SPAN = 1024  # tokens
MOST = 96  # graphs at a time: those of a 7B model take some MiB of the driver each


class Model(Protocol):
    """What is captured."""

    @property
    def vocab(self) -> int: ...

    def run(self, frame: Frame, cache: KVCache) -> Tensor:
        """Return the logits of a frame's wanted rows, [R, V], never waiting for a GPU."""

    def run_with_states(self, frame: Frame, cache: KVCache) -> tuple[Tensor, Tensor]:
        """Return the rows [R, H] that the head multiplied as well."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """The shapes that are captured, each dimension a rising ladder."""

    rows: Sequence[int]
    segments: Sequence[int]
    pages: Sequence[int]  # of one segment
    page_size: int

    @classmethod
    def up_to(cls, *, segments: int, pages: int, page_size: int) -> "Buckets":
        """Serve batches of so many segments, each of so many pages."""
        first = max(1, FIRST_SPAN // page_size)
        return cls(ROWS, _ladder(1, segments), _ladder(first, pages), page_size)

    def fit(self, plan: ForwardPlan) -> FrameShape | None:
        """Return the smallest bucket that holds a plan; None where there is none."""
        rows = _at_least(self.rows, len(plan.tokens))
        segments = _at_least(self.segments, len(plan.contexts))
        pages = _at_least(self.pages, max(map(len, plan.pages)))
        if rows is None or segments is None or pages is None:
            return None
        return self._shape(rows, segments, plan.longest, pages)

    def usual(self, nodes: int) -> Iterator[FrameShape]:
        """Yield the buckets of decoding near the start, with trees of up to so many nodes."""
        fewest = 1
        for segments in self.segments:
            most = _at_least(self.rows, segments * nodes) or self.rows[-1]
            for rows in self.rows:
                if fewest <= rows <= most:
                    longest = 1 if rows <= segments else min(rows, nodes)
                    yield self._shape(rows, segments, longest, self.pages[0])
            fewest = segments + 1

    def _shape(self, rows: int, segments: int, longest: int, pages: int) -> FrameShape:
        tile = _at_least(_ladder(1, self.rows[-1]), longest)
        assert tile is not None
        return FrameShape(
            rows=rows,
            segments=segments,
            wanted=rows,
            pages=pages,
            longest=min(tile, rows),
            span=pages * self.page_size,
            page_size=self.page_size,
            padded=True,
        )


class Graphs:
    """A model's captured passes over one cache; those longest unused make room for new ones."""

    def __init__(
        self,
        model: Model,
        cache: KVCache,
        buckets: Buckets,
        capture: Capture,
        most: int = MOST,
        states: int | None = None,
    ) -> None:
        """Capture passes as they are met; states: H, where the head's own rows are asked for."""
        self._model = model
        self._cache = cache
        self._buckets = buckets
        self._capture = capture
        self._most = most
        self._captured: OrderedDict[FrameShape, tuple[Tensor, Run]] = OrderedDict()
        self._failed = False
        rows, device = buckets.rows[-1], cache.kv.device
        self._logits = torch.empty(rows, model.vocab, device=device)
        self._states = None if states is None else torch.empty(rows, states, device=device)

    def __len__(self) -> int:
        return len(self._captured)

    def forward(self, plan: ForwardPlan) -> Tensor | None:
        """Replay a pass: the logits of the plan's wanted rows, [R, V] float32.

        None where no bucket holds the plan, as with long chunks of a prompt, whose computation
        hides the launches.
        """
        # All graphs write to the same rows, and share memory for what lies between.
        return self._logits[: len(plan.wanted)].clone() if self._replayed(plan) else None

    def forward_with_states(self, plan: ForwardPlan) -> tuple[Tensor, Tensor] | None:
        """Replay a pass: logits, and the rows [R, H] that the head multiplied, float32."""
        assert self._states is not None
        if not self._replayed(plan):
            return None
        wanted = len(plan.wanted)
        return self._logits[:wanted].clone(), self._states[:wanted].clone()

    def _replayed(self, plan: ForwardPlan) -> bool:
        shape = self._buckets.fit(plan)
        if shape is None or plan.cache is not self._cache or not self._holds(shape):
            return False
        buffer, replay = self._graph(shape)
        buffer.copy_(pack(plan, shape), non_blocking=True)
        replay()
        return True

    @torch.inference_mode()
    def warm(self, nodes: int) -> None:
        """Capture what decoding uses near the start; the rest follows when it is first met.

        Raises RuntimeError where the driver captures none.
        """
        shapes = list(self._buckets.usual(nodes))[: self._most]
        for done, shape in enumerate(shapes, 1):
            self._graph(shape)
            if done % 8 == 0 or done == len(shapes):
                log.info("captured %d of %d CUDA graphs", done, len(shapes))

    def _holds(self, shape: FrameShape) -> bool:
        """Capture a shape met while serving; once one could not be, new ones run eagerly."""
        if shape not in self._captured and not self._failed:
            try:
                self._graph(shape)
            except RuntimeError as error:  # there is no more memory, say
                self._failed = True
                log.warning("no further CUDA graphs are captured: %s", error)
        return shape in self._captured

    def _graph(self, shape: FrameShape) -> tuple[Tensor, Run]:
        if shape not in self._captured:
            while len(self._captured) >= self._most:
                self._captured.popitem(last=False)
            self._captured[shape] = self._made(shape)
        self._captured.move_to_end(shape)
        return self._captured[shape]

    def _made(self, shape: FrameShape) -> tuple[Tensor, Run]:
        """Capture a pass over nothing but padding, whose sizes are those of any other."""
        buffer = torch.empty(frame_bytes(shape), dtype=torch.uint8, device=self._cache.kv.device)
        buffer.copy_(pack(nothing(self._cache), shape))
        frame = Frame.over(buffer, shape)

        def run() -> None:
            if self._states is None:
                logits = self._model.run(frame, self._cache)
            else:
                logits, states = self._model.run_with_states(frame, self._cache)
                self._states[: shape.wanted].copy_(states)
            self._logits[: shape.wanted].copy_(logits)

        return buffer, self._capture(run)


class CudaCapture:
    """Captures on a GPU; all graphs share one pool of memory, since one runs at a time."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Run) -> Run:
        here, aside = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(here)
        with torch.cuda.stream(aside):  # what is compiled or allocated once must not be captured
            for _ in range(2):
                run()
        here.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        # Other threads of the server go on; they do not touch the GPU, but may end its objects.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            run()
        replay: Run = graph.replay
        return replay


def nothing(cache: KVCache) -> ForwardPlan:
    """Return a pass without rows."""
    none: tuple[int, ...] = ()
    blank = np.zeros((0, 1), dtype=np.int64)
    return ForwardPlan(none, none, none, none, (0,), none, (), blank, cache)


def _ladder(first: int, last: int) -> tuple[int, ...]:
    """Return first, first * 4, first * 16 … and at the end last."""
    steps = []
    while first < last:
        steps.append(first)
        first *= STEP
    return (*steps, last)


def _at_least(ladder: Sequence[int], wanted: int) -> int | None:
    place = bisect_left(ladder, wanted)
    return ladder[place] if place < len(ladder) else None
