"""From a configuration to the parts of an engine: models, caches, drafters, measured costs."""

import logging
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path

import torch

from specinfer.config import EngineConfig, TreeShape
from specinfer.cost_model import ROWS, CostModel, FlatCost
from specinfer.draft.expansion import Expansion
from specinfer.draft.forced import Forced
from specinfer.draft.lookup import PromptLookup
from specinfer.draft.ngram import NGram
from specinfer.draft.planner import Family, Passes, Planner, cut_short, of_any_size, of_any_size_or
from specinfer.draft.pool import Pool
from specinfer.draft.ranks import Profile
from specinfer.draft.recurrence import Recurrence
from specinfer.errors import ConfigError, ModelFolderError, first_line
from specinfer.graphs import Buckets, CudaCapture, Graphs
from specinfer.kv_cache import KVCache
from specinfer.llm import CausalLM
from specinfer.speculate import Speculator
from specinfer.ssm import RecurrentSSM, is_recurrent, load_ssm
from specinfer.stopwatch import Stopwatch
from specinfer.tokenizer import Tokenizer, has_tokenizer
from specinfer.tree_attention import Segment, plan
from specinfer.verify import draws_with_replacement
from specinfer.waits import what_waits

log = logging.getLogger(__name__)


def assemble(config: EngineConfig, llm: CausalLM, tokenizer: Tokenizer) -> Speculator:
    """Build cache and drafters for a loaded LLM; raises ModelFolderError for an unfit SSM."""
    cache = llm.new_cache(tokens=config.cache_tokens, page_size=config.page_size)
    _try(llm, cache)
    states = llm.state_width if any(map(is_recurrent, config.ssms)) else None
    _capture(config, llm, cache, config.most_nodes, states)
    cost = measured(llm, cache) if config.adaptive and config.speculates else None
    pool = Pool(
        [_drafter(config, folder, llm, tokenizer, cost) for folder in config.ssms],
        [PromptLookup(), NGram(), Forced()] if config.lookup else [],
        cost=cost,
        nodes=config.lookup_nodes,
        depth=config.lookup_depth,
        steady=config.drafts_decide,
    )
    return Speculator(llm, cache, pool, config.verifier)


