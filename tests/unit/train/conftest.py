"""A job of workers that are threads, for the tests of a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.train.jobs import Job, job_of


@pytest.fixture
def job(request: pytest.FixtureRequest) -> Iterator[Job]:
    """A job whose steps are cut as the module of the test says in ``LAYOUT``."""
    with job_of(request.module.LAYOUT) as made:
        yield made


@pytest.fixture
def saving_job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Job]:
    """A job as `job`, with a directory for its checkpoints."""
    with job_of(request.module.LAYOUT, tmp_path) as made:
        yield made
