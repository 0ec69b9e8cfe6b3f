"""`python -m specinfer.parallel [ADDRESS]`: one rank, as torchrun starts it."""

import logging
import sys
from multiprocessing.connection import Client

from specinfer.errors import SpecInferError
from specinfer.parallel.group import Group, die_with_parent
from specinfer.parallel.lead import lead
from specinfer.parallel.sharded import ShardedLM, follow


def main() -> int:
    die_with_parent()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        group = Group.join()
        if group.leads:
            with Client(sys.argv[1], "AF_UNIX") as connection:
                lead(group, connection)
        else:
            follow(ShardedLM.of(group.hear(), group))
        group.leave()
    except SpecInferError as error:
        print(f"specinfer: rank: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
