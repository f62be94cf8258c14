"""`--scaling`: only the size grows, machines may drift, and lines cross where they were measured to."""

import csv
import json
import math
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from core import benchmark, lines, plot, scaling, synthetic
from core.engine import Engine
from core.figures import Spread, summary_of
from core.lines import by_size, crossings, verdict
from core.plot import PlotError, picture, require_plotting
from core.request import PromptTooLong, Request
from core.scaling import AXES, Sweep, cases_of
from core.setting import Setting
from core.trials import Benchmark, Case, Failure, Series, Trial
from tests.fakes import LEXICONS, HashBackend, lexicon

HOSTILE = "=model$\\frac$\x1b[2J<b>\u202e"
SETTING = Setting(
    "tiny", "a test", "hash", "cpu", "float64", "a machine, 2 cores", "2026-01-02T03:04:05+00:00", {}, 40.0
)


def engine_for(lexicon_name="qwen", engine=Engine, cache_entries=32, **options):
    return engine(HashBackend(lexicon(lexicon_name), **options), "hash", cache_entries=cache_entries)


class PricedEngine(Engine):
    """Real races, whose lanes took 100 ms (pcd) and 20 ms a field (ar, twice that in mode json)."""

    def race(self, context, schema, *, mode, **options):
        race = super().race(context, schema, mode=mode, **options)
        ms = {"pcd": 100.0, "ar": 20.0 * len(schema) * (1 + (mode == "json"))}

        def wait():
            return [replace(e, ms=ms[e.lane]) if e.kind == "lane_end" else e for e in race.wait()]

        return SimpleNamespace(wait=wait, cancel=race.cancel)


class StoppingEngine(PricedEngine):
    """After so many races the next one is interrupted."""

    races_left, cancelled = 0, False

    def race(self, context, schema, **options):
        self.races_left -= 1
        if self.races_left >= 0:
            return super().race(context, schema, **options)

        def wait():
            raise KeyboardInterrupt

        return SimpleNamespace(wait=wait, cancel=lambda: setattr(self, "cancelled", True))


@pytest.fixture
def small(monkeypatch):
    """Axes of a few small sizes."""
    for axis, sizes in {"fields": (1, 3, 9), "choices": (2, 3), "context": (8, 20)}.items():
        monkeypatch.setitem(AXES, axis, replace(AXES[axis], sizes=sizes))
    monkeypatch.setattr(scaling, "TEXT_TOKENS", 12)
    monkeypatch.setattr(scaling, "FIELDS", 2)


@pytest.fixture
def command(small, tmp_path, monkeypatch, capsys):
    """Runs the command on an engine: exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def ran(engine, *arguments):
        monkeypatch.setattr(Engine, "load", lambda *_, **__: engine)
        code = benchmark.main(["--scaling", *arguments])
        return code, *capsys.readouterr()

    return ran


def trial(size, pcd_ms, ar_ms, mode="json", **changed):
    """A trial of which only this matters."""
    return Trial(
        f"{size} fields", mode, "pretty", "warm", ("pcd", "ar"), 1,
        cache="hit", strategy="tree", reading="complete", pcd_ms=pcd_ms, ar_ms=ar_ms, pcd_passes=1, ar_passes=40,
        prompt_tokens=99, tree_tokens=7, ar_tokens=40, ar_forced=0, first_token_ms=1.0, tokens_per_s=9.0,
        fields=size, agree=size, expected=0, pcd_right=0, ar_right=0, pcd_phases={}, ar_phases={}, size=size,
        **{"how": "closed", "outcome": "parsed", "keeps_schema": True} | changed,
    )  # fmt: skip


def rows_of(pcd, ar, mode="json", **changed):
    """A line's rows from `{size: milliseconds}` of both lanes."""
    return [summary_of([trial(size, pcd[size], ms, mode, **changed)]) for size, ms in ar.items()]


def plan_of(engine, axis, modes=("json",), rounds=2, head="warm"):
    return Benchmark(cases_of(engine, axis, head)[0], modes, (head,), rounds, is_interleaved=True)


def sweep_of(*trials, modes=("json",), is_whole=True, setting=SETTING, left_out=()):
    sizes = dict.fromkeys(one.size for one in trials)
    made = [Case(f"{size} fields", "A text.", synthetic.schema_of_fields(size), size=size) for size in sizes]
    plan = Benchmark(tuple(made), modes, ("warm",), 1, is_interleaved=True)
    return Sweep(setting, plan, trials, is_whole, "fields", left_out)


# --- requests ---


