"""Expansion-based tree construction (paper, section 3.1): one SSM, a tree of a given shape.

The tree grows level by level, all requests of a batch in one pass of the SSM.  Shapes are chosen
by planner.py before a token is drawn; how a node's children are drawn is told in children.py.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from specinfer.adjust import adjust, taken_as_they_are
from specinfer.draft.alone import grow_alone, lay_out
from specinfer.draft.children import add_likeliest, draw_children, fitted, is_plain, likeliest
from specinfer.draft.draft import Draft
from specinfer.draft.planner import Planner
from specinfer.draft.shape import Shape
from specinfer.kv_cache import Commit, KVCache, OutOfPagesError
from specinfer.llm import CausalLM
from specinfer.request import Request
from specinfer.stopwatch import Stopwatch
from specinfer.token_tree import TokenTree
from specinfer.tree_attention import Segment, chain, plan

LONGEST_TIMED = 64  # rows of one request: a pass with longer ones reads prompts


class Expansion:
    """One SSM that proposes trees of the shapes that its planner chooses."""

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
        self.name = ssm.name
        self.cache = cache
        self.planner = planner
        self.ssm = ssm
        self._vocab = vocab
        self._vocabulary = vocabulary
        self._ids: list[int] | None = None if vocabulary is None else vocabulary.tolist()
        self._prefill_rows = prefill_rows
        self._replacement = replacement
        self._drafts: dict[Request, Draft] = {}
        self._found: dict[Request, int] = {}  # by the other drafters in the last step

    def propose(self, requests: Sequence[Request], *, resting: bool = False) -> list[TokenTree]:
        self._learn(requests)
        behind, found = (lambda one: len(self._pending(one))), (lambda one: self._found.get(one, 0))
        shapes = self.planner.shapes(requests, behind, found, resting=resting)
        drafts = [self._resume(*pair) for pair in zip(requests, shapes, strict=True)]
        active = [draft for draft in drafts if draft is not None]
        if not self._grown_alone(active):
            self._grow_together(active)
        return [
            draft.tree if draft else TokenTree.rooted_at(request.tokens[-1])
            for draft, request in zip(drafts, requests, strict=True)
        ]

    def compare(self, request: Request, others: int) -> None:
        """Hear how many of the tokens emitted last the other drafters had found."""
        self._found[request] = others

    def forget(self, request: Request) -> None:
        self._found.pop(request, None)
        draft = self._drafts.pop(request, None)
        if draft is not None:
            self.cache.release(draft.sequence)

    def _learn(self, requests: Sequence[Request]) -> None:
        """Compare what was drafted last with what has become of it."""
        for draft in (self._drafts[request] for request in requests if request in self._drafts):
            if draft.shape is not None:
                new, greedy = self._pending(draft.request), draft.request.params.greedy
                self.planner.observe(
                    draft.tree,
                    new,
                    greedy=greedy,
                    others=self._found.get(draft.request, 0),
                    found=draft.found > 0,
                )

    def _pending(self, request: Request) -> list[int]:
        """Return the tokens that are not in the SSM's cache yet."""
        draft = self._drafts.get(request)
        return request.tokens[draft.sequence.length if draft else 0 :]

    def _resume(self, request: Request, shape: Shape | None) -> Draft | None:
        """Keep what the cache already has for the request; None where the SSM must sit out.

        It sits out beyond its own context, while its cache is full, and without a shape.
        """
        if shape is None:
            if request in self._drafts:
                self._drafts[request].shape = None
            return None
        draft = self._drafts.get(request)
        if draft is None:
            sequence = self.cache.open(request.tokens)
            draft = Draft(request, sequence, TokenTree.rooted_at(request.tokens[-1]))
            self._drafts[request] = draft
        else:
            self._commit_accepted(draft)
        draft.begin(shape, self._found.get(request, 0))
        new = len(request.tokens) - draft.sequence.length + shape.nodes
        if len(request.tokens) + shape.depth > self.ssm.max_context:
            draft.shape = None
            return None
        try:
            self.cache.reserve(draft.sequence, new)
        except OutOfPagesError:
            self.forget(request)
            return None
        return draft

    def _commit_accepted(self, draft: Draft) -> None:
        """Commit the nodes of the last tree that became output, as far as they were computed.

        The last token stays out even where it was drafted: its logits are needed again.
        """
        new = draft.request.tokens[draft.sequence.length :]
        rows = [node - 1 for node in draft.tree.follow(new[:-1]) if node < draft.computed]
        self.cache.commit([Commit(draft.sequence, rows, new[: len(rows)])])

    def _grown_alone(self, drafts: list[Draft]) -> bool:
        """Grow the only tree there is the quick way, where there is one."""
        if len(drafts) != 1:
            return False
        watch = Stopwatch(self.ssm.device)
        draft, pending = drafts[0], self._pending(drafts[0].request)
        layout = lay_out(self.ssm, self.cache, draft, pending)
        if layout is None:
            return False
        passes = grow_alone(layout, draft, pending, lambda rows: self._grow([draft], {draft: rows}))
        self.cache.commit([Commit(draft.sequence, range(len(pending)), pending)])
        watch.stop()
        if self.planner.ssm is not None:
            rows = (len(pending) + draft.computed - 1) // passes  # many after it has sat out
            self.planner.ssm.observe(1, rows, watch.milliseconds() / passes)
        return True

    def _grow_together(self, drafts: list[Draft]) -> None:
        rows = self._catch_up(drafts)
        while live := [draft for draft in drafts if draft.frontier]:
            rows = rows or self._run_trees(live)
            self._grow(live, rows)
            rows = {}

    def _catch_up(self, drafts: list[Draft]) -> dict[Draft, Tensor]:
        """Run every token that is not cached yet; return each root's logits, [1, V]."""
        roots: dict[Draft, Tensor] = {}
        while behind := [draft for draft in drafts if draft not in roots]:
            segments = self._chunks(behind)
            rows = iter(self._forward(segments))
            self.cache.commit([Commit(s.sequence, range(len(s)), s.tokens) for s in segments])
            for draft, segment in zip(behind, segments, strict=False):
                if segment.wanted:
                    roots[draft] = next(rows)[None]
        return roots

    def _chunks(self, drafts: list[Draft]) -> list[Segment]:
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

    def _run_trees(self, drafts: list[Draft]) -> dict[Draft, Tensor]:
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
        """Run the SSM, and tell the planner what its trees' passes cost."""
        watch = Stopwatch(self.ssm.device)
        rows = self.ssm.forward(plan(self.cache, segments))
        watch.stop()
        costs, longest = self.planner.ssm, max(map(len, segments))
        if costs is not None and longest <= LONGEST_TIMED:
            costs.observe(len(segments), sum(map(len, segments)), watch.milliseconds())
        return rows

    def _grow(self, drafts: list[Draft], rows: dict[Draft, Tensor]) -> None:
        """Draw the children of every frontier node."""
        plain = [draft for draft in drafts if is_plain(draft.request)]
        if plain:
            own = [rows[draft] for draft in plain]
            self._choose(plain, torch.cat(own) if own[1:] else own[0])
        for draft in drafts:
            if draft not in plain:
                self._draw(draft, self._adjusted(draft, rows[draft]))
            draft.advance()

    def _choose(self, drafts: list[Draft], rows: Tensor) -> None:
        """Add the likeliest children of greedy requests whose logits need no adjustment.

        Among the SSM's own tokens: bringing 8k logits to the LLM's 49k costs more than the choice.
        """
        nodes = [(draft, node) for draft in drafts for node in draft.frontier]
        widest = max(draft.width(node) for draft, node in nodes)
        own = rows if self._ids else rows[:, : self._vocab]
        for (draft, node), best in zip(nodes, likeliest(own, widest), strict=True):
            named = [(self._ids[token], share) for token, share in best] if self._ids else best
            add_likeliest(draft.tree, node, named[: draft.width(node)])

    def _adjusted(self, draft: Draft, rows: Tensor) -> Tensor:
        rows = fitted(rows, self._vocab, self._vocabulary)
        if taken_as_they_are(draft.request):
            return rows
        paths = [draft.tree.tokens_to(node) for node in draft.frontier]
        return adjust(rows, draft.request, paths)

    def _draw(self, draft: Draft, rows: Tensor) -> None:
        request, draw = draft.request, partial(draw_children, replacement=self._replacement)
        for node, row in zip(draft.frontier, rows, strict=True):
            draw(draft.tree, node, row, draft.width(node), request.params, request.choices)
