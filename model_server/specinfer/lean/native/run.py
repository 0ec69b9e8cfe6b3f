"""From tensors to decoder.c's structures: one call a pass."""

import ctypes
from collections.abc import Mapping

import torch
from torch import Tensor

from specinfer.frame import Frame
from specinfer.kv_cache import KVCache
from specinfer.lean.architecture import Config
from specinfer.lean.decoder import Decoder, Norm
from specinfer.lean.native.described import CLinear, Long, Pointer, at, described, halves
from specinfer.lean.native.library import Kind, Library
from specinfer.lean.native.packed import GROUP, Grouped

LANES = 16  # floats in a vector register
CACHED = torch.float16  # keys and values: half the memory to read, a quarter of bfloat16's error
NEEDS = ("avx512_f", "avx512_bw", "avx512_vl", "avx512_dq")
PRODUCTS: dict[Kind, str] = {"int8": "avx512_vnni", "bf16": "avx512_bf16"}


class _Layer(ctypes.Structure):
    _fields_ = (
        *((name, Pointer) for name in ("before", "between", "q_norm", "k_norm")),
        *((name, CLinear) for name in ("qkv", "o", "gate", "up", "down")),
        ("window", Long),
    )


class _Model(ctypes.Structure):
    _fields_ = (
        ("layers", Pointer),
        ("norm", Pointer),
        ("head", CLinear),
        *((name, Long) for name in ("depth", "hidden", "heads", "kv_heads", "width", "inner")),
        ("eps", ctypes.c_double),
    )


class Pass(ctypes.Structure):
    """decoder.c's structure of that name."""

    _fields_ = (
        *((name, Pointer) for name in ("x", "logits", "normed", "kv", "cos", "sin")),
        *((name, Pointer) for name in ("slots", "wanted", "ancestors")),
        *((name, Pointer) for name in ("starts", "contexts", "pages")),
        *((name, Long) for name in ("rows", "wanted_rows", "requests", "words", "columns")),
        *((name, Long) for name in ("page_size", "longest", "threads")),
        *((name, Long) for name in ("kv_side", "kv_slot", "kv_head")),
    )


def unfit(config: Config, capabilities: Mapping[str, object], kind: Kind = "int8") -> str | None:
    """Return why decoder.c cannot run a model of the lean decoder; None where it can."""
    if missing := lacking(capabilities, kind):
        return missing
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    if config.hidden_size % LANES or width % LANES or config.intermediate_size % GROUP:
        return (
            f"the widths {config.hidden_size} and {width} are not both multiples of {LANES}, "
            f"or {config.intermediate_size} is none of {GROUP}"
        )
    return None


def lacking(capabilities: Mapping[str, object], kind: Kind) -> str | None:
    """Return what a processor lacks for the products of a kind of weights, if anything."""
    missing = [name for name in (*NEEDS, PRODUCTS[kind]) if not capabilities.get(name)]
    return f"the processor has no {', '.join(missing)}" if missing else None


class NativeDecoder:
    """A decoder whose linears are all of one kind for decoder.c, run by the library of that kind.

    Rows are float32, the cache is CACHED.
    """

    def __init__(self, decoder: Decoder, library: Library) -> None:
        self.embedding, self.head, self.dtype = decoder.embedding, decoder.head, torch.float32
        self._decoder = decoder  # the structures point into its tensors
        first = decoder.blocks[0]
        assert isinstance(decoder.head, Grouped)
        assert library.specinfer_item() == decoder.head.weight.itemsize
        self.kind = decoder.head.kind
        self._layers = (_Layer * len(decoder.blocks))()
        for layer, block in zip(self._layers, decoder.blocks, strict=True):
            attention = block.attention
            layer.before, layer.between = at(block.before.weight), at(block.between.weight)
            layer.q_norm, layer.k_norm = _gain(attention.q_norm), _gain(attention.k_norm)
            layer.qkv, layer.o = described(attention.qkv), described(attention.out)
            layer.gate, layer.up = halves(block.gate_up)
            layer.down = described(block.down)
            layer.window = attention.window or 0
        self._model = _Model(
            layers=ctypes.addressof(self._layers),
            norm=at(decoder.norm.weight),
            head=described(decoder.head),
            depth=len(decoder.blocks),
            hidden=decoder.embedding.shape[1],
            heads=first.attention.heads,
            kv_heads=first.attention.kv_heads,
            width=first.attention.width,
            inner=self._layers[0].gate.out,
            eps=first.before.eps,
        )
        self._decode = library.specinfer_decode

    def __call__(self, frame: Frame, cache: KVCache, normed: Tensor | None = None) -> Tensor:
        """Return the logits of the frame's wanted rows, [R, V].

        What the head made them of, the rows after the last norm, is written to normed
        [R, hidden] float32 where that is given.
        """
        x, logits = self.embedded(frame.tokens), self.room(len(frame.wanted))
        given, turn = self.given(frame, cache)
        given.x, given.logits = at(x), at(logits)
        if normed is not None:
            assert normed.dtype == torch.float32
            assert normed.shape == (len(frame.wanted), x.shape[1])
            given.normed = at(normed)
        given.cos, given.sin = map(at, turn)
        self.decode(given)
        return logits

    def embedded(self, tokens: Tensor) -> Tensor:
        """Return what goes in for tokens, [N, hidden], which a pass overwrites."""
        return self.embedding[tokens].to(torch.float32)

    def room(self, rows: int) -> Tensor:
        """Return where so many rows' logits go, [R, V]."""
        return torch.empty(rows, self._model.head.out)

    def given(self, frame: Frame, cache: KVCache) -> tuple[Pass, tuple[Tensor, Tensor]]:
        """Return a pass that lacks x, logits, cos and sin, and the last two."""
        assert cache.kv.dtype == CACHED and cache.kv.stride(4) == 1
        batch = frame.batch
        given = Pass(
            kv=cache.kv.data_ptr(),
            slots=at(frame.slots),
            wanted=at(frame.wanted),
            ancestors=at(batch.ancestors),
            starts=at(batch.starts),
            contexts=at(batch.contexts),
            pages=at(batch.pages),
            rows=len(frame.tokens),
            wanted_rows=len(frame.wanted),
            requests=batch.requests,
            words=batch.ancestors.shape[1],
            columns=batch.pages.shape[1],
            page_size=batch.page_size,
            longest=batch.max_total,
            threads=torch.get_num_threads(),
            kv_side=cache.kv.stride(1),
            kv_slot=cache.kv.stride(2),
            kv_head=cache.kv.stride(3),
        )
        return given, self._decoder.rotary(frame.positions)

    def decode(self, given: Pass) -> None:
        """Run a pass; all that it points to must still be there."""
        if self._decode(ctypes.byref(self._model), ctypes.byref(given)):
            raise MemoryError(f"no memory for a pass of {given.rows} rows")


def _gain(norm: Norm | None) -> int | None:
    return None if norm is None else at(norm.weight)
