"""A Hugging Face causal language model run on ForwardPlans.

The model class is transformers' own, with our attention registered in its AttentionInterface.
LLM and SSMs alike go through here.
"""

import inspect
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor
from transformers import AutoConfig, PretrainedConfig
from transformers.utils.logging import disable_progress_bar

from specinfer.attend import Pass, tree_attention_name
from specinfer.config import DType
from specinfer.errors import ModelFolderError, first_line
from specinfer.frame import Frame, FrameShape, pack
from specinfer.graphs import Graphs
from specinfer.kv_cache import KVCache
from specinfer.tree_attention import ForwardPlan
from specinfer_kernels import plan_attention

FULL_ATTENTION = {"full_attention", "sliding_attention"}


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
        self.config: Any = model.config  # transformers', or of the same names
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
            raise ModelFolderError(f"{folder}: cannot be loaded: {first_line(error)}") from error
        return cls(model.to(device), folder.name)

    @property
    def vocab(self) -> int:
        return int(self.config.vocab_size)

    @property
    def max_context(self) -> int:
        return int(self.config.max_position_embeddings)

    @property
    def state_width(self) -> int | None:
        """H of the rows that the head multiplies; None where the model's class names no head."""
        model: Any = self.model
        if model.get_output_embeddings() is None:
            return None
        return int(model.get_input_embeddings().weight.shape[1])  # the head may be quantized

    @property
    def kv_heads(self) -> int:
        """Heads whose keys and values this process caches."""
        heads = getattr(self.config, "num_key_value_heads", None)
        return int(heads or self.config.num_attention_heads)

    @property
    def dtype(self) -> torch.dtype:
        return next(self.model.parameters()).dtype

    @property
    def cache_dtype(self) -> torch.dtype:
        return self.dtype

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
            dtype=self.cache_dtype,
            device=self.device,
        )

    def close(self) -> None:
        """Let go of what is more than memory."""

    @torch.inference_mode()
    def forward(self, plan: ForwardPlan) -> Tensor:
        """Run one pass; return the logits of the plan's wanted rows, [R, V] float32."""
        if self.graphs is not None and (rows := self.graphs.forward(plan)) is not None:
            return rows
        return self.run(self._framed(plan), plan.cache).float()

    @torch.inference_mode()
    def forward_with_states(self, plan: ForwardPlan) -> tuple[Tensor, Tensor]:
        """Run one pass; return logits, and the rows that the head made them of, [R, H] float32."""
        if self.graphs is not None and (both := self.graphs.forward_with_states(plan)) is not None:
            return both
        logits, states = self.run_with_states(self._framed(plan), plan.cache)
        return logits.float(), states.float()

    def _framed(self, plan: ForwardPlan) -> Frame:
        shape = FrameShape.exactly(plan)
        return Frame.over(pack(plan, shape).to(self.device, non_blocking=True), shape)

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

    def run_with_states(self, frame: Frame, cache: KVCache) -> tuple[Tensor, Tensor]:
        """Run as `run` does; return the rows [R, H] that the head multiplied as well."""
        seen: list[Tensor] = []
        head = self.model.get_output_embeddings()  # type: ignore[operator]
        # Before any other hook: a tensor-parallel plan's would make something else of them.
        hook = head.register_forward_pre_hook(lambda _, x: seen.append(x[0]), prepend=True)
        try:
            logits = self.run(frame, cache)
        finally:
            hook.remove()
        return logits, seen[0].flatten(0, -2)


def read_config(folder: Path) -> PretrainedConfig:
    """Read a model folder's config.json; raises ModelFolderError."""
    if not (folder / "config.json").is_file():
        raise ModelFolderError(f"{folder}: not a model folder (no config.json)")
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, StrictDataclassError) as error:
        raise ModelFolderError(f"{folder}: {first_line(error)}") from error
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


def _check_architecture(config: Any, model: torch.nn.Module) -> None:
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
