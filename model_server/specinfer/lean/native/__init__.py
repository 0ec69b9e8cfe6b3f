"""The lean decoder and a recurrent SSM's step as one call into C each, compiled when a model loads:
decoder.c, for weights in int8 or bfloat16, and step.c."""

from specinfer.lean.native.layout import NativeLayout
from specinfer.lean.native.library import Kind, Library, compile_library
from specinfer.lean.native.packed import GROUP, Block, Packed, Rounded
from specinfer.lean.native.run import CACHED, NativeDecoder, unfit
from specinfer.lean.native.step import NativeRecurrent, unfit_step

__all__ = [
    "CACHED",
    "GROUP",
    "Block",
    "Kind",
    "Library",
    "NativeDecoder",
    "NativeLayout",
    "NativeRecurrent",
    "Packed",
    "Rounded",
    "compile_library",
    "unfit",
    "unfit_step",
]
