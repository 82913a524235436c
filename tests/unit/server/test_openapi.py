"""The server answers valid and invalid requests as the OpenAPI document says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode, checks
from tests.tiers import examples
from tests.unit.server.platform import LIMIT_S, Platform

ROOT = Path(__file__).parents[3]
NUM_EXAMPLES = examples(3)
# Not that whatever fits the description is taken: that a name begins with a letter, it says in words.
CHECKS = [
    getattr(checks, name)
    for name in (
        *("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance"),
        *("response_headers_conformance", "negative_data_rejection", "ignored_auth", "unsupported_method"),
        "allow_header_conformance",
    )
]


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Iterator[Platform]:
    """A platform with something of everything in it."""
    made = Platform(tmp_path_factory.mktemp("described"), template)
    with made.running():
        made.lead()
        made.start(made.submit("admin", name="runs", max_workers=2), "node/0")
        made.submit("admin", name="waits")
        yield made


@pytest.fixture(scope="module")
def document(described: Platform) -> Any:
    found = described.get("openapi.json", who=None)
    for parameter in found["paths"]["/api/v1/events"]["get"]["parameters"]:
        if parameter["name"] == "wait":
            parameter["schema"] = {"const": 0}  # nothing is waited for here
    return found


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_every_operation_answers_as_described(described: Platform, document: Any, mode: GenerationMode) -> None:
    num_asked = 0
    for found in schemathesis.openapi.from_dict(document).get_all_operations():
        operation = found.ok()

        @settings(
            max_examples=NUM_EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            answer = case.call(base_url=described.url, headers=described.headers("admin"), timeout=LIMIT_S)
            # A body that is too large is refused before it is compared with the description: this check knows no 413.
            is_large = answer.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            applied = [check for check in CHECKS if not is_large or check.__name__ != "negative_data_rejection"]
            case.validate_response(answer, checks=applied)

        try:
            ask()
            num_asked += 1
        except Unsatisfiable:
            pass  # of pages that take nothing, nothing is wrong
        except BaseException as error:
            error.add_note(f"at {operation.label}")
            raise
    assert num_asked > 45


def test_the_page_and_the_description_name_the_same_operations(document: Any) -> None:
    page = (ROOT / "docs/rest.md").read_text()
    told = set(re.findall(r"`((?:GET|HEAD|POST|PUT|PATCH|DELETE) /[^` ?]*)", page)) - {"GET /openapi.json"}
    told = {re.sub(r"\{\w+\}", "{}", one) for one in told if not one.startswith("GET /api")}
    there = {
        f"{method.upper()} {re.sub('{[^}]+}', '{}', path.removeprefix('/api/v1'))}"
        for path, methods in document["paths"].items()
        for method in methods
    }
    # That files have HEAD too, the page says in words.
    assert there - {"HEAD /jobs/{}/files/{}"} == told


def test_fields_that_the_page_names_are_those_of_the_description(document: Any) -> None:
    page = (ROOT / "docs/rest.md").read_text()
    schemas = document["components"]["schemas"]
    for name in ("Submission", "Job", "Explanation", "PoolState", "SlotState", "QueueState", "User", "Token", "Plan"):
        fields = schemas[name]["properties"]
        assert [field for field in fields if f"`{field}`" not in page and f'"{field}"' not in page] == [], name
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \|$", page, re.MULTILINE)
    assert set(rows) >= set(schemas["Submission"]["properties"])


def test_operations_have_unique_names_and_descriptions(document: Any) -> None:
    names = []
    for methods in document["paths"].values():
        for operation in methods.values():
            names.append(operation["operationId"])
            assert operation["description"].endswith(".") or "``" in operation["description"], operation
    assert len(set(names)) == len(names)
    assert "HTTPValidationError" not in document["components"]["schemas"]
    assert "x-legato-record" not in str(document)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            is_open = (
                not path.startswith("/api/v1")
                or path.startswith("/api/v1/agents/")
                or (method, path)
                in (
                    ("post", "/api/v1/login"),
                    ("post", "/api/v1/session"),
                    ("post", "/api/v1/session/links/look"),
                )
            )
            assert (operation.get("security") == []) == is_open, path
