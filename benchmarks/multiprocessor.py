"""Run a kernel's machine code on a model of a quarter multiprocessor, and count its cycles.

A quarter has one scheduler, one tensor core and a quarter of everything else; a block's warps
spread over the quarters evenly, so one tells what all do.  Stalls and scoreboards are those that
the compiler wrote into the code; what it leaves to the hardware (pipes, memory, barriers between
warps) is modelled here.  Nothing of it was held against a real card.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from heapq import heappop, heappush

from specinfer_kernels.sass import Instruction, loops

# Cycles until a scoreboard falls (Luo et al., arXiv 2402.13499, for memory; others rounded up).
SCOREBOARD = {"LDS": 30, "LDSM": 33, "SHFL": 25, "MUFU": 20, "S2R": 25, "STS": 12, "LDGSTS": 12}
BARRIER = 20  # cycles from the last warp's arrival to the first one's departure
ALU = {"IADD3", "LOP3", "ISETP", "FMNMX", "FSEL", "SHF", "LEA", "PRMT", "FSETP", "SEL", "F2FP"}


@dataclass(frozen=True, slots=True)
class Rates:
    """What a quarter does in a cycle, or how many cycles it takes."""

    mma: float  # FLOP a cycle by HMMA
    wgmma: float  # FLOP a cycle by HGMMA
    fp32: int  # lanes
    memory: float  # bytes a cycle
    latency: float  # cycles of a load from memory
    l2: float  # cycles of a load from the second-level cache


def trace(code: list[Instruction], turns: Sequence[int]) -> list[Instruction]:
    """Return a warp's way through the kernel that goes through each loop `turns` times.

    A loop's last turns load nothing: what they need was on its way before the first one.
    """
    last = max(place for place, each in enumerate(code) if each.op == "EXIT")
    way: list[Instruction] = []
    place = 0
    for loop, times in zip(loops(code), turns, strict=True):
        before, turn = code[place : loop.start], code[loop.start : loop.stop]
        ahead = min(times, ahead_of(before, turn))
        way += [*before, *turn * (times - ahead), *idle(turn) * ahead]
        place = loop.stop
    return way + list(code[place : last + 1])


def ahead_of(before: Sequence[Instruction], turn: Sequence[Instruction]) -> int:
    """Return how many turns of a loop have their keys on the way before it begins."""
    return round(loaded(before) / max(1, loaded(turn)))


def loaded(code: Sequence[Instruction]) -> int:
    """Return the bytes of keys and values that a thread loads; page numbers are narrower."""
    return sum(each.width for each in code if each.name == "LDGSTS" and each.width == 16)


def idle(turn: Sequence[Instruction]) -> list[Instruction]:
    """Return a turn whose loads are switched off."""
    return [replace(each, op="NOP") if each.name == "LDGSTS" else each for each in turn]


def tensor_flop(instruction: Instruction) -> int:
    """Return the FLOP of a warp's HMMA, or of its quarter of a warp group's HGMMA."""
    shape = instruction.op.split(".")[1]
    if instruction.name == "HGMMA":
        m, n, k = map(int, shape.split("x"))
        return 2 * m * n * k // 4
    return {"16816": 4096, "1688": 2048, "1684": 1024}[shape]


@cache
def pipe(instruction: Instruction, rates: Rates) -> tuple[str, float]:
    """Return the unit that an instruction occupies, and for how many cycles."""
    name = instruction.name
    if name in ("HMMA", "HGMMA"):
        rate = rates.mma if name == "HMMA" else rates.wgmma
        return "tensor", tensor_flop(instruction) / rate
    if name in ("LDS", "LDSM", "STS", "STSM", "LDG", "STG", "LDGSTS", "SHFL"):
        return "shared", float(instruction.width)  # 32 threads, 128 bytes a cycle for 4 quarters
    if name in ("FFMA", "FADD", "FMUL"):
        return "fma", 32 / rates.fp32
    if name == "IMAD":
        return "fma", 4 if ".WIDE" in instruction.op else 2
    if name == "MUFU":
        return "special", 8
    return ("alu", 2) if name in ALU else ("issue", 1)


def busy(code: Sequence[Instruction], rates: Rates) -> dict[str, float]:
    """Return the cycles for which one warp occupies each unit, the scheduler under "issue"."""
    cycles: dict[str, float] = defaultdict(float)
    for instruction in code:
        unit, each = pipe(instruction, rates)
        cycles[unit] += each if unit != "issue" else 0
        cycles["issue"] += 1
    return cycles


@dataclass(slots=True)
class Warp:
    """One warp on its way."""

    block: int
    place: int = 0
    scoreboards: list[float] = field(default_factory=lambda: [0.0] * 6)
    loading: float = 0.0  # when what was loaded since the last group is there
    groups: list[float] = field(default_factory=list)
    products: float = 0.0  # when the warp group's last product is there


@dataclass(slots=True)
class Quarter:
    """The clock of every unit, and how blocks' warps wait for each other."""

    rates: Rates
    free: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def run(self, way: Sequence[Instruction], warps: int, blocks: int) -> float:
        """Return after how many cycles all blocks of so many warps have gone the way."""
        queue: list[tuple[float, int]] = []
        crew = [Warp(block) for block in range(blocks) for _ in range(warps)]
        for number in range(len(crew)):
            heappush(queue, (0.0, number))
        arrived: dict[int, list[int]] = defaultdict(list)
        end = 0.0
        while queue:
            at, number = heappop(queue)
            warp = crew[number]
            if warp.place == len(way):
                end = max(end, at)
                continue
            instruction = way[warp.place]
            start = max(at, self._ready(warp, instruction))
            if start > at:
                heappush(queue, (start, number))
                continue
            then = self._issue(warp, instruction, start)
            warp.place += 1
            if instruction.name != "BAR":
                heappush(queue, (then, number))
                continue
            arrived[warp.block].append(number)
            if len(arrived[warp.block]) == warps:
                for waiting in arrived.pop(warp.block):
                    heappush(queue, (start + BARRIER, waiting))
        return end

    def _ready(self, warp: Warp, instruction: Instruction) -> float:
        unit, _ = pipe(instruction, self.rates)
        times = [self.free["issue"], self.free[unit]]
        times += [warp.scoreboards[bar] for bar in instruction.waits]
        if instruction.op.startswith("DEPBAR") and (left := instruction.operands.split(", ")[1:]):
            settled = len(warp.groups) - int(left[0], 16)
            times += warp.groups[max(0, settled - 1) : settled]
        if instruction.op.startswith("WARPGROUP.DEPBAR"):
            times.append(warp.products)
        return max(times)

    def _issue(self, warp: Warp, instruction: Instruction, now: float) -> float:
        unit, cycles = pipe(instruction, self.rates)
        self.free["issue"] = now + 1
        if unit != "issue":
            self.free[unit] = now + cycles
        done = now + SCOREBOARD.get(instruction.name, 10)
        if instruction.name == "LDG":
            done = now + self.rates.l2
        elif instruction.name == "LDGSTS":
            warp.loading = max(warp.loading, self._loads(instruction, now))
        elif instruction.name == "LDGDEPBAR":
            warp.groups.append(warp.loading)
        elif instruction.name == "HGMMA":
            warp.products = now + cycles + 30
        for bar in instruction.sets:
            warp.scoreboards[bar] = max(warp.scoreboards[bar], done)
        return now + max(1, instruction.stall)

    def _loads(self, instruction: Instruction, now: float) -> float:
        """Return when a load is there: keys and values from memory, page numbers from L2."""
        if instruction.width < 16:
            return now + self.rates.l2
        begun = max(self.free["memory"], now)
        self.free["memory"] = begun + 32 * instruction.width / self.rates.memory
        return self.free["memory"] + self.rates.latency
