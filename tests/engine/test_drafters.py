"""Drafters that need no model: what they propose, within depth and budget."""

from collections.abc import Callable

from specinfer.draft.lookup import PromptLookup
from specinfer.draft.ngram import NGram
from specinfer.draft.pool import Pool
from specinfer.testing.toy import a_request
from specinfer.token_tree import TokenTree


def paths(tree: TokenTree) -> set[tuple[int, ...]]:
    return {tuple(tree.tokens_to(node)) for node in range(1, len(tree))}


def test_lookup_proposes_what_followed_before() -> None:
    tree = PromptLookup(depth=3, nodes=8).propose([a_request([1, 2, 3, 4, 5, 9, 1, 2])])[0]
    assert tree.tokens == [2, 3, 4, 5]
    assert tree.point_masses_only


def test_lookup_prefers_longer_then_later_agreement() -> None:
    tokens = [7, 1, 2, 50, 8, 1, 2, 60, 9, 1, 2, 70, 8, 1, 2]
    tree = PromptLookup(depth=1, nodes=2).propose([a_request(tokens)])[0]
    assert tree.tokens == [2, 60, 70]


def test_lookup_has_nothing_to_say_about_new_tokens() -> None:
    assert len(PromptLookup(depth=3, nodes=8).propose([a_request([1, 2, 3])])[0]) == 1


def test_lookup_sees_the_answer_grow() -> None:
    drafter, asked = PromptLookup(depth=4, nodes=8), a_request([1, 2, 3])
    drafter.propose([asked])
    asked.tokens += [8, 1, 2]
    assert paths(drafter.propose([asked])[0]) == {(3,), (3, 8), (3, 8, 1), (3, 8, 1, 2)}


def test_ngram_learns_from_other_requests() -> None:
    drafter = NGram(depth=2, nodes=8)
    drafter.propose([a_request([1, 2, 3, 4])])
    assert paths(drafter.propose([a_request([9, 2])])[0]) == {(3,), (3, 4)}


def test_ngram_grows_the_likeliest_paths_first() -> None:
    drafter = NGram(depth=3, nodes=2)
    for _ in range(3):
        drafter.propose([a_request([1, 2, 3])])
    drafter.propose([a_request([1, 5])])
    assert paths(drafter.propose([a_request([1])])[0]) == {(2,), (2, 3)}


def test_ngram_forgets_the_oldest_contexts() -> None:
    drafter = NGram(depth=2, nodes=8, contexts=3)
    drafter.propose([a_request([1, 2])])
    drafter.propose([a_request([5, 6, 7])])
    assert len(drafter.propose([a_request([1])])[0]) == 1


def test_no_path_is_longer_than_what_may_still_be_emitted() -> None:
    for drafter in (PromptLookup(depth=8, nodes=50), NGram(depth=8, nodes=50)):
        asked = a_request([1, 2, 3, 4] * 6, room=3)
        drafter.propose([asked])
        assert max(drafter.propose([asked])[0].depths()) == 2
        assert len(drafter.propose([a_request([1, 2, 3, 4] * 6, room=1)])[0]) == 1


def test_no_more_nodes_than_the_budget() -> None:
    tokens = [token for i in range(2, 60) for token in (1, i)] + [1]
    for drafter in (PromptLookup(depth=8, nodes=5), NGram(depth=8, nodes=5)):
        drafter.propose([a_request(tokens)])
        assert len(drafter.propose([a_request(tokens)])[0]) == 6 if drafter.name == "lookup" else 5


def test_forgetting_a_request_drops_its_state() -> None:
    build: list[Callable[[], PromptLookup | NGram]] = [
        lambda: PromptLookup(depth=2, nodes=4),
        lambda: NGram(depth=2, nodes=4),
    ]
    for make in build:
        drafter, asked = make(), a_request([1, 2, 1, 2])
        drafter.propose([asked])
        drafter.forget(asked)
        drafter.forget(asked)
        state = drafter._indices if isinstance(drafter, PromptLookup) else drafter._read
        assert not state


def test_a_pool_without_drafters_proposes_bare_roots() -> None:
    assert Pool([]).propose([a_request([1, 2])], 1)[0].tokens == [2]
