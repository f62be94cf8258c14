"""`python -m core.batch`: decides every row of a CSV or JSON lines file against one schema.

Streams: rows come in by chunks, and each chunk's lines are on the disk before the next is
decided. The same command again goes on where a run was stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, get_args

from filelock import FileLock, Timeout

from core.address import is_url
from core.engine import Engine
from core.model_flags import add_model_flags, loaded
from core.models import ModelNotFound
from core.prompt import PROMPT_VERSION, Style
from core.request import Request
from core.result import Prior, ReadingKind, Result, Scoring
from core.schema import StructuredSchema
from core.schema_file import PLACES, add_on_unsupported, print_remarks, read_schema, split_place
from core.table import Row, Table

CHUNK_ROWS = 64
MOST_ROWS = 100_000
#: How long an interrupted run waits for the pass in hand: a thread that dies inside one takes the process along.
PATIENCE_S = 10.0
#: How long a server may be away, as while it restarts, before that ends the run.
SERVER_PATIENCE_S = 300.0

EPILOG = """\
the output has one JSON line per row, in the order of the input:
  {"row": N, "job": digest, "id": ..., "values": {name: value},
   "fields": {name: {"probability": p, "candidate_mass": p, "unread_mass": p}}}
or, where a row cannot be decided, {"row": N, "job": digest, "id": ..., "error": why}.
Rows count from 0, the header and blank lines left out; "id" is there with --id-column; "job" is a
digest of model, dtype, schema, columns, scoring, prior, reading, style and temperature. Read best-first,
a probability is what is certain of it, and at most "unread_mass" may be missing.

The same command again goes on after the last whole line, and compares ids, not texts, with the
input. It begins anew with --restart.

exit status:
  0    every row is decided
  1    an error, which one line names; finished rows are kept
  2    wrong usage
  3    finished, and some rows could not be decided
  130  interrupted; finished rows are kept
