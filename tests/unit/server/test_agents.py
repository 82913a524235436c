"""Machines with agents, over REST: join tokens, joining, reports, draining, and what the server declares of them."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.unit.server.conftest import NewPlatform
from tests.unit.server.platform import NOW, Platform, check_problem

from legato.agent.code_cache import digest_of
from legato.agent.orders import AgentOrder
from legato.control.records import AGENT_SILENT_S
from legato.core.agent_messages import AGENT_PROTOCOL
from legato.core.errors import UsageError
from legato.server import machine
from legato.server.machine import Declaration, DoorFinder, find_own_address
from legato.server.routes import agents

REPORT = {
    "devices": ["cpu", "cpu"],
    "gpu_types": [None, None],
    "address": "10.0.0.2",
    "version": "0.1.0",
    "kind": "k1",
    "traits": {"torch": "2.13.0"},
    "labels": {"site": "x"},
}


def make_token(platform: Platform, **body: Any) -> Any:
    made = platform.ask("POST", "join-tokens", body, who="admin")
    assert made.status_code == 201, made.text
    return made.json()


def join(platform: Platform, token: str, node: str = "b", identity: str = "one", **more: Any) -> Any:
    said = {"token": token, "node": node, "identity": identity, "version": "0.1.0", "protocol": AGENT_PROTOCOL}
    return platform.ask("POST", "agents/join", said | more, who=None)


def report(platform: Platform, secret: str, **more: Any) -> Any:
    return platform.ask("POST", "agents/report", REPORT | more, who=None, Authorization=f"Bearer {secret}")


def find_node(platform: Platform, name: str = "b") -> Any:
    return next(node for node in platform.get("nodes")["items"] if node["name"] == name)


@pytest.fixture
def declared(platform: Platform) -> Declaration:
    """The declaration of the server's machine, which has one slot."""
    return Declaration(platform.store, "node", ("cpu",))


def declare(platform: Platform, declared: Declaration) -> None:
    lease = platform.store.loop.take_lease("declaring", platform.now, 10.0)
    assert lease is not None
    declared.refresh(lease, platform.now)
    platform.store.loop.end_lease(platform.now)


def be_silent(platform: Platform, declared: Declaration) -> None:
    """Let the server run until agents that do not report count as silent."""
    until = platform.now + AGENT_SILENT_S + 1
    while platform.now < until:
        platform.now += 1
        declare(platform, declared)


def test_a_machine_joins_with_a_token_and_its_slots_can_be_used_while_it_reports(
    platform: Platform, declared: Declaration
) -> None:
    declare(platform, declared)
    assert not declared.has_agents
    token = make_token(platform)
    assert token["token"]["expires_at"] == NOW + 3600
    secret = join(platform, token["secret"]).json()["secret"]
    assert find_node(platform)["agent"]["state"] == "silent", "it has not reported"
    answer = report(platform, secret)
    assert answer.json() == {"orders": [], "beat_every_s": 2.0, "leave": False, "takes_metrics": True}
    declare(platform, declared)
    assert declared.has_agents
    node = find_node(platform)
    assert (node["num_usable"], node["kind"], node["labels"]) == (2, "k1", {"site": "x"})
    assert node["agent"] == {
        "state": "ready",
        "version": "0.1.0",
        "address": "10.0.0.2",
        "joined_at": NOW,
        "seen_at": NOW,
        "drained_by": None,
        "drain_reason": None,
    }
    own = find_node(platform, "node")
    assert own["agent"] is None and own["kind"], "in a pool of several machines, the server's own has a kind too"
    assert platform.get("join-tokens", who="admin")["items"] == [token["token"] | {"num_uses": 1}]

    be_silent(platform, declared)
    assert find_node(platform)["agent"]["state"] == "silent"
    slots = {slot["id"]: slot["unusable_reason"] for slot in platform.get("slots")["items"]}
    assert slots == {"node/0": None, "b/0": "its agent does not answer", "b/1": "its agent does not answer"}
    assert report(platform, secret).status_code == 200
    declare(platform, declared)
    assert find_node(platform)["num_usable"] == 2

    assert report(platform, secret, leaving=True).status_code == 200
    declare(platform, declared)
    assert find_node(platform)["agent"]["state"] == "left" and find_node(platform)["num_usable"] == 0
    assert not declared.has_agents
    assert report(platform, secret).status_code == 200, "it was started again"
    declare(platform, declared)
    assert find_node(platform)["num_usable"] == 2


