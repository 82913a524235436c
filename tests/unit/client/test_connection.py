"""The connection: which requests are repeated, the errors for refusals, and that the token stays secret."""

from __future__ import annotations

import json
import logging
import os
import socket
import ssl
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.unit.client.platform import NOW, TOKEN, URL, Platform, Time, stream

from legato.api.people import Me, Token
from legato.client.client import Client
from legato.client.connection import Line
from legato.client.people import NewToken
from legato.client.server_sent_events import Message, read_messages
from legato.client.servers import LOCAL_FILE, Server, find_local
from legato.core import errors


@pytest.fixture
def platform() -> Platform:
    platform = Platform()
    platform.add_job()
    return platform


# ---------------------------------------------------------------- warnings


def test_a_program_is_warned_of_what_an_answer_warns_of_with_its_own_line(platform: Platform) -> None:
    client = platform.client()
    platform.warn("'pytorch-onnx 1.1-py 3.6' runs here with torch 2.8.0.")
    with pytest.warns(UserWarning, match="runs here with torch") as told:
        client.me()
    assert [one.filename for one in told] == [__file__]
    client.me()  # without a warning, which would be an error here


@pytest.mark.filterwarnings("error")
def test_a_warning_loses_no_answer_where_warnings_are_errors(
    platform: Platform, caplog: pytest.LogCaptureFixture
) -> None:
    """The server has accepted the request: a program that gets an error instead would submit the job again."""
    client = platform.client()
    platform.warn("'pytorch-onnx 1.1-py 3.6' runs here with torch 2.8.0.")
    assert client.me().name
    assert [record.getMessage() for record in caplog.records if record.name.startswith("legato")] == [
        "'pytorch-onnx 1.1-py 3.6' runs here with torch 2.8.0."
    ]


def test_a_warning_is_one_short_line_that_does_nothing_to_a_terminal(platform: Platform) -> None:
    client = platform.client()
    platform.warn("\x1b[2J" + "x" * 10_000)
    with pytest.warns(UserWarning, match="xxx") as told:
        client.me()
    assert str(told[0].message).startswith("?[2Jxxx")
    assert len(str(told[0].message)) == 2000


# ---------------------------------------------------------------- again


def test_a_connection_that_is_refused_is_tried_again_with_growing_pauses(platform: Platform) -> None:
    platform.refuse_connection(3)
    assert platform.client().me().name == "anna"
    assert platform.time.pauses == [0.25, 0.5, 1.0]


def test_retries_end_after_the_patience(platform: Platform) -> None:
    platform.refuse_connection(1000)
    with pytest.raises(errors.Unavailable, match=r"Cannot reach .*platform\.test: Connection refused.*'legato up'"):
        platform.client(patience_s=20).me()
    assert 15 < platform.time.now <= 20
    assert max(platform.time.pauses) == 5.0


def test_a_server_that_never_answered_is_waited_for_less(platform: Platform) -> None:
    client = platform.client(patience_s=60, first_patience_s=1)
    platform.refuse_connection(3)
    with pytest.raises(errors.Unavailable):
        client.me()
    assert platform.time.now <= 1
    platform.faults.clear()
    client.me()
    platform.refuse_connection(8)
    client.me()
    assert platform.time.now > 10


def test_pauses_are_random_so_that_clients_do_not_retry_together(platform: Platform) -> None:
    platform.refuse_connection(2)
    platform.client(draw=lambda: 0.0).me()
    assert platform.time.pauses == [0.125, 0.25]


@pytest.mark.parametrize(("name", "status"), [("too-many-requests", 429), ("unavailable", 503)])
def test_the_server_sets_the_time_of_the_next_try(platform: Platform, name: str, status: int) -> None:
    platform.say(name, status, times=2, retry_after="7")
    platform.client().me()
    assert platform.time.pauses == [7.0, 7.0]


def test_a_wait_that_is_too_long_is_refused_at_once(platform: Platform) -> None:
    platform.say("too-many-requests", 429, "This token asks more often than it may. Wait.", retry_after="3600")
    with pytest.raises(errors.Unavailable, match="more often than it may"):
        platform.client().me()
    assert platform.time.pauses == []


def test_a_submission_whose_answer_is_lost_makes_one_job(platform: Platform) -> None:
    platform.lose_answer()
    platform.lose_answer()
    job = platform.client().submit("train.py", directory="/work", name="once", key="k-1")
    assert [found["name"] for found in platform.jobs.values()] == ["mnist", "once"]
    assert job.name == "once"
    assert {request.headers["idempotency-key"] for request in platform.requests} == {"k-1"}
    assert len(platform.requests) == 3


