"""C code as a shared library, compiled for the very processor it runs on, in about a second.

There is one library a source and kind of weights.  Nothing is kept on disk, so nothing can be
stale.
"""

import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from specinfer.errors import SpecInferError

# Contraction would let a compiler fuse a product and a sum in one place and not in another.
FLAGS = ("-std=c11", "-O3", "-march=native", "-ffp-contract=off", "-fopenmp", "-shared", "-fPIC")
COMPILERS = ("cc", "gcc", "clang")

Kind = Literal["int8", "bf16"]  # each a header beside the sources
Source = Literal["decoder.c", "step.c"]
Library = ctypes.CDLL


class CompilerError(SpecInferError):
    """There is no C compiler, or it cannot compile our code."""


def find_compiler(environ: Mapping[str, str]) -> str:
    """Return the compiler that CC names, or a usual one; raises CompilerError."""
    wanted = [environ["CC"]] if environ.get("CC") else COMPILERS
    for name in wanted:
        if found := shutil.which(name):
            return found
    raise CompilerError(f"no C compiler ({', '.join(wanted)})")


@functools.cache
def compile_library(compiler: str, kind: Kind = "int8", source: Source = "decoder.c") -> Library:
    """Compile and load the library of a source for a kind of weights.

    Raises CompilerError with the compiler's first complaint.  Loaded after torch, it
    shares torch's OpenMP runtime and so its threads.
    """
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "compiled.so"
        products = f'-DPRODUCTS_OF="{kind}.h"'
        command = [
            compiler,
            *FLAGS,
            products,
            str(Path(__file__).with_name(source)),
            "-o",
            str(built),
            "-lm",
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CompilerError(f"{compiler}: {error}") from error
        if done.returncode:
            first = next(iter(done.stderr.strip().splitlines()), "no message")
            raise CompilerError(f"{compiler}: {first}")
        return ctypes.CDLL(str(built))
