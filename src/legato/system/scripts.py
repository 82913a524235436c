"""Compiles Python scripts to find syntax errors. Runs nothing of them."""

from __future__ import annotations

import sys
import traceback
import warnings
from pathlib import Path
from typing import Final

PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
"""The version of Python that runs here. Another version may accept other scripts."""


def find_syntax_error(script: Path) -> str | None:
    """Return the syntax error of a script as Python prints it: file, line, caret. None: it can be compiled.

    A script that cannot be read, or that is too deeply nested, counts as one without a syntax error: what runs it
    reports the reason.
    """
    try:
        with warnings.catch_warnings():
            # Python repeats warnings, such as that of an invalid escape sequence, when it runs the script.
            warnings.simplefilter("ignore")
            compile(script.read_bytes(), str(script), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return "".join(traceback.format_exception_only(error)).rstrip()
    except (OSError, RecursionError, MemoryError):
        pass
    return None
