"""A Hugging Face causal language model run on ForwardPlans.

The model class is transformers' own, with our attention registered in its AttentionInterface;
plan and cache travel through the model's keyword arguments.  LLM and SSMs alike go through here.
"""

import functools
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from torch import Tensor
from transformers import AutoConfig, PretrainedConfig
from transformers.utils.logging import disable_progress_bar

from specinfer.config import DType
from specinfer.errors import ModelFolderError
from specinfer.frame import Frame, FrameShape, pack
from specinfer.graphs import Graphs
from specinfer.kv_cache import KVCache
from specinfer.tree_attention import ForwardPlan
from specinfer_kernels import AttentionPlan, plan_attention, tree_attention

FULL_ATTENTION = {"full_attention", "sliding_attention"}


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    *,
    step: "Pass",
    **_: Any,
) -> tuple[Tensor, None]:
    """Write the rows' keys and values into the cache and let every row see what it may.

    query [1, H, N, D]; key, value [1, K, N, D]; returns [1, N, H, D].
    """
    assert s_aux is None, "attention sinks are refused when the model is loaded"
    keys, values = step.cache.layer(int(module.layer_idx))  # type: ignore[arg-type]
    keys.index_copy_(0, step.slots, key[0].transpose(0, 1))
    values.index_copy_(0, step.slots, value[0].transpose(0, 1))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    rows = tree_attention(
        query[0].transpose(0, 1),
        keys,
        values,
        step.attention,
        scale=scale,
        softcap=softcap,
        window=sliding_window,
    )
    return rows[None], None


@dataclass(frozen=True, slots=True)
class Pass:
    """What every layer needs of a pass beside its rows."""

    slots: Tensor  # [N] int64, where each row's keys and values go
    attention: AttentionPlan
    cache: KVCache


class Layout(Protocol):
    """The rows of a plan of one sequence, run part by part as its tokens become known."""

    def run(self, tokens: list[int], first: int, wanted: list[int]) -> Tensor:
        """Run the rows from first on, one a token; return the wanted rows' logits, [R, V].

        Rows before first have run, and are ancestors of all others.
        """


