"""A server of a pool on a host, as a process: ``python -m tests.hosts.pooling server SPEC REINS ARGUMENT...``.

It is ``legato server ARGUMENT...``, except for three things. SPEC is JSON: fields of each job's `JobSpec` that users
cannot set, such as shorter limits. Drivers tell each worker its slot, which the program locks, and the folder REINS.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
from tests.hosts.driving import SLOT_VARIABLE

from legato.control.drivers import local, process
from legato.core.spec import JobSpec
from legato.engines.agents import AgentsEngine
from legato.engines.base import Launch

REINS_VARIABLE = "LEGATO_TEST_REINS"


def serve(fields: dict[str, Any], reins: str, arguments: list[str]) -> None:
    from legato.cli.main import main

    apply_defaults = local.LocalDrivers._apply_defaults

    def apply_all(drivers: local.LocalDrivers, spec: JobSpec) -> JobSpec:
        return msgspec.structs.replace(apply_defaults(drivers, spec), **fields)

    local.LocalDrivers._apply_defaults = apply_all  # type: ignore[method-assign]
    local.subprocess = _Drivers(reins)  # type: ignore[assignment]
    sys.argv = ["legato", "server", *arguments]
    main()


class _Drivers:
    """Stands for the module `subprocess`, and starts drivers as `drive`."""

    def __init__(self, reins: str) -> None:
        self._reins = reins

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def Popen(self, command: list[str], **options: Any) -> Any:  # noqa: N802
        assert command[1:4] == ["-P", "-m", process.__name__]
        command = [*command[:3], __spec__.name, "driver", self._reins, *command[4:]]
        return subprocess.Popen(command, **options)


def drive(reins: str, directory: str, *node: str) -> int:
    start = AgentsEngine.start

    async def start_with_slot(engine: AgentsEngine, launch: Launch) -> None:
        variables = {**launch.environment, SLOT_VARIABLE: launch.slot, REINS_VARIABLE: reins}
        await start(engine, msgspec.structs.replace(launch, environment=variables))

    AgentsEngine.start = start_with_slot  # type: ignore[method-assign]
    os.umask(0o077)
    return process.main(Path(directory), *node)


if __name__ == "__main__":
    if sys.argv[1] == "driver":
        sys.exit(drive(*sys.argv[2:]))
    serve(msgspec.json.decode(sys.argv[2]), sys.argv[3], sys.argv[4:])
