"""`python -m proxy` is the command `redrive`."""

import sys

from proxy.cli import main

if __name__ == "__main__":
    sys.exit(main())
