"""`--scaling`: only the size grows, machines may drift, and lines cross where they were measured to."""

import csv
import io
import json
import math
import re
import subprocess
import sys
from dataclasses import fields, replace
from types import SimpleNamespace

import pytest

from core import lines, plot, scaling, synthetic
from core.engine import Engine
from core.lines import PCD, Measurement, Point, by_size, crossings, summary, verdict
from core.plot import PlotError, save_plot
from core.report import Setting
from core.request import PromptTooLong
from core.scaling import AXES, Sweep, cases, points, report
from core.trials import Trial
from tests.fakes import LEXICONS, HashBackend, lexicon

HOSTILE = "=model$\\frac$\x1b[2J<b>\u202e"
SETTING = Setting("tiny", "a test", "hash", "cpu", "float64", "a machine, 2 cores", "2026-01-02T03:04:05+00:00", {})


def engine_for(lexicon_name="qwen", engine=Engine, cache_entries=32, **options):
    return engine(HashBackend(lexicon(lexicon_name), **options), "hash", cache_entries=cache_entries)


class PricedEngine(Engine):
    """Real races, whose lanes took 100 ms (pcd) and 20 ms a field (ar, twice that in mode json)."""

    def race(self, context, schema, **options):
        race = super().race(context, schema, **options)
        ms = {"pcd": 100.0, "ar": 20.0 * len(schema) * (1 + (options["mode"] == "json"))}

        def wait():
            return [replace(e, ms=ms[e.lane]) if e.kind == "lane_end" else e for e in race.wait()]

        return SimpleNamespace(wait=wait, cancel=race.cancel)


class StoppingEngine(PricedEngine):
    """After so many races the next one is interrupted, or fails."""

    races_left, error = 0, KeyboardInterrupt()
    cancelled = False

    def race(self, context, schema, **options):
        self.races_left -= 1
        if self.races_left >= 0:
            return super().race(context, schema, **options)

        def wait():
            raise self.error

        return SimpleNamespace(wait=wait, cancel=lambda: setattr(self, "cancelled", True))


@pytest.fixture
def small(monkeypatch):
    """Axes of a few small sizes."""
    for axis, sizes in {"fields": (1, 3, 9), "choices": (2, 3), "context": (8, 20)}.items():
        monkeypatch.setitem(AXES, axis, replace(AXES[axis], sizes=sizes))
    monkeypatch.setattr(scaling, "TEXT_TOKENS", 12)
    monkeypatch.setattr(scaling, "FIELDS", 2)


def trial(pcd_ms, ar_ms, number=1, mode="json", how="closed", outcome="parsed"):
    """A trial of which only this matters."""
    known = {"pcd_ms": pcd_ms, "ar_ms": ar_ms, "round": number, "mode": mode, "how": how, "outcome": outcome}
    neutral = {"cache": "hit", "tree_tokens": 7, "ar_tokens": 40, "prompt_tokens": 99}
    return Trial(**{field.name: None for field in fields(Trial)} | neutral | known)


def line(name, times, marks=""):
    """Points of a line from `{size: milliseconds}`."""
    return [Point(name, x, 3, ms, ms, ms, 1, 9, 99, "hit", marks) for x, ms in times.items()]


# --- requests ---


@pytest.mark.parametrize("name", LEXICONS)
@pytest.mark.parametrize("axis", AXES)
def test_along_an_axis_nothing_but_its_size_grows(axis, name):
    made, left_out = cases(engine_for(name), axis)
    schemas, texts = [one.case.schema for one in made], [one.case.context for one in made]
    assert left_out == () and [one.x for one in made] == sorted(one.x for one in made)
    prompts = [one.prompt_tokens for one in made]
    assert prompts == sorted(prompts) and len(set(prompts)) == len(prompts)
    for (less, more), (short, long) in zip(zip(schemas, schemas[1:]), zip(texts, texts[1:]), strict=False):
        assert more.fields[: len(less)] == less.fields or axis == "choices"
        assert long.startswith(short)
    if axis == "fields":
        assert [len(schema) for schema in schemas] == [1, 2, 4, 8, 16, 28, 64] and len(set(texts)) == 1
        assert {len(field.choices) for field in schemas[-1]} == {4}
    elif axis == "choices":
        choices = [schema.fields[0].choices for schema in schemas]
        assert list(map(len, choices)) == [2, 4, 8, 16, 32, 64, 128, 255] and len(set(texts)) == 1
        assert all(more[: len(less)] == less for less, more in zip(choices, choices[1:], strict=False))
    else:
        assert len(set(schemas)) == 1


