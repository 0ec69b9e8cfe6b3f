"""Compile every kernel that serving may launch into TRITON_CACHE_DIR, without a GPU.

Run in the image build: `TRITON_CACHE_DIR=/opt/triton python -m specinfer_kernels.warm`.  Prints
what each kernel uses of the card and fails where one spills, has no room, or misses the tensor
cores.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain as chain_of
from pathlib import Path

import torch
import triton  # type: ignore[import-untyped]
from triton import knobs

from specinfer_kernels.aot import CompileOnly
from specinfer_kernels.commit_kv.triton import BLOCKS, move
from specinfer_kernels.errors import KernelError
from specinfer_kernels.sampling.arguments import RULES, Warp
from specinfer_kernels.sampling.testing import Drawn, draws_of
from specinfer_kernels.sampling.triton import draw_tokens, walk_trees, warp_rows
from specinfer_kernels.testing import Tensors, batch_of, chain
from specinfer_kernels.tree_attention.launch import TileShape, tile_shape
from specinfer_kernels.tree_attention.triton import TritonPlan

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
TILES = (16, 32, 64, 128)  # packed rows of a tree: what tile_shape tells apart
MULTIPROCESSORS = 1024  # any number that makes a long context of many heads split
LONG = 4096  # keys
VOCABULARIES = (32000, 50257)  # whether 16 divides them is all that code depends on


@dataclass(frozen=True, slots=True)
class Heads:
    """What a model's attention layers look like: heads/kv_heads/width[/window[/softcap]]."""

    heads: int
    kv_heads: int
    width: int
    window: int | None = None
    softcap: float | None = None

    @classmethod
    def parse(cls, text: str) -> "Heads":
        try:
            parts = text.split("/")
            heads, kv_heads, width, window, softcap = [*parts, "0", "0"][: max(5, len(parts))]
            return cls(
                int(heads), int(kv_heads), int(width), int(window) or None, float(softcap) or None
            )
        except ValueError:
            wanted = "heads/kv_heads/width[/window[/softcap]]"
            raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}") from None


SERVED = (
    Heads(12, 12, 64),  # OPT-125M, LLaMA-68M
    Heads(9, 3, 64),  # SmolLM2-135M
    Heads(32, 8, 64),  # Llama-3.2-1B
    Heads(14, 2, 64),  # Qwen2.5-0.5B
    Heads(32, 32, 80),  # OPT-2.7B, Phi-2
    Heads(32, 32, 96),  # Phi-3-mini
    Heads(32, 32, 128),  # LLaMA-7B, OPT-6.7B to 66B
    Heads(16, 8, 128),  # Qwen3-0.6B
    Heads(12, 2, 128),  # Qwen2.5-1.5B
    Heads(28, 4, 128),  # Qwen2.5-7B
    Heads(32, 8, 128),  # Llama-3-8B, Qwen3-8B
    Heads(32, 8, 128, window=4096),  # Mistral-7B
    Heads(64, 8, 128),  # Llama-3-70B
    Heads(8, 4, 256, softcap=50.0),  # Gemma-2-2B, its global layers
    Heads(8, 4, 256, window=4096, softcap=50.0),  # Gemma-2-2B, its local layers
    Heads(4, 1, 256, window=512),  # Gemma-3-1B
)


