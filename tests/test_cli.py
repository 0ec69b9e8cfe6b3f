"""The command line as a whole: what a shell sees beside a command's own output."""

import os
import subprocess
import sys


def test_a_reader_that_leaves_is_no_error() -> None:
    """As in `specinfer models list | true`: no traceback, and the status a signal would give."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "specinfer.cli", "models", "list"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