@pytest.mark.parametrize("name", LEXICONS)
def test_a_text_has_as_many_tokens_as_the_models_own_tokenizer_says(name):
    made, _ = cases(engine_for(name), "context")
    tokens = lexicon(name)
    for size, one in zip((64, 128, 256, 512, 1024, 2048), made, strict=True):
        assert one.x == one.context_tokens and size - 12 <= one.x <= size + 1
        assert abs(one.x - len(tokens.encode(one.case.context))) <= 1  # the word that follows the head
        assert one.case.name == f"{one.x} tokens of text"


@pytest.mark.parametrize("schema", [synthetic.schema_of_fields(64), synthetic.schema_of_choices(255)])
def test_choices_have_several_tokens_and_share_beginnings(schema):
    for field in schema:
        rows = [lexicon("qwen").encode(choice) for choice in field.choices]
        assert min(map(len, rows)) > 1 and len({tuple(row) for row in rows}) == len(rows)
        assert len({row[0] for row in rows}) < len(rows)


def test_a_text_is_made_of_whole_words_and_is_never_empty():
    assert synthetic.text_of_tokens(4, lambda text: len(text.split())) == "On day 11 the"
    assert synthetic.text_of_tokens(4, lambda text: 10 * len(text.split())) == "On"


def test_sizes_that_do_not_fit_the_window_are_left_out_by_name():
    every, _ = cases(engine_for(), "context")
    engine = engine_for(window=every[4].prompt_tokens)  # which leaves no room for its answer
    assert cases(engine, "context") == (every[:4], (1024, 2048))
    with pytest.raises(PromptTooLong, match="window"):
        cases(engine_for(window=50), "context")


# --- races ---


def test_requests_take_turns_and_each_lane_goes_first_in_half_of_the_races(small):
    found = list(points(engine_for(), "fields", ("json", "schema"), 2))
    turns = [(one.trial.round, one.x, one.trial.mode) for one in found]
    assert turns == [(n, x, mode) for n in range(3) for x in (1, 3, 9) for mode in ("json", "schema")]
    for x in (1, 3, 9):
        for mode in ("json", "schema"):
            orders = [one.trial.order[0] for one in found if (one.x, one.trial.mode) == (x, mode)]
            assert orders in (["pcd", "ar", "pcd"], ["ar", "pcd", "ar"])
    assert {one.trial.order[0] for one in found if one.trial.round == 1} == {"pcd", "ar"}
    assert {(one.x, one.trial.fields) for one in found} == {(1, 1), (3, 3), (9, 9)}


@pytest.mark.parametrize("head, states", [("warm", {"hit"}), ("cold", {"off"})])
def test_the_head_is_as_it_was_asked_for_in_every_race_that_counts(small, head, states):
    # One entry: each schema drives out the one before it.
    found = list(points(engine_for(cache_entries=1), "fields", ("json",), 2, head))
    assert {one.trial.cache for one in found if one.counts} == states
    assert {one.trial.head for one in found} == {head}
    assert {point.cache for point in summary(found)} == states


def test_closing_the_sweep_cancels_its_race(small):
    engine = engine_for(engine=StoppingEngine)
    engine.error, engine.races_left = KeyboardInterrupt(), 1
    races = points(engine, "fields", ("json",), 1)
    next(races)
    with pytest.raises(KeyboardInterrupt):
        next(races)
    assert engine.cancelled


@pytest.mark.parametrize(
    "given, words",
    [
        ({"axis": "depth"}, "axis 'depth' is unknown; use one of: fields, choices, context"),
        ({"modes": ()}, "no baseline mode is given; use some of: free, json, schema"),
        ({"modes": ("json", "fast")}, "baseline mode 'fast' is unknown"),
        ({"modes": ("json", "json")}, "baseline mode 'json' is given twice"),
        ({"rounds": 0}, "rounds 0 must be a number from 1 to 999"),
        ({"rounds": 1000}, "rounds 1000"),
        ({"head": "hot"}, "head 'hot' is unknown; use one of: cold, warm"),
    ],
)
def test_a_sweep_that_cannot_be_run_is_refused_before_any_model_work(given, words):
    asked = {"axis": "fields", "modes": ("json",), "rounds": 1, "head": "warm"} | given
    engine = engine_for()
    for sweep in (lambda: next(points(engine, **asked)), lambda: report(engine, **asked)):
        with pytest.raises(ValueError, match=f"^{words}"):
            sweep()
    assert engine.backend.passes == 0


# --- lines ---