@dataclass(frozen=True, slots=True)
class Case:
    """One launch whose kernels differ from the other cases'."""

    heads: Heads
    dtype: torch.dtype
    page_size: int
    tile: int
    split: bool

    def launch(self) -> None:
        """Run the real launch code on tensors that nobody reads."""
        rows = max(1, self.tile * self.heads.kv_heads // self.heads.heads)
        batch = batch_of([LONG if self.split else 0], [chain(rows)], page_size=self.page_size)
        shape = self.heads.heads, self.heads.kv_heads, self.heads.width
        given = Tensors.zeros(batch, *shape, self.dtype)
        plan = TritonPlan(batch, self.dtype, MULTIPROCESSORS)
        plan.attend(
            given.query,
            given.keys,
            given.values,
            scale=1.0,
            softcap=self.heads.softcap,
            window=self.heads.window,
        )

    @property
    def shape(self) -> TileShape:
        """Return the tile that it is launched with."""
        group = self.heads.heads // self.heads.kv_heads
        return tile_shape(max(1, self.tile // group), group, self.heads.width, self.dtype)

    def __str__(self) -> str:
        heads, shape = self.heads, self.shape
        group = heads.heads // heads.kv_heads
        tile = f"M={shape.block_m} N={shape.block_n} warps={shape.warps} stages={shape.stages}"
        window = " window" if heads.window else ""
        softcap = " softcap" if heads.softcap else ""
        split = " split" if self.split else ""
        return f"D={heads.width} G={group} {tile}{window}{softcap}{split}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile, print one line a kernel, and return how the process should exit."""
    wish = _parser().parse_args(arguments)
    device = CompileOnly(wish.capability)
    device.activate()
    before = _cached()
    dtype = DTYPES[wish.dtype]
    faulty = 0
    attention = _launches(wish.heads or SERVED, dtype, wish.page_size, wish.tile or TILES)
    for label, launch in chain_of(attention, *map(sampling, wish.vocab or VOCABULARIES)):
        launch()
        for binary in device.take():
            usage = binary.usage()
            wanted = dtype != torch.float32 and binary.name == "attend_tile"
            faults = usage.faults(wish.capability, tensor_cores=wanted)
            faulty += bool(faults)
            print(f"{binary.name:14} {label:55} {usage} {'; '.join(faults)}".rstrip(), flush=True)
    new = len(_cached() - before)
    found = f"{new} kernels new in {knobs.cache.dir}, {faulty} faulty"
    print(f"Triton {triton.__version__}, sm_{wish.capability} {wish.dtype}: {found}")
    return 1 if faulty else 0


def _launches(
    served: Sequence[Heads], dtype: torch.dtype, page_size: int, tiles: Sequence[int]
) -> Iterator[tuple[str, Callable[[], None]]]:
    for heads in served:
        for tile in tiles:
            for split in (False, True):
                case = Case(heads, dtype, page_size, tile, split)
                yield str(case), case.launch
        for moved in BLOCKS:
            kv = torch.zeros(1, 2, page_size * moved, heads.kv_heads, heads.width, dtype=dtype)
            slots = torch.arange(moved)
            yield (
                f"D={heads.width} K={heads.kv_heads} moved={moved}",
                partial(move, kv, slots, slots),
            )


def sampling(vocab: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield what samples from a vocabulary of such a size, and how it is called."""
    rows = torch.zeros(1, vocab)
    whole = torch.zeros(1, dtype=torch.int32)
    warp = Warp(torch.ones(1), whole, torch.ones(1), torch.zeros(1))
    uniforms = torch.zeros(1, 3, dtype=torch.float64)
    size = "V % 16 = 0" if vocab % 16 == 0 else "V % 16 > 0"
    yield f"{size}", partial(warp_rows, rows, warp)
    for replacement in (True, False):
        label = f"{size} {'with' if replacement else 'without'} replacement"
        yield label, partial(draw_tokens, rows, uniforms, replacement)
    for rule in RULES:
        draws = draws_of([[Drawn(0, 1, 0, 0)]], [0], [rows[0]], rule)
        yield size, partial(walk_trees, rows, draws, uniforms, rule)


def _cached() -> set[Path]:
    return set(Path(knobs.cache.dir).glob("*/*.cubin"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m specinfer_kernels.warm", description=__doc__)
    parser.add_argument("--capability", type=int, default=86, help="86: A10G (ml.g5)")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--page-size", type=int, default=16, help="slots a page of the KV cache")
    parser.add_argument(
        "--heads",
        type=Heads.parse,
        action="append",
        help="heads/kv_heads/width[/window[/softcap]]; repeatable",
    )
    parser.add_argument("--vocab", type=int, action="append", help="tokens; repeatable")
    parser.add_argument("--tile", type=int, choices=TILES, action="append", help="packed rows")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KernelError as error:
        sys.exit(f"specinfer_kernels.warm: {error}")
