"""What the tests of the console share: a real server, a real browser, and people who use it.

They need the built pages (`make console`) and Chromium, and are skipped loudly where there is none, but not in CI. With
``LEGATO_PICTURES`` set to a directory, each screen that a test shows is kept there, light and dark.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks.platform import Platform, platform
from playwright.sync_api import Error, sync_playwright
from tests import fork_server
from tests.shared import Shared

import legato.server

collect_ignore_glob = ["programs/*"]  # they train when they are imported

PAGES: Final = Path(legato.server.__file__).parent / "pages" / "index.html"
CHROMIUM: Final = shutil.which("chromium") or shutil.which("google-chrome")
AXE: Final = Path(__file__).parents[2] / "console" / "node_modules" / "axe-core" / "axe.min.js"
LIMIT_S: Final = 60
_MOST_LOADS: Final = 20
PASSWORD: Final = "correct horse battery"
# Chromium asks its maker's hosts for this and that; nothing of it can be answered here.
_ARGUMENTS: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
# The page hears of another scheme, draws, and its colours have changed.
_SETTLE: Final = """
    new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))
        .then(() => Promise.allSettled(document.getAnimations().map(one => one.finished)))
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a browser where there is none, but not in CI; give the others time."""
    missing = [
        what
        for what, is_there in (("the built pages: make console", PAGES.exists()), ("Chromium", CHROMIUM is not None))
        if not is_there
    ]
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(pytest.mark.timeout(10 * LIMIT_S))
        if missing and "CI" not in os.environ:
            item.add_marker(pytest.mark.skip(reason=f"the console's tests need {' and '.join(missing)}"))


_shared: Final = Shared(Path(__file__).parent)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    try:
        yield
    finally:
        _shared.end_before(nextitem)


@contextlib.contextmanager
def start_browser() -> Iterator[Any]:
    # While it lives, an event loop runs in this thread, beside which other folders' tests of coroutines cannot run.
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(_ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def chromium() -> Any:
    return _shared.get(start_browser)


@contextlib.contextmanager
def start_platform_anywhere() -> Iterator[Platform]:
    with tempfile.TemporaryDirectory() as folder, start_platform(Path(folder, "platform")) as made:
        yield made


@contextlib.contextmanager
def start_platform(home: Path) -> Iterator[Platform]:
    """Start a platform of four slots on which decisions come soon."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("LEGATO_", "WMLA_"))]:
            if name != "LEGATO_PICTURES":
                patch.delenv(name)
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        with platform(home, slots=4, prefix=fork_server.prefix_of_server(), stability_s=0.5) as made:
            yield made


@pytest.fixture
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Platform]:
    """A platform: those who only look share one, in which each has people of other names; a soak has its own."""
    if request.node.get_closest_marker("soak") is None:
        yield _shared.get(start_platform_anywhere)
        return
    with start_platform(tmp_path / "platform") as made:
        yield made


def load(page: Any, url: str) -> None:
    """Load a page, and again if Chromium gave it up because this machine got or lost a network interface.

    Tests on several hosts, which may run at the same time, add and remove interfaces.
    """
    for _ in range(_MOST_LOADS):
        try:
            page.goto(url)
        except Error as error:
            if "ERR_NETWORK_CHANGED" not in str(error):
                raise
        else:
            return
    raise AssertionError(f"the network of this machine changed during each of {_MOST_LOADS} loads of {url}")


class Person:
    """A user with a separate browser, who has logged in with name and password.

    Attributes:
        page: what they see.
        complaints: errors that the page told the browser.
    """

    def __init__(self, name: str, page: Any, url: str) -> None:
        self.name, self.page, self.url = name, page, url
        self.complaints: list[str] = []
        page.set_default_timeout(LIMIT_S * 1000)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)

    def logs_in(self) -> None:
        """Log in by the form."""
        load(self.page, f"{self.url}/")
        self.page.locator("input[name=user]").fill(self.name)
        self.page.locator("input[name=password]").fill(PASSWORD)
        self.page.get_by_role("button", name="Log in").click()
        self.page.locator("main.main h1").wait_for()

    def opens(self, route: str) -> None:
        """Load a page by its address."""
        self.page.goto("about:blank")
        load(self.page, f"{self.url}/#{route}")
        self.page.locator("main.main h1").wait_for()

    def sees(self, text: str | re.Pattern[str]) -> Any:
        """Wait until a text is there, and return where."""
        found = self.page.get_by_text(text).first
        found.wait_for()
        return found

    def shows(self, name: str) -> None:
        """Keep a picture of the screen, light and dark, if pictures are wanted."""
        if folder := os.environ.get("LEGATO_PICTURES"):
            for scheme in ("light", "dark"):
                self.page.emulate_media(color_scheme=scheme)
                self.page.screenshot(path=Path(folder) / f"{name}-{scheme}.png", animations="disabled")

    def finds_no_barrier(self) -> None:
        """Check the page with axe: nothing that excludes users, light and dark."""
        for scheme in ("light", "dark"):
            self.page.emulate_media(color_scheme=scheme)
            # Colours on their way from one scheme to the other are none of either.
            self.page.evaluate(_SETTLE)
            if scheme == "light":
                self.page.evaluate(AXE.read_text())
            # Of what axe looks at, the scheme changes the colours alone.
            rules = {"runOnly": ["color-contrast", "link-in-text-block"]} if scheme == "dark" else {}
            found = self.page.evaluate("rules => axe.run({resultTypes: ['violations'], ...rules})", rules)
            told = [
                f"{one['id']}: {[(node['target'], node['failureSummary']) for node in one['nodes'][:5]]}"
                for one in found["violations"]
            ]
            assert not told, f"{self.page.url} ({scheme}): {told}"


@pytest.fixture
def people(chromium: Any, running: Platform) -> Iterator[Callable[..., Person]]:
    """Makes a user, and the browser in which they have logged in; no page of theirs may complain."""
    made: list[Person] = []

    def arrive(name: str, role: str = "user", *, width: int = 1440, **options: Any) -> Person:
        if not any(one.name == name for one in made):
            running.client.add_user(name, role=role, password=PASSWORD)
        context = chromium.new_context(viewport={"width": width, "height": 900}, reduced_motion="reduce", **options)
        person = Person(name, context.new_page(), running.url)
        made.append(person)
        person.logs_in()
        return person

    yield arrive
    for person in made:
        person.shows(f"last-of-{person.name}")
        person.page.context.close()
    # What the server refused is shown by the page itself; the browser reports it again.
    told = [said for person in made for said in person.complaints if not said.startswith("Failed to load resource")]
    assert not told
