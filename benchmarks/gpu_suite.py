"""Everything a CUDA machine can say about kernels and engine, in one call of eight minutes.

Run: python benchmarks/gpu_suite.py [--minutes 8].  It checks the kernels against the definition
and the engine against itself, then prints what a step is made of, plain steps against trees, and
the kernels beside SDPA with a dense mask, FlexAttention, and the time the memory needs for keys
and values alone (bytes by measured copy bandwidth).  What the machine lacks is named in one line
and left out.  --dry-run goes through all of it on a CPU, by Triton's interpreter and with tiny
sizes; its times mean nothing.
"""

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch

for source in ("kernels", "model_server"):
    sys.path.insert(0, str(Path(__file__).parents[1] / source))


def missing(dry: bool) -> Iterator[str]:
    """Say what this machine lacks."""
    if not dry and not torch.cuda.is_available():
        yield f"no CUDA device (torch {torch.__version__})"
    if importlib.util.find_spec("triton") is None:
        yield "the package triton is not installed"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=8, help="after which no case is begun")
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes on the CPU")
    wish = parser.parse_args()
    lacks = list(missing(wish.dry_run))
    if lacks:
        print(f"gpu_suite: nothing to measure: {'; '.join(lacks)}", file=sys.stderr)
        return 2
    deadline = time.monotonic() + wish.minutes * 60
    if wish.dry_run:  # before anything imports triton
        os.environ |= {"TRITON_INTERPRET": "1", "SPECINFER_KERNELS": "triton"}
    return suite(wish.dry_run, deadline)


def suite(dry: bool, deadline: float) -> int:
    import triton
    from gpu_kernels import check_kernels, measure_kernels
    from gpu_rig import CARD, DRY

    rig = DRY if dry else CARD
    where = "dry run" if dry else torch.cuda.get_device_name(0)
    print(f"{where}, torch {torch.__version__}, triton {triton.__version__}")
    generator = torch.Generator().manual_seed(0)
    failures = check_kernels(rig, generator)
    if importlib.util.find_spec("transformers") is None:
        print("gpu_suite: engine left out: transformers is not installed", file=sys.stderr)
    else:
        from gpu_engine import Bench, check_engine, measure_speed, measure_steps

        bench = Bench.of(rig)
        failures += check_engine(rig, bench)
        measure_steps(rig, bench)
        measure_speed(rig, bench)
        del bench
    measure_kernels(rig, generator, deadline)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