def test_a_point_is_the_median_of_the_races_that_count():
    races = [(99.0, 9.0, 0), (10.0, 40.0, 1), (30.0, 20.0, 2), (20.0, 90.0, 3)]
    measured = [Measurement(4, 12, trial(*race)) for race in races]
    measured += [Measurement(4, 12, trial(*race, mode="schema")) for race in [(50.0, 5.0, 1), (5.0, 7.0, 2)]]
    pcd, json_line, schema_line = summary(measured)
    assert (pcd.line, pcd.n, pcd.ms, pcd.least_ms, pcd.most_ms, pcd.tokens) == ("pcd", 5, 20.0, 5.0, 50.0, 7)
    assert (json_line.line, json_line.n, json_line.ms, json_line.most_ms) == ("json", 3, 40.0, 90.0)
    assert (schema_line.n, schema_line.ms, schema_line.tokens, schema_line.prompt_tokens) == (2, 6.0, 40, 99)
    assert summary(measured[:1]) == ()


def test_a_baseline_that_hit_its_limit_or_wrote_no_json_is_marked_and_pcd_is_not():
    how = [("limit", "truncated"), ("limit", "not_parsable"), ("end_of_turn", "not_parsable"), ("closed", "parsed")]
    races = [trial(1.0, 2.0, how=ended, outcome=outcome) for ended, outcome in how]
    pcd, ar = summary([Measurement(1, 9, race) for race in races])
    assert (pcd.marks, ar.marks) == ("", "limit 2, not_parsable 1")


@pytest.mark.parametrize(
    "pcd, ar, expected",
    [
        # 10 ms a field against 100 ms: straight lines on logarithmic scales, so that the estimate is exact.
        ({4: 100, 8: 100, 16: 100}, {4: 40, 8: 80, 16: 160}, [(8, 16, 10.0, 100.0, "pcd")]),
        ({4: 100, 16: 100}, {4: 400, 16: 25}, [(4, 16, 8.0, 100.0, "json")]),
        ({1: 10, 4: 20}, {1: 5, 4: 40}, [(1, 4, 2.0, math.sqrt(200), "pcd")]),
        ({1: 10, 2: 10, 4: 10}, {1: 5, 2: 10, 4: 20}, [(2, 2, 2.0, 10.0, "pcd")]),
        ({1: 10, 2: 10, 8: 10, 9: 10}, {1: 5, 2: 10, 8: 10, 9: 20}, [(2, 8, 4.0, 10.0, "pcd")]),
        ({1: 10, 4: 10, 16: 10}, {1: 5, 4: 20, 16: 5}, [(1, 4, 2.0, 10.0, "pcd"), (4, 16, 8.0, 10.0, "json")]),
        ({1: 10, 2: 10}, {1: 11, 2: 100}, []),
        ({1: 10, 2: 10, 3: 10}, {1: 20, 2: 10, 3: 20}, []),  # they touch
        ({1: 10, 2: 10}, {1: 10, 2: 10}, []),
        ({1: 10, 2: 10}, {1: 10, 2: 20}, []),
        ({1: 10, 2: 10}, {1: 5}, []),  # interrupted before the second size
        ({}, {}, []),
    ],
)
def test_lines_cross_between_two_measured_points_or_not_at_all(pcd, ar, expected):
    found = crossings(line(PCD, pcd) + line("json", ar), "json")
    assert [(one.below, one.above, one.faster_after) for one in found] == [(b, a, f) for b, a, _, _, f in expected]
    for one, (_, _, x, ms, _) in zip(found, expected, strict=True):
        assert (one.x, one.ms) == pytest.approx((x, ms), rel=1e-9)
        assert not one.marked


@pytest.mark.parametrize(
    "pcd, ar, words",
    [
        (
            {8: 100, 16: 100},
            {8: 80, 16: 160},
            "pcd = json between 8 and 16 fields, estimated at 10.0: pcd is faster above",
        ),
        ({2: 10, 3: 10, 4: 10}, {2: 5, 3: 10, 4: 20}, "pcd = json at 3 fields: pcd is faster above"),
        ({1: 10, 2000: 10}, {1: 11, 2000: 90}, "pcd and json do not cross from 1 to 2,000 fields: pcd is faster"),
        ({1: 10, 2: 10}, {1: 5, 2: 10}, "pcd and json do not cross from 1 to 2 fields: json is faster"),
        ({1: 10}, {1: 5}, "pcd and json do not cross at 1 fields: json is faster"),
        ({1: 10, 2: 10}, {1: 10, 2: 10}, "pcd and json take the same time from 1 to 2 fields"),
        ({1: 10}, {}, "json: not measured"),
    ],
)
def test_a_sentence_says_where_lines_cross_or_that_they_do_not(pcd, ar, words):
    assert verdict(line(PCD, pcd) + line("json", ar), "json", "fields") == words


