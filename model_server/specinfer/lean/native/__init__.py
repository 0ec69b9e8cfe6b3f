"""The lean decoder as one call into C, for int8 weights: decoder.c, compiled when a model loads."""

from specinfer.lean.native.library import Library, compile_library
from specinfer.lean.native.packed import GROUP, Block, Packed
from specinfer.lean.native.run import NativeDecoder, unfit

__all__ = [
    "GROUP",
    "Block",
    "Library",
    "NativeDecoder",
    "Packed",
    "compile_library",
    "unfit",
]
