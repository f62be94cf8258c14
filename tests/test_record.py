"""`python -m core.record`: real races of presets become files, whole and unedited, or nothing does."""

import json
import os
import re
import signal
import threading
import time

import pytest

from core import record
from core.engine import Engine
from core.models import ModelNotFound
from core.presets import load_presets
from core.record import main
from core.recordings import Recording, load_recordings
from core.trace import to_lines
from tests.fakes import PreferringBackend
from tests.test_benchmark import CLEAN, CONTEXT, ENDLESS, FIELDS, MIXED, VALUES, engine_for
from tests.test_race import final_rows, of, only


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Runs the command in a folder with presets `mine.json` and `lost.json`: exit status, stdout and stderr."""
    engines, asked = [engine_for()], []

    def load(*given, **options):
        asked.append((given, options))
        return engines[-1]

    monkeypatch.setattr(Engine, "load", load)
    monkeypatch.chdir(tmp_path)
    preset = {"id": "mine", "context": CONTEXT, "schema": FIELDS, "expected": {"risk": "HIGH"}}
    for name, more in {"mine": {}, "lost": {"id": "lost", "pcd_loses": "One field."}}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(preset | more))

    def ran(*arguments):
        code = main(["--output", "out", *arguments])
        return code, *capsys.readouterr()

    ran.engines, ran.asked, ran.folder, ran.out = engines, asked, tmp_path, tmp_path / "out"
    return ran


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_recording_is_a_cold_race_pcd_first_as_it_was_run(command):
    code, out, err = command("mine.json")
    assert (code, err) == (0, "") and names(command.out) == ["mine.jsonl"]
    recording = Recording.load(command.out / "mine.jsonl")
    run, events = recording.run, recording.events
    assert (run.order, run.cache, run.mode, run.model) == (("pcd", "ar"), "off", "json", "preferring")
    assert run.context == CONTEXT and run.machine != ""
    assert {event.name: event.value for event in of(events, "field")} == VALUES
    assert all("".join(text for text, _ in event.path).startswith(f'  "{event.name}"') for event in of(events, "field"))
    assert only(events, "lane_end", "ar").text == CLEAN
    assert {row.flags for row in final_rows(events).values()} == {("same",)}
    assert not any(event.live for event in events)
    assert re.fullmatch(
        r"mine: json, PCD [\d.,]+ ms, AR [\d.,]+ ms \([\d.]+x\), \d+ tokens, 4 of 4 fields the same; "
        r"\d+ kB, out/mine.jsonl\n",
        out,
    )
    assert f" {only(events, 'lane_end', 'ar').tokens} tokens" in out


def test_nothing_in_a_trace_is_edited(command, monkeypatch):
    race_of, told = command.engines[-1].race, []

    def race(*given, **options):
        race = race_of(*given, **options)
        wait = race.wait_for_each_row
        race.wait_for_each_row = lambda: told.append(wait()) or told[-1]
        return race

    monkeypatch.setattr(command.engines[-1], "race", race)
    assert command("mine.json")[0] == 0
    warm_up, events = told
    assert [event.lane for event in warm_up if event.kind == "lane_end"] == ["pcd"]
    assert (command.out / "mine.jsonl").read_text() == to_lines(event for event in events if not event.live)


def test_the_rows_of_a_recording_follow_the_text_token_by_token(command):
    command("mine.json")
    events = Recording.load(command.out / "mine.jsonl").events
    kinds = [event.kind for event in events]
    assert kinds.index("row") < len(kinds) - 1 - kinds[::-1].index("token")
    states = [(row.text, row.partial) for row in of(events, "row") if row.name == "team"]
    assert states[0] != states[-1] == ('"BILLING_DISPUTE"', False) and states[0][1]


@pytest.mark.parametrize(
    "arguments, modes",
    [
        ([], {"mine": "json", "lost": "schema"}),
        (["--mode", "free"], {"mine": "free", "lost": "free"}),
        (["--mode", "schema"], {"mine": "schema", "lost": "schema"}),
    ],
)
def test_the_baseline_is_in_json_mode_or_in_schema_mode_where_pcd_loses_unless_told_otherwise(
    command, arguments, modes
):
    code, out, _ = command("mine.json", "lost.json", *arguments)
    assert code == 0 and [line.split(":")[0] for line in out.splitlines()] == ["mine", "lost"]
    assert {name: Recording.load(command.out / f"{name}.jsonl").run.mode for name in modes} == modes


@pytest.mark.parametrize(
    "answer, words",
    [
        (MIXED, "x), 36 tokens, 1 of 4 fields the same"),
        (ENDLESS, "x), marked limit, truncated, 136 tokens, 0 of 4 fields the same"),
        ("{\n}", "x), 1 tokens, 0 of 4 fields the same"),
    ],
)
def test_the_line_says_what_must_stand_beside_the_ratio(command, answer, words):
    command.engines.append(engine_for(answer))
    code, out, _ = command("mine.json")
    assert code == 0 and words in out


def test_all_presets_are_recorded_and_found_again(command):
    code, out, _ = command("--all", "--model", "tiny")
    presets = load_presets()
    with_a_change = [preset for preset in presets if preset.change]
    assert code == 0 and len(out.splitlines()) == len(presets) + len(with_a_change)
    found = load_recordings(presets, command.out)
    assert found.keys() == {preset.id for preset in [*presets, *(preset.changed for preset in with_a_change)]}
    assert {name for name, recording in found.items() if recording.run.mode == "schema"} == {
        preset.id for preset in presets if preset.pcd_loses
    }


def test_a_name_is_a_preset_of_ours_and_the_model_is_the_one_that_gives_sensible_answers(command):
    assert command("fintech_fraud", "--backend", "torch", "--dtype", "float32", "--offline")[0] == 0
    ((given, options),) = command.asked
    assert given == ("qwen2.5-coder-1.5b",)
    assert {name: options[name] for name in ("backend", "dtype", "offline")} == {
        "backend": "torch",
        "dtype": "float32",
        "offline": True,
    }
    assert names(command.out) == ["fintech_fraud.jsonl", "fintech_fraud_changed.jsonl"]


def test_a_recording_that_was_there_is_replaced_and_no_other_is_touched(command):
    command.out.mkdir()
    for name in ("mine", "other"):
        (command.out / f"{name}.jsonl").write_text("of yesterday")
    assert command("mine.json")[0] == 0
    assert Recording.load(command.out / "mine.jsonl").preset == "mine"
    assert (command.out / "other.jsonl").read_text() == "of yesterday" and len(names(command.out)) == 2


# --- what fails ---


def test_a_race_that_fails_writes_nothing_and_the_others_are_recorded(command):
    command.engines.append(engine_for(window=500))
    long = {"id": "long", "context": "word " * 600, "schema": FIELDS}
    (command.folder / "long.json").write_text(json.dumps(long))
    command.out.mkdir()
    (command.out / "long.jsonl").write_text("of yesterday")
    code, out, err = command("long.json", "mine.json")
    assert code == 3 and out.startswith("mine: ") and out.count("\n") == 1
    assert err.startswith("error: long: its race failed: the request needs ") and err.endswith("; nothing is written\n")
    assert (command.out / "long.jsonl").read_text() == "of yesterday"


def test_a_race_that_was_stopped_writes_nothing(command, monkeypatch):
    engine = command.engines[-1]
    race_of = engine.race

    def stopped(*given, **options):
        race = race_of(*given, **options)
        race.cancel()
        return race

    monkeypatch.setattr(engine, "race", stopped)
    engine.backend.pass_s = 0.2
    assert command("mine.json") == (3, "", "error: mine: its race stopped; nothing is written\n")
    assert names(command.out) == []


def test_a_disk_that_is_full_leaves_the_recording_that_was_there(command, monkeypatch):
    assert command("mine.json")[0] == 0
    before = (command.out / "mine.jsonl").read_bytes()

    def full(_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    code, out, err = command("mine.json")
    assert (code, out) == (1, "") and "No space left on device" in err
    assert (command.out / "mine.jsonl").read_bytes() == before and names(command.out) == ["mine.jsonl"]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["mine"], "preset 'mine' is unknown; use one of: code_audit, content_moderation"),
        (["none.json"], "none.json: No such file or directory"),
        (["bad.json"], "bad.json: a preset is a JSON object with 'context' and 'schema'"),
        (["nameless.json"], "nameless.json: its id is ''; give it one of letters, digits, - and _"),
        (["away.json"], "away.json: its id is '../away'; give it one of letters"),
        (["mine.json", "./mine.json"], "mine.json: preset 'mine' is given twice; give it once"),
        (["empty.json"], "empty.json: the context is empty"),
        (["mine.json", "--output", "mine.json"], "mine.json: is no folder; give the path of one as --output"),
    ],
)
def test_what_cannot_be_recorded_is_said_in_one_line_before_a_model_is_loaded(command, arguments, words):
    preset = {"id": "mine", "context": CONTEXT, "schema": FIELDS}
    others = {"bad": [], "nameless": preset | {"id": ""}, "away": preset | {"id": "../away"}}
    for name, content in {**others, "empty": preset | {"id": "empty", "context": " "}}.items():
        (command.folder / f"{name}.json").write_text(json.dumps(content))
    before = names(command.folder)
    code, out, err = command(*arguments)
    assert (code, out, command.asked) == (1, "", []) and names(command.folder) == before
    assert err.startswith("error: ") and words in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([], "name a preset, or give --all"),
        (["mine.json", "--all"], "--all is every preset; name none beside it"),
        (["mine.json", "--mode", "fast"], "invalid choice: 'fast'"),
        (["mine.json", "--dtype", "int4"], "invalid choice: 'int4'"),
    ],
)
def test_wrong_usage_ends_with_2_before_a_model_is_loaded(command, capsys, arguments, words):
    with pytest.raises(SystemExit) as stopped:
        command(*arguments)
    assert stopped.value.code == 2 and words in capsys.readouterr().err and command.asked == []


def test_the_help_names_every_exit_status(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert re.findall(r"^  (\d+) {1,4}\w", shown.split("exit status:")[1], re.MULTILINE) == ["0", "1", "2", "3", "130"]
    assert shown.isascii() and max(map(len, record.EPILOG.splitlines())) <= 120


def test_a_model_that_is_not_there_is_one_error(command, monkeypatch):
    def load(*_, **__):
        raise ModelNotFound("model 'x' is not known;\nuse another")

    monkeypatch.setattr(Engine, "load", load)
    assert command("mine.json") == (1, "", "error: model 'x' is not known; use another\n")


# --- what is interrupted ---


class Interrupted(PreferringBackend):
    """A signal comes during a certain pass, which goes on for a while."""

    stop_at, number, is_inside = 0, signal.SIGINT, False

    def _pass(self):
        super()._pass()
        if self.passes == self.stop_at:
            self.is_inside = True
            signal.pthread_kill(threading.main_thread().ident, self.number)
            time.sleep(0.3)
            self.is_inside = False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_keeps_what_is_recorded_and_stops_the_engine(command, monkeypatch, number):
    engine = engine_for(kind=Interrupted)
    command.engines.append(engine)
    engine.backend.number = number
    race, asked = engine.race, []

    def second(*given, **options):
        asked.append(given)
        if len(asked) == 4:  # the second preset's, after its lane that is thrown away
            engine.backend.stop_at = engine.backend.passes + 3
        return race(*given, **options)

    monkeypatch.setattr(engine, "race", second)
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    code, out, err = command("mine.json", "lost.json", "talk_routing")
    assert not engine.backend.is_inside, "a thread that dies inside a pass takes the process along"
    assert (code, err) == (130, "stopped; 1 of 3 are recorded\n") and out.startswith("mine: ")
    assert names(command.out) == ["mine.jsonl"] and len(asked) == 4
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    engine.owner.submit(lambda _: None).result()
    assert engine.backend.passes <= engine.backend.stop_at + 1, "the rest of the race is run for nobody"


def test_ctrl_c_while_a_recording_is_written_leaves_the_one_that_was_there(command, monkeypatch):
    assert command("mine.json")[0] == 0
    before = (command.out / "mine.jsonl").read_bytes()
    monkeypatch.setattr(os, "fsync", lambda _: signal.raise_signal(signal.SIGINT))
    assert command("mine.json") == (130, "", "stopped; 0 of 1 are recorded\n")
    assert (command.out / "mine.jsonl").read_bytes() == before and names(command.out) == ["mine.jsonl"]


def test_ctrl_c_while_the_model_loads_has_recorded_nothing(command, monkeypatch):
    def load(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Engine, "load", load)
    assert command("mine.json") == (130, "", "stopped; nothing was recorded\n")
