"""Packs what a training left into a zip file, for programs that call ``download()`` as samples for notebooks do.

In a job it lies below RESULT_DIR already; nothing is fetched.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from legato.compat.wmla import names
from legato.compat.wmla.fabric.model_files import write_whole
from legato.core.errors import UsageError


def pack_results(result_dir: Path, out_dir: Path, job: str) -> Path:
    """Write ``JOB.zip`` with all that lies in the job's ``model``, whole or not at all, and return where it is.

    Args:
        result_dir: of the job.
        out_dir: made if it is not there; what is packed into it by that name is left out.
        job: its id.

    Raises:
        UsageError: it cannot be written.
    """
    path = out_dir / f"{job}.zip"
    found = sorted(file for file in (result_dir / names.MODEL).rglob("*") if file.is_file())

    def pack(scratch: Path) -> None:
        with zipfile.ZipFile(scratch, "w") as packed:
            for file in found:
                if file.resolve() != path.resolve():
                    packed.write(file, file.relative_to(result_dir))

    try:
        write_whole(path, pack)
    except OSError as error:
        raise UsageError(f"Cannot write '{path}': {error.strerror or error}. Name another out_dir.") from error
    return path
