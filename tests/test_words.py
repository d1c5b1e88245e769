"""Pages and visible texts use the terms of the literature, and not the home-made words of version 0.1."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "src" / "surefoot" / "reports" / "page" / "script").glob("*.js"))
PAGES = [
    ROOT / "docs" / f"{name}.md"
    for name in ("INTEGRATIONS", "LOSSES", "OPTIMIZERS", "REPORT", "SCALE", "SHIFT", "STUDIES")
]
OLD = (
    r"[Ss]tep rule|[Ff]oreign (?:data|sets?|images)|corrupted (?:and|or) foreign|\bharmed\b|as printed"
    r"|[Tt]oo sure\b|how sure|\b[Rr]epairs?\b|same bytes|to the bit|\bbest rival\b|^# When the world"
)


@pytest.mark.parametrize("page", [*PAGES, *SCRIPTS, ROOT / "pyproject.toml"], ids=lambda path: path.name)
def test_no_former_word(page):
    text = page.read_text().replace('"Too Sharp, Too Sure"', "")
    assert [match[0] for match in re.finditer(OLD, text, re.MULTILINE)] == []
