"""The trace: events as lines, saved without what was only live, and read back."""

import json
import math

import pytest

from core import trace
from core.trace import (
    EVENTS,
    Alive,
    Event,
    FieldDecided,
    Judged,
    LaneEnded,
    LaneStarted,
    Loading,
    PassEnded,
    PhaseEnded,
    RowCompared,
    RunEnded,
    RunStarted,
    Stopping,
    Tick,
    TokenWritten,
    TraceError,
    Waiting,
    WarmedUp,
    from_line,
    load,
    save,
    to_lines,
)  # fmt: skip

HOSTILE = '<img src=x> ${7*7} {{x}} \\u0041 a\0b \u2028 \u0085 \r\n " שלום 👩\u200d🚀'
EXAMPLES = [
    Loading(0.0, "downloading", 0.25),
    Loading(0.0, "warming up", None),
    Waiting(1.5, 2),
    Stopping(2.0),
    Alive(3.0),
    RunStarted(
        ms=3.25, date="2026-05-12T07:52:10+00:00", model="tiny", why="asked for", backend="torch", device="cpu",
        dtype="float32", mode="json", order=("pcd", "ar"), cache="miss", temperature=1.0, versions={"torch": "2.13"},
        context=HOSTILE, schema={HOSTILE: {"type": "enum", "choices": [1, True, "1", None, HOSTILE]}}, names=(HOSTILE,),
        opening="{\n", machine="A CPU, 2 cores",
    ),
    WarmedUp(3.25, 812.5, "load"),
    LaneStarted(0.5, "pcd"),
    PassEnded(40.0, "pcd", 1, 312),
    PhaseEnded(40.0, "pcd", "head + context", 39.5),
    FieldDecided(
        41.0, "pcd", HOSTILE, None, 0.75, 1e-12, 2, ((None, 0.75), (True, 0.125), (1, 0.125)), 3,
        path=((HOSTILE, None), (" null", 0.5), ("\\xf0\\x9f", None)),
    ),
    LaneEnded(42.0, "pcd", "assembled", 2, 17, '{\n  "a": true\n}', "miss"),
    Tick(43.0, "ar"),
    TokenWritten(44.0, "ar", 310, HOSTILE, 1, 2),
    RowCompared(44.0, "ar", HOSTILE, '"x"', ("duplicate", "differs"), True, False, 3, 17),
    Judged(45.0, "ar", "truncated", {"same": 3, "omitted": 1}),
    RunEnded(45.0, "done", "", 3.5, ("limit", "truncated")),
    RunEnded(45.0, "failed", "the context is empty", None, ()),
]  # fmt: skip


def same(one, other):
    """Equal with types: `==` takes True for 1."""
    return repr(one) == repr(other)


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: event.kind)
def test_an_event_is_one_line_and_comes_back_as_it_was(event):
    line = to_lines([event])
    assert line.count("\n") == 1 and line.endswith("\n")
    assert json.loads(line)["kind"] == event.kind
    assert same(from_line(line), event)


def test_every_kind_of_event_has_an_example_here():
    assert {event.kind for event in EXAMPLES} == set(EVENTS)
    assert all(cls.kind == kind and issubclass(cls, Event) for kind, cls in EVENTS.items())


def test_a_saved_trace_holds_everything_but_the_live_events(tmp_path):
    file = tmp_path / "trace.jsonl"
    save(EXAMPLES, file)
    kept = tuple(event for event in EXAMPLES if event.kind not in ("loading", "waiting", "stopping", "tick", "alive"))
    assert same(load(file), kept) and len(kept) == len(EXAMPLES) - 6


def test_a_trace_saved_again_is_the_same_file(tmp_path):
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    save(EXAMPLES, one)
    save(load(one), other)
    assert one.read_bytes() == other.read_bytes()


def test_text_stands_in_the_file_as_characters():
    line = to_lines([TokenWritten(1.0, "ar", 1, "生气 👩\u200d🚀", 1, 1)])
    assert "生气 👩\u200d🚀" in line and "\\u" not in line


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_know_is_not_written(number):
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_lines([Tick(number, "ar")])


