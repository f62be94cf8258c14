"""A sweep: one size of a request grows and everything else stays; how both lanes grow with it.

Each size is a case of one benchmark, whose rounds go round the sizes, so that a machine whose
speed drifts treats them alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from core.lines import crossings, verdict
from core.report import LEGEND, SWEPT, Report, aligned, columns_of, notes, wrapped
from core.request import PromptTooLong, Request
from core.synthetic import CHOICES_A_FIELD, schema_of_choices, schema_of_fields, text_of_tokens
from core.trials import Case, Head

if TYPE_CHECKING:
    from core.engine import Engine

Axis = Literal["fields", "choices", "context"]

#: What stays while something else grows.
TEXT_TOKENS, FIELDS = 128, 8


@dataclass(frozen=True)
class Growth:
    """What an axis makes larger, and what it leaves alone."""

    sizes: tuple[int, ...]
    unit: str
    fixed: str


AXES: Mapping[Axis, Growth] = {
    "fields": Growth(
        (1, 2, 4, 8, 16, 28, 64), "fields", f"{CHOICES_A_FIELD} choices a field, a text of about {TEXT_TOKENS} tokens"
    ),
    "choices": Growth(
        (2, 4, 8, 16, 32, 64, 128, 255), "choices of one field", f"one field, a text of about {TEXT_TOKENS} tokens"
    ),
    "context": Growth(
        (64, 128, 256, 512, 1024, 2048), "tokens of text", f"{FIELDS} fields of {CHOICES_A_FIELD} choices each"
    ),
}


@dataclass(frozen=True)
class Sweep(Report):
    """The races of an axis, as far as they were run."""

    axis: Axis
    left_out: tuple[int, ...]  # sizes that do not fit the model's window

    legend: ClassVar[str] = LEGEND

    @property
    def growth(self) -> Growth:
        return AXES[self.axis]

    @property
    def fixed(self) -> str:
        return f"{self.growth.fixed}, head {' and '.join(self.benchmark.heads)}"

    def to_json(self, *, trials: bool = False) -> dict[str, Any]:
        """`trials`: with each race too."""
        found = [asdict(crossing) for mode in self.benchmark.modes for crossing in crossings(self.summaries, mode)]
        about = {"axis": self.axis, "unit": self.growth.unit, "fixed": self.fixed, "left_out": self.left_out}
        return super().to_json(trials=trials) | {"benchmark": "scaling", **about, "crossings": found}

    def plain_tables(self) -> Iterator[str]:
        yield f"size: {self.growth.unit}; fixed: {self.fixed}"
        if self.left_out:
            yield f"left out, do not fit the model's window: {', '.join(map(str, self.left_out))}"
        yield ""
        rows = sorted(self.summaries, key=lambda row: (self.benchmark.modes.index(row.mode), row.size))
        yield from (*aligned(rows, columns_of(SWEPT, self.setting.clock)), *notes(rows), "")
        for mode in self.benchmark.modes:
            yield wrapped(verdict(rows, mode, self.growth.unit))
        yield ""


def cases_of(engine: Engine, axis: Axis, head: Head = "warm") -> tuple[tuple[Case, ...], tuple[int, ...]]:
    """The requests of an axis, and the sizes that do not fit the model's window.

    Raises `PromptTooLong` where none does.
    """
    made: list[Case] = []
    left_out: list[int] = []
    for size in AXES[axis].sizes:
        try:
            made.append(_case(engine, axis, size, head))
        except PromptTooLong:
            left_out.append(size)
            if len(left_out) == len(AXES[axis].sizes):
                raise
    return tuple(made), tuple(left_out)


def _case(engine: Engine, axis: Axis, size: int, head: Head) -> Case:
    """The size of a text is what the engine makes of it; no text has just any number of tokens."""
    text_tokens, field_count = (size, FIELDS) if axis == "context" else (TEXT_TOKENS, size)
    text = text_of_tokens(text_tokens, lambda text: len(engine.vocabulary.encode(text)))
    schema = schema_of_choices(size) if axis == "choices" else schema_of_fields(field_count)
    request = Request(text, schema, cache=head == "warm")
    prepared = engine.owner.submit(lambda job: engine.prepare(request)).result()
    reached = len(prepared.context) if axis == "context" else size
    return Case(f"{reached} {AXES[axis].unit}", text, schema, size=reached)
