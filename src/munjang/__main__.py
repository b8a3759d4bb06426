"""`python -m munjang` is the command `munjang`."""

import sys

from munjang.cli import main

if __name__ == "__main__":
    sys.exit(main())
