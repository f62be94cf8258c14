"""Recordings: saved races of presets, which a page can replay without a model.

A recording is the trace of one race as it was run. Knows nothing of engines or pages.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from core.presets import Preset, with_changed
from core.schema import SchemaError, StructuredSchema
from core.trace import Event, LaneEnded, RunEnded, RunStarted, TraceError, load
from core.wording import escaped

FOLDER = Path(__file__).parents[1] / "assets" / "recordings"

log = logging.getLogger(__name__)


class RecordingError(ValueError):
    """A file that is no recording; the message names it."""


@dataclass(frozen=True)
class Recording:
    """One race that was run to its end by both lanes. Raises `RecordingError` for anything else."""

    preset: str  # its id
    events: tuple[Event, ...]
    file: Path

    def __post_init__(self) -> None:
        kinds = Counter(event.kind for event in self.events)
        lanes = Counter(event.lane for event in self.events if isinstance(event, LaneEnded))
        ends = self.events[:1] + self.events[-1:]
        if [type(event) for event in ends] != [RunStarted, RunEnded] or (kinds["run"], kinds["end"]) != (1, 1):
            raise RecordingError(f"{self.file}: holds no single race from its start to its end; record it again")
        if self.end.state != "done":
            raise RecordingError(f"{self.file}: its race {self.end.state}: {self.end.message}; record it again")
        if lanes != {"pcd": 1, "ar": 1}:
            raise RecordingError(f"{self.file}: only {sorted(lanes)} came to an end, not both lanes; record it again")

    @classmethod
    def load(cls, file: Path) -> Recording:
        """The recording of the preset after which the file is named; raises `RecordingError`."""
        try:
            return cls(file.stem, load(file), file)
        except OSError as error:
            raise RecordingError(f"{file}: {error.strerror}; give the path of a recording") from None
        except TraceError as error:
            raise RecordingError(f"{error}; record it again") from None

    @property
    def run(self) -> RunStarted:
        """How it began: machine, model, dtype, baseline mode, date and versions."""
        run = self.events[0]
        assert isinstance(run, RunStarted), "checked"
        return run

    @property
    def end(self) -> RunEnded:
        end = self.events[-1]
        assert isinstance(end, RunEnded), "checked"
        return end

    def is_of(self, preset: Preset) -> bool:
        """Whether it was raced on this preset's text and fields, as they are now."""
        try:
            fields = StructuredSchema(self.run.schema).key
        except SchemaError:
            return False
        return (self.preset, self.run.context, fields) == (preset.id, preset.context, preset.schema.key)


def recording_file(preset: str, folder: Path = FOLDER) -> Path:
    return folder / f"{preset}.jsonl"


def load_recordings(presets: Iterable[Preset], folder: Path = FOLDER) -> dict[str, Recording]:
    """The recordings that there are, by the preset's id, those of a changed fact too.

    One that cannot be used is logged and left out.
    """
    found: dict[str, Recording] = {}
    for preset in with_changed(presets):
        file = recording_file(preset.id, folder)
        if not file.exists():
            continue
        try:
            recording = Recording.load(file)
            if not recording.is_of(preset):
                raise RecordingError(f"{file}: is of another text or schema than {preset.id} has; record it again")
        except RecordingError as error:
            log.warning("%s", escaped(str(error)))
        else:
            found[preset.id] = recording
    return found
