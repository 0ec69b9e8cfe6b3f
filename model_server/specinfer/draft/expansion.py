"""Expansion-based tree construction (paper, section 3.1): one SSM, a tree of a given shape.

The tree grows level by level, all requests of a batch in one pass of the SSM.
"""

import torch
from torch import Tensor

from specinfer.draft.alone import grow_alone, lay_out
from specinfer.draft.draft import CachedDraft
from specinfer.draft.growth import Growth
from specinfer.draft.modelled import Modelled
from specinfer.draft.planner import Planner
from specinfer.draft.shape import Shape
from specinfer.kv_cache import Commit, KVCache, OutOfPagesError
from specinfer.llm import CausalLM
from specinfer.request import Request
from specinfer.stopwatch import Stopwatch
from specinfer.token_tree import TokenTree
from specinfer.tree_attention import Segment, chain, plan

LONGEST_TIMED = 64  # rows of one request: a pass with longer ones reads prompts


class Expansion(Modelled[CachedDraft]):
    """An SSM of layers, whose cache follows each request's text."""

    reads_states = False

    def __init__(
        self,
        ssm: CausalLM,
        cache: KVCache,
        planner: Planner,
        *,
        vocab: int,
        prefill_rows: int,
        vocabulary: Tensor | None = None,
        replacement: bool = True,
    ) -> None:
        """Serve an LLM of vocab tokens with trees of the shapes that the planner chooses.

        vocabulary [D] names the LLM's tokens that the SSM's logits are over, if it is not all.
        """
        growth = Growth(vocab, vocabulary, ssm.device, replacement=replacement)
        super().__init__(ssm.name, planner, growth)
        self.cache = cache
        self.ssm = ssm
        self._prefill_rows = prefill_rows
        self._timed: list[tuple[Stopwatch, int, int]] = []  # passes, their requests and rows

    def forget(self, request: Request) -> None:
        draft = self._drafts.get(request)
        if draft is not None:
            self.cache.release(draft.sequence)
        super().forget(request)

    def _behind(self, request: Request) -> int:
        return len(self._pending(request))

    def _grow(self, drafts: list[CachedDraft]) -> None:
        if not self._grown_alone(drafts):
            self._grow_together(drafts)

    def _pending(self, request: Request) -> list[int]:
        """Return the tokens that are not in the SSM's cache yet."""
        draft = self._drafts.get(request)
        return request.tokens[draft.sequence.length if draft else 0 :]

    def _resume(self, request: Request, shape: Shape | None) -> CachedDraft | None:
        """Keep what the cache already has for the request; None where the SSM must sit out.

        It sits out beyond its own context, while its cache is full, and without a shape.
        """
        draft = self._drafts.get(request)
        if shape is None:
            self._sit_out(draft)
            return None
        if draft is None:
            sequence = self.cache.open(request.tokens)
            draft = CachedDraft(request, TokenTree.rooted_at(request.tokens[-1]), sequence=sequence)
            self._drafts[request] = draft
        else:
            self._commit_accepted(draft)
        draft.begin(shape, self._last_found(request))
        draft.computed = 1
        new = len(request.tokens) - draft.sequence.length + shape.nodes
        if len(request.tokens) + shape.depth > self.ssm.max_context:
            self._sit_out(draft)
            return None
        try:
            self.cache.reserve(draft.sequence, new)
        except OutOfPagesError:
            self.forget(request)
            return None
        return draft

    def _commit_accepted(self, draft: CachedDraft) -> None:
        """Commit the nodes of the last tree that became output, as far as they were computed.

        The last token stays out even where it was drafted: its logits are needed again.
        """
        new = draft.request.tokens[draft.sequence.length :]
        rows = [node - 1 for node in draft.tree.follow(new[:-1]) if node < draft.computed]
        self.cache.commit([Commit(draft.sequence, rows, new[: len(rows)])])

    def _grown_alone(self, drafts: list[CachedDraft]) -> bool:
        """Grow the only tree there is the quick way, where there is one."""
        if len(drafts) != 1:
            return False
        watch = Stopwatch(self.ssm.device)
        draft, pending = drafts[0], self._pending(drafts[0].request)
        layout = lay_out(self.ssm, self.cache, draft, pending)
        if layout is None:
            return False
        passes = grow_alone(layout, draft, pending, lambda rows: self._growth.grow([draft], [rows]))
        self.cache.commit([Commit(draft.sequence, range(len(pending)), pending)])
        watch.stop()
        if self.planner.ssm is not None:
            rows = (len(pending) + draft.computed - 1) // passes  # many after it has sat out
            self.planner.ssm.observe(1, rows, watch.milliseconds() / passes)
        return True

    def _grow_together(self, drafts: list[CachedDraft]) -> None:
        rows = self._catch_up(drafts)
        while live := [draft for draft in drafts if draft.frontier]:
            rows = rows or self._run_trees(live)
            self._growth.grow(live, [rows[draft] for draft in live])
            self._tell_costs()
            rows = {}

    def _catch_up(self, drafts: list[CachedDraft]) -> dict[CachedDraft, Tensor]:
        """Run every token that is not cached yet; return each root's logits, [1, V]."""
        roots: dict[CachedDraft, Tensor] = {}
        while behind := [draft for draft in drafts if draft not in roots]:
            segments = self._chunks(behind)
            rows = iter(self._forward(segments))
            self.cache.commit([Commit(s.sequence, range(len(s)), s.tokens) for s in segments])
            for draft, segment in zip(behind, segments, strict=False):
                if segment.wanted:
                    roots[draft] = next(rows)[None]
        return roots

    def _chunks(self, drafts: list[CachedDraft]) -> list[Segment]:
        """Cut the next rows to run, at most prefill_rows in all."""
        segments: list[Segment] = []
        left = self._prefill_rows
        for draft in drafts:
            pending = draft.request.tokens[draft.sequence.length :]
            if left <= 0:
                break
            chunk = pending[:left]
            left -= len(chunk)
            segments.append(chain(draft.sequence, chunk, wanted=len(chunk) == len(pending)))
        return segments

    def _run_trees(self, drafts: list[CachedDraft]) -> dict[CachedDraft, Tensor]:
        """Run each tree so far in one pass; return the logits of its frontier.

        Earlier levels are run again: with weights read once a pass, rows cost next to nothing.
        """
        segments = [
            Segment(
                draft.sequence,
                draft.tree.tokens[1:],
                [parent - 1 for parent in draft.tree.parents[1:]],
                [node - 1 for node in draft.frontier],
            )
            for draft in drafts
        ]
        rows = self._forward(segments)
        for draft in drafts:
            draft.computed = len(draft.tree)
        sizes = [len(draft.frontier) for draft in drafts]
        return dict(zip(drafts, torch.split(rows, sizes), strict=True))

    def _forward(self, segments: list[Segment]) -> Tensor:
        """Run the SSM, and time it where trees are."""
        watch = Stopwatch(self.ssm.device)
        rows = self.ssm.forward(plan(self.cache, segments))
        watch.stop()
        if max(map(len, segments)) <= LONGEST_TIMED:
            self._timed.append((watch, len(segments), sum(map(len, segments))))
        return rows

    def _tell_costs(self) -> None:
        """Tell the planner what passes cost, once the host has waited for their rows anyway."""
        for watch, requests, rows in self._timed:
            if self.planner.ssm is not None:
                self.planner.ssm.observe(requests, rows, watch.milliseconds())
        self._timed.clear()
