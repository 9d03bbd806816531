"""What holds for every template, whatever it is given."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Final

TAGS: Final = re.compile(r"<(table|thead|tbody|tr|th|td)\b([^>]*)>")
ROLES: Final = {
    "table": "table", "thead": "rowgroup", "tbody": "rowgroup", "tr": "row", "th": "columnheader", "td": "cell",
}  # fmt: skip


def test_each_part_of_a_table_says_what_it_is() -> None:
    """Breaks when a table is shown as something else on a telephone, and a browser takes its roles away."""
    found = set()
    for template in (files("syncer.ui") / "templates").iterdir():
        for tag, attributes in TAGS.findall(template.read_text()):
            assert f'role="{ROLES[tag]}"' in attributes, f"{template.name}: <{tag}{attributes}>"
            found.add(tag)
    assert found == set(ROLES)