def _drafter(
    config: EngineConfig,
    folder: Path,
    llm: CausalLM,
    tokenizer: Tokenizer,
    cost: CostModel | None,
) -> Expansion | Recurrence:
    loaded = load_ssm(folder, llm, config)
    replacement = draws_with_replacement(config.verifier)
    if isinstance(loaded, RecurrentSSM):
        own = measured_steps(loaded) if cost else None
        first = deepcopy(own)  # dearer by what the LLM's pass has left in no cache: learnt
        planner = _planner(config, own, cost, of_any_size_or, lambda shape: shape.frontiers, first)
        return Recurrence(loaded, planner, vocab=llm.vocab, replacement=replacement)
    ssm = loaded.model
    if loaded.vocabulary is None:
        _check_vocabulary(folder, ssm, llm, tokenizer)
    pages = -(-config.ssm_nodes // config.page_size)
    cache = ssm.new_cache(
        # Never short of pages when the LLM's cache is not: each tree may begin a page of its own.
        tokens=config.cache_tokens + config.max_batch * pages * config.page_size,
        page_size=config.page_size,
    )
    _try(ssm, cache)
    _capture(config, ssm, cache, config.ssm_nodes)
    return Expansion(
        ssm,
        cache,
        _planner(
            config,
            measured(ssm, cache) if cost else None,
            cost,
            cut_short,
            lambda shape: shape.above,
        ),
        vocab=llm.vocab,
        prefill_rows=config.prefill_rows,
        vocabulary=loaded.vocabulary,
        replacement=replacement,
    )


def _planner(
    config: EngineConfig,
    ssm: CostModel | None,
    llm: CostModel | None,
    around: Callable[[TreeShape], Family],
    passes: Passes,
    first: CostModel | None = None,
) -> Planner:
    """Return a planner of profiled trees, or of those around the fixed one."""
    profile = Profile.read(config.tree_profile) if config.tree_profile else Profile()
    if config.tree == "profiled":
        family = of_any_size(config.tree_nodes, config.tree_depth)
    else:
        family = around(config.tree)
    return Planner(family, profile, ssm=ssm, llm=llm, passes=passes, first=first)


def _capture(
    config: EngineConfig, model: CausalLM, cache: KVCache, nodes: int, states: int | None = None
) -> None:
    """Have a model's passes replayed from CUDA graphs, where settings and model allow it."""
    if config.cuda_graphs == "off":
        return
    obstacle = _obstacle(model, cache)
    if obstacle is None:
        buckets = Buckets.up_to(
            segments=config.max_batch, pages=cache.pages, page_size=cache.page_size
        )
        graphs = Graphs(model, cache, buckets, CudaCapture(), states=states)
        try:
            graphs.warm(nodes + 1)
        except RuntimeError as error:
            obstacle = f"{model.name} could not be captured: {error}"
    if obstacle is None:
        model.graphs = graphs
    elif config.cuda_graphs == "on":
        raise ConfigError(f"cuda_graphs: on, but {obstacle}")
    elif model.device.type == "cuda":
        log.warning("%s runs without CUDA graphs: %s", model.name, obstacle)


def _obstacle(model: CausalLM, cache: KVCache) -> str | None:
    """Say why a model cannot be captured, if so."""
    if model.device.type != "cuda":
        return f"{model.name} is on {model.device.type}"
    if model.uncapturable:
        return f"{model.name} {model.uncapturable}"
    waits = what_waits(model, cache)
    return f"a pass of {model.name} waits for {', '.join(sorted(waits))}" if waits else None


def _try(model: CausalLM, cache: KVCache) -> None:
    """Run one row; raises ModelFolderError where a model's class misuses its attention.

    What it does with an attention's arguments only a pass tells.
    """
    if model.weights_decide:  # reading them for this would double the start
        return
    try:
        _run(model, cache, 1)
    except (TypeError, ValueError, RuntimeError, AttributeError, IndexError, KeyError) as error:
        kind = model.config.model_type
        reason = f"its first pass ends in {type(error).__name__}: {first_line(error)}"
        raise ModelFolderError(f"{model.name}: {kind} is not supported: {reason}") from error


def _run(model: CausalLM, cache: KVCache, rows: int) -> Stopwatch:
    """Run so many rows over an empty context."""
    sequence = cache.open([])
    cache.reserve(sequence, rows)
    segment = Segment(sequence, [0] * rows, [-1] * rows, range(rows))
    watch = Stopwatch(model.device)
    model.forward(plan(cache, [segment]))
    watch.stop()
    cache.release(sequence)
    return watch


def measured(model: CausalLM, cache: KVCache) -> CostModel:
    """Time passes of several sizes over an empty context; rows beyond the cache are left out."""

    def milliseconds(rows: int) -> float:
        return _run(model, cache, rows).milliseconds()

    room = cache.pages * cache.page_size
    points = [rows for rows in ROWS if rows <= room]
    if not model.weights_decide:
        return _timed(model.name, milliseconds, points)
    cost = FlatCost(milliseconds(1))
    log.info("%s: a pass takes %.1f ms", model.name, cost.cost(1, 1))
    return cost


def priced(drafter: Expansion | Recurrence) -> CostModel:
    """Time the passes of a drafter's SSM."""
    if isinstance(drafter, Recurrence):
        return measured_steps(drafter.ssm)
    return measured(drafter.ssm, drafter.cache)


def measured_steps(ssm: RecurrentSSM) -> CostModel:
    """Time steps of several sizes."""
    states = torch.zeros(ROWS[-1], ssm.hidden, device=ssm.device)

    def milliseconds(rows: int) -> float:
        watch = Stopwatch(ssm.device)
        ssm.step(states[:rows], [0] * rows)
        watch.stop()
        return watch.milliseconds()

    return _timed(ssm.name, milliseconds, ROWS)


def _timed(name: str, milliseconds: Callable[[int], float], points: Sequence[int]) -> CostModel:
    cost = CostModel.measured(milliseconds, points)
    told = ", ".join(f"{cost.cost(1, rows):.2g}" for rows in points)
    log.info("%s: a pass over %s rows takes %s ms", name, points, told)
    return cost


def _check_vocabulary(folder: Path, ssm: CausalLM, llm: CausalLM, tokenizer: Tokenizer) -> None:
    """Refuse an SSM whose token ids mean something else; padding and added tokens may differ."""
    if not has_tokenizer(folder):
        if ssm.vocab != llm.vocab:
            raise ModelFolderError(
                f"{folder}: {ssm.vocab} tokens to the LLM's {llm.vocab}, no tokenizer to compare"
            )
        return
    own, llms = Tokenizer(folder).vocabulary(), tokenizer.vocabulary()
    shared = own.keys() & llms.keys()
    if len(shared) < 0.9 * len(llms) or any(own[token] != llms[token] for token in shared):
        raise ModelFolderError(f"{folder}: its tokenizer is not the LLM's, which an SSM needs")
