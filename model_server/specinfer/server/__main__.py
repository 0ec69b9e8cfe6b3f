"""`python -m specinfer.server`: the container's entry point."""

import sys

from specinfer.server.command import main

if __name__ == "__main__":
    sys.exit(main())