def test_each_submission_has_its_own_key(platform: Platform) -> None:
    client = platform.client()
    for _ in range(2):
        client.submit("train.py", directory="/work", name="twice")
    assert len(platform.jobs) == 3
    assert len({request.headers["idempotency-key"] for request in platform.requests}) == 2


def test_a_request_that_is_being_answered_is_repeated(platform: Platform) -> None:
    platform.say("in-flight", 409, retry_after="1")
    platform.client().submit("train.py", directory="/work", key="k")
    assert platform.time.pauses == [1.0]


def test_what_must_not_be_done_twice_is_not_sent_twice(platform: Platform) -> None:
    client = platform.client()
    platform.lose_answer()
    with pytest.raises(errors.Unavailable, match=r"was lost.*server may have carried out the request"):
        client.add_token("ci")
    assert len(platform.tokens) == 1
    platform.say("unavailable", 503)
    with pytest.raises(errors.Unavailable):
        client.add_user("ben")
    platform.refuse_connection()
    platform.say("too-many-requests", 429, retry_after="1")
    assert client.add_token("ci").secret == "lgt_fresh"
    assert len(platform.tokens) == 2


@pytest.mark.parametrize(("verb", "stage", "after"), [("pause", "running", "pausing"), ("resume", "paused", "queued")])
def test_a_change_whose_answer_is_lost_is_done(platform: Platform, verb: str, stage: str, after: str) -> None:
    """The server refuses the repeated request, because the job has changed already; that is no error."""
    platform.jobs["j-0000000001"]["stage"] = stage
    job = platform.client().job("mnist")
    platform.lose_answer()
    assert getattr(job, verb)().stage == after


def test_a_change_that_is_refused_after_a_lost_answer_is_refused(platform: Platform) -> None:
    job = platform.client().job("mnist")

    def end_and_break(request: httpx.Request, do: Any) -> httpx.Response:
        platform.move("j-0000000001", "succeeded", "it has done all its steps", 0)
        raise httpx.ReadError("")

    platform.faults.append(end_and_break)
    with pytest.raises(errors.Conflict, match="Cannot pause job 'mnist': it is succeeded"):
        job.pause()


def test_a_change_of_a_version_whose_answer_is_lost_is_done(platform: Platform) -> None:
    job = platform.client().job("mnist")
    platform.lose_answer()
    job.set(priority=7000, labels={"team": "vision", "old": None}, only_if_unchanged=True)
    assert job.record.priority == 7000
    platform.jobs[job.id]["version"] += 1
    platform.lose_answer()
    with pytest.raises(errors.StaleVersion):
        job.set(priority=8000, only_if_unchanged=True)
    assert platform.jobs[job.id]["priority"] == 7000


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("name", "status", "kind"),
    [
        ("bad-request", 400, errors.UsageError),
        ("unauthenticated", 401, errors.Unauthenticated),
        ("forbidden", 403, errors.Forbidden),
        ("not-found", 404, errors.NotFound),
        ("conflict", 409, errors.Conflict),
        ("stale-version", 412, errors.StaleVersion),
        ("too-large", 413, errors.UsageError),
        ("wrong-host", 421, errors.UsageError),
        ("invalid", 422, errors.UsageError),
        ("key-reused", 422, errors.KeyReused),
        ("internal", 500, errors.ServerError),
        ("of-tomorrow", 418, errors.UsageError),
        ("of-tomorrow", 501, errors.ServerError),
    ],
)
def test_a_problem_becomes_an_error_of_legato(
    platform: Platform, name: str, status: int, kind: type[Exception]
) -> None:
    platform.say(name, status, "This cannot be. Do that instead.")
    with pytest.raises(kind, match=r"^This cannot be\. Do that instead\.") as caught:
        platform.client().me()
    assert type(caught.value) is kind
    assert ("5c1f0e9ab2d34c77" in str(caught.value)) == (kind is errors.ServerError)


@pytest.mark.parametrize("status", [200, 404, 500])
def test_another_kind_of_server_is_reported(status: int) -> None:
    answer = httpx.MockTransport(lambda _: httpx.Response(status, text="<html>Welcome</html>"))
    line = Line(Server(url=URL, token="t"), transport=answer)
    with pytest.raises(errors.ServerError, match="address"):
        line.ask(Me, "GET", "/me")


def test_an_answer_of_another_form_is_reported_in_one_sentence() -> None:
    line = Line(Server(url=URL, token="t"), transport=httpx.MockTransport(lambda _: httpx.Response(200, json={})))
    with pytest.raises(errors.ServerError, match=r"is not understood.*missing required field `name`.*too old"):
        line.ask(Me, "GET", "/me")


