"""Jobs see what they need of the platform's environment, and none of its secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from legato.engines.environment import pass_on


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "HF_HUB_TOKEN", "CONDA_API_KEY", "TORCH_PASSWORD", "NCCL_SECRET", "HF_CREDENTIALS", "MKL_AUTH"]
)
def test_a_name_that_says_that_it_is_secret_is_not_passed_on(name: str) -> None:
    assert pass_on({name: "x", "AWS_SECRET_ACCESS_KEY": "y", "LEGATO_DATABASE_URL": "z"}) == {}


def test_what_jobs_need_is_passed_on() -> None:
    needed = {"PATH": "/bin", "HF_HOME": "/hf", "NCCL_SOCKET_IFNAME": "eth0", "LC_MONETARY": "C", "CUDA_HOME": "/cuda"}
    assert pass_on(needed) == needed


@pytest.mark.parametrize(
    ("value", "want"),
    [
        ("http://ann:pa%20ss@proxy:3128/x", "http://proxy:3128/x"),
        ("http://ann:p@ss@proxy:3128", "http://proxy:3128"),
        ("ann:pass@proxy:3128", "proxy:3128"),
        ("socks5h://ann@proxy", "socks5h://proxy"),
        ("http://proxy:3128", "http://proxy:3128"),
        ("", ""),
    ],
)
def test_a_proxy_is_passed_on_without_its_user(value: str, want: str) -> None:
    for name in ("https_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        assert pass_on({name: value}) == {name: want}
    if "://" in value:
        assert pass_on({"HF_ENDPOINT": value}) == {"HF_ENDPOINT": want}


def test_other_values_stay_as_they_are() -> None:
    kept = {"no_proxy": "localhost,.example.org", "HF_HUB_USER_AGENT": "ann@example.org"}
    assert pass_on(kept) == kept


def test_paths_of_modules_are_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert pass_on({"PYTHONPATH": "src::/lib"}) == {"PYTHONPATH": f"{tmp_path}/src:/lib"}
