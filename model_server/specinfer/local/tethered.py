"""Runs a module as a program, and ends the process at once when its parent is gone.

Run as a script, with a pipe from the parent as stdin: the kernel closes the pipe however the
parent ends, SIGKILL included, so no orphan stays behind.
"""

import os
import runpy
import sys
import threading


def _end_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
