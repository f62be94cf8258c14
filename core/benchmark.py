"""`python -m core.benchmark`: both lanes race on presets, and what they took is printed with its n.

The command only: what is measured is in core/trials.py, what is made of it in core/figures.py
and core/report.py. `--scaling` races requests of growing size; `--micro`, `--ui-overhead` and `--throughput`
measure something else instead.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from core.address import is_url
from core.engine import Engine
from core.figures import ms_text, ratio_text
from core.grammar import MODES, Mode
from core.interruption import INTERRUPTED, interrupted_by_sigterm, interruptible, leave
from core.model_flags import add_model_flags, in_flight, loaded
from core.models import ModelNotFound
from core.plot import picture, require_plotting
from core.presets import Preset, known_presets, preset_file
from core.report import Report
from core.scaling import AXES, Sweep, cases_of
from core.setting import Setting, json_line
from core.throughput import report_throughput
from core.trials import HEADS, STYLES, Benchmark, Case, Failure, Head, Series, Trial, check_names, check_rounds
from core.whole_file import write_whole
from core.wording import escaped

ROUNDS = 5
PRESET = "support_triage"  # where one is measured and none is named
#: What a sweep has where nothing else is asked for: the head, and the modes that enforce something.
SWEPT_HEAD: Head = "warm"
SWEPT_MODES: tuple[Mode, ...] = ("json", "schema")

EPILOG = f"""\
every preset gets a warm-up race that is thrown away, then one race per round, baseline mode and head;
the lanes take turns in going first. Times are the engine's own, read when a race is over;
on a server they are the client's, around the wire, and a pass is a request.
  cold: the schema is compiled and the whole prompt is read anew by both lanes
  warm: both lanes start after the cached head; a race that found it driven out is run again

stdout ends with one line of JSON: where it ran, and a summary for each preset, mode and head.
--json adds every race, --csv has a line for each. Both files are whole or not touched.

instead of races:
  --micro [--preset NAME]        what the engine's parts cost (torch only)
  --scaling fields|choices|context
                                 races of requests that grow; --modes, one of --heads, --plot FILE
  --ui-overhead [--preset NAME]  what a page that watches costs the baseline; one of --modes
  --throughput LIST [--preset NAME]
                                 rows a second on a vLLM server, for each number of requests in flight

examples:
  python -m core.benchmark --model smollm2-135m --preset fintech_fraud --rounds 3
  python -m core.benchmark --preset code_audit,mine.json --modes json,schema --heads warm --markdown
  python -m core.benchmark --request mine.json --csv races.csv --json report.json

exit status:
  0    every race is done
  1    an error, which one line names
  2    wrong usage
  3    done, and some races failed
  {INTERRUPTED}  interrupted (Ctrl-C, SIGTERM); what was finished is printed and written
