"""Expansion-based tree construction (paper, section 3.1): one SSM, children <k1, …, km>.

The tree grows level by level, all requests of a batch in one pass of the SSM; how a node's
children are chosen is told in children.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specinfer.adjust import adjust
from specinfer.config import TreeShape
from specinfer.draft.children import add_likeliest, draw_children, likeliest
from specinfer.draft.depth import DepthPlanner
from specinfer.kv_cache import CachedSequence, Commit, KVCache, OutOfPagesError
from specinfer.llm import CausalLM
from specinfer.request import Request
from specinfer.token_tree import ROOT, TokenTree
from specinfer.tree_attention import Segment, chain, plan


@dataclass(slots=True, eq=False)
class _Draft:
    """An SSM's view of one request: what it has cached, and the tree it last proposed."""

    request: Request
    sequence: CachedSequence
    tree: TokenTree
    computed: int = 1  # nodes of the tree whose keys and values are in the cache, root included
    frontier: Sequence[int] = ()  # nodes whose children are drawn next
    limit: int = 0  # levels to draft

    @property
    def depth(self) -> int:
        return min(self.limit, self.request.room - 1)


class Expansion:
    """One SSM that proposes a tree of fixed shape."""

    def __init__(
        self,
        ssm: CausalLM,
        cache: KVCache,
        shape: TreeShape,
        *,
        vocab: int,
        prefill_rows: int,
        vocabulary: Tensor | None = None,
        replacement: bool = True,
        planner: DepthPlanner | None = None,
    ) -> None:
        """Serve an LLM of vocab tokens; the planner, if any, chooses how deep to draft.

        vocabulary [D] names the LLM's tokens that the SSM's logits are over, if it is not all.
        """
        self.name = ssm.name
        self.cache = cache
        self._ssm = ssm
        self._shape = shape
        self._vocab = vocab
        self._vocabulary = vocabulary
        self._prefill_rows = prefill_rows
        self._replacement = replacement
        self._planner = planner
        self._drafts: dict[Request, _Draft] = {}

    def propose(self, requests: Sequence[Request]) -> list[TokenTree]:
        depth = self._planner.depth(requests) if self._planner else len(self._shape.widths)
        drafts = [self._resume(request, depth) for request in requests]
        live = [draft for draft in drafts if draft is not None]
        rows = self._catch_up(live)
        for level, width in enumerate(self._shape.widths):
            live = [draft for draft in live if draft.depth > level]
            self._grow(live, rows, width)
            if level + 1 < len(self._shape.widths):
                rows = self._run_trees([draft for draft in live if draft.depth > level + 1])
        return [
            draft.tree if draft else TokenTree.rooted_at(request.tokens[-1])
            for draft, request in zip(drafts, requests, strict=True)
        ]

    def forget(self, request: Request) -> None:
        draft = self._drafts.pop(request, None)
        if draft is not None:
            self.cache.release(draft.sequence)

    def _resume(self, request: Request, depth: int) -> _Draft | None:
        """Keep what the cache already has for the request; None where the SSM must sit out.

        It sits out beyond its own context, while its cache is full, and when depth is 0.  An
        answer that is to repeat itself from a seed gets the same tree whatever the depth.
        """
        depth = len(self._shape.widths) if request.repeatable else depth
        if depth == 0:
            if request in self._drafts:
                self._drafts[request].limit = 0  # its tree is an earlier step's: nothing to learn
            return None
        draft = self._drafts.get(request)
        if draft is None:
            sequence = self.cache.open(request.tokens)
            draft = _Draft(request, sequence, TokenTree.rooted_at(request.tokens[-1]))
            self._drafts[request] = draft
        else:
            self._commit_accepted(draft)
        draft.tree = TokenTree.rooted_at(request.tokens[-1])
        draft.computed, draft.frontier, draft.limit = 1, (ROOT,), depth
        new = len(request.tokens) - draft.sequence.length + self._shape.nodes
        if len(request.tokens) + len(self._shape.widths) > self._ssm.max_context:
            return None
        try:
            self.cache.reserve(draft.sequence, new)
        except OutOfPagesError:
            self.forget(request)
            return None
        return draft

    def _commit_accepted(self, draft: _Draft) -> None:
        """Commit the nodes of the last tree that became output, as far as they were computed.

        The last token stays out even where it was drafted: its logits are needed again.
        """
        new = draft.request.tokens[draft.sequence.length :]
        if self._planner and draft.limit and len(draft.tree) > 1:
            self._planner.observe(draft.tree, draft.tree.follow(new))
        rows = [node - 1 for node in draft.tree.follow(new[:-1]) if node < draft.computed]
        self.cache.commit([Commit(draft.sequence, rows, new[: len(rows)])])

    def _catch_up(self, drafts: list[_Draft]) -> dict[_Draft, Tensor]:
        """Run every token that is not cached yet; return each root's logits, [1, V]."""
        roots: dict[_Draft, Tensor] = {}
        while behind := [draft for draft in drafts if draft not in roots]:
            segments = self._chunks(behind)
            rows = iter(self._ssm.forward(plan(self.cache, segments)))
            self.cache.commit([Commit(s.sequence, range(len(s)), s.tokens) for s in segments])
            for draft, segment in zip(behind, segments, strict=False):
                if segment.wanted:
                    roots[draft] = next(rows)[None]
        return roots

    def _chunks(self, drafts: list[_Draft]) -> list[Segment]:
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

    def _run_trees(self, drafts: list[_Draft]) -> dict[_Draft, Tensor]:
        """Run each tree so far in one pass; return the logits of its frontier.

        Earlier levels are run again: with weights read once a pass, rows cost next to nothing.
        """
        if not drafts:
            return {}
        segments = [
            Segment(
                draft.sequence,
                draft.tree.tokens[1:],
                [parent - 1 for parent in draft.tree.parents[1:]],
                [node - 1 for node in draft.frontier],
            )
            for draft in drafts
        ]
        rows = self._ssm.forward(plan(self.cache, segments))
        for draft in drafts:
            draft.computed = len(draft.tree)
        sizes = [len(draft.frontier) for draft in drafts]
        return dict(zip(drafts, torch.split(rows, sizes), strict=True))

    def _grow(self, drafts: list[_Draft], rows: dict[_Draft, Tensor], width: int) -> None:
        """Draw width children under every frontier node; the new nodes become the frontier."""
        logits = {draft: self._adjusted(draft, rows[draft]) for draft in drafts}
        greedy = [draft for draft in drafts if draft.request.params.greedy]
        best = iter(
            likeliest(torch.cat([logits[draft] for draft in greedy]), width) if greedy else ()
        )
        for draft in drafts:
            before = len(draft.tree)
            for node, row in zip(draft.frontier, logits[draft], strict=True):
                if draft.request.params.greedy:
                    add_likeliest(draft.tree, node, next(best))
                else:
                    self._draw(draft, node, row, width)
            draft.frontier = range(before, len(draft.tree))

    def _adjusted(self, draft: _Draft, rows: Tensor) -> Tensor:
        paths = [draft.tree.tokens_to(node) for node in draft.frontier]
        return adjust(fitted(rows, self._vocab, self._vocabulary), draft.request, paths)

    def _draw(self, draft: _Draft, node: int, row: Tensor, width: int) -> None:
        params, choices = draft.request.params, draft.request.choices
        draw_children(draft.tree, node, row, width, params, choices, replacement=self._replacement)


def fitted(rows: Tensor, vocab: int, vocabulary: Tensor | None) -> Tensor:
    """Bring logits [R, V of the SSM] to the LLM's tokens, [R, vocab]; what it lacks gets -inf.

    Without a draft vocabulary the ids agree, and only the number of padding rows differs.
    """
    if vocabulary is not None:
        spread = rows.new_full((len(rows), vocab), -torch.inf)
        return spread.index_copy_(1, vocabulary, rows)
    missing = vocab - rows.shape[1]
    if missing <= 0:
        return rows[:, :vocab]
    return torch.nn.functional.pad(rows, (0, missing), value=-torch.inf)
