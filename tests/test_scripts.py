"""The parts of a component's script: one function body in the browser, so no two of them may define one name."""

import re
from collections import Counter

import pytest

from core.ui.components import BOARD_PARTS, SHEET_PARTS, asset
from core.ui.launch import SCRIPTS

DEFINITION = re.compile(r"^(?:async )?(?:function\*?|const|let|class) ([\w$]+)", re.MULTILINE)


@pytest.mark.parametrize("parts", [BOARD_PARTS, SHEET_PARTS, SCRIPTS], ids=["board", "table", "page"])
def test_no_two_parts_define_one_name(parts):
    names = Counter(name for part in parts for name in DEFINITION.findall(asset(part)))
    assert names and [name for name, count in names.items() if count > 1] == []
