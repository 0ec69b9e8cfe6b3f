"""The lean decoder as one call into C, for weights in int8 or bfloat16: decoder.c, compiled when a
model loads."""

from specinfer.lean.native.layout import NativeLayout
from specinfer.lean.native.library import Kind, Library, compile_library
from specinfer.lean.native.packed import GROUP, Block, Packed, Rounded
from specinfer.lean.native.run import NativeCache, NativeDecoder, unfit

__all__ = [
    "GROUP",
    "Block",
    "Kind",
    "Library",
    "NativeCache",
    "NativeDecoder",
    "NativeLayout",
    "Packed",
    "Rounded",
    "compile_library",
    "unfit",
]
