"""What is public of the cards, and how long a kernel's blocks take one of their multiprocessors.

Figures of NVIDIA's data sheets (A10G: the one for AWS, which gives it 70 TFLOPS in bfloat16 where
an A10 has 125; A100 80 GB SXM, L40S, H100 and H200 SXM) and of the CUDA C++ Programming Guide
(compute capabilities); latencies by Luo et al., arXiv 2402.13499, doubled for a busy memory.  L2's
bandwidth and the share of the memory's that a copy reaches are guesses from published runs.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

from multiprocessor import Quarter, Rates, trace

from specinfer_kernels.aot import Binary, Usage
from specinfer_kernels.sass import Instruction, loops, parsed

PEAK = 0.87  # of the data sheet's bandwidth, which a copy reaches: the floor's own bandwidth
MMA_ON_HOPPER = 0.62  # of the peak, by HMMA (Luo et al., arXiv 2402.13499)


@dataclass(frozen=True, slots=True)
class Card:
    """One card."""

    capability: int
    multiprocessors: int
    clock: float  # Hz, boost
    bandwidth: float  # bytes a second
    tensor: float  # dense half-precision FLOP a cycle and multiprocessor, float32 sums
    lanes: int  # of float32, a multiprocessor
    l2_bytes: float
    l2_bandwidth: float
    latency: float  # seconds
    l2_latency: float
    shared: int  # bytes a multiprocessor
    threads: int  # a multiprocessor
    blocks: int  # a multiprocessor

    @property
    def stacked(self) -> bool:
        """Whether its memory is HBM."""
        return self.capability in (80, 90)

    @property
    def copied(self) -> float:
        """Bytes a second that a copy reaches: the bandwidth of the floor."""
        return PEAK * self.bandwidth

    def rates(self, share: float) -> Rates:
        """Return a quarter's rates where the multiprocessor gets `share` bytes a second."""
        hopper = self.capability == 90
        return Rates(
            mma=self.tensor / 4 * (MMA_ON_HOPPER if hopper else 1),
            wgmma=self.tensor / 4,
            fp32=self.lanes // 4,
            memory=share / self.clock / 4,
            latency=self.latency * self.clock,
            l2=self.l2_latency * self.clock,
        )


CARDS = {
    "A10G": Card(86, 80, 1.71e9, 600e9, 512, 128, 6e6, 2e12, 600e-9, 160e-9, 100 << 10, 1536, 16),
    "A100": Card(
        80, 108, 1.41e9, 2039e9, 2048, 64, 40e6, 4e12, 650e-9, 190e-9, 164 << 10, 2048, 32
    ),
    "L40S": Card(
        89, 142, 2.52e9, 864e9, 1024, 128, 96e6, 4e12, 500e-9, 120e-9, 100 << 10, 1536, 24
    ),
    "H100": Card(
        90, 132, 1.83e9, 3350e9, 4096, 128, 50e6, 5.5e12, 600e-9, 150e-9, 228 << 10, 2048, 32
    ),
    "H200": Card(
        90, 132, 1.83e9, 4800e9, 4096, 128, 50e6, 5.5e12, 600e-9, 150e-9, 228 << 10, 2048, 32
    ),
}


@dataclass(frozen=True, eq=False)
class Kernel:
    """One compiled kernel on a card."""

    card: Card
    binary: Binary
    warps: int

    @cached_property
    def usage(self) -> Usage:
        return self.binary.usage()

    @cached_property
    def code(self) -> list[Instruction]:
        return parsed(self.binary.listing())

    @property
    def turn(self) -> list[Instruction]:
        """The loop over context keys."""
        loop = loops(self.code)[0]
        return self.code[loop.start : loop.stop]

    @cached_property
    def residents(self) -> int:
        """Return how many blocks a multiprocessor holds at once."""
        card, threads = self.card, 32 * self.warps
        registers = -(-self.usage.registers // 8) * 8 * threads
        shared = card.shared // (self.usage.shared + 1024)
        return min(shared, 65536 // registers, card.threads // threads, card.blocks)

    @lru_cache  # noqa: B019 (as many kernels as a run compiles)
    def seconds(self, turns: tuple[int, ...], blocks: int, share: float) -> float:
        """Return how long so many blocks take a multiprocessor that gets share bytes a second."""
        if turns[0] > 12:  # from there on, turns are alike
            known, less = (self.seconds((n, *turns[1:]), blocks, share) for n in (12, 6))
            return known + (turns[0] - 12) * (known - less) / 6
        warps = max(1, self.warps // 4)
        each = -(-blocks * self.warps // (4 * warps))
        cycles = Quarter(self.card.rates(share)).run(trace(self.code, turns), warps, each)
        return cycles / self.card.clock

    def turn_seconds(self, blocks: int, share: float) -> float:
        """Return how long a turn takes so many blocks, when all is under way."""
        less, more = (self.seconds((n, 0), blocks, share) for n in (6, 12))
        return (more - less) / 6
