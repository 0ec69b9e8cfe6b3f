"""Run a command with the schema providers in place of the real ones.

python -m terraform_schema terraform -chdir=terraform/small plan -var-file=example.tfvars
"""

import os
import subprocess
import sys

from terraform_schema.serve import schema_providers


def main(command: list[str]) -> int:
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    with schema_providers() as environment:
        return subprocess.run(command, env=os.environ | environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
