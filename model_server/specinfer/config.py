"""The engine's settings: frozen, complete and checked when built."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from specinfer.errors import ConfigError

Verifier = Literal["auto", "naive", "multi_step", "multi_step_wor", "traversal"]
DType = Literal["auto", "float32", "bfloat16", "float16"]
Offload = Literal["none", "cpu", "disk"]
Quantization = Literal["none", "int8", "int8_weight_only", "int4_weight_only", "auto"]
CudaGraphs = Literal["auto", "on", "off"]


@dataclass(frozen=True, slots=True)
class TreeShape:
    """An expansion configuration <k1, …, km> (paper, section 3.1): children a node, by depth."""

    widths: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> "TreeShape":
        """Read `1,1,3,1`, with or without angle brackets; raises ConfigError."""
        match = re.fullmatch(r"\s*<?\s*(\d+(?:\s*,\s*\d+)*)\s*>?\s*", text)
        if not match:
            raise ConfigError(f"tree: expected profiled, or widths like 1,1,3,1, got {text!r}")
        return cls(tuple(int(width) for width in match[1].split(",")))

    def __post_init__(self) -> None:
        if not self.widths or min(self.widths) < 1:
            raise ConfigError(f"tree: every width must be at least 1, got {self}")

    def __str__(self) -> str:
        return f"<{','.join(map(str, self.widths))}>"

    @property
    def nodes(self) -> int:
        """Speculated nodes of the full tree, the root excluded."""
        total, level = 0, 1
        for width in self.widths:
            level *= width
            total += level
        return total


Tree = TreeShape | Literal["profiled"]  # profiled: the best for the rates at which ranks stand


def parse_tree(text: str) -> Tree:
    """Read `profiled`, or widths like `1,1,3,1`; raises ConfigError."""
    return "profiled" if text.strip() == "profiled" else TreeShape.parse(text)


MAX_TREE_NODES = 256
MAX_PROFILED = 64  # looking for the best tree takes time with the square of its nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What to serve and how.  Raises ConfigError naming the setting that is wrong."""

    model: Path
    ssms: tuple[Path, ...] = ()
    lookup: bool = True  # draft by prompt look-up and n-grams, which cost no model
    tree: Tree = TreeShape((1, 1, 3, 1, 1, 1, 1, 1))  # the paper's, for every SSM
    tree_nodes: int = 20  # of a profiled tree, at most
    tree_depth: int = 8
    tree_profile: Path | None = None  # what `specinfer profile` wrote; None: rates are learnt
    lookup_depth: int = 8
    lookup_nodes: int = 12  # each of look-up, n-gram and grammar may add so many
    adaptive: bool = True  # verify only what pays for itself by the measured costs
    verifier: Verifier = "auto"
    dtype: DType = "auto"
    quantization: Quantization = "none"  # of linears: the SSMs', and a resident LLM's
    device: str = "auto"
    tensor_parallel: int = 1  # ranks, one a GPU, that share the LLM
    offload: Offload = "none"  # where the LLM's layers are kept: in host memory, on disk
    offload_layers: int = 3  # ... and how many are on the device at a time
    max_batch: int = 32
    max_context: int | None = None  # None: the model's own
    cache_tokens: int = 16384
    page_size: int = 16
    prefill_rows: int = 512  # prompt tokens a step, all requests together
    queue_limit: int = 128
    threads: int | None = None
    cuda_graphs: CudaGraphs = "auto"  # on: a model that cannot be captured is an error

    def __post_init__(self) -> None:
        for name in (
            "tree_depth",
            "lookup_depth",
            "lookup_nodes",
            "max_batch",
            "cache_tokens",
            "page_size",
            "prefill_rows",
            "queue_limit",
            "tensor_parallel",
            "offload_layers",
        ):
            _require(name, getattr(self, name) >= 1, getattr(self, name), "at least 1")
        fits = 1 <= self.tree_nodes <= MAX_PROFILED
        _require("tree_nodes", fits, self.tree_nodes, f"in [1, {MAX_PROFILED}]")
        if self.tree_profile is not None and self.tree != "profiled":
            raise ConfigError("tree_profile: only a profiled tree has one (tree: profiled)")
        if self.most_nodes > MAX_TREE_NODES:
            raise ConfigError(
                f"the merged tree may have {self.most_nodes} nodes, the limit is {MAX_TREE_NODES}"
            )
        offloads = get_args(Offload)
        _require("offload", self.offload in offloads, self.offload, f"one of {offloads}")
        self._refuse_combinations()
        _require("dtype", self.dtype in get_args(DType), self.dtype, f"one of {get_args(DType)}")
        kinds = get_args(Quantization)
        _require("quantization", self.quantization in kinds, self.quantization, f"one of {kinds}")
        verifiers = get_args(Verifier)
        _require("verifier", self.verifier in verifiers, self.verifier, f"one of {verifiers}")
        graphs = get_args(CudaGraphs)
        _require("cuda_graphs", self.cuda_graphs in graphs, self.cuda_graphs, f"one of {graphs}")
        _require("threads", self.threads is None or self.threads >= 1, self.threads, "at least 1")
        _require(
            "max_context",
            self.max_context is None or self.max_context >= 2,
            self.max_context,
            "at least 2",
        )

    @property
    def ssm_nodes(self) -> int:
        """Speculated nodes that one SSM's tree may have."""
        return self.tree_nodes if self.tree == "profiled" else self.tree.nodes

    @property
    def most_nodes(self) -> int:
        """Speculated nodes that the merged tree may have."""
        free = 3 * self.lookup_nodes * self.lookup  # look-up, n-grams, what a grammar forces
        return len(self.ssms) * self.ssm_nodes + free

    def _refuse_combinations(self) -> None:
        if self.quantization not in ("none", "auto") and self.tensor_parallel > 1:
            raise ConfigError(
                f"tensor_parallel: goes with quantization none, not {self.quantization}"
            )
        if self.tensor_parallel > 1 and self.offload != "none":
            raise ConfigError("offload: an LLM is either off-loaded or shared by several ranks")

    @property
    def drafts_decide(self) -> bool:
        """Whether a seed's answer depends on what is drafted for it, not on the seed alone."""
        return self.speculates and (bool(self.ssms) or self.verifier not in ("auto", "naive"))

    @property
    def speculates(self) -> bool:
        return self.lookup or bool(self.ssms)


def _require(name: str, ok: bool, value: object, rule: str) -> None:
    if not ok:
        raise ConfigError(f"{name}: must be {rule}, got {value!r}")
