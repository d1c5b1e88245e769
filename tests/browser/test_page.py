"""The page in a real browser: every section, the slider, the filter, both themes, a telephone, and hostile runs."""

import csv
import itertools
import json

import pytest

from surefoot.reports.page import report
from surefoot.runs.records import encode
from tests.reports.cases import HOSTILE, hostile_folder, shift_numbers, write_run

SECTIONS = (
    "overview", "trajectories", "portrait", "machine", "tail", "certificates", "confidence", "compared", "shift", "made"
)  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    place = tmp_path_factory.mktemp("page")
    return report(hostile_folder(place / "runs of all kinds"), place / "page.html")


@pytest.mark.parametrize("width", [1280, 390], ids=["desk", "telephone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_section_renders(visit, page, shots, dark, width):
    seen = visit(page, dark=dark, width=width)
    for name in SECTIONS:
        section = seen.section(name)
        assert section.locator(".body .js-plotly-plot svg.main-svg, .body table, .body .card").count() > 0
        assert section.locator("text=could not be drawn").count() == 0
        section.screenshot(path=shots / f"{name}-{'dark' if dark else 'light'}-{width}.png")
    # Nothing wider than the screen, but for what scrolls by itself.
    assert seen.page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    ink, paper = (
        seen.page.evaluate(f"getComputedStyle(document.body).{name}") for name in ("color", "backgroundColor")
    )
    assert (sum(map(int, paper[4:-1].split(","))) < 150) == dark
    assert ink != paper


def drawn(seen, name):
    """What a panel of the time machine shows now."""
    return seen.page.evaluate(
        "(name) => { const node = document.querySelector(`#machine [data-panel=${name}]`);"
        "return JSON.stringify([node.data.map((trace) => [trace.x, trace.y]), node.layout.shapes || []]); }",
        name,
    )


def move(seen, section, value):
    seen.page.locator(f"#{section} input[type=range]").evaluate(
        "(node, value) => { node.value = value; node.dispatchEvent(new Event('input')); }", str(value)
    )
    seen.page.wait_for_timeout(200)


def test_the_slider_moves_all_four_panels(visit, page):
    seen = visit(page)
    seen.section("trajectories")
    cursor = "document.querySelector('#trajectories .js-plotly-plot').layout.shapes[0].x0"
    seen.section("machine")
    before = {name: drawn(seen, name) for name in ("reliability", "margin", "confidence", "place")}
    at = seen.page.evaluate(cursor)
    step = seen.page.locator("#machine output").inner_text()
    move(seen, "machine", 15)
    after = {name: drawn(seen, name) for name in before}
    assert [name for name in before if before[name] == after[name]] == []
    assert seen.page.locator("#machine output").inner_text() != step
    assert seen.page.evaluate(cursor) == 789 != at  # the fifteenth of twenty readings up to step 1000
    seen.section("tail")
    assert seen.page.locator("#tail output").inner_text().endswith("789")
    move(seen, "tail", 2)
    assert seen.page.locator("#machine output").inner_text().endswith("105")


def test_the_filter_chooses_runs_everywhere(visit, page):
    seen = visit(page)
    rows = seen.page.locator("#overview tbody tr")
    assert rows.count() == 11
    seen.page.fill("#filter", "muon")
    assert rows.count() == 1
    assert rows.first.get_attribute("data-run") == "open"
    seen.section("trajectories")
    # Train and test of one run, once the typing has stopped.
    seen.page.wait_for_function("() => document.querySelector('#trajectories .js-plotly-plot')?.data.length === 2")
    seen.page.fill("#filter", "no such run")
    assert rows.count() == 0
    assert "0 of 11" in seen.page.locator("#shown").inner_text()
    seen.page.fill("#filter", "")
    seen.page.locator("#overview .chip", has_text="damaged").click()
    assert rows.count() == 2


def test_rows_sort_and_choose(visit, page):
    seen = visit(page)
    seen.page.locator("#overview th button", has_text="ECE").first.click()
    column = [
        float(text) for text in seen.page.locator("#overview tbody tr td:nth-child(8)").all_inner_texts() if text != "–"
    ]
    assert column == sorted(column, reverse=True)
    assert len(column) > 5
    seen.page.locator("#overview tr[data-run=sam]").click()
    chosen = seen.section("machine").locator("select option:checked")
    assert chosen.inner_text().startswith("sam")


def test_a_link_leads_to_its_section(visit, page):
    seen = visit(page)
    seen.page.locator("nav a", has_text="Confidence").click()
    seen.page.wait_for_timeout(600)
    top = seen.page.evaluate("document.getElementById('confidence').getBoundingClientRect().top")
    assert 0 <= top < 120


def test_hostile_text_stays_text(visit, page):
    seen = visit(page)
    for name in SECTIONS:
        seen.section(name)
    assert seen.page.evaluate("window.hurt === undefined")
    assert seen.page.locator("img:not([src^='data:image/png'])").count() == 0
    assert seen.page.locator("#overview tbody td", has_text='<img src=x onerror="').count() > 0
    for name in ("compared", "shift"):
        names = seen.page.evaluate(
            "(id) => [...document.querySelectorAll(`#${id} .plot text`)].map((node) => node.textContent).join()", name
        )
        assert "<img src=x" in names  # drawn as letters
    assert seen.page.locator("#shift th", has_text="AUROC </script><img").count() == 1


def test_the_data_can_be_taken_away(visit, page, tmp_path):
    seen = visit(page)
    seen.section("made")
    with seen.page.expect_download() as caught:
        seen.page.click("#json")
    caught.value.save_as(tmp_path / "data.json")
    data = json.loads((tmp_path / "data.json").read_text())
    assert len(data["runs"]) == 11
    with seen.page.expect_download() as caught:
        seen.page.click("#csv")
    caught.value.save_as(tmp_path / "data.csv")
    with (tmp_path / "data.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == sum(len(run["curves"]["step"]) for run in data["runs"])
    sam = next(run for run in data["runs"] if run["id"] == "sam")
    assert [float(row["train.ece"]) for row in rows if row["run"] == "sam"] == sam["curves"]["train.ece"]
    assert any(row["method"] == HOSTILE for row in rows)


def test_new_data_keeps_what_was_chosen(visit, page):
    seen = visit(page)
    seen.page.fill("#filter", "sgd")
    seen.page.evaluate(
        "const data = JSON.parse(document.getElementById('data').textContent);"
        "data.runs.push({...data.runs[0], id: 'new', path: 'new', label: 'sgd new'}); surefoot.draw(data)"
    )
    seen.page.wait_for_timeout(200)
    assert seen.page.input_value("#filter") == "sgd"
    assert seen.page.locator("#overview tbody tr[data-run=new]").count() == 1


def test_the_theme_can_be_turned(visit, page):
    seen = visit(page)
    colour = "getComputedStyle(document.body).backgroundColor"
    before = seen.page.evaluate(colour)
    seen.section("trajectories")
    seen.page.click("#theme")
    seen.page.wait_for_timeout(300)
    assert seen.page.evaluate(colour) != before


def test_sections_without_data_say_what_to_turn_on(visit, tmp_path):
    write_run(tmp_path / "runs" / "a", frames=False, bounds=False, images=False)
    seen = visit(report(tmp_path / "runs", tmp_path / "page.html"))
    for name, word in (
        ("machine", "track.histograms"), ("tail", "track.margins"), ("certificates", "track.bounds"),
        ("confidence", "track.histograms"), ("shift", "[shift]"),
    ):  # fmt: skip
        assert word in seen.section(name).locator(".nothing").first.inner_text()


def dashes(seen, title):
    """Of the lines of one panel of the trajectories."""
    seen.section("trajectories")
    return seen.page.evaluate(
        "(title) => [...document.querySelectorAll('#trajectories figure')].find((node) => "
        "node.textContent.includes(title)).querySelector('.js-plotly-plot').data.map((trace) => trace.line.dash)",
        title,
    )


def test_the_chosen_set_is_drawn_or_the_only_one_that_was_read(visit, tmp_path):
    write_run(tmp_path / "runs" / "a", frames=False)
    seen = visit(report(tmp_path / "runs", tmp_path / "page.html"))
    found = {}
    for chosen in ("both", "train", "test"):
        seen.section("trajectories").locator(f"[aria-label=Set] [data-key={chosen}]").click()
        found[chosen] = [dashes(seen, title) for title in ("Gauss–Newton", "Batch sharpness", "ECE after")]
    assert found["both"] == [["solid", "dot"], ["solid", "dash"], ["dot"]]  # dashed: 2/η
    assert found["train"] == [["solid"], ["solid", "dash"], ["dot"]]
    assert found["test"] == [["dot"], ["solid", "dash"], ["dot"]]


def lines(seen):
    """Severities, values, dashes and intervals of the chart of severities, and the rows of that of kinds."""
    seen.section("shift")
    return seen.page.evaluate(
        "[...document.querySelectorAll('#shift .js-plotly-plot')].map((node) => node.data.map((trace) => ({"
        "at: trace.customdata, x: trace.x, y: trace.y, dash: trace.line?.dash, shown: trace.error_y?.visible})))"
    )


def test_shift_by_severity_and_by_kind(visit, page):
    seen = visit(page)
    severities, kinds = lines(seen)
    assert [trace["dash"] for trace in severities] == ["solid", "dot"] * 2
    assert [trace["shown"] for trace in severities] == [True, True, False, False]  # three seeds, and one
    assert severities[0]["at"] == [0, 1, 3, 5]
    assert severities[0]["y"] == pytest.approx([0.06, 0.12, 0.24, 0.36])
    assert severities[1]["y"] == pytest.approx([0.04, 0.076, 0.148, 0.22])
    assert [len(trace["y"]) for trace in kinds] == [2, 1]
    rows = seen.page.locator("#shift .js-plotly-plot").nth(1).locator(".ytick text").all_text_contents()
    assert rows[0] == "fog"  # at the bottom: the best
    assert "motion blur" in rows
    cells = seen.page.locator("#shift tbody tr").first.locator("td").all_inner_texts()
    assert cells[1:7] == ["3", "0.760 ± 0.010", "0.240 ± 0.010", "0.148 ± 0.010", "0.720 ± 0.030", "0.710 ± 0.010"]
    seen.page.locator("#shift [data-key=accuracy]").click()
    severities, _ = lines(seen)
    assert len(severities) == 2  # no temperature changes an accuracy
    assert severities[0]["y"] == pytest.approx([0.94, 0.88, 0.76, 0.64])
    seen.page.locator("#shift .legend button", has_text="sgd").click()
    seen.page.wait_for_function("() => document.querySelectorAll('#shift tbody tr').length === 1")


def test_results_without_severities_or_without_corruptions(visit, tmp_path):
    older = {name: value for name, value in shift_numbers(0).items() if ".severity" not in name}
    write_run(tmp_path / "older" / "a", readings=3, frames=False, shift=older)
    seen = visit(report(tmp_path / "older", tmp_path / "older.html"))
    assert "surefoot shift RUN" in seen.section("shift").locator(".nothing").inner_text()
    assert seen.page.locator("#shift .js-plotly-plot").count() == 1
    write_run(tmp_path / "foreign" / "a", readings=3, frames=False, shift={"ood.svhn.auroc": 0.8})
    seen = visit(report(tmp_path / "foreign", tmp_path / "foreign.html"))
    assert "shift.corruptions" in seen.section("shift").locator(".nothing").inner_text()
    assert seen.page.locator("#shift tbody td").last.inner_text() == "0.800"


def test_methods_beyond_the_palette_have_marks_of_their_own(visit, tmp_path):
    for place in range(8):
        numbers = shift_numbers(place)
        write_run(tmp_path / "runs" / str(place), f"rule {place}", readings=3, frames=False, shift=numbers)
    seen = visit(report(tmp_path / "runs", tmp_path / "page.html"))
    marks = seen.section("shift").locator(".legend .dot")
    shape = "(node) => getComputedStyle(node).backgroundColor + getComputedStyle(node).borderRadius"
    assert len({marks.nth(place).evaluate(shape) for place in range(8)}) == 8
    symbols = seen.page.evaluate(
        "document.querySelector('#shift .js-plotly-plot').data.map((trace) => trace.marker.symbol + trace.marker.color)"
    )
    assert len(set(symbols)) == 16  # before and after temperature


@pytest.mark.parametrize("width", [1280, 1030, 390])
def test_every_section_can_be_reached_from_the_top(visit, page, width):
    seen = visit(page, width=width)
    box = "document.querySelector('#nav{}').getBoundingClientRect()"
    assert seen.page.evaluate(f"{box.format(' a')}.left >= {box.format('')}.left - 1")
    seen.page.evaluate("document.getElementById('nav').scrollLeft = 1e6")
    assert seen.page.evaluate(f"{box.format(' a:last-child')}.right <= {box.format('')}.right + 1")


@pytest.fixture(scope="module")
def crowd(tmp_path_factory):
    """Runs whose names are too long, the same, or next to one another; the first of them with harmed histograms."""
    place = tmp_path_factory.mktemp("crowd")
    runs = place / "runs"
    harmed = write_run(runs / "0", "sgd", readings=5) / "arrays.jsonl"
    harmed.write_bytes(b"".join(encode({"step": step, "test.reliability": "x", "test.tail": 5}) for step in range(5)))
    rules = ("sgd", "adamw", "long " + "x" * 250)
    for at, (rule, lr) in enumerate(itertools.product(rules, (0.1, 0.2))):
        numbers = shift_numbers(at, ["fog", "y" * 60], ["z" * 60])
        result = write_run(runs / f"{rule[:6]} {lr}", rule, lr, readings=5, shift=numbers) / "result.json"
        table = json.loads(result.read_text())
        table["final"] |= {"test.accuracy": 0.8 + 0.02 * at, "test.ece": 0.1 + 0.01 * (3 * at % 5)}
        result.write_text(json.dumps(table))
    for group in ("one", "two"):
        (write_run(runs / group / "mine", readings=5, outcome=None) / "spec.json").unlink()
    return report(runs, place / "page.html")


@pytest.mark.parametrize("width", [1280, 390], ids=["desk", "telephone"])
def test_long_names_stay_in_their_place(visit, crowd, width):
    seen = visit(crowd, width=width)
    for name in SECTIONS:
        assert seen.section(name).locator("text=could not be drawn").count() == 0
    assert seen.page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")


def test_names_in_a_chart_do_not_cover_one_another(visit, crowd):
    seen = visit(crowd)
    seen.section("compared")
    boxes = seen.page.evaluate(
        "[...document.querySelector('#compared .js-plotly-plot').querySelectorAll('.textpoint text')]"
        ".map((node) => node.getBoundingClientRect()).map((box) => [box.left, box.top, box.right, box.bottom])"
    )
    assert len(boxes) >= 5
    for one, other in itertools.combinations(boxes, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    rows = seen.page.locator("#compared .js-plotly-plot").nth(1).locator(".yaxislayer-above .ytick text")
    assert rows.count() == 8  # settings whose names are cut to the same letters have rows of their own


def test_harmed_histograms_are_passed_over(visit, crowd):
    seen = visit(crowd)
    chosen = seen.section("machine").locator("select option:checked").inner_text()
    assert "adamw" in chosen
    assert seen.page.locator("#machine .js-plotly-plot").count() == 4


def test_runs_of_one_name_are_chosen_one_by_one(visit, crowd):
    seen = visit(crowd)
    for name in ("one/mine", "two/mine"):
        seen.page.locator("#overview tbody tr", has_text=name).click()
        assert seen.page.locator("#overview tr.chosen td").first.inner_text() == name


def test_step_0_on_a_logarithmic_axis(visit, page):
    seen = visit(page)
    seen.section("trajectories").locator("[aria-label=Steps] [data-key=log]").click()
    seen.section("machine")
    move(seen, "machine", 0)
    shapes = "document.querySelector('#trajectories .js-plotly-plot').layout.shapes.length"
    assert seen.page.evaluate(shapes) == 0
    move(seen, "machine", 3)
    assert seen.page.evaluate(shapes) == 1


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_prints(visit, page, shots, dark):
    seen = visit(page, dark=dark)
    seen.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    for name in SECTIONS:
        assert seen.page.locator(f"#{name} .body > *").count() > 0
    assert seen.page.locator(".plot:not(:has(.main-svg))").count() == 0
    seen.page.emulate_media(media="print", color_scheme="dark" if dark else "light")
    assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    ink = "document.querySelector('#trajectories .xtick text').style.fill"
    assert seen.page.evaluate(ink) == "rgb(29, 36, 48)"
    assert seen.page.locator("#trajectories .legend button").first.is_visible()  # what the colours mean
    assert not seen.page.locator("#trajectories .switch").first.is_visible()
    seen.page.emulate_media(media="screen", color_scheme="dark" if dark else "light")
    seen.page.evaluate("dispatchEvent(new Event('afterprint'))")
    seen.page.wait_for_timeout(200)
    paper = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper != "rgb(255, 255, 255)") == dark
    assert len(seen.page.pdf(path=shots / "page.pdf", format="A4")) > 100_000
