"""What the agent of a machine in a pool checks before it sends anything (`legato.agent.pool_agent`)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import msgspec
import pytest

from legato.agent.pool_agent import PoolAgent, PoolState
from legato.core.errors import UsageError
from legato.system.certificates import make_authority

PIN = "ab" * 32


class SentError(Exception):
    """The agent has begun to send something."""


def run(home: Path, url: str, token: str | None) -> None:
    asyncio.run(PoolAgent(url, "b", token=token, home=home, say=lambda _: None).run())


@pytest.mark.parametrize(
    ("url", "token", "told"),
    [
        ("http://127.0.0.1:1", f"lgj_x.{PIN}", r"speaks TLS\. Write --connect https://127\.0\.0\.1:1$"),
        ("http://10.0.0.1:1", f"lgj_x.{PIN}", r"speaks TLS\. Write --connect https://10\.0\.0\.1:1$"),
        ("http://10.0.0.1:1", "lgj_x", r"others in the network could read.*allow_plain_agents=true"),
        ("http://gpu.example.org", "lgj_x", r"others in the network could read.*allow_plain_agents=true"),
    ],
)
def test_a_join_token_is_not_sent_without_tls_unless_the_operator_allows_it(
    tmp_path: Path, url: str, token: str, told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        run(tmp_path, url, token)


@pytest.mark.parametrize("token", ["hello", "lgt_secret", f"secret.{PIN}", ".plain"])
def test_what_is_no_join_token_is_refused_before_anything_is_sent(tmp_path: Path, token: str) -> None:
    with pytest.raises(UsageError, match=r"it is no join token, .*lgj_\. .*'legato nodes token'") as found:
        run(tmp_path, "https://127.0.0.1:1", token)
    assert "secret" not in str(found.value)


@pytest.mark.parametrize(("url", "token"), [("http://127.0.0.1:1", "lgj_x"), ("http://10.0.0.1:1", "lgj_x.plain")])
def test_a_join_token_is_sent_on_the_own_machine_or_if_the_operator_allows_it(
    tmp_path: Path, url: str, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[bytes] = []

    async def send(_: httpx.AsyncClient, request: httpx.Request, **more: object) -> httpx.Response:
        sent.append(request.content)
        raise SentError

    async def skip(_: PoolAgent, http: httpx.AsyncClient) -> None:
        del http

    monkeypatch.setattr(httpx.AsyncClient, "send", send)
    monkeypatch.setattr(PoolAgent, "_find_address", skip)
    with pytest.raises(SentError):
        run(tmp_path, url, token)
    assert b'"token":"lgj_x"' in sent[0], "without what is for the agent"


def test_an_agent_trusts_one_stored_certificate_and_refuses_a_damaged_one(tmp_path: Path) -> None:
    first, second = (make_authority(name, 1_800_000_000.0).certificate for name in ("first", "second"))
    agent = PoolAgent("https://127.0.0.1:1", "b", home=tmp_path, say=lambda _: None)
    agent._folder.mkdir(parents=True)
    state = PoolState(url="https://127.0.0.1:1", secret="lga_x", ca=first + second)
    (agent._folder / ".pool.json").write_bytes(msgspec.json.encode(state))
    assert agent._read_state().ca.strip() == first.strip()
    (agent._folder / ".pool.json").write_bytes(msgspec.json.encode(PoolState(ca="nothing")))
    with pytest.raises(UsageError, match=r"Cannot read .*\.pool\.json: .*Remove it, and join again"):
        agent._read_state()