def test_a_crossing_beside_a_marked_baseline_says_so():
    found = line(PCD, {8: 100, 16: 100}) + line("json", {8: 80, 16: 160}, marks="limit 1")
    assert crossings(found, "json")[0].marked
    assert verdict(found, "json", "fields").endswith("pcd is faster above (! mind the marks of the baseline there)")


@pytest.mark.parametrize("x, text", [(9.96, "10.0"), (99.96, "100"), (1234.5, "1,234"), (1.0, "1.0")])
def test_an_estimate_is_not_told_more_exactly_than_it_is(x, text):
    assert lines.size_text(x) == text


# --- the command ---


def test_the_report_says_what_was_measured_in_words_json_and_files(small, capsys, tmp_path):
    files = {"json_file": tmp_path / "s.json", "csv_file": tmp_path / "s.csv"}
    assert report(engine_for(engine=PricedEngine), "fields", ("json", "schema"), 3, **files) == 0
    shown = capsys.readouterr()
    out, said = shown.out.splitlines(), json.loads(shown.out.splitlines()[-1])
    # 100 ms against 40 and 20 a field.
    assert "pcd = json between 1 and 3 fields, estimated at 2.5: pcd is faster above" in shown.out
    assert "pcd = schema between 3 and 9 fields, estimated at 5.0: pcd is faster above" in shown.out
    assert "fixed: 4 choices a field, a text of about 128 tokens, head warm" in shown.out
    nine = next(row for row in out if row.split()[0] == "9").split()
    assert nine[3:5] == ["hit", "100"] and nine[5:7] == ["360", "3.6x"] and nine[8:10] == ["180", "1.8x"]
    assert said == json.loads(files["json_file"].read_text())
    assert (said["benchmark"], said["axis"], said["rounds"], said["stopped"]) == ("scaling", "fields", 3, "")
    assert [(one["line"], one["below"], one["above"]) for one in said["crossings"]] == [
        ("json", 1, 3),
        ("schema", 3, 9),
    ]
    assert [(p["line"], p["x"], p["n"], p["ms"]) for p in said["points"]] == [
        *(("pcd", x, 6, 100.0) for x in (1, 3, 9)),
        *(("json", x, 3, 40.0 * x) for x in (1, 3, 9)),
        *(("schema", x, 3, 20.0 * x) for x in (1, 3, 9)),
    ]
    rows = list(csv.DictReader(io.StringIO(files["csv_file"].read_text())))
    assert [{key: str(value) for key, value in point.items()} for point in said["points"]] == rows
    assert shown.err.splitlines()[0] == "1 of 24: 1 fields, json: pcd 100 ms, baseline 40.0 ms (warm-up)"
    assert len(shown.err.splitlines()) == 24


def test_a_baseline_past_its_limit_has_its_mark_in_the_table(small, capsys, monkeypatch):
    monkeypatch.setattr("core.baseline.token_limit", lambda canonical: 5)
    assert report(engine_for(), "choices", ("json",), 1) == 0
    rows = [row for row in capsys.readouterr().out.splitlines() if row.split()[0] in ("2", "3")]
    assert [row.endswith("! json: limit 1") for row in rows] == [True, True]


@pytest.mark.parametrize(
    "error, status, reason",
    [(KeyboardInterrupt(), 130, "interrupted"), (ValueError("no memory\x1b[2J"), 1, "no memory\\x1b[2J")],
)
def test_a_sweep_that_is_stopped_prints_the_points_that_are_done(small, capsys, error, status, reason):
    engine = engine_for(engine=StoppingEngine)
    engine.error, engine.races_left = error, 3 + 2  # the warm-up, and two of the three sizes
    assert report(engine, "fields", ("json",), 2) == status
    out = capsys.readouterr().out
    assert f"stopped ({reason}); these are the races that were done by then" in out
    said = json.loads(out.splitlines()[-1])
    assert [(p["line"], p["x"], p["n"]) for p in said["points"]] == [
        ("pcd", 1, 1), ("pcd", 3, 1), ("json", 1, 1), ("json", 3, 1),
    ]  # fmt: skip
    assert engine.cancelled


def test_a_sweep_that_is_stopped_in_its_warm_up_has_nothing_to_say(small, capsys):
    engine = engine_for(engine=StoppingEngine)
    engine.error, engine.races_left = KeyboardInterrupt(), 2
    assert report(engine, "fields", ("json",), 2) == 130
    out = capsys.readouterr().out.splitlines()
    assert "nothing was measured" in out and json.loads(out[-1])["points"] == []


