"""Token trees and their merge (Definitions 3.1 and 3.2)."""

import torch

from specinfer.draft.merge import merge
from specinfer.token_tree import ROOT, TokenTree


def paths(tree: TokenTree) -> set[tuple[int, ...]]:
    return {tuple(tree.tokens_to(node)) for node in range(len(tree))}


def a_tree(*words: str) -> TokenTree:
    tree = TokenTree.rooted_at(0)
    for word in words:
        node = ROOT
        for letter in word:
            known = tree.child(node, ord(letter))
            node = tree.add(node, ord(letter)) if known is None else known
    return tree


def test_merged_paths_are_the_union() -> None:
    one, two = a_tree("abc", "abd"), a_tree("abx", "q")
    assert paths(merge([one, two])) == paths(one) | paths(two)


def test_a_shared_path_is_one_node_and_every_draw_is_kept() -> None:
    law = torch.tensor([0.5, 0.5])
    trees = []
    for _ in range(2):
        tree = TokenTree.rooted_at(0)
        tree.add(ROOT, 1, law)
        trees.append(tree)
    merged = merge(trees)
    assert len(merged) == 2
    assert [draw.drafter for draw in merged.draws[ROOT]] == [0, 1]
    assert merged.drafters()[:2] == [set(), {0, 1}]


def test_merging_trees_of_point_masses_with_themselves_changes_nothing() -> None:
    tree = a_tree("abc", "abd", "x")
    assert len(merge([tree, tree, tree])) == len(tree)
    assert paths(merge([tree, tree, tree])) == paths(tree)


def test_the_same_token_drawn_twice_is_one_node_with_two_draws() -> None:
    tree = TokenTree.rooted_at(0)
    assert tree.add(ROOT, 1) == tree.add(ROOT, 1) == 1
    assert len(tree.draws[ROOT]) == 2


def test_depths_and_paths() -> None:
    tree = a_tree("ab", "c")
    assert tree.depths() == [0, 1, 2, 1]
    assert list(tree.path(2)) == [2, 1]
    assert tree.tokens_to(2) == [ord("a"), ord("b")]


def test_a_draw_without_replacement_knows_its_own_law() -> None:
    tree = TokenTree.rooted_at(0)
    tree.add(ROOT, 1, torch.tensor([0.5, 0.25, 0.25]), without=(0,))
    law = tree.draws[ROOT][0].proposal()
    assert law is not None
    assert law.tolist() == [0.0, 0.5, 0.5]
