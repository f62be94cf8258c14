"""The 1.5B model: answers that need one that understands. Off by default: several gigabytes."""

from __future__ import annotations

import pytest

from core.engine import Engine
from core.presets import load_presets
from core.schema import StructuredSchema, choice_key

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.load("qwen2.5-coder-1.5b")


@pytest.mark.parametrize(
    "text, answer",
    [
        ('Please answer exactly "Yes." with the full stop.', "Yes."),
        ('Please answer exactly "Yes" without a full stop.', "Yes"),
        ('Please answer exactly "No".', "No"),
    ],
)
def test_a_full_stop_that_the_text_asks_for_is_heard(engine: Engine, text: str, answer: str) -> None:
    """The canonical token `.` holds a thousandth of the mass; `."` and `.",` hold the rest."""
    spec = {"type": "enum", "choices": ["Yes", "Yes.", "No"], "description": "The answer that the text asks for"}
    assert engine.run_parallel(text, StructuredSchema({"answer": spec})).values == {"answer": answer}


def test_most_of_what_a_careful_reader_is_sure_of_is_found(engine: Engine) -> None:
    """Not all: a few fields of triage are near ties that another machine may tip over."""
    right = sure = 0
    for preset in load_presets():
        values = engine.run_parallel(preset.context, preset.schema).values
        sure += len(preset.expected)
        right += sum(choice_key(values[name]) == choice_key(value) for name, value in preset.expected.items())
    assert right >= 0.8 * sure
