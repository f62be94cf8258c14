"""A sweep as a picture: the measured points of every line, and where lines cross.

matplotlib is an extra that only this module imports, when something is drawn.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.backend import CLOCKS
from core.figures import Spread, Summary
from core.lines import PCD, by_size, crossings, size_text
from core.wording import escaped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from core.scaling import Sweep

SUFFIXES = (".png", ".svg")

#: Colours and markers that also tell lines apart without colour (Okabe and Ito's palette).
LOOKS = {PCD: ("#0072B2", "o"), "free": ("#CC79A7", "D"), "json": ("#D55E00", "s"), "schema": ("#009E73", "^")}
#: The two lanes of the same races are drawn alike.
DASHES = {"free": "dotted", "json": "solid", "schema": "dashed"}


class PlotError(ValueError):
    """A plot that cannot be made here; the message says what to do."""


def require_plotting(file: Path) -> None:
    """Raises `PlotError` for a kind of file that is not drawn, and where matplotlib is missing."""
    if file.suffix.lower() not in SUFFIXES:
        raise PlotError(f"{file}: ends in {file.suffix!r}; a plot is {' or '.join(SUFFIXES)}")
    if find_spec("matplotlib") is None:
        raise PlotError("a plot needs matplotlib, which is not installed; run: pip install matplotlib")


def picture(sweep: Sweep, file: Path) -> bytes:
    """What the file has to hold, `.png` or `.svg`. Needs matplotlib, and a sweep with races that are done."""
    drawn = io.BytesIO()
    figure_of(sweep).savefig(drawn, format=file.suffix.lower()[1:], dpi=150)
    return drawn.getvalue()


def figure_of(sweep: Sweep) -> Figure:
    # Without pyplot there is no display to be asked for.
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, LogLocator, NullLocator, StrMethodFormatter

    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xscale="log", yscale="log")
    modes = {mode: line for mode in sweep.benchmark.modes if (line := by_size(sweep.summaries, mode))}
    for mode, line in modes.items():
        _draw_lanes(axes, mode, line)
    for mode, line in modes.items():
        _draw_crossings(axes, mode, line)
    axes.xaxis.set_major_locator(FixedLocator(sorted({size for line in modes.values() for size in line})))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.set_xlabel(sweep.growth.unit)
    axes.set_ylabel(f"{CLOCKS[sweep.setting.clock]}, ms (median; bars: from the least to the 95th percentile)")
    axes.grid(which="major", alpha=0.3)
    # Below the axes, where it covers no point.
    figure.legend(*_keys(axes), loc="outside lower center", ncols=2, fontsize=8)
    # A model's name may hold a dollar sign, which is no formula.
    axes.set_title(title(sweep), fontsize=9, parse_math=False)
    return figure


def title(sweep: Sweep) -> str:
    """Model, machine, how it was measured, and what stays the same."""
    counts = sorted({row.n for row in sweep.summaries})
    n = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    here = sweep.setting
    where = f"{here.model}, {here.device}, {here.dtype}, {here.machine}"
    how = f"baseline modes {' and '.join(sweep.benchmark.modes)}, n = {n} a point and mode, {here.date[:10]}"
    early = "" if sweep.is_whole else " (stopped early)"
    return "\n".join(map(escaped, (where, how, f"fixed: {sweep.fixed}{early}")))


def _draw_lanes(axes: Any, mode: str, line: Mapping[int, Summary]) -> None:
    """Both lanes of the same races."""
    _draw_line(axes, f"PCD, beside {mode}", {size: row.pcd for size, row in line.items()}, *LOOKS[PCD], DASHES[mode])
    colour, marker = LOOKS[mode]
    _draw_line(axes, f"baseline, {mode}", {size: row.ar for size, row in line.items()}, colour, marker, DASHES[mode])
    if marked := {size: row.ar.median_ms for size, row in line.items() if not row.is_json}:
        ring = {"marker": "o", "markersize": 13, "fillstyle": "none", "linestyle": "none"}
        axes.plot(list(marked), list(marked.values()), color=colour, label=f"{mode}: no whole JSON", **ring)


def _draw_line(axes: Any, label: str, points: Mapping[int, Spread], colour: str, marker: str, dashes: str) -> None:
    times = [point.median_ms for point in points.values()]
    spread = [
        [point.median_ms - point.least_ms for point in points.values()],
        [point.p95_ms - point.median_ms for point in points.values()],
    ]
    look = {"color": colour, "marker": marker, "linestyle": dashes, "capsize": 2, "elinewidth": 0.8}
    axes.errorbar(list(points), times, spread, label=label, **look)


def _draw_crossings(axes: Any, mode: str, line: Mapping[int, Summary]) -> None:
    """Hollow, because they are estimated."""
    colour, _ = LOOKS[mode]
    for crossing in crossings(line.values(), mode):
        label = f"PCD = {mode} at about {size_text(crossing.size)}, between {crossing.below:,} and {crossing.above:,}"
        star = {"marker": "*", "markersize": 16, "fillstyle": "none", "linestyle": "none", "zorder": 4}
        axes.plot(crossing.size, crossing.ms, color=colour, label=label, **star)


def _keys(axes: Any) -> tuple[list[Any], list[str]]:
    """Handles and labels of the legend, lines before what is marked on them."""
    handles, labels = axes.get_legend_handles_labels()
    marks = [i for i, handle in enumerate(handles) if handle in axes.lines]
    order = [*(i for i in range(len(handles)) if i not in marks), *marks]
    return [handles[i] for i in order], [labels[i] for i in order]
