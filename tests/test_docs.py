"""Generated parts of the documentation are what the source and the result files say."""

from pathlib import Path

import pytest

from docs.render import PARTS, render

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", PARTS)
def test_generated_parts_are_up_to_date(name):
    assert (ROOT / name).read_text(encoding="utf-8") == render(name), "run `make docs`"


def test_every_page_with_generated_parts_is_checked():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    marked = {str(page.relative_to(ROOT)) for page in pages if ":begin -->" in page.read_text(encoding="utf-8")}
    assert set(PARTS) == marked


def test_no_result_file_tells_where_data_lay_on_one_machine():
    for path in (ROOT / "results").rglob("*"):
        if path.is_file() and path.suffix in {".json", ".jsonl", ".toml", ".csv", ".md"}:
            text = path.read_text(encoding="utf-8")
            assert "root = " not in text, path
            assert '"/' not in text.replace('"//', ""), path