class CausalLM:
    """A model and the geometry of the cache it needs."""

    graphs: Graphs | None = None  # where passes are replayed, see assembly
    cache_type: type[KVCache] = KVCache
    uncapturable: str | None = None  # why its passes cannot become CUDA graphs, if so
    weights_decide: bool = False  # a pass costs the reading of the weights, whatever its rows

    def __init__(self, model: torch.nn.Module, name: str) -> None:
        self.name = name
        self.model = model.eval()
        self.config: PretrainedConfig = model.config  # type: ignore[assignment]
        _check_architecture(self.config, model)

    @classmethod
    def load(cls, folder: Path, dtype: DType, device: torch.device, **options: Any) -> Self:
        """Load a folder with config.json and safetensors weights; raises ModelFolderError.

        Further options are those of transformers' from_pretrained.
        """
        from transformers import AutoModelForCausalLM  # costs 170 MB and 2 s

        config = read_config(folder)
        disable_progress_bar()  # type: ignore[no-untyped-call]
        try:
            model: torch.nn.Module = AutoModelForCausalLM.from_pretrained(
                folder,
                config=config,
                dtype=resolve_dtype(dtype, device),
                attn_implementation=tree_attention_name(),
                local_files_only=True,
                use_safetensors=True,
                **options,
            )
        except (OSError, ValueError, KeyError) as error:
            raise ModelFolderError(f"{folder}: cannot be loaded: {_first_line(error)}") from error
        return cls(model.to(device), folder.name)

    @property
    def vocab(self) -> int:
        return int(self.config.vocab_size)

    @property
    def max_context(self) -> int:
        return int(self.config.max_position_embeddings)

    @property
    def kv_heads(self) -> int:
        """Heads whose keys and values this process caches."""
        heads = getattr(self.config, "num_key_value_heads", None)
        return int(heads or self.config.num_attention_heads)

    @property
    def dtype(self) -> torch.dtype:
        return next(self.model.parameters()).dtype

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def precision(self) -> str:
        """What tells the answers of this model apart from those of the same weights elsewhere."""
        return str(self.dtype)

    def new_cache(self, *, tokens: int, page_size: int) -> KVCache:
        """Return an empty cache for at least the given number of tokens."""
        config = self.config
        width = getattr(config, "head_dim", None)
        return self.cache_type(
            layers=config.num_hidden_layers,
            heads=self.kv_heads,
            width=width or config.hidden_size // config.num_attention_heads,
            pages=-(-tokens // page_size),
            page_size=page_size,
            dtype=self.dtype,
            device=self.device,
        )

    def close(self) -> None:
        """Let go of what is more than memory."""

    @torch.inference_mode()
    def forward(self, plan: ForwardPlan) -> Tensor:
        """Run one pass; return the logits of the plan's wanted rows, [R, V] float32."""
        if self.graphs is not None and (rows := self.graphs.forward(plan)) is not None:
            return rows
        shape = FrameShape.exactly(plan)
        buffer = pack(plan, shape).to(self.device, non_blocking=True)
        return self.run(Frame.over(buffer, shape), plan.cache).float()

    def lay_out(self, plan: ForwardPlan) -> Layout | None:
        """Lay out a plan of one sequence of at most 64 rows, if that saves time later."""
        return None

    def run(self, frame: Frame, cache: KVCache) -> Tensor:
        """Return the logits of a frame's wanted rows, [R, V], never waiting for a GPU."""
        output = self.model(
            input_ids=frame.tokens[None],
            position_ids=frame.positions[None],
            use_cache=False,
            logits_to_keep=frame.wanted,
            step=Pass(frame.slots, plan_attention(frame.batch, dtype=cache.kv.dtype), cache),
        )
        logits: Tensor = output.logits[0]
        return logits


@functools.cache
def tree_attention_name() -> str:
    """Register our attention with transformers; return the name by which models ask for it."""
    from transformers import AttentionInterface

    AttentionInterface.register(name := "specinfer_tree", attend)
    return name


def read_config(folder: Path) -> PretrainedConfig:
    """Read a model folder's config.json; raises ModelFolderError."""
    if not (folder / "config.json").is_file():
        raise ModelFolderError(f"{folder}: not a model folder (no config.json)")
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise ModelFolderError(f"{folder}: {_first_line(error)}") from error
    return config


def resolve_device(name: str) -> torch.device:
    """Turn `auto` into the first GPU where there is one."""
    if name != "auto":
        return torch.device(name)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def resolve_dtype(name: DType, device: torch.device) -> torch.dtype:
    """Turn `auto` into bfloat16 where the device multiplies it natively, else float32."""
    if name != "auto":
        dtype: torch.dtype = getattr(torch, name)
        return dtype
    native = (
        torch.cuda.is_bf16_supported()
        if device.type == "cuda"
        else bool(torch.cpu.get_capabilities().get("avx512_bf16"))
    )
    return torch.bfloat16 if native else torch.float32


def _check_architecture(config: PretrainedConfig, model: torch.nn.Module) -> None:
    """Refuse what a cache of keys and values alone cannot serve; raises ModelFolderError."""
    kinds = set(getattr(config, "layer_types", None) or ()) - FULL_ATTENTION
    if kinds:
        raise ModelFolderError(f"{config.model_type}: layers of type {sorted(kinds)} not supported")
    if getattr(config, "is_encoder_decoder", False):
        raise ModelFolderError(f"{config.model_type}: encoder-decoder models are not supported")
    if not getattr(model, "_supports_attention_backend", False):
        # transformers would ignore our attention without a word, and with it cache and tree.
        raise ModelFolderError(
            f"{config.model_type}: its class has an attention of its own, which is not supported"
        )
    if any("sinks" in name for name, _ in model.named_parameters()):
        raise ModelFolderError(f"{config.model_type}: attention sinks are not supported")
    if "logits_to_keep" not in inspect.signature(model.forward).parameters:
        raise ModelFolderError(f"{config.model_type}: its class cannot select rows of logits")


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
