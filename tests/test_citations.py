"""Papers are cited by author and year, each with a reference in docs/EQUATIONS.md, and never by a private label."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("benchmarks", "docs", "examples", "results", "src", "studies", "tests")
KINDS = (".css", ".csv", ".html", ".js", ".json", ".md", ".py", ".sh", ".toml")
FILES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.suffix in KINDS]
FILES += [*sorted(ROOT.glob("*.md")), ROOT / "Makefile"]

LABEL = re.compile(r"\b[Pp]apers? ?[AB]\b|paper[-_][ab](?![a-z])|\b[Cc]ards? [A-J]\d*\b")
# Former names that are accepted, and the pages and tests that say so.
FORMER = {
    "CHANGELOG.md",
    "docs/MIGRATING.md",
    "src/surefoot/deprecated.py",
    "studies/reproduce.sh",
    "tests/names_0_1.json",
    "tests/studies/test_spellings.py",
}

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CITATION = re.compile(r"([A-ZŁ][\w'-]+)(?:, [A-Z]\w+)*(?: et al\.| (?:&|and) [A-Z]\w+)?,? \(?((?:19|20)\d\d)\b")


def references():
    return (ROOT / "docs" / "EQUATIONS.md").read_text().partition("\n## References\n")[2]


@pytest.mark.parametrize(
    "label", ["paper A", "Paper B's", "paper-a-table1", "test_paper_b", "(card B1)", "cards A1", "card D"]
)
def test_a_label_is_seen(label):
    assert LABEL.search(label)


def test_no_private_labels():
    assert len(FILES) > 400
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in FILES
        if path != Path(__file__) and path.relative_to(ROOT).as_posix() not in FORMER
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if LABEL.search(line)
    ]
    assert not wrong, "cite author and year:\n" + "\n".join(wrong)


def test_a_citation_is_seen():
    text = "Song, Ahn & Yun (2025), Kumar et al. 2018; Andreyev and Beneventano, 2024"
    assert CITATION.findall(text) == [("Song", "2025"), ("Kumar", "2018"), ("Andreyev", "2024")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_citations_have_references(page):
    text = page.read_text().partition("\n## References\n")[0]
    for author, year in CITATION.findall(text):
        assert re.search(rf"^- {author}, .*\({year}\)", references(), re.MULTILINE), f"{author} {year}"
