"""Completions for a shell. Fast and silent: after an error it offers nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from legato.client.client import Client

_LIMIT_S: Final = 1.0
_NUM_JOBS: Final = 200


def complete_jobs(incomplete: str) -> list[str]:
    """Offer names of jobs, of this machine and of the platform."""
    return _begin_with(incomplete, [*_quietly(_local_names), *_quietly(lambda: _platform_names(incomplete))])


def complete_platform_jobs(incomplete: str) -> list[str]:
    """Offer names of jobs of the platform."""
    return _begin_with(incomplete, _quietly(lambda: _platform_names(incomplete)))


def complete_queues(incomplete: str) -> list[str]:
    """Offer names of queues."""
    return _begin_with(incomplete, _quietly(_queue_names))


def complete_nodes(incomplete: str) -> list[str]:
    """Offer names of nodes."""
    return _begin_with(incomplete, _quietly(lambda: [one.name for one in _open_quickly().nodes()]))


def complete_projects(incomplete: str) -> list[str]:
    """Offer names of projects."""
    return _begin_with(incomplete, _quietly(lambda: [one.name for one in _open_quickly().projects(limit=_NUM_JOBS)]))


def complete_definitions(incomplete: str) -> list[str]:
    """Offer names of training definitions."""
    return _begin_with(incomplete, _quietly(lambda: [one.name for one in _open_quickly().iterate_definitions()]))


def complete_experiments(incomplete: str) -> list[str]:
    """Offer names of experiments."""
    return _begin_with(incomplete, _quietly(lambda: [one.name for one in _open_quickly().iterate_experiments()]))


def complete_frameworks(incomplete: str) -> list[str]:
    """Offer names of frameworks."""
    return _begin_with(incomplete, _quietly(lambda: [one.name for one in _open_quickly().frameworks()]))


def complete_stages(incomplete: str) -> list[str]:
    """Offer stages of jobs."""
    from legato.api.jobs import STAGES

    return _begin_with(incomplete, STAGES)


def complete_servers(incomplete: str) -> list[str]:
    """Offer names of servers."""
    return _begin_with(incomplete, _quietly(_server_names))


def _begin_with(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def _quietly(find: Callable[[], Iterable[str]]) -> list[str]:
    try:
        return list(find())
    except Exception:  # noqa: BLE001 -- a word on the screen would stand in the middle of what is being typed
        return []


def _local_names() -> Iterable[str]:
    from legato.driver.journal import iterate_jobs

    return [found.path.name for found in iterate_jobs() if found.journal_file.exists()]


def _platform_names(incomplete: str) -> Iterable[str]:
    return [job.name for job in _open_quickly().jobs(name=incomplete, limit=_NUM_JOBS)]


def _queue_names() -> Iterable[str]:
    return [queue.name for queue in _open_quickly().queues()]


def _open_quickly() -> Client:
    from legato.client.client import Client
    from legato.client.connection import Line, need_token
    from legato.client.servers import find_server

    return Client.on(Line(need_token(find_server()), patience_s=0.0, answer_limit_s=_LIMIT_S))


def _server_names() -> Iterable[str]:
    from legato.client.servers import CURRENT, find_file, read_known

    return [*read_known(find_file()).servers, CURRENT]