"""


class BatchError(ValueError):
    """A job that cannot be done; the message names the file and the way out."""


@dataclass(frozen=True)
class BatchJob:
    """What is to be decided, and where to. Raises `BatchError`, or `ValueError` for a bad option."""

    table: Table
    schema: StructuredSchema
    output: Path
    temperature: float = 1.0
    scoring: Scoring = "identify"
    prior: Prior = "none"
    reading: ReadingKind = "complete"  # never by measured cost: all rows of a file are read alike
    size: int = CHUNK_ROWS  # rows that are decided and written at once
    restart: bool = False
    style: Style = "pretty"

    def __post_init__(self) -> None:
        self.request("checks the options")
        if not 1 <= self.size <= MOST_ROWS:
            raise BatchError(f"size {self.size}: a chunk has 1 to {MOST_ROWS} rows")
        if self.output.exists() and self.output.samefile(self.table.file):
            raise BatchError(f"{self.output}: is the input itself; give another --output")
        if self.output.exists() and not self.output.is_file():
            raise BatchError(f"{self.output}: is no file; give the path of one as --output")
        if not self.output.parent.is_dir():
            raise BatchError(f"{self.output.parent}: is no folder; make it or give another --output")
        if not os.access(self.output if self.output.exists() else self.output.parent, os.W_OK):
            raise BatchError(f"{self.output}: cannot be written; give another --output")

    def request(self, text: str) -> Request:
        return Request(text, self.schema, self.temperature, **self.options)

    @property
    def options(self) -> dict[str, Any]:
        complete = self.reading == "complete"
        return {"scoring": self.scoring, "prior": self.prior, "complete": complete, "style": self.style}

    def digest(self, engine: Engine) -> str:
        """12 hexadecimal digits of all that the output's lines depend on beside the rows."""
        identity, table = engine.backend.identity, self.table
        model = (identity.fingerprint, identity.dtype, PROMPT_VERSION)
        asked = (
            self.schema.digest,
            self.schema.shape,
            self.scoring,
            self.prior,
            self.reading,
            self.style,
            float(self.temperature),
        )
        return hashlib.sha256(repr((model, asked, table.text_column, table.id_column)).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Tally:
    """How far a job has come."""

    rows: int  # in the output
    errors: int  # of them, rows that could not be decided


def run(engine: Engine, job: BatchJob) -> Generator[Tally, None, None]:
    """Decides what is not decided yet: a tally of what was found done, and one after each chunk."""
    # What is wrong with the schema itself is no row's fault.
    engine.owner.submit(lambda _: engine.prepare(job.request("checks the schema"))).result()
    lines = Lines(job, job.digest(engine))
    with _alone(job.output) as file, closing(job.table.rows()) as rows:
        if job.restart:
            file.truncate(0)
        tally = lines.taken_up(file, rows)
        yield tally
        while chunk := list(islice(rows, job.size)):
            found = _decided(engine, job, chunk)
            file.write(b"".join(map(lines.line, chunk, found)))
            file.flush()
            os.fsync(file.fileno())
            errors = sum(not isinstance(one, Result) for one in found)
            tally = Tally(tally.rows + len(chunk), tally.errors + errors)
            yield tally


def _decided(engine: Engine, job: BatchJob, rows: Sequence[Row]) -> list[Result | str]:
    """A result for each row, or what is wrong with it."""
    texts = [row.text for row in rows if not row.error]
    try:
        answers = iter(engine.decode_many(texts, job.schema, job.temperature, return_exceptions=True, **job.options))
    except KeyboardInterrupt:
        engine.owner.stop(PATIENCE_S)
        raise
    found = [row.error or next(answers) for row in rows]
    return [one if isinstance(one, Result) else str(one) for one in found]


@dataclass(frozen=True)
class Lines:
    """The output's lines: how they are written, and what is made of those that are there."""

    job: BatchJob
    digest: str

    def line(self, row: Row, found: Result | str) -> bytes:
        shape: dict[str, Any] = {"row": row.number, "job": self.digest}
        if self.job.table.id_column is not None:
            shape["id"] = row.id
        if isinstance(found, Result):
            shape["values"] = found.values
            shape["fields"] = {
                d.name: {
                    "probability": d.probability,
                    "candidate_mass": d.candidate_mass,
                    "unread_mass": d.unread_mass,
                }
                for d in found.decisions
            }
        else:
            shape["error"] = found
        return json.dumps(shape, ensure_ascii=False).encode() + b"\n"

    def taken_up(self, file: BinaryIO, rows: Iterator[Row]) -> Tally:
        """Checks what is there against `rows`, which it moves past those done; drops an unfinished line.

        Changes nothing in a file that is not this job's: raises `BatchError`.
        """
        file.seek(0)
        done = errors = size = 0
        for line in file:
            if not line.endswith(b"\n"):
                self._check_unfinished(line, done)
                break
            shape = self._shape(line, done)
            row = next(rows, None)
            if row is None:
                raise self._refused("has more rows than the input")
            if shape.get("id") != row.id:
                raise self._refused(f"row {done} has another id than in the input")
            done, errors, size = done + 1, errors + ("error" in shape), size + len(line)
        file.truncate(size)
        return Tally(done, errors)

    def _shape(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            shape = json.loads(line)
        except (ValueError, RecursionError):
            shape = None
        if not isinstance(shape, dict) or not isinstance(shape.get("job"), str):
            raise self._refused(f"line {number + 1} is none of this command's")
        if shape["job"] != self.digest:
            raise self._refused("was made by another job: model, dtype, schema, columns or an option differ")
        if shape.get("row") != number:
            raise self._refused(f"line {number + 1} is not row {number}: the file was changed")
        return shape

    def _check_unfinished(self, line: bytes, number: int) -> None:
        """The last line may go only if it is the beginning of one of ours."""
        ours = json.dumps({"row": number, "job": self.digest}).removesuffix("}").encode()
        if not line.startswith(ours[: len(line)]):
            raise self._refused(f"line {number + 1} is none of this job's")

    def _refused(self, why: str) -> BatchError:
        return BatchError(f"{self.job.output}: {why}; give another --output, or --restart to begin anew")


@contextmanager
def _alone(output: Path) -> Iterator[BinaryIO]:
    """The output, to be read and appended to by this process only."""
    output = output.resolve()  # one lock for all links to it
    beside = output.with_name(f".{output.name}.lock")
    try:
        with FileLock(beside).acquire(timeout=0):
            try:
                with output.open("a+b") as file:
                    yield file
            finally:
                with suppress(OSError):  # Windows does not remove a file that is held
                    beside.unlink()
    except Timeout:
        raise BatchError(f"{output}: another run writes there; wait for it or give another --output") from None
    except OSError as error:
        raise BatchError(f"{output}: {error.strerror or error}; what is finished is kept") from None


def watched(engine: Engine, job: BatchJob) -> Tally:
    """`run` with a bar where stderr is a terminal, and a line at the end."""
    from tqdm import tqdm

    is_seen = sys.stderr.isatty()
    total = job.table.count() if is_seen else None
    with closing(run(engine, job)) as tallies:
        before = tally = next(tallies)
        started = time.perf_counter()
        with tqdm(total=total, initial=before.rows, unit=" rows", leave=False, disable=not is_seen) as bar:
            for tally in tallies:
                bar.update(tally.rows - bar.n)
    new, took = tally.rows - before.rows, time.perf_counter() - started
    speed = f"{new} in this run, {new / took:.1f} rows/s" if new else "all of them done already"
    model = f"{engine.model} ({engine.why})" if engine.why else engine.model
    print(f"{job.output}: {tally.rows} rows, {tally.errors} with an error; {speed}; {model}", file=sys.stderr)
    return tally


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m core.batch",
        description="Decides every row of a CSV or JSON lines file against one schema.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--schema", required=True, metavar="PLACE", help=PLACES)
    add_on_unsupported(parser)
    parser.add_argument("--input", type=Path, required=True, metavar="FILE", help=".csv, .tsv, .jsonl or .ndjson")
    parser.add_argument("--text-column", required=True, metavar="NAME", help="the column of the texts")
    parser.add_argument("--id-column", metavar="NAME", help="a column that is copied to the output")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="JSON lines; is appended to")
    parser.add_argument("--restart", action="store_true", help="begin anew: what the output holds goes")
    parser.add_argument("--size", type=int, default=CHUNK_ROWS, metavar="N", help="rows at once (%(default)s)")
    add_model_flags(parser)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--scoring", default="identify", choices=get_args(Scoring))
    parser.add_argument("--prior", default="none", choices=get_args(Prior))
    parser.add_argument("--style", default="pretty", choices=get_args(Style))
    parser.add_argument("--reading", default="complete", choices=get_args(ReadingKind))
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    try:
        schema, _ = read_schema(given.schema, given.on_unsupported)
        schema_file, _ = split_place(given.schema)
        if given.output.exists() and schema_file.exists() and given.output.samefile(schema_file):
            raise BatchError(f"{given.output}: is the schema itself; give another --output")
        print_remarks(schema)
        job = BatchJob(
            Table(given.input, given.text_column, given.id_column),
            schema,
            given.output,
            given.temperature,
            given.scoring,
            given.prior,
            given.reading,
            given.size,
            given.restart,
            given.style,
        )
        engine = loaded(given, **({"patience_s": SERVER_PATIENCE_S} if is_url(given.model) else {}))
        tally = watched(engine, job)
    except (ValueError, RuntimeError, ModelNotFound) as error:  # a device's too: the finished rows are kept
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; what is finished is kept, and the same command without --restart goes on", file=sys.stderr)
        return 130
    return 3 if tally.errors else 0


if __name__ == "__main__":
    sys.exit(main())