def test_new_fields_of_a_newer_server_are_ignored() -> None:
    told = {"name": "a", "role": "user", "shoe": 41}
    line = Line(Server(url=URL, token="t"), transport=httpx.MockTransport(lambda _: httpx.Response(200, json=told)))
    assert line.ask(Me, "GET", "/me") == Me(name="a", role="user")


# ---------------------------------------------------------------- the token


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_token_is_sent_to_the_target_of_a_redirect(status: int) -> None:
    seen = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(status, headers={"location": "https://evil.test/api/v1/me"})

    line = Line(Server(url=URL, token=TOKEN), transport=httpx.MockTransport(answer))
    with pytest.raises(errors.ServerError, match=r"redirects to https://evil\.test.*does not send the token"):
        line.ask(Me, "GET", "/me")
    assert [request.url.host for request in seen] == ["platform.test"]


def test_no_token_goes_over_a_proxy_that_could_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://proxy.test:3128")
    assert not Line(Server(url="http://10.0.0.1:8765", token=TOKEN))._http._mounts
    assert Line(Server(url="https://10.0.0.1", token=TOKEN))._http._mounts, "what it cannot read it may carry"


def test_no_token_is_in_a_log_or_an_error_or_a_display(platform: Platform, caplog: pytest.LogCaptureFixture) -> None:
    for name in (None, "httpx", "httpcore"):  # a server in this process may have made the last two quiet
        caplog.set_level(logging.DEBUG, logger=name)
    client = platform.client(patience_s=1)
    client.job("mnist").pause()
    platform.refuse_connection(10)
    with pytest.raises(errors.Unavailable) as caught:
        client.me()
    platform.faults.clear()
    made = NewToken(token=Token(**platform.tokens.setdefault("t", _token())), secret="lgt_fresh-secret")
    shown = [repr(client), repr(client.server), repr(client._line), str(caught.value), repr(caught.value), repr(made)]
    assert caplog.text
    assert TOKEN not in caplog.text + "".join(shown)
    assert "fresh-secret" not in "".join(shown)


def _token() -> dict[str, Any]:
    return {
        **{"id": "t-1", "user": "a", "name": "n", "role": "user", "created_at": NOW},  # noqa: PIE800
        **dict.fromkeys(("expires_at", "revoked_at", "used_at")),
    }


def test_a_certificate_that_is_not_trusted_is_not_tried_again() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("certificate verify failed") from ssl.SSLCertVerificationError("self-signed")

    time = Time()
    line = Line(Server(url="https://a.test", token="t"), transport=httpx.MockTransport(answer), sleep=time.sleep)
    with pytest.raises(errors.Unavailable, match=r"safely: certificate verify failed.*login https://a\.test --ca"):
        line.ask(Me, "GET", "/me")
    assert time.pauses == []


@pytest.mark.parametrize("name", ["../users", "a/b", "", ".", "..", "%2e%2e", "a?b", "a b", "Ä", "x\n"])
def test_a_name_cannot_lead_to_another_path(platform: Platform, name: str) -> None:
    client = platform.client()
    for ask in (client.queue, client.user, client.revoke_token, client.delete_queue, client.job):
        assert platform.requests == []
        with pytest.raises(errors.NotFound):
            ask(name)
    # The owner and the name of a job are no part of a path.
    assert [request.url.path for request in platform.requests] == (["/api/v1/jobs"] if name == "a/b" else [])


# ---------------------------------------------------------------- the token of a server on this machine


def _serve_here(home: Path, accepted: list[str], url: str) -> httpx.MockTransport:
    """Return a server on this machine that accepts the last token in `accepted`, which is in the file of its home."""

    def write(token: str) -> None:
        (home / LOCAL_FILE).write_text(json.dumps({"url": url, "pid": os.getpid(), "token": token, "id": "n-1"}))
        (home / LOCAL_FILE).chmod(0o600)

    def answer(request: httpx.Request) -> httpx.Response:
        if request.headers["Authorization"] != f"Bearer {accepted[-1]}":
            kind = "urn:legato:problem:unauthenticated"
            return httpx.Response(401, json={"type": kind, "title": "", "status": 401, "detail": "it was revoked"})
        if request.url.path.endswith("/events"):
            return stream(("end", {}, None))
        return httpx.Response(200, json={"name": "admin", "role": "admin"})

    write(accepted[-1])
    return httpx.MockTransport(answer)