@pytest.mark.parametrize("name", LEXICONS)
@pytest.mark.parametrize("axis", AXES)
def test_along_an_axis_nothing_but_its_size_grows(axis, name):
    engine = engine_for(name)
    made, left_out = cases_of(engine, axis)
    schemas, texts = [case.schema for case in made], [case.context for case in made]
    assert left_out == () and [case.size for case in made] == sorted(case.size for case in made)
    prompts = [engine.prepare(Request(case.context, case.schema)).prompt_tokens for case in made]
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
    made, _ = cases_of(engine_for(name), "context")
    tokens = lexicon(name)
    for size, case in zip((64, 128, 256, 512, 1024, 2048), made, strict=True):
        assert size - 12 <= case.size <= size + 1
        assert abs(case.size - len(tokens.encode(case.context))) <= 1  # the word that follows the head
        assert case.name == f"{case.size} tokens of text"


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
    engine = engine_for()
    every, _ = cases_of(engine, "context")
    window = engine.prepare(Request(every[4].context, every[4].schema)).prompt_tokens
    # Which leaves no room for its answer.
    assert cases_of(engine_for(window=window), "context") == (every[:4], (1024, 2048))
    with pytest.raises(PromptTooLong, match="window"):
        cases_of(engine_for(window=50), "context")


# --- races ---


@pytest.mark.parametrize("axis", AXES)
def test_the_head_and_plan_of_every_size_stay_warm_from_its_first_race_on(axis):
    engine = engine_for()
    trials = list(Series(engine, plan_of(engine, axis, ("schema",))))
    assert {one.cache for one in trials} == {"hit"} and len(trials) == 2 * len(AXES[axis].sizes)
    for case in cases_of(engine, axis)[0]:
        assert engine.prepare(Request(case.context, case.schema)).plan_state == "hit"


def test_each_trial_and_row_knows_its_size(small):
    engine = engine_for()
    sweep = Sweep(SETTING, plan := plan_of(engine, "fields"), tuple(Series(engine, plan)), True, "fields", ())
    assert [(one.round, one.size, one.fields) for one in sweep.trials] == [
        (number, size, size) for number in (1, 2) for size in (1, 3, 9)
    ]
    assert [(row.size, row.n) for row in sweep.summaries] == [(1, 2), (3, 2), (9, 2)]


# --- lines ---


def test_a_line_is_the_rows_of_one_mode_by_growing_size():
    rows = rows_of({9: 1, 3: 2}, {9: 5, 3: 6}) + rows_of({1: 3}, {1: 7}, "schema")
    rows += [replace(rows[0], size=None)]
    assert {size: (row.pcd.median_ms, row.ar) for size, row in by_size(rows, "json").items()} == {
        3: (2, Spread(6, 6, 6)),
        9: (1, Spread(5, 5, 5)),
    }
    assert list(by_size(rows, "json")) == [3, 9] and list(by_size(rows, "schema")) == [1]


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
    found = crossings(rows_of(pcd, ar), "json")
    assert [(one.below, one.above, one.faster_after) for one in found] == [(b, a, f) for b, a, _, _, f in expected]
    for one, (_, _, x, ms, _) in zip(found, expected, strict=True):
        assert (one.size, one.ms) == pytest.approx((x, ms), rel=1e-9)
        assert one.mode == "json" and one.is_json


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
    assert verdict(rows_of(pcd, ar), "json", "fields") == words


@pytest.mark.parametrize("changed", [{"how": "limit", "outcome": "truncated"}, {"outcome": "not_parsable"}])
def test_a_crossing_beside_a_text_that_is_no_json_says_so(changed):
    rows = rows_of({8: 100}, {8: 80}) + rows_of({16: 100}, {16: 160}, **changed)
    assert [one.is_json for one in crossings(rows, "json")] == [False]
    words = "pcd is faster above (! the baseline did not always write whole JSON there)"
    assert verdict(rows, "json", "fields").endswith(words)


@pytest.mark.parametrize("x, text", [(9.96, "10.0"), (99.96, "100"), (1234.5, "1,234"), (1.0, "1.0")])
def test_an_estimate_is_not_told_more_exactly_than_it_is(x, text):
    assert lines.size_text(x) == text


# --- the command ---


