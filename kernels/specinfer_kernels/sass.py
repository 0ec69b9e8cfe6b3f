"""Machine code of a kernel as the disassembler lists it: instructions, and which of them loop.

The compiler writes into every instruction how many cycles the warp stalls after it, and which of
six scoreboards it sets and waits for (the control codes, in the high bits of its second word).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

LINE = re.compile(
    r"/\*(?P<at>[0-9a-f]{4,})\*/ +(?:@!?U?P\w+ +)?(?P<op>[A-Z][\w.]*)(?P<rest>[^;]*);"
    r" +/\* 0x\w+ \*/\s+/\* 0x(?P<control>\w{16}) \*/"
)
NO_SCOREBOARD = 7


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of a listing."""

    at: int  # bytes from the kernel's begin
    op: str  # with its suffixes: HMMA.16816.F32.BF16
    operands: str
    stall: int  # cycles before the warp's next instruction
    sets: tuple[int, ...]  # scoreboards that fall when its result is there, or its operands read
    waits: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.op.split(".")[0]

    @property
    def width(self) -> int:
        """Bytes a thread moves, for loads and stores."""
        if self.name in ("LDSM", "STSM"):
            return 4 * int(self.op[-1]) if self.op[-1] in "24" else 4
        return next((bits // 8 for bits in (128, 64) if f".{bits}" in self.op), 4)

    @property
    def spills(self) -> bool:
        """Whether it moves a register to local memory or back."""
        return self.name in ("STL", "LDL")


def parsed(listing: str) -> list[Instruction]:
    """Read what `cuobjdump -sass` prints of one kernel."""
    code = []
    for found in LINE.finditer(listing):
        control = int(found["control"], 16) >> 41
        sets = {control >> 5 & 7, control >> 8 & 7} - {NO_SCOREBOARD}
        waits = tuple(bar for bar in range(6) if control >> 11 >> bar & 1)
        at, operands = int(found["at"], 16), found["rest"].strip()
        code.append(
            Instruction(at, found["op"], operands, control & 15, tuple(sorted(sets)), waits)
        )
    return code


def loops(code: Sequence[Instruction]) -> list[range]:
    """Return where the loops are, as ranges of indices; a jump to itself ends a kernel."""
    index = {instruction.at: place for place, instruction in enumerate(code)}
    found = []
    for place, instruction in enumerate(code):
        target = re.search(r"0x([0-9a-f]+)$", instruction.operands)
        if instruction.name == "BRA" and target and int(target[1], 16) < instruction.at:
            found.append(range(index[int(target[1], 16)], place + 1))
    return found