def test_invalid_secrets_of_a_job_do_not_stop_the_agent_of_its_machine(new_platform: NewPlatform) -> None:
    platform = new_platform(requests_per_s=0.001, requests_burst=3)
    token = make_token(platform)["secret"]
    secrets = [join(platform, token, node, identity=node).json()["secret"] for node in ("b", "c")]
    assert [report(platform, secret).status_code for secret in secrets] == [200, 200]
    platform.now += AGENT_SILENT_S + 1
    assert platform.ask("DELETE", "nodes/c", who="admin").status_code == 204
    answers = [report(platform, f"lga_{number:048}").status_code for number in range(5)]
    assert answers[:2] == [401, 401] and answers[-1] == 429
    assert [report(platform, secrets[0]).status_code for _ in range(5)] == [200] * 5
    assert [report(platform, secrets[1]).status_code for _ in range(2)] == [401, 429], "it was removed from the pool"


def lead(platform: Platform, declared: Declaration) -> None:
    lease = platform.store.loop.take_lease("declaring", platform.now, 10.0)
    assert lease is not None
    declared.declare(lease, platform.now)
    platform.store.loop.end_lease(platform.now)


@pytest.mark.parametrize("is_new", [True, False], ids=["a server that begins to lead", "a server that was suspended"])
def test_a_machine_is_not_silent_because_no_server_ran(
    platform: Platform, declared: Declaration, *, is_new: bool
) -> None:
    token = make_token(platform)["secret"]
    for node in ("b", "c"):
        report(platform, join(platform, token, node, identity=node).json()["secret"])
    lead(platform, declared)
    platform.ask("POST", "nodes/c/drain", {}, who="admin")
    declare(platform, declared)

    platform.now += 1000
    if is_new:
        declared = Declaration(platform.store, "node", ("cpu",))
        lead(platform, declared)
    else:
        declare(platform, declared)
    assert find_node(platform)["num_usable"] == 2, "it had no server to report to"
    platform.ask("POST", "nodes/c/resume", who="admin")
    declare(platform, declared)
    assert find_node(platform, "c")["num_usable"] == 0, "it could not be used before"
    be_silent(platform, declared)
    assert find_node(platform)["num_usable"] == 0


def test_a_machine_is_silent_or_not_also_after_the_clock_of_the_server_was_set_back(
    platform: Platform, declared: Declaration
) -> None:
    token = make_token(platform)["secret"]
    secrets = [join(platform, token, node, identity=node).json()["secret"] for node in ("b", "c")]
    for secret in secrets:
        report(platform, secret)
    declare(platform, declared)

    platform.now -= 1000
    declare(platform, declared)
    assert [find_node(platform, node)["num_usable"] for node in "bc"] == [2, 2], "their next reports are on the way"
    report(platform, secrets[0])
    for _ in range(int(AGENT_SILENT_S) + 1):
        platform.now += 1
        report(platform, secrets[0])
        declare(platform, declared)
    assert [find_node(platform, node)["num_usable"] for node in "bc"] == [2, 0]
    assert [find_node(platform, node)["agent"]["state"] for node in "bc"] == ["ready", "silent"]


def test_tokens_expire_and_are_revoked_and_only_admins_make_them(platform: Platform) -> None:
    token = make_token(platform, expires_in_s=60)
    platform.now += 60
    check_problem(join(platform, token["secret"]), 401, "unauthenticated", "has expired")
    other = make_token(platform)
    assert join(platform, other["secret"]).status_code == 200
    assert platform.ask("DELETE", f"join-tokens/{other['token']['id']}", who="admin").status_code == 204
    check_problem(join(platform, other["secret"]), 401, "unauthenticated", "was revoked")
    check_problem(join(platform, "lgj_0"), 401, "unauthenticated", "is no join token of this server")
    for wrong in (1, 31 * 86_400):
        refused = platform.ask("POST", "join-tokens", {"expires_in_s": wrong}, who="admin")
        check_problem(refused, 422, "invalid", "60 seconds to 30 days")
    for method, path in (("GET", "join-tokens"), ("POST", "join-tokens"), ("DELETE", "join-tokens/n-0")):
        body = {} if method == "POST" else None
        check_problem(platform.ask(method, path, body, who="ann"), 403, "forbidden", "admin")
    missing = platform.ask("DELETE", "join-tokens/n-0", who="admin")
    check_problem(missing, 404, "not-found", "legato nodes tokens")


