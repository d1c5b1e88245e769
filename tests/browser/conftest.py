"""A real browser, headless, that is cut off from every network; tests are skipped where there is none."""

import os
import shutil
from pathlib import Path

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="module")  # its driver holds the thread's event loop, which other tests need
def chromium():
    """The browser; SUREFOOT_BROWSER names its program where it is not on the path."""
    program = os.environ.get("SUREFOOT_BROWSER") or next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip("no Chromium found; apt-get install chromium, or set SUREFOOT_BROWSER to its program")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'surefoot[browser]'")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=list(_QUIET))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def shots(tmp_path_factory):
    """Folder for screenshots; SUREFOOT_SHOTS names one that is kept."""
    place = Path(os.environ.get("SUREFOOT_SHOTS") or tmp_path_factory.mktemp("shots"))
    place.mkdir(parents=True, exist_ok=True)
    return place


class Visit:
    """A page from disk, and everything that went wrong while it was open."""

    def __init__(self, browser, path, dark=False, width=1280, height=900):
        self.wrong, self.requests = [], []
        scheme = "dark" if dark else "light"
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, accept_downloads=True
        )
        self.page = self.context.new_page()
        self.page.add_init_script(
            "document.addEventListener('securitypolicyviolation', (e) => console.error('policy', e.violatedDirective, "
            "e.blockedURI))"
        )
        self.page.on(
            "console", lambda message: message.type in ("error", "warning") and self.wrong.append(message.text)
        )
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("#overview tbody tr")

    def section(self, name):
        """Bring a section into view and wait until it is drawn."""
        self.page.evaluate("(id) => document.getElementById(id).scrollIntoView({behavior: 'instant'})", name)
        self.page.wait_for_function("(id) => document.querySelector(`#${id} .body`).children.length > 0", arg=name)
        self.page.wait_for_function(
            "(id) => [...document.querySelectorAll(`#${id} .plot`)].every((room) => room.querySelector('.main-svg'))",
            arg=name,
        )
        self.page.wait_for_timeout(150)
        return self.page.locator(f"#{name}")

    def close(self):
        """Nothing went wrong, and nothing was asked for but the page itself."""
        self.context.close()
        assert self.wrong == []
        asked = {url.split(":", 1)[0] for url in self.requests}
        assert asked <= {"file", "data", "blob"}
        assert sum(url.startswith("file:") for url in self.requests) == 1


@pytest.fixture
def visit(chromium):
    """Opens pages, and checks at the end that none of them went wrong."""
    found = []

    def go(path, **options):
        found.append(Visit(chromium, path, **options))
        return found[-1]

    yield go
    for each in found:
        each.close()
