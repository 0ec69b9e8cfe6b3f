"""Trees drawn by a recurrent SSM, level by level, all requests of a batch in one step of it.

It begins at the LLM's last hidden state (the idea of arXiv 2403.09919), so each level computes its
own nodes alone, and there is nothing to catch up with.
"""

import torch
from torch import Tensor

from specinfer.draft.draft import Draft
from specinfer.draft.growth import Growth
from specinfer.draft.modelled import Modelled
from specinfer.draft.planner import Planner
from specinfer.draft.shape import Shape
from specinfer.request import Request
from specinfer.ssm import RecurrentSSM
from specinfer.stopwatch import Stopwatch
from specinfer.token_tree import TokenTree
from specinfer.transfer import send


class Recurrence(Modelled[Draft]):
    """A recurrent SSM.  It sits out until the LLM has emitted a request's first token."""

    reads_states = True

    def __init__(
        self, ssm: RecurrentSSM, planner: Planner, *, vocab: int, replacement: bool = True
    ) -> None:
        """Serve an LLM of vocab tokens with trees of the shapes that the planner chooses."""
        growth = Growth(vocab, ssm.vocabulary, ssm.device, replacement=replacement)
        super().__init__(ssm.name, planner, growth)
        self.ssm = ssm

    def _behind(self, request: Request) -> int:
        return 1

    def _resume(self, request: Request, shape: Shape | None) -> Draft | None:
        draft = self._drafts.get(request)
        if shape is None or request.state is None:
            self._sit_out(draft)
            return None
        if draft is None:
            draft = self._drafts[request] = Draft(request, TokenTree.rooted_at(request.tokens[-1]))
        draft.begin(shape, self._last_found(request))
        return draft

    def _grow(self, drafts: list[Draft]) -> None:
        live = [draft for draft in drafts if draft.frontier]
        if not live:
            return
        parents = torch.stack([_begun(draft.request) for draft in live])
        while True:
            nodes = [(draft, node) for draft in live for node in draft.frontier]
            states = self._grow_a_level(live, parents, nodes)
            live = [draft for draft in live if draft.frontier]
            if not live:
                return
            row = {pair: number for number, pair in enumerate(nodes)}
            kept = [row[d, d.tree.parents[node]] for d in live for node in d.frontier]
            parents = states.index_select(0, send(kept, states.device))

    def _grow_a_level(
        self, drafts: list[Draft], parents: Tensor, nodes: list[tuple[Draft, int]]
    ) -> Tensor:
        """Draw the children of nodes [N], tell the planner what it cost, return their states."""
        watch = Stopwatch(self.ssm.device)
        tokens = [draft.tree.tokens[node] for draft, node in nodes]
        states, logits = self.ssm.step(parents, tokens)
        rows = torch.split(logits, [len(draft.frontier) for draft in drafts])
        self._growth.grow(drafts, rows)
        watch.stop()
        costs = self.planner.ssm if drafts[0].level > 1 else self.planner.first
        if costs is not None:
            costs.observe(len(drafts), len(nodes), watch.milliseconds())
        return states


def _begun(request: Request) -> Tensor:
    assert request.state is not None
    return request.state
