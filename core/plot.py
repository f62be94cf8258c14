"""A sweep as a picture: the measured points of every line, and where lines cross.

matplotlib is an extra that only this module imports, when something is drawn.
"""

from __future__ import annotations

import io
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.lines import PCD, Point, by_size, crossings, size_text
from core.review import escaped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from core.scaling import Sweep

SUFFIXES = (".png", ".svg")

#: Colours and markers that also tell lines apart without colour (Okabe and Ito's palette).
LOOKS = {PCD: ("#0072B2", "o"), "free": ("#CC79A7", "D"), "json": ("#D55E00", "s"), "schema": ("#009E73", "^")}


class PlotError(ValueError):
    """A plot that cannot be made here; the message says what to do."""


def require_plotting(file: Path) -> None:
    """Raises `PlotError` for a kind of file that is not drawn, and where matplotlib is missing."""
    if file.suffix.lower() not in SUFFIXES:
        raise PlotError(f"{file}: ends in {file.suffix!r}; a plot is {' or '.join(SUFFIXES)}")
    if find_spec("matplotlib") is None:
        raise PlotError("a plot needs matplotlib, which is not installed; run: pip install matplotlib")


def save_plot(sweep: Sweep, file: Path) -> None:
    """Draws the sweep; `.png` or `.svg`. Raises `PlotError`, and `OSError` where the file cannot be written."""
    require_plotting(file)
    picture = io.BytesIO()
    figure_of(sweep).savefig(picture, format=file.suffix.lower()[1:], dpi=150)
    file.write_bytes(picture.getvalue())


def figure_of(sweep: Sweep) -> Figure:
    """Needs matplotlib, and a sweep with points."""
    # Without pyplot there is no display to be asked for.
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, LogLocator, NullLocator, StrMethodFormatter

    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xscale="log", yscale="log")
    for line in (PCD, *sweep.modes):
        if points := list(by_size(sweep.points, line).values()):
            _draw_line(axes, line, points)
    for mode in sweep.modes:
        _draw_crossings(axes, sweep, mode)
    axes.xaxis.set_major_locator(FixedLocator(sorted({point.x for point in sweep.points})))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.set_xlabel(sweep.unit)
    axes.set_ylabel("engine time, ms (median; bars: least to most)")
    axes.grid(which="major", alpha=0.3)
    # Below the axes, where it covers no point.
    figure.legend(*_keys(axes), loc="outside lower center", ncols=2, fontsize=8)
    # A model's name may hold a dollar sign, which is no formula.
    axes.set_title(title(sweep), fontsize=9, parse_math=False)
    return figure


def title(sweep: Sweep) -> str:
    """Model, machine, how it was measured, and what stays the same."""
    counts = sorted({point.n for point in sweep.points if point.line != PCD})
    n = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    here = sweep.setting
    where = f"{here.model}, {here.device}, {here.dtype}, {here.machine}"
    how = f"baseline modes {' and '.join(sweep.modes)}, n = {n} a point and mode, {here.date[:10]}"
    early = " (stopped early)" if sweep.stopped else ""
    return "\n".join(map(escaped, (where, how, f"fixed: {sweep.fixed}{early}")))


def _draw_line(axes: Any, line: str, points: list[Point]) -> None:
    colour, marker = LOOKS[line]
    label = "PCD" if line == PCD else f"baseline, {line}"
    sizes, times = [point.x for point in points], [point.ms for point in points]
    spread = [[point.ms - point.least_ms for point in points], [point.most_ms - point.ms for point in points]]
    axes.errorbar(sizes, times, spread, color=colour, marker=marker, label=label, capsize=2, elinewidth=0.8)
    if marked := [point for point in points if point.marks]:
        label = f"{line}: token limit, or no whole JSON"
        places = [point.x for point in marked], [point.ms for point in marked]
        axes.plot(*places, color=colour, marker="o", markersize=13, fillstyle="none", linestyle="none", label=label)


def _draw_crossings(axes: Any, sweep: Sweep, mode: str) -> None:
    """Hollow, because they are estimated."""
    colour, _ = LOOKS[mode]
    for crossing in crossings(sweep.points, mode):
        label = f"PCD = {mode} at about {size_text(crossing.x)}, between {crossing.below:,} and {crossing.above:,}"
        star = {"marker": "*", "markersize": 16, "fillstyle": "none", "linestyle": "none", "zorder": 4}
        axes.plot(crossing.x, crossing.ms, color=colour, label=label, **star)


def _keys(axes: Any) -> tuple[list[Any], list[str]]:
    """Handles and labels of the legend, lines before what is marked on them."""
    handles, labels = axes.get_legend_handles_labels()
    marks = [i for i, handle in enumerate(handles) if handle in axes.lines]
    order = [*(i for i in range(len(handles)) if i not in marks), *marks]
    return [handles[i] for i in order], [labels[i] for i in order]
