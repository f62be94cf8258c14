"""Recordings: a finished race of a preset, and nothing else that a file may hold."""

import json
import logging
from dataclasses import replace

import pytest

from core.compare import compare
from core.presets import Preset, load_presets, with_changed
from core.recordings import Recording, RecordingError, load_recordings, recording_file
from core.schema import StructuredSchema
from core.trace import LaneStarted, from_line, load, save
from tests.test_race import ANSWER, CONTEXT, FLAGS, SCHEMA, VALUES, engine_for, final_rows, of, only

PRESET = Preset(CONTEXT, SCHEMA, id="mine")


def race(schema=SCHEMA, **options):
    return [event for event in engine_for(**options).race(CONTEXT, schema, cache=False).wait() if not event.live]


EVENTS = tuple(race())


def saved(folder, events=EVENTS, name="mine"):
    file = recording_file(name, folder)
    save(events, file)
    return file


def test_a_recording_is_the_race_that_was_saved(tmp_path):
    recording = Recording.load(saved(tmp_path))
    assert (recording.preset, recording.file) == ("mine", tmp_path / "mine.jsonl")
    assert [event.to_json() for event in recording.events] == [event.to_json() for event in EVENTS]
    assert (recording.run.model, recording.run.cache) == ("preferring", "off")
    assert (recording.end.state, recording.end.speed_up) == ("done", only(EVENTS, "end").speed_up)
    with pytest.raises(AttributeError, match="cannot assign"):
        recording.preset = "other"


def test_a_recording_ends_on_what_its_race_has_found(tmp_path):
    events = Recording.load(saved(tmp_path)).events
    assert {event.name: event.value for event in of(events, "field")} == VALUES
    assert json.loads(only(events, "lane_end", "pcd").text) == VALUES
    assert {name: row.flags for name, row in final_rows(events).items()} == FLAGS
    expected = compare(SCHEMA, ANSWER, finished=True, values=VALUES)
    assert of(events, "judged")[-1].counts == dict(expected.counts)


def without(kind, lane=None):
    return tuple(event for event in EVENTS if event.kind != kind or (lane and event.lane != lane))