def test_two_agents_of_one_name(platform: Platform, declared: Declaration) -> None:
    token = make_token(platform)["secret"]
    first = join(platform, token).json()["secret"]
    assert report(platform, first).status_code == 200
    check_problem(join(platform, token, identity="two"), 409, "conflict", "give each machine its own name".capitalize())
    again = join(platform, token).json()["secret"]
    assert report(platform, again).status_code == 200, "the same agent joins again"
    check_problem(report(platform, first), 401, "unauthenticated", "does not know this agent")
    platform.now += AGENT_SILENT_S + 1
    assert join(platform, token, identity="two").status_code == 200, "the first one is gone, and no job is on it"
    platform.lead(1)
    check_problem(join(platform, token, node="node"), 409, "conflict", "the server's machine has this name")
    check_problem(join(platform, token, node="a b"), 422, "invalid", "name of a node")
    check_problem(join(platform, token, protocol=AGENT_PROTOCOL + 2), 422, "invalid", "Install the server's release")


def test_the_second_of_two_agents_that_start_together_is_refused(platform: Platform, declared: Declaration) -> None:
    token = make_token(platform)["secret"]
    for first, second in (("one", "two"), ("two", "one")):
        kept = join(platform, token, identity=first).json()["secret"]
        platform.now += 1
        told = "another agent has this name"
        check_problem(join(platform, token, identity=second), 409, "conflict", told)  # before the first report
        assert report(platform, kept).status_code == 200
        check_problem(join(platform, token, identity=second), 409, "conflict", told)
        assert report(platform, kept, leaving=True).status_code == 200
        platform.now += 1
    platform.now += AGENT_SILENT_S
    kept = join(platform, token, identity="three").json()["secret"]
    check_problem(join(platform, token, identity="four"), 409, "conflict", "another agent has this name")
    assert report(platform, kept).status_code == 200


def test_a_silent_machine_whose_slots_a_job_holds_keeps_its_name(platform: Platform, declared: Declaration) -> None:
    token = make_token(platform)["secret"]
    secret = join(platform, token).json()["secret"]
    report(platform, secret)
    declare(platform, declared)
    job = platform.submit()
    platform.start(job, "b/0")
    platform.now += AGENT_SILENT_S + 1
    check_problem(join(platform, token, identity="two"), 409, "conflict", "another agent has this name")
    assert platform.ask("DELETE", "nodes/b", who="admin").status_code == 204
    check_problem(report(platform, secret), 401, "unauthenticated", "was removed")
    assert join(platform, token, identity="two").status_code == 200


def test_an_admin_drains_resumes_and_removes_a_machine(platform: Platform, declared: Declaration) -> None:
    secret = join(platform, make_token(platform)["secret"]).json()["secret"]
    report(platform, secret)
    for path in ("drain", "resume"):
        check_problem(platform.ask("POST", f"nodes/b/{path}", {}, who="ann"), 403, "forbidden", "admin")
        check_problem(platform.ask("POST", f"nodes/c/{path}", {}, who="admin"), 404, "not-found", "legato nodes")
    assert platform.ask("POST", "nodes/b/drain", {"reason": "a new disk"}, who="admin").status_code == 204
    declare(platform, declared)
    assert find_node(platform)["agent"]["state"] == "drained"
    reasons = {slot["unusable_reason"] for slot in platform.get("slots")["items"] if slot["node"] == "b"}
    assert reasons == {"admin drains its machine: a new disk"}
    assert platform.ask("POST", "nodes/b/resume", who="admin").status_code == 204
    declare(platform, declared)
    assert find_node(platform)["num_usable"] == 2
    platform.now += 5
    for told in ("its agent answered 5 s ago", "try again in 41 s"):
        check_problem(platform.ask("DELETE", "nodes/b", who="admin"), 409, "conflict", told)
    platform.now += AGENT_SILENT_S
    remove_and_check(platform, declared)
    done = [entry["action"] for entry in platform.get("audit", who="admin")["items"]]
    assert {"join_token.create", "node.join", "node.drain", "node.resume", "node.remove"} <= set(done)


