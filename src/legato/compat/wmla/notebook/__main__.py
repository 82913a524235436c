"""``python -m legato.compat.wmla.notebook``: adds the kernel for notebooks of WMLA to Jupyter."""

from __future__ import annotations

import argparse
import sys

from legato.compat.wmla.notebook.kernel import NAME, install_kernel
from legato.core.errors import LegatoError


def main() -> int:
    """Install the kernel; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m legato.compat.wmla.notebook",
        description="Add a kernel to Jupyter in which notebooks of WMLA run unchanged: 'from fabric_model import "
        "FabricModel' trains on Legato.",
    )
    parser.add_argument(
        "--name", default=NAME, help="name of the kernel; python3 replaces Jupyter's usual kernel [%(default)s]"
    )
    parser.add_argument(
        "--prefix", help="folder to install the kernel below, for example a virtual environment [this user's folder]"
    )
    options = parser.parse_args()
    try:
        place = install_kernel(options.name, options.prefix)
    except LegatoError as error:
        sys.stderr.write(f"Error: {error}\n")
        return 1
    sys.stdout.write(
        f"Kernel {options.name} is in {place}.\nOpen a notebook with it: Kernel > Change Kernel.\n"
        f"To remove it: jupyter kernelspec remove {options.name}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