"""


def main(arguments: Sequence[str] | None = None) -> int:
    asked = parser()
    given = asked.parse_args(arguments)
    if given.preset:
        given.preset = [name for names in given.preset for name in names]  # --preset a,b c --preset d
    _check_usage(given, asked.error)
    try:
        with interrupted_by_sigterm():
            return _measured(given)
    except (ValueError, RuntimeError, OSError, ModelNotFound) as error:  # a device's too
        print(f"error: {escaped(' '.join(str(error).split()))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; nothing was measured", file=sys.stderr)
        return INTERRUPTED


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m core.benchmark",
        description="Races both lanes on presets and prints what they took, what they wrote and how far they agree.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--micro", action="store_true", help="the engine's parts on one preset")
    instead.add_argument("--scaling", choices=list(AXES), help="a sweep of sizes")
    instead.add_argument("--ui-overhead", action="store_true", help="the same races with and without a page")
    at_once = "rows a second for each number of requests in flight, as 1,8,64 (on a vLLM server)"
    instead.add_argument("--throughput", type=_numbers, metavar="LIST", help=at_once)
    what = parser.add_mutually_exclusive_group()
    presets = "names of presets/ or paths of preset files, as a,b; all of presets/"
    what.add_argument("--preset", "--presets", type=_names, nargs="+", action="extend", metavar="LIST", help=presets)
    request = "a JSON file with 'context' and 'schema', and 'expected' if you know the answers"
    what.add_argument("--request", type=Path, metavar="FILE", help=request)
    parser.add_argument("--modes", type=_names, metavar="LIST", help=f"baseline modes; {','.join(MODES)}")
    parser.add_argument("--heads", type=_names, metavar="LIST", help=f"states of the head; {','.join(HEADS)}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="races of each kind (%(default)s)")
    parser.add_argument("--style", choices=STYLES, help=f"of the JSON that the prompt asks for ({STYLES[0]})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the whole report, each race included")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="a line for each race")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="a picture of --scaling: .png or .svg")
    parser.add_argument("--markdown", action="store_true", help="print the table for a README")
    add_model_flags(parser)
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(in_flight(number.strip()) for number in text.split(","))
    if twice := next((number for number in numbers if numbers.count(number) > 1), None):
        raise argparse.ArgumentTypeError(f"{twice} in flight is given twice; give each number once")
    return numbers


#: Options that a kind of measurement does not have, by the option that chooses it; `race` is chosen by none.
UNUSED = {
    "race": ("plot",),
    "micro": ("request", "modes", "heads", "style", "json", "csv", "plot", "markdown"),
    "scaling": ("preset", "request", "style", "markdown"),
    "ui-overhead": ("request", "heads", "style", "json", "csv", "plot", "markdown"),
    "throughput": ("request", "modes", "heads", "style", "json", "csv", "plot", "markdown", "in_flight"),
}
#: Options of which it takes one value and no more.
SINGLE = {"micro": ("preset",), "scaling": ("heads",), "ui-overhead": ("preset", "modes"), "throughput": ("preset",)}


def _kind(given: argparse.Namespace) -> str:
    chosen = {
        "micro": given.micro,
        "scaling": given.scaling,
        "ui-overhead": given.ui_overhead,
        "throughput": given.throughput,
    }
    return next((kind for kind, is_chosen in chosen.items() if is_chosen), "race")


def _check_usage(given: argparse.Namespace, refuse: Callable[[str], NoReturn]) -> None:
    """What no measurement could be made of: argparse's way of saying so, and exit status 2."""
    kind = _kind(given)
    for option in UNUSED[kind]:
        if getattr(given, option):
            refuse(f"--{option.replace('_', '-')} is not for {'races' if kind == 'race' else '--' + kind}")
    try:
        check_names("baseline mode", given.modes or MODES, MODES)
        check_names("head", given.heads or HEADS, HEADS)
        check_rounds(given.rounds)
    except ValueError as error:
        refuse(str(error))
    for option in SINGLE.get(kind, ()):
        if len(getattr(given, option) or ()) > 1:
            refuse(f"--{kind} is for one of --{option}")
    if kind == "micro" and (given.backend not in ("auto", "torch") or is_url(given.model)):
        refuse("--micro measures parts of the torch backend; leave --backend and --url out")
    if kind == "throughput" and not is_url(given.model):
        refuse("--throughput is for a vLLM server, which takes several requests at a time; give its --url")


def _measured(given: argparse.Namespace) -> int:
    """Reads and checks everything that needs no model, loads it and measures; the exit status."""
    kind = _kind(given)
    files = [] if kind == "scaling" else _inputs(given, kind)
    _check_outputs(given, files)
    if kind == "scaling":
        return _scaling(given)
    if kind != "race":
        return _one_preset(given, Preset.load(files[0]), files[0].stem)
    plan = Benchmark(
        cases=tuple(Case.of(Preset.load(file), file.stem) for file in files),
        modes=given.modes or MODES,
        heads=given.heads or HEADS,
        rounds=given.rounds,
        style=given.style or STYLES[0],
    )
    return _races(loaded(given), plan, given)


def _inputs(given: argparse.Namespace, kind: str) -> list[Path]:
    """The files that are asked for; where none is, all presets, or the one for what needs one."""
    if given.request:
        return [given.request]
    names = given.preset or ([PRESET] if kind != "race" else sorted(known_presets()))
    return [preset_file(name) for name in names]