@pytest.mark.parametrize(
    "line",
    [
        "", "{", "[]", "7", '"tick"', "null", "{}", '{"kind": "nothing"}', '{"kind": ["tick"]}', '{"kind": "tick"}',
        '{"kind": "tick", "ms": 1.0, "lane": "ar", "more": 1}', '{"ms": 1.0, "lane": "ar"}', "tick",
    ],
)  # fmt: skip
def test_a_line_that_is_no_event_is_refused_and_quoted(line):
    with pytest.raises(TraceError, match="^not a trace event: ") as refused:
        from_line(line)
    assert repr(line) in str(refused.value)


def test_a_long_line_that_is_no_event_is_quoted_in_part():
    with pytest.raises(TraceError, match="not a trace event: 'xxx") as refused:
        from_line("x" * 100_000)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "holds no events"),
        (b"\n\n", "holds no events"),
        (b"nonsense", "line 1: not a trace event: 'nonsense'"),
        (b'{"kind": "tick", "ms": 1.0, "lane": "ar"}\n{"kind": "ti', "line 2: not a trace event"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_by_name(tmp_path, content, message):
    file = tmp_path / "trace.jsonl"
    file.write_bytes(content)
    with pytest.raises(TraceError, match=rf"trace\.jsonl: {message}"):
        load(file)


def document(*events, **more):
    return json.dumps({"method": ["how"], "events": [json.loads(to_lines([event])) for event in events]} | more)


def test_a_trace_that_was_taken_from_the_page_has_the_same_events(tmp_path):
    long = FieldDecided(41.0, "pcd", "n", 12345678901234567890123, 0.5, 0.5, 1, ((12345678901234567890123, 0.5),), 2)
    for number, text in enumerate((document(*EXAMPLES, long), document(*EXAMPLES, long, more=[1]))):
        file = tmp_path / f"{number}.json"
        file.write_text(text, encoding="utf-8")
        assert same(load(file), (*EXAMPLES, long))


@pytest.mark.parametrize(
    "content, message",
    [
        ('{"events": []}', "holds no events"),
        ('{"events": 7}', "line 1: not a trace event"),
        ('{"events": [null]}', "event 1: not a trace event: 'null'"),
        ('{"events": [{"kind": "tick", "ms": 1.0, "lane": "ar"}, {}]}', "event 2: not a trace event: '{}'"),
        ('{"events": [{"kind": "tick", "ms": 1.0, "lane": "ar"}', "line 1: not a trace event"),
        ('{"events": ' + "[" * 100_000, "line 1: not a trace event"),
        ("[]", "line 1: not a trace event"),
    ],
)
def test_a_document_that_is_no_trace_is_refused_by_name(tmp_path, content, message):
    file = tmp_path / "trace.json"
    file.write_text(content)
    with pytest.raises(TraceError, match=rf"trace\.json: {message}"):
        load(file)


def test_a_trace_of_before_there_were_paths_and_machines_is_read():
    new = [json.loads(to_lines([event])) for event in EXAMPLES if event.kind in ("run", "field")]
    old = [{key: value for key, value in data.items() if key not in ("machine", "path")} for data in new]
    run, field = (from_line(json.dumps(data)) for data in old)
    assert (run.machine, field.path) == ("", ())


def test_a_trace_that_cannot_be_written_leaves_the_one_that_was_there(tmp_path):
    file = tmp_path / "trace.jsonl"
    save(EXAMPLES, file)
    before = file.read_bytes()
    with pytest.raises(ValueError, match="not JSON compliant"):
        save([RunEnded(math.nan, "done", "", None, ())], file)
    assert file.read_bytes() == before and list(tmp_path.iterdir()) == [file]


def test_a_file_that_is_no_text_is_refused(tmp_path):
    file = tmp_path / "trace.jsonl"
    file.write_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe")
    with pytest.raises(TraceError, match=r"trace\.jsonl"):
        load(file)


def test_a_file_that_is_not_there_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.jsonl"):
        load(tmp_path / "nowhere.jsonl")


def test_a_trace_written_on_windows_is_read(tmp_path):
    file = tmp_path / "trace.jsonl"
    file.write_bytes(trace.to_lines(EXAMPLES[3:6]).replace("\n", "\r\n").encode())
    assert same(load(file), tuple(EXAMPLES[3:6]))


def test_an_event_cannot_be_changed():
    with pytest.raises(AttributeError, match="cannot assign"):
        EXAMPLES[0].ms = 1.0
