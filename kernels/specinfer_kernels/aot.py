"""Compile for a GPU that is not there, and read off what the machine code uses.

The real launch code runs under a driver whose kernels do nothing, so what is compiled, and the
cache key it is stored under, are those of the launch on the real card.
"""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import triton  # type: ignore[import-untyped]
from triton.backends.compiler import GPUTarget  # type: ignore[import-untyped]
from triton.runtime.driver import driver  # type: ignore[import-untyped]

from specinfer_kernels.errors import KernelError
from specinfer_kernels.sass import loops, parsed

# Bytes of shared memory a block may have: CUDA C++ Programming Guide, compute capabilities.
SHARED_LIMIT = {80: 163 << 10, 86: 99 << 10, 89: 99 << 10, 90: 227 << 10}


@dataclass(frozen=True, slots=True)
class Binary:
    """One compiled kernel."""

    name: str
    shared: int  # bytes a block
    code: bytes

    def usage(self) -> "Usage":
        """Disassemble with the tools of the triton wheel."""
        listing = self.listing()
        registers = int(listing.split("REG:")[1].split()[0])
        code = parsed(listing)
        spills = sum(instruction.spills for instruction in code)
        looped = sum(code[place].spills for loop in loops(code) for place in loop)
        products = sum(instruction.name in ("HMMA", "HGMMA") for instruction in code)
        return Usage(registers, spills, looped, self.shared, products)

    def listing(self) -> str:
        """Return what it takes of a card, and its machine code with control codes."""
        with TemporaryDirectory() as folder:
            cubin = Path(folder, "kernel.cubin")
            cubin.write_bytes(self.code)
            tool = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", "-sass", cubin]
            return subprocess.run(tool, capture_output=True, text=True, check=True).stdout


@dataclass(frozen=True, slots=True)
class Usage:
    """What a kernel takes of a multiprocessor, and whether it runs on tensor cores."""

    registers: int  # a thread
    spills: int  # instructions that go to local memory and back
    looped: int  # such instructions in loops: the others run once
    shared: int  # bytes a block
    products: int  # tensor-core instructions

    def __str__(self) -> str:
        return (
            f"registers={self.registers} spills={self.spills} "
            f"shared={self.shared} tensor-core={self.products}"
        )

    def faults(self, capability: int, tensor_cores: bool) -> list[str]:
        """Return what forbids serving with this kernel, in words."""
        limit = SHARED_LIMIT[capability]
        checks = {
            f"{self.spills} spills, {self.looped} of them in loops": self.spills > 0,
            f"{self.shared} bytes of shared memory; the limit is {limit}": self.shared > limit,
            "no tensor-core instruction": tensor_cores and self.products == 0,
        }
        return [fault for fault, found in checks.items() if found]


@dataclass(slots=True)
class CompileOnly:
    """A Triton driver for one compute capability that loads nothing and launches nothing.

    As `utils` and `launcher_cls`, it answers the questions that Triton asks of a driver's parts.
    """

    capability: int
    loaded: list[Binary] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.capability not in SHARED_LIMIT:
            known = ", ".join(map(str, SHARED_LIMIT))
            raise KernelError(f"capability {self.capability} is not served; choose from {known}")
        if triton.knobs.runtime.interpret:
            raise KernelError("TRITON_INTERPRET is set: the interpreter compiles nothing")

    def activate(self) -> None:
        """Let this process compile for the capability from now on."""
        driver.set_active(self)

    @property
    def utils(self) -> "CompileOnly":
        return self

    def take(self) -> list[Binary]:
        """Return what was compiled since the last call."""
        taken, self.loaded = self.loaded, []
        return taken

    def get_current_target(self) -> Any:
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return self.capability  # Triton keeps what it loaded by device: one process, many cards

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": SHARED_LIMIT[self.capability]}

    def load_binary(
        self, name: str, code: bytes, shared: int, device: int
    ) -> tuple[int, int, int, int, int]:
        """Note the kernel; return module, function, registers, spills and threads of none."""
        self.loaded.append(Binary(name, shared, code))
        return 0, 0, 0, 0, 1024

    def launcher_cls(self, source: object, metadata: object) -> Callable[..., None]:
        return lambda *arguments: None