def test_the_command_says_what_was_measured_in_words_json_and_files(command, tmp_path):
    code, out, err = command(
        engine_for(engine=PricedEngine), "fields", "--rounds", "3", "--json", "s.json", "--csv", "s.csv"
    )
    assert code == 0
    said = json.loads(out.splitlines()[-1])
    # 100 ms against 40 and 20 a field.
    assert "pcd = json between 1 and 3 fields, estimated at 2.5: pcd is faster above" in out
    assert "pcd = schema between 3 and 9 fields, estimated at 5.0: pcd is faster above" in out
    assert "size: fields; fixed: 4 choices a field, a text of about 128 tokens, head warm" in out
    assert "* 1 fields, json: PCD is slower (0.40x)" in out
    rows = [line.split() for line in out.splitlines() if line.split()[1:2] in (["json"], ["schema"])]
    assert [(row[0], row[1], row[2], row[3], row[5], row[7]) for row in rows] == [
        ("1", "json", "3", "100", "40.0", "0.40x*"), ("3", "json", "3", "100", "120", "1.2x"),
        ("9", "json", "3", "100", "360", "3.6x"), ("1", "schema", "3", "100", "20.0", "0.20x*"),
        ("3", "schema", "3", "100", "60.0", "0.60x*"), ("9", "schema", "3", "100", "180", "1.8x"),
    ]  # fmt: skip
    assert [line for line in out.splitlines()[:-1] if len(line) > 120] == []
    whole = json.loads((tmp_path / "s.json").read_text())
    assert len(whole.pop("trials")) == 18 and whole == said
    assert (said["benchmark"], said["axis"], said["unit"], said["rounds"]) == ("scaling", "fields", "fields", 3)
    assert (said["heads"], said["modes"], said["is_whole"], said["left_out"]) == (
        ["warm"],
        ["json", "schema"],
        True,
        [],
    )
    assert [(one["mode"], one["below"], one["above"], one["faster_after"]) for one in said["crossings"]] == [
        ("json", 1, 3, "pcd"),
        ("schema", 3, 9, "pcd"),
    ]
    assert {(row["mode"], row["size"], row["ar"]["median_ms"]) for row in said["summaries"]} == {
        (mode, size, ms * size) for mode, ms in (("json", 40.0), ("schema", 20.0)) for size in (1, 3, 9)
    }
    rows = list(csv.DictReader((tmp_path / "s.csv").open(newline="")))
    assert [(row["size"], row["mode"]) for row in rows[:6]] == [(x, m) for x in "139" for m in ("json", "schema")]
    started, first, *_ = err.splitlines()
    assert started == "18 races, and 3 to warm up"
    assert first.startswith("1 of 18: 1 fields, json, warm, round 1: PCD 100 ms, AR 40.0 ms (0.40x)")


def test_modes_and_head_of_a_sweep_can_be_chosen(command):
    code, out, _ = command(engine_for(), "context", "--modes", "free", "--heads", "cold", "--rounds", "1")
    said = json.loads(out.splitlines()[-1])
    assert (code, said["modes"], said["heads"]) == (0, ["free"], ["cold"])
    assert {(row["mode"], row["head"], row["caches"][0]) for row in said["summaries"]} == {("free", "cold", "off")}


def test_a_baseline_past_its_limit_has_its_mark_in_the_table(command, monkeypatch):
    monkeypatch.setattr("core.baseline.token_limit", lambda canonical: 5)
    code, out, _ = command(engine_for(), "choices", "--modes", "json", "--rounds", "1")
    assert code == 0
    for size in (2, 3):
        (note,) = [line for line in out.splitlines() if line.startswith(f"* {size} choices of one field, json: ")]
        assert "1 of 1 baseline texts ran into the token limit" in note


def test_a_sweep_that_is_interrupted_prints_the_sizes_that_are_done(command):
    engine = engine_for(engine=StoppingEngine)
    engine.races_left = 2 * 2  # a warm-up and a race of two of the three sizes
    code, out, _ = command(engine, "fields", "--modes", "json", "--rounds", "2")
    assert code == 130 and engine.cancelled and "stopped after 2 of 6 races" in out
    assert [(row["size"], row["n"]) for row in json.loads(out.splitlines()[-1])["summaries"]] == [(1, 1), (3, 1)]


def test_a_sweep_that_is_interrupted_in_its_first_warm_up_has_nothing_to_say(command):
    code, out, _ = command(engine_for(engine=StoppingEngine), "fields", "--modes", "json", "--plot", "s.png")
    assert code == 130 and "stopped after 0 of 15 races" in out and "json: not measured" in out
    assert json.loads(out.splitlines()[-1])["summaries"] == []


def test_a_race_that_fails_is_told_by_its_size_and_the_sweep_goes_on(command):
    class Failing(HashBackend):
        def read(self, prefix, ids, tree, *given):
            if len(tree.tokens) > 40:
                raise ArithmeticError("no room for the tree\x1b[2J")
            return super().read(prefix, ids, tree, *given)

    engine = Engine(Failing(lexicon("qwen")), "hash")
    code, out, _ = command(engine, "fields", "--modes", "schema", "--rounds", "2", "--plot", "s.svg")
    said = json.loads(out.splitlines()[-1])
    assert code == 3 and [row["size"] for row in said["summaries"]] == [1]
    assert [(one["size"], one["round"]) for one in said["failures"]] == [(3, 1), (9, 1), (3, 2), (9, 2)]
    assert "failed: 9 fields, 2 races: no room for the tree\\x1b[2J" in out


