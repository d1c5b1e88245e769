"""The live page in a real browser: it keeps up with a run, asks nobody but its server, and says when that is gone."""

import signal
import time

import pytest

from tests.browser.conftest import Visit
from tests.reports.live_runs import begin, end, grow
from tests.reports.served import serving


class Address(str):
    """What a browser is sent to."""

    __slots__ = ()

    def as_uri(self):
        return str(self)


class LiveVisit(Visit):
    """A page from a server."""

    def __init__(self, browser, served, **options):
        self.origin = f"http://{served.address.netloc}"
        super().__init__(browser, Address(served.address.geturl()), **options)
        # Charts name no address; the icon of the site is the browser's own idea.
        self.page.wait_for_function("() => document.getElementById('live-says').textContent.includes('under way')")

    def says(self):
        return self.page.locator("#live-says").text_content()

    def shows(self, selector, text):
        """Wait until an element holds a text."""
        self.page.wait_for_function(
            "([where, text]) => [...document.querySelectorAll(where)].some((node) => node.textContent.includes(text))",
            arg=[selector, text],
            timeout=15_000,
        )

    def fetched(self):
        return sum("/data.json" in url for url in self.requests)

    def close(self):
        self.context.close()
        assert self.wrong == []
        assert all(url.startswith((f"{self.origin}/", "data:", "blob:")) for url in self.requests)


@pytest.fixture
def folder(tmp_path):
    # The last reading was now, at two seconds a step.
    grow(begin(tmp_path / "aaaa", steps=100), 0, 10, 20, start=time.time() - 40)
    return tmp_path


@pytest.fixture
def live(chromium, folder):
    with serving(folder) as served:
        found = LiveVisit(chromium, served)
        found.served = served
        yield found
        found.close()


def test_the_page_keeps_up_with_a_run(live, folder, shots):
    assert live.says() == "1 under way, 0 ended"
    assert live.fetched() == 0  # the page came with its data
    live.shows("#live li", "20 of 100 steps")
    live.shows("#live li", "min left")
    live.shows("#overview [data-run=aaaa]", "20 %")
    live.section("trajectories")
    points = "document.querySelector('#trajectories .js-plotly-plot')?.data?.[0]?.x.length"
    before = live.page.evaluate(points)
    grow(folder / "aaaa", 30, 40, start=time.time() - 80)
    live.shows("#live li", "40 of 100 steps")
    live.shows("#overview [data-run=aaaa]", "40 %")
    # A function, not an expression, which would be evaluated again and again against the page's policy; and while the
    # charts are drawn anew there is none for a moment.
    live.page.wait_for_function(f"() => {points} === {before + 2}", timeout=15_000)
    live.page.evaluate("scrollTo(0, 0)")
    live.page.screenshot(path=shots / "live.png")
    grow(begin(folder / "bbbb", rule="adamw"), 0)
    live.shows("#overview [data-run=bbbb]", "adamw")
    live.shows("#live-says", "2 under way, 0 ended")
    live.shows("#live li", "last reading")  # of long ago, and no pace yet
    end(folder / "aaaa", 40)
    live.shows("#overview [data-run=aaaa]", "finished")
    live.shows("#live-says", "1 under way, 1 ended")


def test_the_reader_is_left_in_peace(live, folder):
    live.page.fill("#filter", "sgd seed 0")
    live.page.click("#pause")
    grow(folder / "aaaa", 30)
    live.shows("#live li", "30 of 100 steps")
    live.shows("#live-says", "paused")
    live.page.wait_for_timeout(4000)
    assert live.fetched() == 0
    live.page.click("#pause")
    live.shows("#overview [data-run=aaaa]", "30 %")
    assert live.page.input_value("#filter") == "sgd seed 0"


def test_hostile_names_stay_text(live, folder):
    name = "<img src=x onerror=alert(1)>&amp;<script>alert(2)</script>".replace("/", "∕")
    grow(begin(folder / name, rule=name), 0, 10)
    live.shows("#live li", "<img src=x")
    live.shows("#overview tbody", "<img src=x")
    assert live.page.locator("#live img, #live script, #overview img, #overview script").count() == 0


def test_the_end_of_the_server_is_said(live):
    live.served.ended(signal.SIGINT)
    live.shows("#live-says", "no connection")
    live.wrong.clear()  # the browser's own complaint that nobody answers


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_on_a_telephone(chromium, folder, shots, dark):
    grow(begin(folder / "bbbb", steps=400, rule="adamw"), 0, 100)
    with serving(folder) as served:
        seen = LiveVisit(chromium, served, width=390, dark=dark)
        assert seen.page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
        seen.page.screenshot(path=shots / f"live-390-{'dark' if dark else 'light'}.png")
        seen.close()
