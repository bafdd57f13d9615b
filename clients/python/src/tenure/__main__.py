"""`python -m tenure` is the command `tenure` of this package."""

import os
import sys

from ._binary import find_binary

if __name__ == "__main__":
    binary = find_binary()
    os.execv(binary, [binary, *sys.argv[1:]])