@pytest.mark.parametrize(
    "events, words",
    [
        (EVENTS[:-1], "holds no single race from its start to its end"),
        (EVENTS[1:], "holds no single race"),
        (EVENTS + EVENTS, "holds no single race"),
        ((*EVENTS, LaneStarted(0.0, "pcd")), "holds no single race"),
        ((*EVENTS[:-1], replace(EVENTS[-1], state="stopped")), "its race stopped"),
        ((*EVENTS[:-1], replace(EVENTS[-1], state="failed", message="no memory")), "its race failed: no memory"),
        (without("lane_end"), r"only \[\] came to an end"),
        (without("lane_end", "pcd"), r"only \['ar'\] came to an end, not both lanes"),
        (without("lane_end", "ar"), r"only \['pcd'\] came to an end, not both lanes"),
        (tuple(race(window=50)), "holds no single race"),
    ],
)
def test_what_is_no_finished_race_of_both_lanes_is_refused_by_name(tmp_path, events, words):
    with pytest.raises(RecordingError, match=rf"mine\.jsonl: {words}.*; record it again"):
        Recording.load(saved(tmp_path, events))


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "mine.jsonl: holds no events; record it again"),
        (b"\xff\xfe", "mine.jsonl: is no text in UTF-8; record it again"),
        (b'{"kind": "run"', "mine.jsonl: line 1: not a trace event"),
        (None, "mine.jsonl: No such file or directory; give the path of a recording"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_by_name(tmp_path, content, words):
    file = tmp_path / "mine.jsonl"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(RecordingError, match=words):
        Recording.load(file)


PLAN = {"anyOf": [{"const": 1, "title": "free"}, {"const": "1", "description": "paid"}, {"type": "null"}]}
TITLED = {"type": "object", "properties": {
    "sender": {"type": "object", "properties": {"plan": PLAN}, "required": ["plan"]},
    "kind": {"const": "ticket"}, "topics": {"type": "array", "uniqueItems": True, "items": {"enum": ["a", "b"]}},
}, "required": ["sender", "kind", "topics"]}  # fmt: skip
DEPENDENT = SCHEMA.to_json() | {"late": {"type": "boolean", "description": "Is it?", "depends_on": ["risk"]}}


@pytest.mark.parametrize("schema", [SCHEMA.to_json(), TITLED, DEPENDENT])
def test_a_recording_is_of_the_preset_that_was_raced(tmp_path, schema):
    preset = Preset(CONTEXT, StructuredSchema(schema), id="mine")
    assert Recording.load(saved(tmp_path, race(preset.schema))).is_of(preset)


FIELDS = SCHEMA.to_json()
OTHERS = [
    Preset(CONTEXT, SCHEMA, id="other"),
    Preset(CONTEXT + " ", SCHEMA, id="mine"),
    *(
        Preset(CONTEXT, StructuredSchema(fields), id="mine")
        for fields in (
            dict(reversed(FIELDS.items())),
            FIELDS | {"risk": {"type": "enum", "choices": ["LOW", "HIGH"]}},
            FIELDS | {"risk": FIELDS["risk"] | {"description": "How bad?"}},
            FIELDS | {"tier": {"type": "enum", "choices": [True, 10, "1"]}},
        )
    ),
]


@pytest.mark.parametrize("preset", OTHERS)
def test_a_recording_is_not_of_a_preset_that_asks_anything_else(tmp_path, preset):
    recording = Recording.load(saved(tmp_path))
    assert recording.is_of(PRESET) and not recording.is_of(preset)


@pytest.mark.parametrize("schema", [{}, {"risk": 7}, 7, None, [], "risk", {"risk": {"type": "enum", "choices": [[]]}}])
def test_a_recording_whose_schema_is_none_is_of_no_preset(tmp_path, schema):
    assert not Recording.load(saved(tmp_path, (replace(EVENTS[0], schema=schema), *EVENTS[1:]))).is_of(PRESET)


def test_recordings_are_found_by_preset_and_those_that_are_missing_are_absent(tmp_path, caplog):
    others = [Preset(CONTEXT, SCHEMA, id=name) for name in ("never", "twin")]
    saved(tmp_path)
    saved(tmp_path, name="twin")
    found = load_recordings([PRESET, *others], tmp_path)
    assert {name: recording.file.name for name, recording in found.items()} == {
        "mine": "mine.jsonl",
        "twin": "twin.jsonl",
    }
    assert load_recordings([PRESET], tmp_path / "nowhere") == {} and caplog.messages == []


def test_a_recording_that_cannot_be_used_is_reported_and_the_others_are_there(tmp_path, caplog):
    presets = [Preset(CONTEXT, SCHEMA, id=name) for name in ("broken", "folder", "mine")]
    presets.append(Preset("Another text.", SCHEMA, id="old"))
    saved(tmp_path)
    saved(tmp_path, name="old")
    (tmp_path / "broken.jsonl").write_text("half a l\x1b[2J")
    (tmp_path / "folder.jsonl").mkdir()
    with caplog.at_level(logging.WARNING):
        assert list(load_recordings(presets, tmp_path)) == ["mine"]
    broken, folder, old = caplog.messages
    assert "broken.jsonl: line 1: not a trace event" in broken and broken.isprintable()
    assert "folder.jsonl: Is a directory" in folder
    assert old == f"{tmp_path / 'old.jsonl'}: is of another text or schema than old has; record it again"


def test_a_trace_of_before_there_were_paths_and_machines_is_a_recording(tmp_path):
    file = saved(tmp_path)
    lines = [json.loads(line) for line in file.read_text().split("\n") if line]
    for data in lines:
        data.pop("machine", None), data.pop("path", None)
    file.write_text("".join(json.dumps(data) + "\n" for data in lines))
    recording = Recording.load(file)
    assert recording.is_of(PRESET) and recording.run.machine == ""
    assert load(file)[0] == from_line(json.dumps(lines[0]))


# --- what is shipped ---


@pytest.mark.parametrize("preset", list(with_changed(load_presets())), ids=lambda preset: preset.id)
def test_every_preset_has_a_recording_of_a_real_cold_run(preset):
    recording = load_recordings([preset])[preset.id]
    run = recording.run
    assert (run.model, run.cache, run.order) == ("qwen2.5-coder-1.5b", "off", ("pcd", "ar"))
    assert run.mode == ("schema" if preset.pcd_loses else "json") and run.machine and run.versions
    assert recording.file.stat().st_size < 200_000