def remove_and_check(platform: Platform, declared: Declaration) -> None:
    """Remove node b; no list has it any more, nor after the start of another server, until it joins again."""
    assert platform.ask("DELETE", "nodes/b", who="admin").status_code == 204
    for again in (declared, declared, Declaration(platform.store, "node", ("cpu",))):
        assert [node["name"] for node in platform.get("nodes")["items"]] in (["node"], [])
        assert {slot["node"] for slot in platform.get("slots")["items"]} <= {"node"}
        assert platform.get("pool")["num_slots"] <= 1
        check_problem(platform.ask("DELETE", "nodes/b", who="admin"), 404, "not-found", "'b'")
        declare(platform, again)
    lead = platform.store.loop.take_lease("leading", platform.now, 10.0)
    assert lead is not None
    declared.declare(lead, platform.now)
    platform.store.loop.end_lease(platform.now)
    assert [node["name"] for node in platform.get("nodes")["items"]] == ["node"]
    report(platform, join(platform, make_token(platform)["secret"]).json()["secret"])
    declare(platform, declared)
    assert find_node(platform)["agent"]["state"] == "ready" and find_node(platform)["num_usable"] == 2


@pytest.mark.parametrize("is_known", [True, False], ids=["and the server knows it", "just now"])
def test_a_machine_that_has_left_can_be_removed_at_once(
    platform: Platform, declared: Declaration, is_known: bool
) -> None:
    secret = join(platform, make_token(platform)["secret"]).json()["secret"]
    report(platform, secret)
    declare(platform, declared)
    report(platform, secret, leaving=True)
    if is_known:
        declare(platform, declared)
    remove_and_check(platform, declared)


def test_a_machine_that_leaves_can_be_removed_when_no_job_holds_its_slots(
    platform: Platform, declared: Declaration
) -> None:
    secret = join(platform, make_token(platform)["secret"]).json()["secret"]
    report(platform, secret)
    declare(platform, declared)
    platform.start(platform.submit(), "b/0")
    report(platform, secret, leaving=True)
    check_problem(platform.ask("DELETE", "nodes/b", who="admin"), 409, "conflict", "jobs still hold slots of it")
    platform.now += AGENT_SILENT_S + 1
    assert platform.ask("DELETE", "nodes/b", who="admin").status_code == 204
    declare(platform, declared)
    node = find_node(platform)
    assert (node["agent"], node["num_slots"], node["num_usable"]) == (None, 1, 0), "only what the job holds"


@pytest.mark.parametrize(
    "more",
    [
        {"devices": [], "gpu_types": []},
        {"gpu_types": [None]},
        {"labels": {str(number): "x" for number in range(65)}},
        {"address": "x" * 256},
        {"kind": None},
        {"devices": ["cpu"] * 1025, "gpu_types": [None] * 1025},
        {"labels": {"x" * 256: "y"}},
        {"traits": {"x": {"y": "z"}}},
    ],
)
def test_reports_that_cannot_be_are_refused(platform: Platform, more: Any) -> None:
    secret = join(platform, make_token(platform)["secret"]).json()["secret"]
    assert report(platform, secret, **more).status_code == 422
    assert find_node(platform)["agent"]["seen_at"] is None


def test_hostile_bodies_of_agents_are_refused_before_they_are_read(platform: Platform) -> None:
    token = make_token(platform)["secret"]
    secret = join(platform, token).json()["secret"]
    deep: Any = "x"
    for _ in range(50):
        deep = {"x": deep}
    assert report(platform, secret, labels=deep).status_code in (400, 413, 422)
    assert report(platform, secret, labels={str(number): "x" for number in range(30_000)}).status_code in (413, 422)
    body = {"token": token, "identity": "1" * 32, "version": "1", "protocol": 1}
    for node in ("x" * 5000, "../a", "a/b", "a b", ""):
        assert platform.ask("POST", "agents/join", {**body, "node": node}, who=None).status_code in (400, 422), node
    assert [each["name"] for each in platform.get("nodes", who="admin")["items"] if each["agent"] is not None] == ["b"]


