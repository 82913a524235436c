"""Commands and the client on webhooks, on a real server: what they print, and how they end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.server.conftest import NewPlatform
from tests.unit.server.platform import Platform
from tests.unit.server.receivers import Receiver, receiving
from typer.testing import CliRunner

from legato.cli import main
from legato.client.client import Client

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture
def platform(new_platform: NewPlatform) -> Platform:
    made: Platform = new_platform(webhook_networks=("127.0.0.1/32",))
    return made


@pytest.fixture
def call(platform: Platform, tmp_path: Path) -> Call:
    environment = {"LEGATO_SERVER": platform.url, "LEGATO_TOKEN": platform.secrets["ann"], "COLUMNS": "200"}
    environment |= {"XDG_CONFIG_HOME": str(tmp_path / "config")}

    def call(*words: str) -> tuple[int, str, str]:
        result = CliRunner().invoke(main.app, ["webhooks", *words], env=environment)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, result.stdout, result.stderr

    return call


def test_a_webhook_is_added_listed_tested_shown_and_removed(call: Call, receiver: Receiver) -> None:
    assert call() == (0, "There are none. To add one: legato webhooks add URL --on ended\n", "")
    url = f"http://127.0.0.1:{receiver.port}/hook"
    code, out, err = call("add", url, "--on", "ended", "--on", "failed", "--below", "3", "--waiting", "30m")
    assert code == 0
    assert out.startswith("lgw_")
    assert len(out.split()) == 1
    assert "(ended, failed, below 3, waiting 1800s)" in err
    hook = err.split()[1]
    code, out, _ = call()
    assert hook in out
    assert "ended, failed, below 3, waiting 1800s" in out
    assert url in out
    assert call("test", hook) == (0, f"The test of webhook {hook} is accepted (status 200)\n", "")
    receiver.status = 500
    code, out, _ = call("test", hook)
    assert (code, out) == (1, f"The test of webhook {hook} is not accepted: it answered with status 500.\n")
    code, out, _ = call("show", hook)
    assert code == 0
    assert "it answered with status 500" in out
    assert "0 pending, 0 given up, 0 dropped" in out
    shown = json.loads(call("show", hook, "-o", "json")[1])
    assert [one["state"] for one in shown["deliveries"]] == ["failed", "delivered"]
    assert call("remove", hook) == (0, f"Webhook {hook} is removed.\n", "")
    code, _, err = call("show", hook)
    assert code != 0
    assert f"There is no webhook '{hook}'" in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "Give --on ended, --on failed, --below NUMBER or --waiting TIME"),
        (("--on", "started"), "Write ended or failed"),
        (("--below", "many"), "Write a whole number"),
        (("--waiting", "30"), "Write a number and a unit"),
        (("--on", "ended", "--project", "Digits"), "Digits"),
    ],
)
def test_what_cannot_be_added_is_refused_with_what_to_do(call: Call, words: tuple[str, ...], told: str) -> None:
    code, out, err = call("add", "https://example.org/hook", *words)
    assert code != 0
    assert out == ""
    assert told in err


def test_a_webhook_is_changed(call: Call, platform: Platform, receiver: Receiver) -> None:
    hook = call("add", "https://example.org/hook", "--on", "ended", "--waiting", "30m")[2].split()[1]
    url = f"http://127.0.0.1:{receiver.port}/new"
    assert call("change", hook, "--url", url, "--on", "failed", "--waiting", "none", "--below", "3") == (
        0,
        f"Webhook {hook} is changed: failed, below 3, to {url}.\n",
        "",
    )
    assert call("test", hook)[0] == 0
    assert "accepted" in call()[1]
    assert call("change", hook, "--on", "none", "--waiting", "2h")[1].endswith(f"below 3, waiting 7200s, to {url}.\n")
    assert json.loads(call("change", hook, "--below", "none", "-o", "json")[1])["below_workers"] is None
    for words, told in [
        ((), "no change is given"),
        (("--on", "none", "--on", "ended"), "give one of them"),
        (("--below", "few"), "Write a whole number"),
        (("--waiting", "none"), "never called"),
        (("--project", "Digits"), "Digits"),
        (("--url", "http://10.0.0.1/"), "webhook_networks"),
    ]:
        code, out, err = call("change", hook, *words)
        assert (code != 0, out) == (True, "")
        assert told in err
    with Client(platform.url, platform.secrets["ann"]) as client:
        assert client.change_webhook(hook, on=["ended"], waiting_s="none").on == ("ended",)


def test_the_client_shows_no_secret_in_its_text(platform: Platform) -> None:
    with Client(platform.url, platform.secrets["ann"]) as client:
        made = client.add_webhook("https://example.org/hook", on=["ended"], waiting_s=60)
        assert made.secret not in repr(made)
        assert client.webhooks()[0].waiting_s == 60
        assert client.webhook(made.webhook.id).deliveries == ()
        client.remove_webhook(made.webhook.id)
        assert list(client.webhooks()) == []
