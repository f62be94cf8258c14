"""`python -m core.record PRESET...`: races presets and saves each trace as a recording.

A trace is saved as it was run: nothing in it is edited.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from core.engine import Engine
from core.figures import ms_text, ratio_text
from core.grammar import MODES, Mode
from core.interruption import INTERRUPTED, interrupted_by_sigterm, interruptible, leave
from core.model_flags import add_model_flags, loaded
from core.models import ModelNotFound
from core.presets import Preset, PresetError, known_presets, preset_file, with_changed
from core.recordings import FOLDER, Recording, RecordingError, recording_file
from core.trace import Event, Judged, Lane, LaneEnded, RunEnded, save
from core.trials import Case
from core.wording import escaped

#: It gives sensible answers and can be fetched wherever the package index answers.
MODEL = "qwen2.5-coder-1.5b"

#: Of a preset's id: it becomes the name of a file.
FILE_NAME = re.compile(r"\w[\w-]*", re.ASCII)

EPILOG = f"""\
every preset is raced once: PCD first, nothing cached, the baseline in mode json, or schema for a preset that
says why PCD loses. A preset that has a fact to change is raced a second time with it, as ID_changed. A recording
is the trace of that race, unedited, as OUTPUT/ID.jsonl; it is written whole or not at all, and the one that was
there before is replaced. stdout has a line for each.

examples:
  python -m core.record --all
  python -m core.record fintech_fraud mine.json --model smollm2-135m --mode schema --output /tmp/recordings

exit status:
  0    every preset is recorded
  1    an error, which one line names; what was recorded before it stays
  2    wrong usage
  3    some races failed; the others are recorded
  {INTERRUPTED}  interrupted (Ctrl-C, SIGTERM); what was recorded before it stays
"""


def main(arguments: Sequence[str] | None = None) -> int:
    asked = parser()
    given = asked.parse_args(arguments)
    _check_usage(given, asked.error)
    try:
        with interrupted_by_sigterm():
            return _recorded(given)
    except (ValueError, RuntimeError, OSError, ModelNotFound) as error:  # a device's too
        print(f"error: {_one_line(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; nothing was recorded", file=sys.stderr)
        return INTERRUPTED


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m core.record",
        description="Races presets and saves the traces, for a page to replay without a model.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("preset", nargs="*", metavar="PRESET", help="a name of presets/, or the path of a preset file")
    parser.add_argument("--all", action="store_true", help="every preset of presets/")
    parser.add_argument("--mode", choices=MODES, help="of the baseline (json; schema where PCD loses)")
    parser.add_argument(
        "--output", type=Path, default=FOLDER, metavar="FOLDER", help="assets/recordings, made if need be"
    )
    add_model_flags(parser, MODEL)
    return parser


def _check_usage(given: argparse.Namespace, refuse: Callable[[str], NoReturn]) -> None:
    """Argparse's way of saying so, and exit status 2."""
    if given.all and given.preset:
        refuse("--all is every preset; name none beside it")
    if not given.all and not given.preset:
        refuse("name a preset, or give --all")


def _recorded(given: argparse.Namespace) -> int:
    """Reads and checks everything that needs no model, loads it and records; the exit status."""
    presets = _presets(sorted(known_presets()) if given.all else given.preset)
    _check_folder(given.output)
    engine = loaded(given)
    done: list[bool] = []

    def told() -> None:
        if len(done) < len(presets):
            print(f"stopped; {sum(done)} of {len(presets)} are recorded", file=sys.stderr)

    with interruptible(engine, told):
        for preset in presets:
            done.append(_is_saved(engine, preset, given))
    if len(done) < len(presets):
        return INTERRUPTED
    return 0 if all(done) else 3


def _presets(names: Sequence[str]) -> list[Preset]:
    """What the names stand for, checked. Raises `ValueError`."""
    presets: dict[str, Preset] = {}
    for name in names:
        file = preset_file(name)
        for preset in with_changed([Preset.load(file)]):
            if not FILE_NAME.fullmatch(preset.id):
                raise PresetError(f"{file}: its id is {preset.id!r}; give it one of letters, digits, - and _")
            if preset.id in presets:
                raise PresetError(f"{file}: preset {preset.id!r} is given twice; give it once")
            Case.of(preset, str(file))
            presets[preset.id] = preset
    return list(presets.values())


def _check_folder(folder: Path) -> None:
    """Makes the folder, so that nothing is raced that could not be saved. Raises `ValueError` or `OSError`."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder}: is no folder; give the path of one as --output")
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{folder}: cannot be written; give another --output")


def _is_saved(engine: Engine, preset: Preset, given: argparse.Namespace) -> bool:
    """Records one preset and tells it; False where its race failed."""
    mode = given.mode or ("schema" if preset.pcd_loses else "json")
    try:
        recording = recorded(engine, preset, mode, given.output)
    except RecordingError as error:
        print(f"error: {_one_line(error)}", file=sys.stderr)
        return False
    save(recording.events, recording.file)
    print(recording_line(recording), flush=True)
    return True


def recorded(engine: Engine, preset: Preset, mode: Mode, folder: Path) -> Recording:
    """One race of the preset, PCD first and nothing cached. Raises `RecordingError` where it is not done.

    PCD goes through it once before: else the lane that goes first would pay for what is new to the device.
    """
    _raced(engine, preset, mode, ("pcd",))
    events = _raced(engine, preset, mode, ("pcd", "ar"))
    kept = tuple(event for event in events if not event.live)
    return Recording(preset.id, kept, recording_file(preset.id, folder))


def _raced(engine: Engine, preset: Preset, mode: Mode, order: tuple[Lane, ...]) -> list[Event]:
    race = engine.race(preset.context, preset.schema, order=order, mode=mode, cache=False)
    try:
        events = race.wait_for_each_row()
    finally:
        race.cancel()  # if this is left before its end
    end = events[-1]
    assert isinstance(end, RunEnded), "a race that is over ends with its end"
    if end.state != "done":
        why = f": {end.message}" if end.state == "failed" else ""
        raise RecordingError(f"{preset.id}: its race {end.state}{why}; nothing is written")
    return events


def recording_line(recording: Recording) -> str:
    """What was recorded, and what must stand beside the ratio."""
    ended = {event.lane: event for event in recording.events if isinstance(event, LaneEnded)}
    pcd, ar = ended["pcd"], ended["ar"]
    judged = [event for event in recording.events if isinstance(event, Judged)]
    same = judged[-1].counts.get("same", 0) if judged else 0
    times = f"PCD {ms_text(pcd.ms)} ms, AR {ms_text(ar.ms)} ms ({ratio_text(ar.ms / pcd.ms)})"
    marks = f", marked {', '.join(recording.end.marks)}" if recording.end.marks else ""
    wrote = f"{ar.tokens} tokens, {same} of {len(recording.run.names)} fields the same"
    size = f"{recording.file.stat().st_size / 1e3:.0f} kB"
    return escaped(f"{recording.preset}: {recording.run.mode}, {times}{marks}, {wrote}; {size}, {recording.file}")


def _one_line(error: Exception) -> str:
    return escaped(" ".join(str(error).split()))


if __name__ == "__main__":
    leave(main())
