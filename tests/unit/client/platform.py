"""A platform in memory with the interface of docs/rest.md. It loses answers and connections if a test wants it."""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from legato.client.client import Client
from legato.client.connection import Line
from legato.client.servers import Server
from legato.system.scripts import PYTHON

URL = "http://platform.test"
TOKEN = "lgt_secret-of-anna"
ENDED = ("succeeded", "failed", "stopped")
NOW = 1_790_000_000.0

Fault = Callable[[httpx.Request, Callable[[], httpx.Response]], httpx.Response]


class Time:
    """Time that passes only when a caller waits."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, pause_s: float) -> None:
        self.pauses.append(pause_s)
        self.now += pause_s


def make_job(number: int = 1, **changes: Any) -> dict[str, Any]:
    job = {
        "id": f"j-{number:010}",
        "name": "mnist",
        "owner": "anna",
        "queue": "default",
        "priority": 5000,
        "min_workers": 1,
        "max_workers": 4,
        "is_elastic": True,
        "gpus_per_worker": 1,
        "machine_kind": None,
        "max_retries": 0,
        "labels": {},
        "notes": "",
        "code": None,
        **dict.fromkeys(("project", "experiment", "definition", "parent")),
        "stage": "running",
        "reason": "its driver reports that it trains",
        "attempt": 1,
        "num_retries": 0,
        "exit_code": None,
        "stop_now": False,
        "version": 3,
        "submitted_at": NOW - 120,
        "staged_at": NOW - 60,
        "started_at": NOW - 60,
        "ended_at": None,
        "decided_slots": 2,
        "decided_reason": "2 of up to 4 slots: an equal share with bob/bert",
        "progress": {
            "time": NOW,
            "num_workers": 2,
            "step": 120,
            "num_steps": None,
            "epoch": 5,
            "loss": 0.1234,
            "samples_per_s": 812.5,
            "step_s": 0.078,
            "resize_s": 0.3,
            "speeds": [],
            "num_micro_batches": None,
            "shares_freely": False,
            "differed_step": None,
            "sent_bytes": None,
            "unconnected": None,
            "data_wait": None,
            "cpus": None,
            "memory_bytes": None,
            "gpu_busy": None,
            "gpu_memory_bytes": None,
        },
        "num_slots": 2,
    }
    assert not set(changes) - set(job)
    return job | changes


class Refused(Exception):
    def __init__(self, name: str, status: int, detail: str) -> None:
        super().__init__(detail)
        self.name, self.status, self.detail = name, status, detail


def tell(problem: Refused, **headers: str) -> httpx.Response:
    told = {
        "type": f"urn:legato:problem:{problem.name}",
        "title": "As it says",
        "status": problem.status,
        "detail": problem.detail,
        "request_id": "5c1f0e9ab2d34c77",
    }
    headers = {"content-type": "application/problem+json", **headers}
    return httpx.Response(problem.status, headers=headers, content=json.dumps(told))


def stream_of(*messages: tuple[str, Any, str | None], breaks: bool = False) -> Iterator[bytes]:
    yield b": still here\n\n"
    for event, data, number in messages:
        said = f"id: {number}\n" if number is not None else ""
        yield f"{said}event: {event}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()
    if breaks:
        raise httpx.ReadError("")


def stream(*messages: tuple[str, Any, str | None], breaks: bool = False) -> httpx.Response:
    content = stream_of(*messages, breaks=breaks)
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=content)


class Platform:
    def __init__(self) -> None:
        self.python: str | None = PYTHON
        self.jobs: dict[str, dict[str, Any]] = {}
        self.specs: dict[str, dict[str, Any]] = {}
        self.code: dict[str, bytes] = {}
        self.keys: dict[str, tuple[Any, str]] = {}
        self.events: list[dict[str, Any]] = []
        self.logs: dict[str, str] = {}
        self.files: dict[str, bytes] = {}
        self.queues: dict[str, dict[str, Any]] = {}
        self.users: dict[str, dict[str, Any]] = {}
        self.tokens: dict[str, dict[str, Any]] = {}
        self.canned: dict[str, Any] = {}
        self.streams: dict[str, deque[httpx.Response]] = {}
        self.requests: list[httpx.Request] = []
        self.faults: deque[Fault | None] = deque()
        self.waited: Callable[[], None] = lambda: None
        self.time = Time()
        self.role = "admin"
        self.add_queue("default")

    # ------------------------------------------------------------ for tests

    def line(self, server: Server | None = None, **options: Any) -> Line:
        options = {"clock": self.time, "sleep": self.time.sleep, "draw": lambda: 1.0} | options
        return Line(server or Server(url=URL, token=TOKEN), transport=httpx.MockTransport(self.answer), **options)

    def client(self, **options: Any) -> Client:
        return Client.on(self.line(**options))

    def add_job(self, number: int = 1, **changes: Any) -> dict[str, Any]:
        job = make_job(number, **changes)
        self.jobs[job["id"]] = job
        self.specs[job["id"]] = {
            "program": ["train.py", "--epochs", "20"],
            "directory": None,
            "environment": {"DATA": "/data"},
            "data": None,
            "seed": None,
            "num_threads": 1,
            "num_micro_batches": None,
            "checkpoint_every": "1epochs",
            "keep": 3,
            "max_run_s": None,
            "heartbeat_limit_s": 5.0,
        }
        return job

    def add_queue(self, name: str, **said: Any) -> dict[str, Any]:
        usual = {"weight": 1.0, "floor": 0, "ceiling": None, "is_open": True, "members": []}
        counted = {"num_slots": 0, "num_holding": 0, "num_queued": 0}
        self.queues[name] = {"name": name, **usual, **counted, **said}
        return self.queues[name]

    def add_event(self, kind: str, reason: str, job: str | None = None, **detail: Any) -> None:
        seq = len(self.events) + 1
        told = {"seq": seq, "time": NOW + seq, "kind": kind, "reason": reason, "job": job, "attempt": 1}
        self.events.append(told | {"detail": detail or None})

    def move(self, job: str, stage: str, reason: str, exit_code: int | None = None) -> None:
        old = self.jobs[job]["stage"]
        self.jobs[job] |= {"stage": stage, "reason": reason, "exit_code": exit_code}
        self.jobs[job]["version"] += 1
        self.add_event("stage", reason, job, **{"from": old, "to": stage})

    def asked(self) -> list[str]:
        return [f"{request.method} {request.url.raw_path.decode()}" for request in self.requests]

    def lose_answer(self) -> None:
        """Carry out the next request, and lose its answer."""

        def fault(request: httpx.Request, do: Callable[[], httpx.Response]) -> httpx.Response:
            do()
            raise httpx.ReadError("")

        self.faults.append(fault)

    def refuse_connection(self, times: int = 1) -> None:
        def fault(request: httpx.Request, do: Callable[[], httpx.Response]) -> httpx.Response:
            raise httpx.ConnectError("Connection refused")

        self.faults.extend([fault] * times)

    def say(self, name: str, status: int, detail: str = "as told.", times: int = 1, **headers: str) -> None:
        said = {key.replace("_", "-"): value for key, value in headers.items()}

        def fault(request: httpx.Request, do: Callable[[], httpx.Response]) -> httpx.Response:
            return tell(Refused(name, status, detail), **said)

        self.faults.extend([fault] * times)

    def warn(self, text: str) -> None:
        """Carry out the next request, and warn in its answer."""

        def fault(request: httpx.Request, do: Callable[[], httpx.Response]) -> httpx.Response:
            answer = do()
            answer.headers["X-Legato-Warning"] = text
            return answer

        self.faults.append(fault)

    # ------------------------------------------------------------ the server

    def answer(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        fault = self.faults.popleft() if self.faults else None
        return fault(request, lambda: self._do(request)) if fault is not None else self._do(request)

    def _do(self, request: httpx.Request) -> httpx.Response:
        try:
            path = request.url.path
            if path == "/version":
                return httpx.Response(200, json={"version": "0.1.0", "api": ["v1"], "python": self.python})
            assert path.startswith("/api/v1/"), path
            if request.headers.get("authorization") != f"Bearer {TOKEN}" and not path.endswith("/login"):
                raise Refused(
                    "unauthenticated", 401, "Cannot authenticate: this server does not know the token. Log in."
                )
            return self._find(request, path.removeprefix("/api/v1"))
        except Refused as problem:
            return tell(problem)

    def _find(self, request: httpx.Request, path: str) -> httpx.Response:
        if path in self.streams and "text/event-stream" in request.headers["accept"]:
            return self.streams[path].popleft()
        if path in self.canned:
            found = self.canned[path]
            return httpx.Response(200, json=found() if callable(found) else found)
        rooms = (
            (r"/jobs(?:/([^/]+)(?:/(.*))?)?", self._answer_jobs),
            (r"/code/([0-9a-f]{64})(/archive)?", self._answer_code),
            (r"/queues(?:/([^/]+))?", self._answer_queues),
            (r"/users(?:/([^/]+)(/password)?)?", self._answer_users),
            (r"/tokens(?:/([^/]+))?", self._answer_tokens),
        )
        for pattern, room in rooms:
            if found := re.fullmatch(pattern, path):
                return room(request, *found.groups())
        if path == "/events":
            return self._answer_events(request, None)
        if path == "/login":
            said = json.loads(request.content)
            if said["password"] != "right":
                raise Refused("unauthenticated", 401, "Cannot log in: the name or the password is wrong.")
            return httpx.Response(201, json=self._make_token(said["name"], said["user"]))
        if path == "/me":
            return httpx.Response(200, json={"name": "anna", "role": self.role})
        if path == "/plan":
            self.planned = json.loads(request.content)
            return httpx.Response(200, json=self.canned["plan"])
        raise Refused("not-found", 404, f"There is no such path: {path}")

    # ------------------------------------------------------------ jobs

    def _answer_jobs(self, request: httpx.Request, name: str | None, below: str | None) -> httpx.Response:
        if name is None:
            return self._submit(request) if request.method == "POST" else self._list_jobs(request)
        job = self._find_job(name)
        if request.method == "GET":
            return self._look(request, job, below or "")
        if (said := request.headers.get("if-match")) not in (None, f'"{job["version"]}"'):
            raise Refused("stale-version", 412, f"Cannot change job '{job['name']}': it was changed, not {said}.")
        body = json.loads(request.content or b"{}")
        return self._change(request, job, below or "", body)

    def _find_job(self, name: str) -> dict[str, Any]:
        if name in self.jobs:
            return self.jobs[name]
        named = [job for job in self.jobs.values() if job["name"] == name]
        if not named:
            raise Refused("not-found", 404, f"There is no job '{name}' that you may see. 'legato ps' lists yours.")
        return max(named, key=lambda job: job["id"])

    def _submit(self, request: httpx.Request, base: dict[str, Any] | None = None) -> httpx.Response:
        said = json.loads(request.content or b"{}")
        key = request.headers["idempotency-key"]
        if key in self.keys:
            same, made = self.keys[key]
            if same != said:
                raise Refused("key-reused", 422, "The key came with another request.")
            return self._show(self.jobs[made])
        if said.get("code") is not None and said["code"] not in self.code:
            raise Refused("not-found", 404, "You have not uploaded the code. Upload it first.")
        if said.get("queue", "default") not in self.queues:
            raise Refused("not-found", 404, f"There is no queue '{said['queue']}'.")
        if said.get("max_workers", 1) < 1:
            raise Refused("invalid", 422, "Cannot submit: max_workers=0 is below 1. Give 1 or more.")
        known = {name: value for name, value in said.items() if name in make_job()}
        fresh = {"stage": "queued", "reason": "just submitted", "attempt": 0, "progress": None, "num_slots": 0}
        fresh |= {"version": 1, "started_at": None, "decided_slots": None, "decided_reason": None}
        job = self.add_job(len(self.jobs) + 1, **{**(base or {}), **fresh, **known})
        self.keys[key] = (said, job["id"])
        self.specs[job["id"]] |= {name: said[name] for name in self.specs[job["id"]] if name in said}
        return self._show(job, 201)

    def _list_jobs(self, request: httpx.Request) -> httpx.Response:
        asked = request.url.params
        stages, labels = asked.get_list("stage"), asked.get_list("label")
        found = [
            job
            for job in self.jobs.values()
            if (not stages or job["stage"] in stages)
            and all(job[field] == asked[field] for field in ("owner", "queue") if field in asked)
            and job["name"].startswith(asked.get("name", ""))
            and all(job["labels"].get(label.partition("=")[0]) == label.partition("=")[2] for label in labels)
        ]
        found.sort(key=lambda job: job["id"], reverse=asked.get("order", "newest") == "newest")
        places = [place for place, job in enumerate(found) if job["id"] == asked.get("after")]
        found = found[places[0] + 1 :] if places else found
        limit = int(asked.get("limit", 100))
        after = found[limit - 1]["id"] if len(found) > limit else None
        return httpx.Response(200, json={"items": found[:limit], "after": after})

    def _look(self, request: httpx.Request, job: dict[str, Any], below: str) -> httpx.Response:
        if below == "":
            return self._show(job)
        if below == "spec":
            return httpx.Response(200, json=self.specs[job["id"]])
        if below == "events":
            return self._answer_events(request, job["id"])
        if below == "logs" and request.url.params.get("follow") == "false":
            return self._tell_logs(request)
        if below == "logs":
            items = [
                {"log": log, "num_bytes": len(text.encode()), "modified_at": NOW} for log, text in self.logs.items()
            ]
            return httpx.Response(200, json={"items": items})
        if below.startswith("logs/"):
            return self._answer_log(request, below.removeprefix("logs/"))
        if below == "files":
            return self._list_files(request)
        if below.startswith("files/"):
            return self._answer_file(request, below.removeprefix("files/"))
        if below == "training-events":
            after = int(request.url.params.get("after", 0))
            items = [one for one in self.canned.get("training", []) if one["seq"] > after]
            return httpx.Response(200, json={"items": items, "after": items[-1]["seq"] if items else after})
        if below in self.canned:
            return httpx.Response(200, json=self.canned[below])
        raise Refused("not-found", 404, f"There is nothing at {below}.")

    def _change(self, request: httpx.Request, job: dict[str, Any], below: str, body: Any) -> httpx.Response:
        if below == "clone":
            return self._submit(request, base={field: job[field] for field in ("name", "max_workers", "queue", "code")})
        moves = {
            "pause": ({"queued": "paused", "running": "pausing"}, "pause"),
            "resume": ({"paused": "queued"}, "resume"),
            "stop": ({"queued": "stopped", "paused": "stopped", "running": "stopping"}, "stop"),
        }
        if below in moves:
            leads, verb = moves[below]
            if job["stage"] not in leads:
                raise Refused("conflict", 409, f"Cannot {verb} job '{job['name']}': it is {job['stage']}.")
            if below == "stop":
                job["stop_now"] = body.get("now", False)
            self.move(job["id"], leads[job["stage"]], f"'anna' asked to {verb} it")
            return self._show(job)
        assert below in ("", "resize"), below
        if job["stage"] in ENDED:
            raise Refused("conflict", 409, f"Cannot change job '{job['name']}': it has ended.")
        if "queue" in body and body["queue"] not in self.queues:
            raise Refused("not-found", 404, f"There is no queue '{body['queue']}'.")
        if body.get("min_workers", job["min_workers"]) > body.get("max_workers", job["max_workers"]):
            raise Refused("invalid", 422, f"Cannot resize job '{job['name']}': the minimum is above the maximum.")
        labels = {**job["labels"], **(body.pop("labels", None) or {})}
        job |= body | {"labels": {key: value for key, value in labels.items() if value is not None}}
        job["version"] += 1
        return self._show(job)

    @staticmethod
    def _show(job: dict[str, Any], status: int = 200) -> httpx.Response:
        return httpx.Response(status, json=job, headers={"etag": f'"{job["version"]}"'})

    def _answer_events(self, request: httpx.Request, job: str | None) -> httpx.Response:
        asked = request.url.params
        after = len(self.events) if asked.get("after") == "now" else int(asked.get("after", 0))
        if "wait" in asked:
            self.time.now += 1.0
            self.waited()
        found = [event for event in self.events if event["seq"] > after and (job is None or event["job"] == job)]
        found = found[: int(asked.get("limit", 500))]
        return httpx.Response(200, json={"items": found, "after": found[-1]["seq"] if found else len(self.events)})

    # ------------------------------------------------------------ what jobs leave

    def _tell_logs(self, request: httpx.Request) -> httpx.Response:
        """Answer with the content of the workers' logs, as a stream that ends."""
        tail = request.url.params.get("tail")
        told = []
        for log, text in self.logs.items():
            lines = text.splitlines(keepends=True)
            kept = "".join(lines if tail is None else lines[len(lines) - int(tail) :])
            if log != "driver":
                told.append(("log", {"log": log, "text": kept}, None))
        return stream(*told, ("end", {}, None))

    def _answer_log(self, request: httpx.Request, log: str) -> httpx.Response:
        if log not in self.logs:
            raise Refused("not-found", 404, f"The job has no log '{log}', or it does not exist yet.")
        content, asked = self.logs[log].encode(), request.url.params
        first = int(asked.get("offset", 0))
        if "tail" in asked:
            lines = content.splitlines(keepends=True)
            first = len(content) - sum(map(len, lines[len(lines) - int(asked["tail"]) :]))
        piece = content[first : first + self.canned.get("max_bytes", 2**22)]
        told = {"legato-log-offset": str(first), "legato-log-end": str(first + len(piece))}
        return httpx.Response(200, content=piece, headers=told)

    def _list_files(self, request: httpx.Request) -> httpx.Response:
        path, deep = request.url.params.get("path", ""), request.url.params.get("recursive") == "true"
        items: dict[str, dict[str, Any]] = {}
        for name, content in self.files.items():
            if name != path and not name.startswith(f"{path}/" if path else ""):
                continue
            rest = name.removeprefix(path).lstrip("/")
            folders = rest.split("/")[:-1]
            for depth in range(1, len(folders) + 1):
                folder = "/".join(filter(None, [path, *folders[:depth]]))
                items[folder] = {"path": folder, "kind": "folder", "num_bytes": 0, "modified_at": NOW}
            items[name] = {"path": name, "kind": "file", "num_bytes": len(content), "modified_at": NOW}
        if path and not items:
            raise Refused("not-found", 404, f"There is no file '{path}' of this job.")
        if not deep:
            depth = len([part for part in path.split("/") if part]) + 1
            items = {name: item for name, item in items.items() if name.count("/") < depth}
        shown = sorted(items.values(), key=lambda item: item["path"])
        most = self.canned.get("max_entries", 10_000)
        return httpx.Response(200, json={"items": shown[:most], "is_complete": len(shown) <= most})

    def _answer_file(self, request: httpx.Request, name: str) -> httpx.Response:
        if name not in self.files:
            raise Refused("not-found", 404, f"There is no file '{name}' of this job.")
        content = self.files[name]
        etag = f'"{hashlib.sha256(content).hexdigest()[:8]}"'
        said = re.fullmatch(r"bytes=(\d+)-", request.headers.get("range", ""))
        if said and request.headers.get("if-range", etag) == etag:
            first = int(said[1])
            told = {"etag": etag, "content-range": f"bytes {first}-{len(content) - 1}/{len(content)}"}
            return httpx.Response(206, content=content[first:], headers=told)
        return httpx.Response(200, content=content, headers={"etag": etag})

    def _answer_code(self, request: httpx.Request, sha256: str, archive: str | None) -> httpx.Response:
        upload = {"sha256": sha256, "num_bytes": 1, "uploaded_by": "anna", "created_at": NOW, "used_at": NOW}
        if request.method == "PUT":
            assert hashlib.sha256(request.content).hexdigest() == sha256
            is_new = sha256 not in self.code
            self.code[sha256] = request.content
            return httpx.Response(201 if is_new else 200, json=upload)
        if sha256 not in self.code:
            raise Refused("not-found", 404, "There is no such code.")
        if archive:
            return httpx.Response(200, content=self.code[sha256], headers={"etag": f'"{len(self.requests)}"'})
        return httpx.Response(200, json=upload)

    # ------------------------------------------------------------ queues and people

    def _answer_queues(self, request: httpx.Request, name: str | None) -> httpx.Response:
        if name is None:
            return httpx.Response(200, json={"items": list(self.queues.values())})
        if request.method == "PUT":
            return httpx.Response(200, json=self.add_queue(name, **json.loads(request.content)))
        if name not in self.queues:
            raise Refused("not-found", 404, f"There is no queue '{name}' that you may see.")
        if request.method == "DELETE":
            del self.queues[name]
            return httpx.Response(204)
        return httpx.Response(200, json=self.queues[name])

    def _answer_users(self, request: httpx.Request, name: str | None, below: str | None) -> httpx.Response:
        body = json.loads(request.content or b"{}")
        if name is None and request.method == "GET":
            return httpx.Response(200, json={"items": list(self.users.values())})
        if name is None:
            if body["name"] in self.users:
                raise Refused("conflict", 409, f"There is a user '{body['name']}' already.")
            made = {"name": body["name"], "role": body["role"], "created_at": NOW, "disabled_at": None}
            self.users[body["name"]] = made | {"has_password": body.get("password") is not None}
            return httpx.Response(201, json=self.users[body["name"]])
        if name not in self.users:
            raise Refused("not-found", 404, f"There is no user '{name}'.")
        user = self.users[name]
        if below:
            user["has_password"] = True
            self.password = body["password"]
            return httpx.Response(204)
        if "is_disabled" in body:
            user["disabled_at"] = NOW if body.pop("is_disabled") else None
        user |= body
        return httpx.Response(200, json=user)

    def _answer_tokens(self, request: httpx.Request, name: str | None) -> httpx.Response:
        if name is None and request.method == "GET":
            return httpx.Response(200, json={"items": list(self.tokens.values())})
        if name is None:
            self.token_body = json.loads(request.content)
            return httpx.Response(201, json=self._make_token(self.token_body["name"], "anna"))
        if name not in self.tokens:
            raise Refused("not-found", 404, f"There is no token '{name}' of yours.")
        self.tokens[name]["revoked_at"] = NOW
        return httpx.Response(200, json=self.tokens[name])

    def _make_token(self, name: str, user: str) -> dict[str, Any]:
        number = f"t-{len(self.tokens) + 1:010}"
        self.tokens[number] = {
            "id": number,
            "user": user,
            "name": name,
            "role": "admin",
            "created_at": NOW,
            "expires_at": NOW + 86400,
            "revoked_at": None,
            "used_at": None,
        }
        return {"token": self.tokens[number], "secret": "lgt_fresh"}