def test_a_race_that_fails_names_its_request(small):
    class Failing(HashBackend):
        def read(self, *given, **options):
            raise ValueError("no room for the tree")

    engine = Engine(Failing(lexicon("qwen")), "hash")
    with pytest.raises(ValueError, match="^1 fields, baseline mode json: the race failed: no room for the tree"):
        next(points(engine, "fields", ("json",), 1))


@pytest.mark.parametrize(
    "option, name, words",
    [
        ("json_file", "nowhere/s.json", "cannot be written"),
        ("csv_file", "nowhere/s.csv", "cannot be written"),
        ("csv_file", ".", "cannot be written"),
        ("plot_file", "nowhere/s.png", "cannot be written"),
        ("plot_file", "s.gif", "ends in '.gif'; a plot is .png or .svg"),
        ("plot_file", "s", "ends in ''; a plot is .png or .svg"),
    ],
)
def test_a_file_that_could_not_be_written_is_refused_before_any_work(tmp_path, option, name, words):
    engine = engine_for()
    with pytest.raises(ValueError, match=re.escape(words)):
        report(engine, "fields", ("json",), 1, **{option: tmp_path / name})
    assert engine.backend.passes == 0 and list(tmp_path.iterdir()) == []


# --- the picture ---


@pytest.fixture
def sweep():
    found = line(PCD, {1: 100, 8: 110, 64: 200}) + line("json", {1: 40, 8: 300, 64: 3000}, marks="limit 1")
    found += line("schema", {1: 30, 8: 90, 64: 180})
    return Sweep("fields", "warm", ("json", "schema"), 3, SETTING, points=tuple(found))


def test_without_matplotlib_one_line_says_what_to_install(monkeypatch, tmp_path, sweep):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    words = "^a plot needs matplotlib, which is not installed; run: pip install matplotlib$"
    with pytest.raises(PlotError, match=words):
        report(engine_for(), "fields", ("json",), 1, plot_file=tmp_path / "s.png")
    with pytest.raises(PlotError, match=words):
        save_plot(sweep, tmp_path / "s.png")


def test_the_picture_says_what_was_measured_and_how(sweep):
    title = plot.title(replace(sweep, setting=replace(SETTING, model=HOSTILE), stopped="interrupted"))
    assert title.splitlines() == [
        "=model$\\frac$\\x1b[2J<b>\\u202e, cpu, float64, a machine, 2 cores",
        "baseline modes json and schema, n = 3 a point and mode, 2026-01-02",
        "fixed: 4 choices a field, a text of about 128 tokens, head warm (stopped early)",
    ]


def test_the_picture_shows_every_point_and_where_lines_cross(tmp_path, sweep):
    pytest.importorskip("matplotlib")
    sweep = replace(sweep, setting=replace(SETTING, model="a$b$ <i>&\\frac{"))
    save_plot(sweep, tmp_path / "s.png")
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG\r\n")
    figure = plot.figure_of(sweep)
    (axes,) = figure.axes
    drawn = {kept.get_label(): kept[0].get_xydata().tolist() for kept in axes.containers}
    assert drawn == {
        "PCD": [[1, 100], [8, 110], [64, 200]],
        "baseline, json": [[1, 40], [8, 300], [64, 3000]],
        "baseline, schema": [[1, 30], [8, 90], [64, 180]],
    }
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    crossing = crossings(sweep.points, "json")[0]
    [star] = [each for each in axes.lines if each.get_marker() == "*"]
    assert star.get_xydata().tolist() == [[crossing.x, crossing.ms]]
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "PCD",
        "baseline, json",
        "baseline, schema",
        "json: token limit, or no whole JSON",
        f"PCD = json at about {crossing.x:.1f}, between 1 and 8",
    ]
    assert axes.get_title().startswith("a$b$ <i>&\\frac{, cpu")
    save_plot(sweep, tmp_path / "s.svg")
    assert "<i>" not in (tmp_path / "s.svg").read_text()


def test_a_sweep_of_one_size_is_drawn_too(tmp_path, sweep):
    pytest.importorskip("matplotlib")
    one = replace(sweep, points=tuple(point for point in sweep.points if point.x == 1))
    save_plot(one, tmp_path / "s.png")
    assert list(by_size(one.points, PCD)) == [1] and (tmp_path / "s.png").stat().st_size > 1000


def test_importing_the_sweep_draws_nothing():
    code = "import sys, core.scaling; print({'matplotlib', 'torch', 'gradio', 'playwright'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
