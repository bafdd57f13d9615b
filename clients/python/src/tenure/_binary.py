"""Finds the program `tenure` that this package brings."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator


def find_binary() -> str:
    """Path of `tenure`: what TENURE_BIN names, else the package's own, else one on the PATH.

    Raises FileNotFoundError with the folders that were looked at.
    """
    if named := os.environ.get("TENURE_BIN"):
        return named
    name = "tenure" + (sysconfig.get_config_var("EXE") or "")
    folders = list(dict.fromkeys(_script_folders()))
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return path
    if found := shutil.which(name):
        return found
    raise FileNotFoundError(f"no {name} in {', '.join(folders)} or on the PATH; TENURE_BIN can name one")


def _script_folders() -> Iterator[str]:
    """Where an installer puts the scripts of this package, the likeliest first."""
    yield sysconfig.get_path("scripts")
    # Beside the package, as after `pip install --target` or `--prefix`.
    package = os.path.dirname(os.path.abspath(__file__))
    yield os.path.join(os.path.dirname(package), "bin")
    yield os.path.join(os.path.dirname(package), "..", "..", "..", "bin")
    yield sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))
    # An environment that was made with another one's packages.
    yield os.path.join(sys.base_prefix, "bin")
