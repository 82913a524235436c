"""``python -m legato.cli``: the command line, if the command `legato` is not on the path."""

from __future__ import annotations

from legato.cli.main import main

if __name__ == "__main__":
    main()