def _check_outputs(given: argparse.Namespace, inputs: Sequence[Path]) -> None:
    """What could not be written after all the work. Raises `ValueError`."""
    seen: dict[Path, str] = {}
    for option in ("json", "csv", "plot"):
        file = getattr(given, option)
        if file is None:
            continue
        if file.exists() and not file.is_file():
            raise ValueError(f"{file}: is no file; give the path of one as --{option}")
        if not file.parent.is_dir():
            raise ValueError(f"{file.parent}: is no folder; make it or give another --{option}")
        place = file.resolve()
        if not os.access(place.parent, os.W_OK):
            raise ValueError(f"{file}: cannot be written; give another --{option}")
        if place in (each.resolve() for each in inputs):
            raise ValueError(f"{file}: is an input; give another --{option}")
        if place in seen:
            raise ValueError(f"{file}: is --{seen[place]} already; give another --{option}")
        seen[place] = option


def _scaling(given: argparse.Namespace) -> int:
    if given.plot:
        require_plotting(given.plot)
    (head,) = given.heads or (SWEPT_HEAD,)
    engine = loaded(given)
    cases, left_out = cases_of(engine, given.scaling, head)
    plan = Benchmark(cases, given.modes or SWEPT_MODES, (head,), given.rounds, is_interleaved=True)
    return _races(engine, plan, given, partial(Sweep, axis=given.scaling, left_out=left_out))


def _one_preset(given: argparse.Namespace, preset: Preset, name: str) -> int:
    if given.micro:
        from core import micro  # here: it imports torch

        micro.report_parts(loaded(given, backend="torch"), preset, name, given.rounds)
        return 0
    if given.throughput:
        return report_throughput(loaded(given), preset, name, given.rounds, given.throughput)
    from core import page_overhead  # here: --help needs none of it

    page_overhead.require_browser()
    return page_overhead.report_overhead(loaded(given), preset, name, given.rounds, *(given.modes or ()))


def _races(
    engine: Engine, plan: Benchmark, given: argparse.Namespace, report_of: Callable[..., Report] = Report
) -> int:
    trials: list[Trial | Failure] = []
    setting, planned, started = Setting.here(engine), len(plan.turns), time.perf_counter()
    print(f"{planned} races, and {len(plan.cases)} to warm up", file=sys.stderr)

    def told() -> None:
        publish(report_of(setting, plan, tuple(trials), len(trials) == planned), given)

    with interruptible(engine, told):
        for trial in Series(engine, plan):
            trials.append(trial)
            print(progress_line(trial, len(trials), planned, time.perf_counter() - started), file=sys.stderr)
    if len(trials) < planned:
        return INTERRUPTED
    return 3 if any(isinstance(trial, Failure) for trial in trials) else 0


def progress_line(trial: Trial | Failure, done: int, planned: int, took_s: float) -> str:
    where = f"{escaped(trial.preset)}, {trial.mode}, {trial.head}, round {trial.round}"
    left = f"; about {duration_text(took_s / done * (planned - done))} left" if done < planned else ""
    if isinstance(trial, Failure):
        return f"{done} of {planned}: {where}: failed: {escaped(trial.message)}{left}"
    times = f"PCD {ms_text(trial.pcd_ms)} ms, AR {ms_text(trial.ar_ms)} ms ({ratio_text(trial.speed_up)})"
    return f"{done} of {planned}: {where}: {times}{left}"


def duration_text(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def publish(report: Report, given: argparse.Namespace) -> None:
    """Writes the files, then prints; a file that cannot be written is an `OSError`, once all is printed."""
    try:
        errors = _written(report, given)
    finally:
        table = report.markdown() if given.markdown else report.plain()
        encoding = sys.stdout.encoding or "utf-8"
        print(table.encode(encoding, "backslashreplace").decode(encoding))
        print(json_line(report.to_json()), flush=True)
    if errors:
        raise errors[0]


def _written(report: Report, given: argparse.Namespace) -> list[OSError]:
    """Writes the files that are asked for; what could not be written."""
    errors: list[OSError] = []
    contents: dict[Path | None, Callable[[], str | bytes]] = {
        given.json: lambda: json_line(report.to_json(trials=True)) + "\n",
        given.csv: report.csv,
    }
    if isinstance(report, Sweep) and report.summaries:
        contents[given.plot] = lambda: picture(report, given.plot)
    for file, content in contents.items():
        try:
            if file:
                write_whole(file, content())
        except OSError as error:
            errors.append(OSError(f"{file}: {error.strerror or error}; the figures are on stdout"))
    return errors


if __name__ == "__main__":
    leave(main())