def test_agents_authenticate_themselves_and_are_no_users(platform: Platform) -> None:
    secret = join(platform, make_token(platform)["secret"]).json()["secret"]
    check_problem(platform.ask("POST", "agents/report", REPORT, who=None), 401, "unauthenticated", "no secret")
    check_problem(platform.ask("POST", "agents/report", REPORT, who="admin"), 401, "unauthenticated", "")
    jobs = platform.ask("GET", "jobs", who=None, Authorization=f"Bearer {secret}")
    check_problem(jobs, 401, "unauthenticated", "")
    code = platform.ask("GET", f"agents/code/{'0' * 64}", who=None, Authorization=f"Bearer {secret}")
    check_problem(code, 404, "not-found", "No job with this code")


class WatchedFile(io.FileIO):
    """A file that notes how many bytes are read at once."""

    sizes: ClassVar[list[int]] = []

    def read(self, size: int | None = -1) -> bytes | Any:
        """Note the size."""
        self.sizes.append(-1 if size is None else size)
        return super().read(size)


def test_the_code_of_a_job_is_sent_in_pieces_with_its_digest(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = join(platform, make_token(platform)["secret"]).json()["secret"]
    sha256, content = "ab" * 32, os.urandom(2**20)
    (tmp_path / "packed").write_bytes(content)
    order = AgentOrder(job="job", node="b", urls=(), token="t", address="", code=sha256)
    monkeypatch.setattr(agents, "list_orders", lambda *_: [order])
    monkeypatch.setattr(agents, "pack_code", lambda _: WatchedFile(tmp_path / "packed"))
    monkeypatch.setattr(WatchedFile, "sizes", [])
    bearer = {"Authorization": f"Bearer {secret}", "Range": "bytes=5-9"}
    answer = platform.ask("GET", f"agents/code/{sha256}", who=None, **bearer)
    assert (answer.status_code, answer.content) == (200, content), "always all of it"
    assert answer.headers["Content-Digest"] == digest_of(hashlib.sha256(content))
    assert len(WatchedFile.sizes) > 1 and all(0 <= size <= 2**18 for size in WatchedFile.sizes)


def test_a_server_whose_jobs_run_as_numbers_uses_no_agents(platform: Platform, declared: Declaration) -> None:
    secret = join(platform, make_token(platform)["secret"]).json()["secret"]
    assert report(platform, secret).status_code == 200
    declare(platform, declared)
    assert declared.has_agents
    find_door = DoorFinder(platform.settings, declared, lambda: "10.0.0.1")
    for mode, finds in (("server", True), ("submitter", True), ("pool", False)):
        platform.settings.__dict__["run_jobs_as"] = mode
        assert (find_door() is not None) is finds, mode
    # A machine that joined before the mode was changed is not used any more either.
    for refused in (join(platform, make_token(platform)["secret"], "c", "two"), report(platform, secret)):
        check_problem(refused, 403, "forbidden", "run_jobs_as")


@pytest.mark.parametrize(
    ("addresses", "want"),
    [
        ((), "203.0.113.7"),
        (("10.0.0.2",), "10.0.0.1"),
        (("10.0.0.2", "10.9.0.2", "10.9.0.3"), "10.9.0.1"),
        (("127.0.0.1", "127.0.0.1", "10.0.0.2"), "10.0.0.1"),
        (("127.0.0.1",), "127.0.0.1"),
        (("fd00::2", "nonsense", "172.16.0.2"), "203.0.113.7"),
    ],
    ids=["no agent", "an agent", "more in one network", "here and elsewhere", "here", "none that can be reached"],
)
def test_the_servers_machine_has_the_address_from_which_it_reaches_most_others(
    new_platform: NewPlatform, monkeypatch: pytest.MonkeyPatch, addresses: tuple[str, ...], want: str
) -> None:
    """The route to nowhere may lead into another network than that of the pool."""
    routes = {"10.0.0.": "10.0.0.1", "10.9.0.": "10.9.0.1", "127.": "127.0.0.1", "192.0.2.": "203.0.113.7"}

    def find_address(network: str, _: None, *, is_inside: bool) -> str:
        assert not is_inside
        found = next((source for prefix, source in routes.items() if network.startswith(prefix)), None)
        if found is None:
            raise UsageError("no route")
        return found

    platform = new_platform(host="0.0.0.0")
    monkeypatch.setattr(machine, "find_address", find_address)
    for number, address in enumerate(addresses):
        token = make_token(platform)["secret"]
        secret = join(platform, token, f"b{number}", str(number)).json()["secret"]
        assert report(platform, secret, address=address).status_code == 200
    assert find_own_address(platform.settings, platform.store, "node") == want
    platform.services.__dict__["node"] = "node"
    declare(platform, Declaration(platform.store, "node", ("cpu",)))
    assert [find_node(platform, name)["address"] for name in ("node", *(f"b{n}" for n in range(len(addresses))))] == [
        want,
        *addresses,
    ]


@pytest.mark.parametrize(
    ("host", "own", "want"),
    [
        ("0.0.0.0", ["127.0.0.1", "10.0.0.1", "fd00::1"], "10.0.0.1"),
        ("::", ["127.0.0.1", "10.0.0.1", "fd00::1"], "fd00::1"),
        ("0.0.0.0", ["127.0.0.1", "10.0.0.1", "10.9.0.1"], None),
        ("0.0.0.0", ["127.0.0.1", "fd00::1"], None),
    ],
)
def test_without_a_default_route_the_servers_machine_has_its_only_address_or_the_error_says_what_to_type(
    new_platform: NewPlatform, monkeypatch: pytest.MonkeyPatch, host: str, own: list[str], want: str | None
) -> None:
    def find_address(_network: str, _: None, *, is_inside: bool) -> str:
        raise UsageError(f"no route {is_inside}")

    platform = new_platform(host="0.0.0.0")
    settings = platform.settings.model_copy(update={"host": host})
    secret = join(platform, make_token(platform)["secret"], "h1", "1").json()["secret"]
    assert report(platform, secret, address="fd00::7").status_code == 200
    monkeypatch.setattr(machine, "find_address", find_address)
    monkeypatch.setattr(machine, "list_addresses", lambda: [(address, f"e{n}") for n, address in enumerate(own)])
    if want is not None:
        assert find_own_address(settings, platform.store, "node") == want
        return
    with pytest.raises(UsageError, match=r"no route to h1 \(fd00::7\)\. .* with the setting network") as found:
        find_own_address(settings, platform.store, "node")
    assert ("10.0.0.1 (e1), 10.9.0.1 (e2)" if len(own) == 3 else "are: none") in str(found.value)


def test_an_agent_cannot_give_its_machine_a_label_of_legatos_own(platform: Platform) -> None:
    """Jobs that only the server's machine can run are bound to one of these."""
    secret = join(platform, make_token(platform)["secret"]).json()["secret"]
    told = "Cannot use the label 'legato.machine': names that begin with 'legato.' are Legato's own"
    check_problem(report(platform, secret, labels={"legato.machine": "server"}), 422, "invalid", told)
    assert report(platform, secret, labels={"legatos": "x"}).status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "0.0.0.0"])