def test_a_client_takes_the_new_token_after_the_server_on_its_machine_has_started_again(tmp_path: Path) -> None:
    tokens = ["lgt_first"]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        transport = _serve_here(tmp_path, tokens, url)
        server = find_local({"LEGATO_HOME": str(tmp_path)})
        assert server is not None

        def restart() -> None:
            tokens.append(f"lgt_{len(tokens)}")
            _serve_here(tmp_path, tokens, url)

        # Without patience: such a refusal is no outage, so nothing waits.
        line = Line(server, transport=transport, patience_s=0, sleep=lambda _: pytest.fail("it waits"))
        client = Client.on(line)
        assert client.me().name == "admin"
        restart()
        assert client.me().name == "admin"
        restart()
        assert list(line.follow("/events")) == []
        restart()
        with line.open("/me") as response:
            assert response.is_success
        assert line.server.token == tokens[-1]
        tokens.append("lgt_that_is_in_no_file")
        with pytest.raises(errors.Unauthenticated, match="revoked"):
            client.me()


def test_a_client_with_a_token_of_its_user_never_takes_that_of_the_machine(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        transport = _serve_here(tmp_path, ["lgt_of_the_machine"], url)
        client = Client.on(Line(Server(url=url, token="lgt_of_anna"), transport=transport))
        with pytest.raises(errors.Unauthenticated, match="revoked"):
            client.me()


# ---------------------------------------------------------------- streams


def test_a_stream_continues_where_it_was_interrupted(platform: Platform) -> None:
    def of(seq: int) -> tuple[str, Any, str]:
        event = {"seq": seq, "time": NOW, "kind": "stage", "reason": f"the {seq}th", "job": None}
        return "stage", event | {"attempt": None, "detail": None}, str(seq)

    told = [
        stream(of(1), of(2), breaks=True),
        httpx.Response(503, json={}),
        stream(breaks=True),
        stream(of(3)),
        stream(of(4), ("end", {}, None)),
    ]
    platform.streams["/jobs/j-0000000001/events"] = deque(told)
    job = platform.client().job("mnist")
    assert [event.seq for event in job.events(follow=True)] == [1, 2, 3, 4]
    said = [request.headers.get("last-event-id") for request in platform.requests[1:]]
    assert said == [None, "2", "2", "2", "3"]


def test_a_stream_that_may_not_be_seen_any_more_ends_with_the_reason(platform: Platform) -> None:
    job = platform.client().job("mnist")
    platform.say("unauthenticated", 401, "Cannot accept token 'ci': it was revoked.")
    with pytest.raises(errors.Unauthenticated, match="revoked"):
        list(job.events(follow=True))


def test_a_stream_that_was_quiet_for_long_is_begun_again(platform: Platform) -> None:
    job = platform.client(patience_s=10).job("mnist")

    def quiet() -> Iterator[bytes]:
        yield b": still here\n\n"
        platform.time.now += 3600
        raise httpx.ReadError("")

    told = {"content-type": "text/event-stream"}
    answers = [httpx.Response(200, headers=told, content=quiet()) for _ in range(3)]
    platform.streams["/jobs/j-0000000001/events"] = deque([*answers, stream(("end", {}, None))])
    assert list(job.events(follow=True)) == []


def test_a_stream_of_an_unreachable_server_is_given_up_after_the_patience(platform: Platform) -> None:
    job = platform.client(patience_s=10).job("mnist")
    platform.refuse_connection(1000)
    with pytest.raises(errors.Unavailable):
        list(job.events(follow=True))
    assert platform.time.now <= 10


def test_only_the_line_breaks_of_the_standard_end_a_line() -> None:
    said = 'data: {"text": "a\u2028b\x85c\x0bd"}\r\n\r\n'.encode()
    want = [Message("message", '{"text": "a\u2028b\x85c\x0bd"}', None)]
    assert list(read_messages([said])) == want
    assert list(read_messages(said[place : place + 1] for place in range(len(said)))) == want


def test_a_line_break_that_is_cut_in_two_is_one() -> None:
    assert list(read_messages([b"data: a\r", b"\ndata: b\r\n\r", b"\n"])) == [Message("message", "a\nb", None)]


def test_messages_of_several_lines() -> None:
    chunks = [b"data: a\ndata:b\nid: 3\nretry: 1\n\nevent: x\n\ndata\n\n"]
    assert list(read_messages(chunks)) == [Message("message", "a\nb", "3"), Message("message", "", None)]


def test_the_version_needs_no_token(platform: Platform) -> None:
    line = platform.line(Server(url=URL))
    assert Client.on(line).version().version == "0.1.0"
    assert platform.asked() == ["GET /version"]
    assert "authorization" not in platform.requests[0].headers
