"""Settings: from where, in which order, and refused in our words. The page says what the source says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from legato.control.settings import Settings, find_origins, read_settings
from legato.control.settings_page import render_page
from legato.core.errors import SettingsError

PAGE = Path(__file__).parents[3] / "docs/settings.md"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"LEGATO_{name.upper()}", raising=False)
    monkeypatch.setenv("LEGATO_HOME", str(tmp_path))
    return tmp_path


def test_the_page_is_made_of_the_settings() -> None:
    assert PAGE.read_text() == render_page(), "run: python -m legato.control.settings_page docs/settings.md"


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_says_what_and_why(name: str) -> None:
    field = Settings.model_fields[name]
    assert field.description is not None
    assert len(field.description) > 30
    default = field.default
    if default is None:
        assert "None: " in field.description
    unit = {"_s": "second", "_bytes": "byte", "_days": "day", "_hours": "hour", "_per_minute": "minute"}
    for end, word in unit.items():
        if name.endswith(end):
            assert word in field.description


def test_no_half_life_is_shorter_than_the_hour_by_which_use_is_counted() -> None:
    assert read_settings(flags={"usage_half_life_s": 3600}).usage_half_life_s == 3600
    with pytest.raises(SettingsError, match="usage_half_life_s must be at least 3600"):
        read_settings(flags={"usage_half_life_s": 3599})


def test_flags_environment_file_default(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "legato.toml").write_text('port = 1\nslots = 2\nhost = "::1"\nkeep_jobs_days = "none"\n')
    monkeypatch.setenv("LEGATO_PORT", "3")
    monkeypatch.setenv("LEGATO_SLOTS", "4")
    monkeypatch.setenv("LEGATO_ALLOWED_HOSTS", "a.example, b.example")
    monkeypatch.setenv("LEGATO_THREADS", "not one of ours")
    flags = {"port": 5, "policy": None}
    found = read_settings(flags=flags)
    assert (found.port, found.slots, found.host, found.policy) == (5, 4, "::1", "fair")
    assert found.allowed_hosts == ("a.example", "b.example")
    assert found.keep_jobs_days is None
    origins = find_origins(flags=flags)
    told = {name: origins[name] for name in ("port", "slots", "host", "policy")}
    file = str(home / "legato.toml")
    assert told == {"port": "flag", "slots": "environment", "host": file, "policy": "default"}
    assert set(origins) == set(Settings.model_fields)


@pytest.mark.parametrize(
    ("said", "want"),
    [("none", ()), ("None", ()), ("", ()), ("wmla", ("wmla",)), (None, ("wmla", "elasticdl")), ([], ())],
)
def test_whose_requests_are_answered(home: Path, said: object, want: tuple[str, ...]) -> None:
    assert read_settings(flags={"compat": said}).compat == want


def test_where_data_of_wmla_lie(home: Path) -> None:
    assert read_settings().wmla_data_path == home / "data"
    assert read_settings(flags={"wmla_data_root": "~/d"}).wmla_data_path == Path.home() / "d"


def test_where_things_are(home: Path, tmp_path: Path) -> None:
    assert read_settings().store_url == f"sqlite:///{home}/legato.db"
    assert read_settings(flags={"home": "~/x"}).home_path == Path.home() / "x"
    assert read_settings(flags={"database_url": "postgresql://h/d"}).store_url == "postgresql://h/d"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("prot = 1", "there is no setting prot. Did you mean port?"),
        ("xyzzy = 1", "there is no setting xyzzy. 'legato config show' lists all."),
        ("port = 70000", "port must be at most 65535 (got 70000)."),
        ('policy = "best"', "policy must be 'fair', 'priority', 'fifo' or 'throughput' (got 'best')"),
        ("lease_s = 1", "lease_s=1 is too short"),
        ("token_days = 9\nmax_token_days = 1", "token_days is above max_token_days"),
        ("upload_max_file_bytes = 9999999999", "upload_max_file_bytes is above"),
        ('compat = ["slurm"]', "compat"),
        ("port = ", "it is not valid TOML"),
        ('stability_s = "none"', "stability_s must be a number (got 'none')"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "other.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        read_settings(file)
    assert told in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there is no such file"):
        read_settings(tmp_path / "none.toml")


def test_settings_do_not_change() -> None:
    found: Any = read_settings()
    with pytest.raises(ValueError, match="frozen"):
        found.port = 1
