"""Everything a CUDA machine can say about kernels and engine, in one call of eight minutes.

Run: python benchmarks/gpu_suite.py [--minutes 8].  It checks the kernels against the definition
and the engine against itself, then prints what a step is made of, plain steps against trees, and
the kernels beside SDPA with a dense mask, FlexAttention, and the time the memory needs for keys
and values alone (bytes by measured copy bandwidth).  What the machine lacks is named in one line
and left out; what fails is named, and the rest goes on; each part has a share of the time, and
leaves its least important cases out when that is over.  --dry-run goes through all of it on a
CPU, by Triton's interpreter and with tiny sizes; its times mean nothing.
"""

import argparse
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from gpu_rig import Rig, Until

BEGIN = 0.94  # of the time: after it no case begins

for source in ("kernels", "model_server"):
    sys.path.insert(0, str(Path(__file__).parents[1] / source))


def missing(dry: bool) -> Iterator[str]:
    """Say what this machine lacks."""
    if not dry and not torch.cuda.is_available():
        yield f"no CUDA device (torch {torch.__version__})"
    elif not dry and torch.cuda.get_device_capability() < (8, 0):
        yield f"{torch.cuda.get_device_name(0)} has no bfloat16: it needs compute capability 8.0"
    if importlib.util.find_spec("triton") is None:
        yield "the package triton is not installed"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=8, help="after which it ends")
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes on the CPU")
    wish = parser.parse_args()
    lacks = list(missing(wish.dry_run))
    if lacks:
        print(f"gpu_suite: nothing to measure: {'; '.join(lacks)}", file=sys.stderr)
        return 2
    ending = threading.Timer(wish.minutes * 60, _end)
    ending.daemon = True
    ending.start()
    if wish.dry_run:  # before anything imports triton
        os.environ |= {"TRITON_INTERPRET": "1", "SPECINFER_KERNELS": "triton"}
    failures = suite(wish.dry_run, time.monotonic() + wish.minutes * 60 * BEGIN)
    ending.cancel()
    return 1 if failures else 0


def _end() -> None:
    """Leave whatever hangs: a compiler or a kernel that no exception reaches."""
    print("time is up: stopped in the middle of a case", flush=True)
    os._exit(3)


def suite(dry: bool, deadline: float) -> int:
    """Run every part in its share of the time; return how many checks and cases failed."""
    import triton  # type: ignore[import-untyped]
    from gpu_kernels import check_kernels, check_peers, measure_kernels, say_spills
    from gpu_rig import CARD, DRY, Until, attempt
    from gpu_sampling import check_sampling, measure_sampling

    rig = DRY if dry else CARD
    where = "dry run" if dry else torch.cuda.get_device_name(0)
    print(f"{where}, torch {torch.__version__}, triton {triton.__version__}", flush=True)
    generator = torch.Generator().manual_seed(0)
    until = Until(deadline)
    failures = attempt("checks", lambda: check_kernels(rig, generator, until.share(0.3)))
    failures += attempt("sampling checks", lambda: check_sampling(rig, until.share(0.1)))
    failures += attempt("engine", lambda: _engine(rig, until.share(0.5)))
    failures += attempt("peers", lambda: check_peers(rig, generator))
    failures += attempt("sampling", lambda: measure_sampling(rig, until.share(0.3)))
    failures += attempt("attention", lambda: measure_kernels(rig, generator, until))
    return failures + attempt("spills", say_spills)


def _engine(rig: "Rig", until: "Until") -> int:
    if importlib.util.find_spec("transformers") is None:
        print("gpu_suite: engine left out: transformers is not installed", file=sys.stderr)
        return 0
    from gpu_engine import Bench, check_engine, measure_speed, measure_steps, no_room
    from gpu_rig import attempt

    failures = attempt("tokens", lambda: check_engine(rig))
    if (reason := no_room(rig)) is not None:
        print(f"gpu_suite: engine left out: {reason}", file=sys.stderr)
        return failures
    bench = Bench.of(rig)
    failures += measure_speed(rig, bench, until.share(0.5))
    failures += measure_steps(rig, bench, until)
    bench.let_go()
    return failures


if __name__ == "__main__":
    sys.exit(main())
