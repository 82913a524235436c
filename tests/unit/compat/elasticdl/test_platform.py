"""A job of ElasticDL on the platform: it cannot get more workers than its program expects."""

from __future__ import annotations

from pathlib import Path

from tests.unit.server.platform import Platform, check_problem, make_template

from legato.cli.platform.server import find_plugins


def test_more_workers_than_worker_num_are_refused(tmp_path: Path) -> None:
    template = make_template(tmp_path / "legato.db")
    with Platform(tmp_path / "home", template, plugins=find_plugins).running() as platform:
        job = platform.submit(framework="elasticdl", program=["-m", "zoo"], max_workers=3)
        told = "Cannot change job 'mnist': max_workers=4 is above 3, the number with which it was submitted"
        for answer in (
            platform.ask("POST", f"jobs/{job}/resize", {"max_workers": 4}),
            platform.ask("PATCH", f"jobs/{job}", {"max_workers": 4}),
        ):
            check_problem(answer, 422, "invalid", told)
        for fewer in (1, 3, 2):
            answer = platform.ask("POST", f"jobs/{job}/resize", {"max_workers": fewer})
            assert answer.json()["max_workers"] == fewer
        clone = platform.ask("POST", f"jobs/{job}/clone", {"max_workers": 5})
        check_problem(clone, 422, "invalid", "max_workers=5 is above 3, the number with which it was submitted")
        plain = platform.submit(max_workers=3)
        assert platform.ask("PATCH", f"jobs/{plain}", {"max_workers": 4}).status_code == 200
