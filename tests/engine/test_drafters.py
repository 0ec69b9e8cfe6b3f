"""Guessers: what they say may follow, and the trees that are grown of it."""

from specinfer.draft.guess import Guesser, grow
from specinfer.draft.lookup import LATEST, LONGEST, PromptLookup
from specinfer.draft.ngram import NGram
from specinfer.draft.pool import Pool
from specinfer.grammar.constraint import Constraint
from specinfer.request import Request
from specinfer.testing.automaton import Automaton
from specinfer.testing.toy import a_request
from specinfer.token_tree import TokenTree


def grown(
    guesser: Guesser, request: Request, *, nodes: int = 8, depth: int = 4, floor: float = 0.0
) -> TokenTree:
    """Grow a tree in which each guess stands as often as not."""
    tree = TokenTree.rooted_at(request.tokens[-1])
    starts = [(0, guess) for guess in guesser.guesses(request)]
    grow(
        tree,
        request,
        starts,
        [guesser],
        lambda who, key: 0.5,
        nodes=nodes,
        depth=depth,
        floor=floor,
    )
    return tree


def paths(tree: TokenTree) -> set[tuple[int, ...]]:
    return {tuple(tree.tokens_to(node)) for node in range(1, len(tree))}


def test_lookup_guesses_what_followed_before() -> None:
    tree = grown(PromptLookup(), a_request([1, 2, 3, 4, 5, 9, 1, 2]), depth=3)
    assert tree.tokens == [2, 3, 4, 5]
    assert tree.point_masses_only


def test_lookup_prefers_longer_then_later_agreement() -> None:
    tokens = [7, 1, 2, 50, 8, 1, 2, 60, 9, 1, 2, 70, 8, 1, 2]
    guesses = PromptLookup().guesses(a_request(tokens))
    assert [(guess.token, guess.key) for guess in guesses] == [(60, 3), (70, 2), (50, 2)]


def test_an_agreement_is_known_by_its_length_up_to_a_limit() -> None:
    text = list(range(40, 60))
    guesses = PromptLookup().guesses(a_request([*text, 7, *text]))
    assert [(guess.token, guess.key) for guess in guesses] == [(7, LONGEST)]


def test_lookup_looks_at_the_latest_occurrences_only() -> None:
    tokens = [token for after in range(10, 30) for token in (1, 2, after)]
    guesses = PromptLookup().guesses(a_request([*tokens, 1, 2]))
    assert [guess.token for guess in guesses] == [*range(29, 29 - LATEST, -1)]


def test_lookup_has_nothing_to_say_about_new_tokens() -> None:
    for tokens in ([1], [1, 2], [1, 2, 3]):
        assert not PromptLookup().guesses(a_request(tokens))


def test_lookup_sees_the_answer_grow() -> None:
    guesser, asked = PromptLookup(), a_request([1, 2, 3])
    assert not guesser.guesses(asked)
    asked.tokens += [8, 1, 2]
    assert paths(grown(guesser, asked)) == {(3,), (3, 8), (3, 8, 1), (3, 8, 1, 2)}


def test_ngram_learns_from_other_requests() -> None:
    guesser = NGram()
    guesser.guesses(a_request([1, 2, 3, 4]))
    assert paths(grown(guesser, a_request([9, 2]))) == {(3,), (3, 4)}


def test_ngram_knows_a_follower_by_its_share() -> None:
    guesser = NGram()
    for last in (3, 3, 3, 3, 3, 3, 4):
        guesser.guesses(a_request([1, 2, last]))
    keys = {guess.token: guess.key for guess in guesser.guesses(a_request([9, 2]))}
    assert keys[3] > keys[4]


def test_ngram_forgets_the_oldest_contexts() -> None:
    guesser = NGram(contexts=3)
    guesser.guesses(a_request([1, 2]))
    guesser.guesses(a_request([5, 6, 7]))
    assert not guesser.guesses(a_request([1]))


def test_the_likeliest_paths_are_grown_first() -> None:
    tree = TokenTree.rooted_at(1)
    guesser, asked = NGram(), a_request([1])
    for text in ([1, 2, 3], [1, 2, 3], [1, 5]):
        guesser.guesses(a_request(text))
    starts = [(0, guess) for guess in guesser.guesses(asked)]
    shares = {guess.key: 0.9 if guess.token == 2 else 0.2 for _, guess in starts}
    grow(
        tree,
        asked,
        starts,
        [guesser],
        lambda who, key: shares.get(key, 0.9),
        nodes=2,
        depth=3,
    )
    assert paths(tree) == {(2,), (2, 3)}


def test_nothing_is_grown_that_is_not_worth_its_price() -> None:
    asked = a_request([1, 2, 3, 4, 5, 9, 1, 2])
    assert paths(grown(PromptLookup(), asked, floor=0.2)) == {(3,), (3, 4)}
    assert len(grown(PromptLookup(), asked, floor=0.5)) == 1


def test_no_path_is_longer_than_what_may_still_be_emitted() -> None:
    guessers: list[Guesser] = [PromptLookup(), NGram()]
    for guesser in guessers:
        asked = a_request([1, 2, 3, 4] * 6, room=3)
        assert max(grown(guesser, asked, nodes=50).depths()) == 2
        assert len(grown(guesser, a_request([1, 2, 3, 4] * 6, room=1))) == 1


def test_no_more_nodes_than_the_budget() -> None:
    asked = a_request([1, 2, 3, 4] * 6)
    assert len(grown(PromptLookup(), asked, nodes=3, depth=8)) == 4


def test_nothing_is_grown_that_the_grammar_rules_out() -> None:
    asked = a_request([0, 1, 0, 2, 9, 0])
    asked.tokens = [0, 1, 2, 0, 1]
    asked.constraint = Constraint(Automaton(3, {"A": {0: "B", 1: "A"}, "B": {2: "A"}}))
    assert len(grown(PromptLookup(), asked)) == 1
    asked.tokens = [2, 1, 0, 2, 0, 2, 1]
    assert paths(grown(PromptLookup(), asked)) == {(0,), (0, 2), (0, 2, 0), (0, 2, 0, 2)}


def test_forgetting_a_request_drops_its_state() -> None:
    lookup, ngram, asked = PromptLookup(), NGram(), a_request([1, 2, 1, 2])
    guessers: list[Guesser] = [lookup, ngram]
    for guesser in guessers:
        guesser.guesses(asked)
        guesser.forget(asked)
        guesser.forget(asked)
    assert not lookup._indices and not ngram._read


def test_a_pool_without_drafters_proposes_bare_roots() -> None:
    assert Pool().propose([a_request([1, 2])], 1)[0].tokens == [2]
