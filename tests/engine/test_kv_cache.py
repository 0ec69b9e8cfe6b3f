"""Pages: shared beginnings, no loss, no leak, only the accepted path kept."""

import random

import pytest
import torch

from specinfer.kv_cache import Commit, KVCache, OutOfPagesError


def cache(pages: int = 8, page_size: int = 4) -> KVCache:
    return KVCache(
        layers=2,
        heads=1,
        width=1,
        pages=pages,
        page_size=page_size,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )


def write(pool: KVCache, sequence, tokens) -> None:  # type: ignore[no-untyped-def]
    """Write each token's own number as its key and value, as a forward pass would."""
    pool.reserve(sequence, len(tokens))
    slots = pool.slots(sequence, sequence.length, len(tokens))
    for layer in range(2):
        keys, values = pool.layer(layer)
        keys[slots, 0, 0] = torch.tensor(tokens, dtype=torch.float32)
        values[slots, 0, 0] = torch.tensor(tokens, dtype=torch.float32) + 0.5


def stored(pool: KVCache, sequence) -> list[float]:  # type: ignore[no-untyped-def]
    slots = pool.slots(sequence, 0, sequence.length)
    keys, values = pool.layer(1)
    assert torch.equal(values[slots], keys[slots] + 0.5)
    return keys[slots, 0, 0].tolist()


def test_only_the_accepted_path_is_kept_and_in_order() -> None:
    pool = cache()
    sequence = pool.open([])
    write(pool, sequence, [10, 11, 12, 13, 14, 15])
    pool.commit([Commit(sequence, [0, 2, 5], [10, 12, 15])])
    assert stored(pool, sequence) == [10, 12, 15]
    write(pool, sequence, [20, 21])
    pool.commit([Commit(sequence, [1], [21])])
    assert stored(pool, sequence) == [10, 12, 15, 21]


def test_a_known_beginning_is_shared_without_a_copy() -> None:
    pool = cache()
    first = pool.open([])
    tokens = list(range(1, 11))
    write(pool, first, tokens)
    pool.commit([Commit(first, range(10), tokens)])
    second = pool.open(tokens)
    assert second.pages == first.pages[:2]
    assert second.tokens == tokens[:8]
    assert pool.used == 3
    third = pool.open([1, 2, 3, 4, 99, 6, 7, 8, 9])
    assert third.tokens == [1, 2, 3, 4]


def test_the_last_token_is_never_taken_from_the_cache() -> None:
    """Its logits are what the next step needs."""
    pool = cache()
    first = pool.open([])
    write(pool, first, [1, 2, 3, 4])
    pool.commit([Commit(first, range(4), [1, 2, 3, 4])])
    assert pool.open([1, 2, 3, 4]).tokens == []
    assert pool.open([1, 2, 3, 4, 5]).tokens == [1, 2, 3, 4]


def test_idle_beginnings_survive_release_until_their_place_is_needed() -> None:
    pool = cache(pages=3)
    first = pool.open([])
    write(pool, first, [1, 2, 3, 4, 5])
    pool.commit([Commit(first, range(5), [1, 2, 3, 4, 5])])
    pool.release(first)
    assert pool.used == 0
    assert stored(pool, again := pool.open([1, 2, 3, 4, 9])) == [1, 2, 3, 4]
    pool.release(again)
    big = pool.open([])
    pool.reserve(big, 12)
    assert pool.open([1, 2, 3, 4, 9]).tokens == []


def test_running_out_says_how_much_is_missing_and_changes_nothing() -> None:
    pool = cache(pages=2)
    sequence = pool.open([])
    with pytest.raises(OutOfPagesError, match="3 pages are needed, 2 are free"):
        pool.reserve(sequence, 9)
    assert sequence.pages == []
    assert pool.used == 0


def test_a_storm_of_sequences_reads_what_it_wrote_and_leaks_nothing() -> None:
    rng = random.Random(1)
    pool = cache(pages=24)
    live: list[tuple[object, list[int]]] = []
    for _ in range(600):
        if live and rng.random() < 0.3:
            sequence, wanted = live.pop(rng.randrange(len(live)))
            assert stored(pool, sequence) == wanted
            pool.release(sequence)  # type: ignore[arg-type]
            continue
        if rng.random() < 0.4 or not live:
            prompt = [rng.randrange(2) for _ in range(rng.randrange(1, 12))]
            sequence = pool.open(prompt)
            new = prompt[sequence.length :]
        else:
            sequence, _ = live[rng.randrange(len(live))]  # type: ignore[assignment]
            new = [rng.randrange(2) for _ in range(rng.randrange(1, 6))]
        try:
            write(pool, sequence, new)
        except OutOfPagesError:
            if not any(entry is sequence for entry, _ in live):
                pool.release(sequence)
            continue
        kept = sorted(rng.sample(range(len(new)), rng.randrange(len(new) + 1)))
        pool.commit([Commit(sequence, kept, [new[row] for row in kept])])
        live = [(entry, want) for entry, want in live if entry is not sequence]
        live.append((sequence, list(sequence.tokens)))
    for sequence, wanted in live:
        assert stored(pool, sequence) == wanted
        pool.release(sequence)  # type: ignore[arg-type]
    assert pool.used == 0


def test_a_cpus_cache_lies_head_by_head() -> None:
    pool = KVCache(
        layers=2,
        heads=3,
        width=4,
        pages=5,
        page_size=4,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    keys, values = pool.layer(1)
    assert keys.shape == values.shape == (24, 3, 4)
    assert keys.transpose(0, 1).is_contiguous()
