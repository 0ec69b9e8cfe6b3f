"""Committing the accepted path moves its cache entries, all reads before all writes."""

import pytest
import torch

from specinfer_kernels import KernelError, commit_kv


@pytest.mark.parametrize(
    ("source", "target"),
    [([5, 7, 9], [4, 5, 6]), ([], []), ([3], [3]), ([1, 2, 3], [2, 3, 1]), ([8, 0], [0, 8])],
)
def test_entries_arrive_as_if_all_were_read_first(source: list[int], target: list[int]) -> None:
    kv = torch.randn(3, 2, 10, 2, 4)
    before = kv.clone()
    commit_kv(kv, torch.tensor(source, dtype=torch.int64), torch.tensor(target, dtype=torch.int64))
    expected = before.clone()
    for old, new in zip(source, target, strict=True):
        expected[:, :, new] = before[:, :, old]
    assert torch.equal(kv, expected)


def test_arguments_that_do_not_fit_are_named() -> None:
    kv, slots = torch.zeros(1, 2, 4, 1, 2), torch.tensor([0, 1])
    with pytest.raises(KernelError, match="commit_kv moves"):
        commit_kv(kv[0], slots, slots)
    with pytest.raises(KernelError, match=r"both must be \[M\]"):
        commit_kv(kv, slots, slots[:1])
    with pytest.raises(KernelError, match="not int64"):
        commit_kv(kv, slots.int(), slots)
