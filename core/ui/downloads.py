"""The files that a session may download: a report as JSON and as CSV, for as long as the session lasts."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from core.report import Report
from core.setting import json_line
from core.whole_file import write_whole


class Downloads:
    """A folder for each session that has a report, with a name that nobody can guess."""

    def __init__(self, parent: Path) -> None:
        self._parent = parent
        self._folders: dict[str | None, TemporaryDirectory[str]] = {}

    def write(self, session: str | None, report: Report) -> tuple[Path, Path]:
        """The JSON and the CSV file; those of the session's report before are removed. Raises `OSError`."""
        self.remove(session)
        self._parent.mkdir(parents=True, exist_ok=True)
        made = self._folders[session] = TemporaryDirectory(prefix="pcd-", dir=self._parent)
        name = f"benchmark-{report.setting.date[:10]}"
        json_file, csv_file = (Path(made.name, f"{name}.{kind}") for kind in ("json", "csv"))
        write_whole(json_file, json_line(report.to_json(trials=True)) + "\n")
        write_whole(csv_file, report.csv())
        return json_file, csv_file

    def remove(self, session: str | None) -> None:
        if folder := self._folders.pop(session, None):
            folder.cleanup()