def test_sizes_that_were_left_out_are_named(capsys):
    lines = sweep_of(trial(1, 1.0, 2.0), left_out=(28, 64)).plain().splitlines()
    assert "left out, do not fit the model's window: 28, 64" in lines


# --- the picture ---


@pytest.fixture
def sweep():
    trials = [trial(x, ms, ar) for x, ms, ar in ((1, 100, 40), (8, 110, 300))]
    trials += [trial(64, 200, 3000, how="limit", outcome="truncated")]
    trials += [trial(x, ms, ar, "schema") for x, ms, ar in ((1, 101, 30), (8, 111, 90), (64, 201, 180))]
    return sweep_of(*trials, modes=("json", "schema"))


def test_without_matplotlib_one_line_says_what_to_install(monkeypatch, command):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    engine = engine_for()
    code, out, err = command(engine, "fields", "--plot", "s.png")
    words = "error: a plot needs matplotlib, which is not installed; run: pip install matplotlib\n"
    assert (code, out, err, engine.backend.passes) == (1, "", words, 0)


@pytest.mark.parametrize("name", ["s.gif", "s"])
def test_a_kind_of_picture_that_is_not_drawn_is_refused(tmp_path, name):
    with pytest.raises(PlotError, match=r"ends in '(.gif)?'; a plot is .png or .svg$"):
        require_plotting(tmp_path / name)


def test_the_picture_says_what_was_measured_and_how(sweep):
    sweep = replace(sweep, setting=replace(SETTING, model=HOSTILE), is_whole=False)
    assert plot.title(sweep).splitlines() == [
        "=model$\\frac$\\x1b[2J<b>\\u202e, cpu, float64, a machine, 2 cores",
        "baseline modes json and schema, n = 1 a point and mode, 2026-01-02",
        "fixed: 4 choices a field, a text of about 128 tokens, head warm (stopped early)",
    ]


def test_the_picture_shows_every_point_and_where_lines_cross(tmp_path, sweep):
    pytest.importorskip("matplotlib")
    sweep = replace(sweep, setting=replace(SETTING, model="a$b$ <i>&\\frac{"))
    assert picture(sweep, tmp_path / "s.png").startswith(b"\x89PNG\r\n")
    figure = plot.figure_of(sweep)
    (axes,) = figure.axes
    drawn = {kept.get_label(): kept[0].get_xydata().tolist() for kept in axes.containers}
    assert drawn == {
        "PCD, beside json": [[1, 100], [8, 110], [64, 200]],
        "baseline, json": [[1, 40], [8, 300], [64, 3000]],
        "PCD, beside schema": [[1, 101], [8, 111], [64, 201]],
        "baseline, schema": [[1, 30], [8, 90], [64, 180]],
    }
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    (crossing,) = crossings(sweep.summaries, "json")
    [star] = [each for each in axes.lines if each.get_marker() == "*"]
    assert star.get_xydata().tolist() == [[crossing.size, crossing.ms]]
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        *drawn,
        "json: no whole JSON",
        f"PCD = json at about {crossing.size:.1f}, between 1 and 8",
    ]
    assert axes.get_title().startswith("a$b$ <i>&\\frac{, cpu")
    assert b"<i>" not in picture(sweep, tmp_path / "s.svg")


def test_a_sweep_of_one_size_is_drawn_too_and_a_failed_race_is_no_point(tmp_path):
    pytest.importorskip("matplotlib")
    failed = Failure("9 fields", "json", "pretty", "warm", ("pcd", "ar"), 1, "no memory", size=9)
    figure = plot.figure_of(sweep_of(trial(1, 100, 40), failed))
    assert [kept[0].get_xydata().tolist() for kept in figure.axes[0].containers] == [[[1, 100]], [[1, 40]]]


def test_the_command_draws_a_picture_that_is_whole_or_not_there(command, tmp_path):
    pytest.importorskip("matplotlib")
    assert command(engine_for(), "choices", "--rounds", "1", "--plot", "s.png")[0] == 0
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert [file.name for file in tmp_path.iterdir()] == ["s.png"]


def test_figures_are_printed_where_the_picture_breaks(command, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")

    def broken(*_):
        raise RuntimeError("a bug")

    monkeypatch.setattr(plot, "figure_of", broken)
    code, out, err = command(engine_for(), "choices", "--rounds", "1", "--plot", "s.png")
    assert (code, err.splitlines()[-1]) == (1, "error: a bug")
    assert len(json.loads(out.splitlines()[-1])["summaries"]) == 4 and list(tmp_path.iterdir()) == []


def test_importing_the_sweep_draws_nothing():
    code = "import sys, core.scaling; print({'matplotlib', 'torch', 'gradio', 'playwright'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