def test_no_machine_joins_through_a_proxy_while_jobs_listen_at_loopback_only(
    new_platform: NewPlatform, host: str
) -> None:
    """Its agents would look for the drivers on their own machine, and show the jobs' tokens to what listens there."""
    platform = new_platform(host=host, allow_plain_agents=True)
    token = make_token(platform)["secret"].partition(".")[0]
    said = {"token": token, "node": "b", "identity": "one", "version": "0.1.0", "protocol": AGENT_PROTOCOL}
    through = platform.ask("POST", "agents/join", said, who=None, X_Forwarded_For="10.0.0.7")
    if host == "0.0.0.0":
        assert through.status_code == 200
    else:
        check_problem(through, 403, "forbidden", f"jobs of this server listen at {host} only")
    assert join(platform, token).status_code == 200, "from this machine"


def test_one_lost_report_or_a_restart_of_an_agent_costs_its_machine_nothing(
    platform: Platform, declared: Declaration
) -> None:
    """A report every 2 s that is given up after 10 s, twice in a row, and the waits before the next ones."""
    secret = join(platform, make_token(platform)["secret"]).json()["secret"]
    report(platform, secret)
    declare(platform, declared)
    for _ in range(30):
        platform.now += 1.0
        declare(platform, declared)
    assert find_node(platform)["agent"]["state"] == "ready"
    slots = {slot.id: slot.unusable_reason for slot in platform.store.pool.list_slots()}
    assert slots["b/0"] is None
