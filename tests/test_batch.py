"""`python -m core.batch`: every row once, in order, whatever the rows hold and whenever a run is stopped."""

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core import table
from core.batch import BatchError, BatchJob, Tally, main, run
from core.engine import Engine
from core.models import ModelNotFound
from core.schema import StructuredSchema
from core.table import Row, Table, TableError
from tests.fakes import TWINS, HashBackend, lexicon

FIELDS = {
    "risk": {"type": "enum", "choices": ["HIGH", "LOW", 1, None]},
    "is_fraud": {"type": "boolean", "depends_on": ["risk"]},
}
SCHEMA = StructuredSchema(FIELDS)
HOSTILE = "\x1b]0;owned\x07\x1b[2J<img src=x>\u202egnp \u2028 {{x}} <|im_end|> 👩\u200d🚀"
TEXTS = ["a text", "NA", 'two\nlines, and a "quote"', "café 生气", HOSTILE, "null", "a text"]


class Asked(Engine):
    """An engine that remembers what it was asked."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.chunks = []

    def decode_many(self, contexts, *given, **options):
        self.chunks.append(list(contexts))
        return super().decode_many(contexts, *given, **options)


def hashed(name="qwen", kind=HashBackend, **options):
    return Asked(kind(lexicon(name), **options), "hash")


def csv_of(texts, folder, name="rows.csv"):
    cells = [text.replace('"', '""') for text in texts]
    file = folder / name
    file.write_bytes(("id,text\n" + "".join(f'n{i},"{text}"\n' for i, text in enumerate(cells))).encode())
    return file


def jsonl_of(texts, folder):
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps({"id": f"n{i}", "text": text}) + "\n" for i, text in enumerate(texts)))
    return file


def job_of(file, **options):
    table = Table(file, options.pop("text_column", "text"), options.pop("id_column", None))
    schema = options.pop("schema", SCHEMA)
    return BatchJob(table, schema, options.pop("output", file.parent / "out.jsonl"), **options)


def finished(engine, job):
    *_, last = run(engine, job)
    return last


def lines_of(file):
    return [json.loads(line) for line in file.read_bytes().splitlines()]


# --- what is written ---


@pytest.mark.parametrize("size", [1, 3, 32])
@pytest.mark.parametrize("made", [csv_of, jsonl_of])
@pytest.mark.parametrize(
    "options", [{}, {"temperature": 2.0, "scoring": "full", "prior": "content_free"}, {"reading": "best-first"}]
)
def test_rows_are_decided_in_order_as_each_is_alone(tmp_path, size, made, options):
    engine, schema = hashed(), StructuredSchema({"risk": FIELDS["risk"], "ok": {"type": "boolean"}})
    job = job_of(made(TEXTS, tmp_path), id_column="id", size=size, schema=schema, **options)
    tally = finished(engine, job)
    assert (tally.rows, tally.errors) == (len(TEXTS), 0)
    assert max(map(len, engine.chunks)) <= size
    for number, (line, text) in enumerate(zip(lines_of(job.output), TEXTS, strict=True)):
        alone = hashed().run_parallel(text, schema, job.temperature, **job.options)
        assert list(line) == ["row", "job", "id", "values", "fields"]
        assert (line["row"], line["id"], line["values"]) == (number, f"n{number}", alone.values)
        for decision in alone.decisions:
            assert line["fields"][decision.name] == pytest.approx(
                {name: getattr(decision, name) for name in ("probability", "candidate_mass", "unread_mass")}, rel=1e-9
            )


def test_fields_that_depend_on_others_are_decided_too(tmp_path):
    job = job_of(csv_of(TEXTS, tmp_path))
    finished(hashed(), job)
    assert [line["values"] for line in lines_of(job.output)] == [
        hashed().run_parallel(text, SCHEMA).values for text in TEXTS
    ]


def test_without_an_id_column_a_line_has_no_id(tmp_path):
    job = job_of(csv_of(["a text", ""], tmp_path))
    finished(hashed(), job)
    assert [list(line) for line in lines_of(job.output)] == [
        ["row", "job", "values", "fields"],
        ["row", "job", "error"],
    ]


def test_an_output_line_is_readable_text(tmp_path):
    job = job_of(jsonl_of(["a text"], tmp_path), schema=StructuredSchema({"生气\u2028": FIELDS["risk"]}))
    finished(hashed(), job)
    assert "生气\u2028" in job.output.read_text(encoding="utf-8")
    assert len(job.output.read_bytes().splitlines()) == 1


# --- reading tables ---


def rows_of(folder, name, content, **columns):
    (folder / name).write_bytes(content)
    return list(Table(folder / name, columns.pop("text_column", "text"), **columns).rows())


@pytest.mark.parametrize(
    "name, content, texts",
    [
        ("t.csv", b"text\nplain\n", ["plain"]),
        ("t.CSV", b"\xef\xbb\xbftext,n\r\nwith a mark,1\r\n", ["with a mark"]),
        ("t.csv", b'\xef\xbb\xbf"text",n\n"a mark, quoted",1', ["a mark, quoted"]),
        ("t.csv", b'n,text\n1,"two\nlines"\n\n2,"two\r\nlines"\n', ["two\nlines", "two\r\nlines"]),
        ("t.csv", b"text\nNA\nnull\nnan\n1\n", ["NA", "null", "nan", "1"]),
        ("t.csv", b'text,n\n"say ""hi""",1\nsay "hi",2\n', ['say "hi"', 'say "hi"']),
        ("t.csv", b"text\n" + b"x" * 300_000 + b"\n", ["x" * 300_000]),
        ("t.csv", "text\none\u2028two\x85three\n".encode(), ["one\u2028two\x85three"]),
        ("t.csv", b"text\na\0b\n", ["a\0b"]),
        ("t.csv", b"text,x,x\na,1,2\n", ["a"]),
        ("t.csv", b"text\n", []),
        ("t.tsv", b"n\ttext\n1\ta, b\n", ["a, b"]),
        ("t.jsonl", b'\xef\xbb\xbf{"text": "a"}\r\n\n{"n": 1, "text": "b"}', ["a", "b"]),
        ("t.ndjson", '{"text": "one\u2028two"}\n{"text": "\\ud83d\\ude00"}\n'.encode(), ["one\u2028two", "😀"]),
        ("t.jsonl", b"", []),
    ],
)  # fmt: skip
def test_texts_are_read_as_they_were_meant(tmp_path, name, content, texts):
    rows = rows_of(tmp_path, name, content)
    assert rows == [Row(number, text) for number, text in enumerate(texts)]
    assert Table(tmp_path / name, "text").count() == len(texts)


@pytest.mark.parametrize(
    "name, line, words",
    [
        ("t.csv", b"1", "the row has 1 cells and the header names 2 columns"),
        ("t.csv", b"1,a,b", "the row has 3 cells and the header names 2 columns"),
        ("t.csv", b'1,"a" b', "not valid CSV: ',' expected after '\"' \\(in the row that begins on line 3\\)"),
        ("t.csv", b"1,caf\xe9", "column 'text' holds bytes that are not UTF-8"),
        ("t.csv", b"\xff,a", "column 'id' holds bytes that are not UTF-8"),
        ("t.csv", b"1," + b"x" * (2**24 + 1), "field larger than field limit"),
        ("t.jsonl", b"{", "not valid JSON: .* at column 2"),
        ("t.jsonl", b"\xff", "the line is not UTF-8"),
        ("t.jsonl", b"[1]", "the line is a list and no object"),
        ("t.jsonl", b'"text"', "the line is a string and no object"),
        ("t.jsonl", b"null", "the line is null and no object"),
        ("t.jsonl", b"[" * 100_000, "nested too deeply"),
        ("t.jsonl", b'{"id": 1, "x\x1b": 2}', "not valid JSON"),
        ("t.jsonl", b'{"id": 1, "x\\u001b": 2}', r"no column 'text'; the row has 'id', 'x\\x1b'"),
        ("t.jsonl", b'{"text": "a"}', "no column 'id'; the row has 'text'"),
        ("t.jsonl", b"{}", "no column 'id'; the row has none"),
        ("t.jsonl", b'{"id": 1, "text": 5}', "column 'text' is a number and no string"),
        ("t.jsonl", b'{"id": 1, "text": null}', "column 'text' is null and no string"),
        ("t.jsonl", b'{"id": 1, "text": true}', "column 'text' is true and no string"),
        ("t.jsonl", b'{"id": 1, "text": {}}', "column 'text' is an object and no string"),
        ("t.jsonl", b'{"id": 1, "text": "\\ud800"}', "half a character"),
        ("t.jsonl", b'{"id": "\\ud800", "text": "a"}', "column 'id' holds .* half a character"),
        ("t.jsonl", b'{"id": [], "text": "a"}', "column 'id' is a list; an id is a string or a finite number"),
        ("t.jsonl", b'{"id": 1e999, "text": "a"}', "column 'id' is a number; an id is a string or a finite number"),
        ("t.jsonl", b'{"id": ' + b"9" * 5000 + b', "text": "a"}', "a number is too long"),
        ("t.jsonl", b'{"id": 1, "text": "a", "text": "b"}', "'text' appears twice"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_read_says_why_and_the_rest_goes_on(tmp_path, name, line, words):
    before, after = (b"id,text\n0,a\n", b"\n2,b\n")
    if name == "t.jsonl":
        before, after = b'{"id": "0", "text": "a"}\n', b'\n{"id": "2", "text": "b"}\n'
    first, bad, last = rows_of(tmp_path, name, before + line + after, id_column="id")
    assert (first, last) == (Row(0, "a", "0"), Row(2, "b", "2"))
    assert bad.number == 1 and bad.text == ""
    with pytest.raises(ValueError, match=words):
        raise ValueError(bad.error)
    assert "\n" not in bad.error and bad.error.isprintable() and len(bad.error) < 300


@pytest.mark.parametrize(
    "rest, texts, why",
    [
        (b"2,c\n3,d\n", ["c", "d"], "unexpected end of data"),
        (b'2,c\n3,"d\nd"\n4,e\n', ["c", "d\nd", "e"], "',' expected after '\"'"),
        (b'2,c\n3,"d\n4,e', ["c", "", "e"], "',' expected after '\"'"),
    ],
)
def test_a_quote_that_is_never_closed_costs_its_own_row_and_no_other(tmp_path, rest, texts, why):
    first, bad, *others = rows_of(tmp_path, "t.csv", b'id,text\n0,a\n1,"b\n' + rest)
    assert first.text == "a" and not bad.text
    assert bad.error == f"not valid CSV: {why} (in the row that begins on line 3)"
    assert [row.text for row in others] == texts
    assert [row.number for row in others] == list(range(2, 2 + len(texts)))


def test_a_line_that_is_too_long_is_a_bad_row_and_is_not_held_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "MAX_CELL", 50)
    long, full = (b'{"text": "' + b"x" * size + b'"}' for size in (400, 37))
    rows = rows_of(tmp_path, "t.jsonl", b"\n".join([b'{"text": "a"}', long, b'{"text": "b"}', full, long]))
    assert [row.text for row in rows] == ["a", "", "b", "x" * 37, ""]
    assert [row.error for row in rows] == ["", why := "the line has more than 50 bytes", "", "", why]


@pytest.mark.parametrize("value", ["7", "007", "é", 7, 1.5, None, True])
def test_an_id_comes_out_as_it_went_in(tmp_path, value):
    (row,) = rows_of(tmp_path, "t.jsonl", json.dumps({"id": value, "text": "a"}).encode(), id_column="id")
    assert (row.id, type(row.id)) == (value, type(value))


@pytest.mark.parametrize(
    "name, content, words",
    [
        ("t.txt", b"text\na\n", r"ends in '\.txt'; use one of \.csv, \.tsv, \.jsonl, \.ndjson"),
        ("t", b"text\na\n", "ends in ''; use"),
        ("t.csv", b"", "is empty; its first line names the columns"),
        ("t.csv", b"\n\n", "is empty"),
        ("t.csv", b"id;text\n", "no column 'text'; the columns are 'id;text'"),
        ("t.csv", b"id, text,\x1b[2J\n", r"no column 'text'; the columns are 'id', ' text', '\\x1b\[2J'"),
        ("t.csv", b"text,id,text\n", "2 columns 'text'; the columns are 'text', 'id', 'text'"),
        ("t.csv", b'"te"xt\n', "its header is not valid CSV"),
        ("t.csv", b"a" * 500 + b"," * 500, r"the columns are 'a{56}\.\.\., '', .* and 481 more$"),
        ("t.csv", "text\na\n".encode("utf-16"), "is UTF-16; save it as UTF-8"),
        ("t.jsonl", '{"text": "a"}'.encode("utf-16"), "is UTF-16; save it as UTF-8"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TableError, match=words):
        Table(tmp_path / name, "text")


def test_a_table_is_never_in_memory_as_a_whole(tmp_path):
    file = jsonl_of(["x" * 1000] * 10_000, tmp_path)
    tracemalloc.start()
    count = sum(1 for row in Table(file, "text").rows() if not row.error)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 10_000 and peak < 1e6 < file.stat().st_size


# --- rows that the model cannot decide ---


class Failing(HashBackend):
    """Gives no numbers after a text with `Ω` in it."""

    def logits(self, prompt, after):
        marks = set(lexicon("qwen").encode("Ω")) - set(lexicon("qwen").encode("é"))
        bad = marks.intersection([*prompt, *after])
        return super().logits(prompt, after) * (np.nan if bad else 1.0)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_rows_that_cannot_be_decided_become_lines_with_an_error(tmp_path):
    engine = hashed(kind=Failing, window=1500)
    texts = ["a text", "", " \n", "word " * 1000, "Ω", "another text"]
    job = job_of(csv_of(texts, tmp_path), id_column="id", schema=StructuredSchema({"risk": FIELDS["risk"]}))
    tally = finished(engine, job)
    lines = lines_of(job.output)
    assert (tally.rows, tally.errors) == (6, 4)
    assert ["values" in line for line in lines] == [True, False, False, False, False, True]
    for line, words in zip(lines[1:5], ["is empty", "is empty", "window of hash holds 1500", "no finite"], strict=True):
        assert list(line) == ["row", "job", "id", "error"] and words in line["error"]


# --- stopped and taken up ---


@pytest.fixture(scope="module")
def engine():
    return hashed()


def test_a_run_cut_anywhere_is_taken_up_without_losing_or_doubling_a_row(engine, tmp_path):
    texts = [*TEXTS, ""]
    job = job_of(csv_of(texts, tmp_path), id_column="id", size=3)
    finished(engine, job)
    whole = job.output.read_bytes()
    starts = [0, *(i + 1 for i, byte in enumerate(whole) if byte == ord("\n"))]
    for cut in {*range(0, len(whole), 29), *starts, *(start - 1 for start in starts[1:]), starts[-2] + 5}:
        job.output.write_bytes(whole[:cut])
        engine.chunks.clear()
        tally = finished(engine, job)
        done = whole[:cut].count(b"\n")
        assert job.output.read_bytes() == whole
        assert [text for chunk in engine.chunks for text in chunk] == texts[done:]
        assert (tally.rows, tally.errors) == (len(texts), 1)


def test_tallies_say_what_was_done_before_and_after_each_chunk(engine, tmp_path):
    job = job_of(csv_of(["", "a", "b"], tmp_path), size=2)
    assert list(run(engine, job)) == [Tally(0, 0), Tally(2, 1), Tally(3, 1)]
    assert list(run(engine, job)) == [Tally(3, 1)]


def test_a_run_of_another_chunk_size_goes_on_with_the_same_file(engine, tmp_path):
    job = job_of(csv_of(TEXTS, tmp_path), size=2)
    finished(engine, job)
    whole = job.output.read_bytes()
    job.output.write_bytes(whole[: len(whole) // 2])
    finished(engine, replace(job, size=5))
    assert job.output.read_bytes() == whole


def test_a_chunk_is_on_the_disk_before_the_next_is_asked_for(engine, tmp_path):
    job = job_of(csv_of(TEXTS, tmp_path), size=2)
    for tally in run(engine, job):
        assert len(lines_of(job.output)) == tally.rows


def test_rows_that_came_since_are_decided(engine, tmp_path):
    job = job_of(csv_of(TEXTS[:3], tmp_path))
    finished(engine, job)
    before = job.output.read_bytes()
    csv_of(TEXTS, tmp_path)
    assert finished(engine, job).rows == len(TEXTS)
    assert job.output.read_bytes().startswith(before)


@pytest.mark.parametrize(
    "changed",
    [
        {"temperature": 2.0},
        {"scoring": "full"},
        {"prior": "content_free"},
        {"text_column": "id"},
        {"id_column": None},
        {"schema": StructuredSchema({"risk": FIELDS["risk"]})},
        {"schema": StructuredSchema({"risk": FIELDS["risk"] | {"description": "new"}, "is_fraud": FIELDS["is_fraud"]})},
    ],
)
def test_the_output_of_another_job_is_refused_and_kept(engine, tmp_path, changed):
    file = csv_of(TEXTS, tmp_path)
    finished(engine, job_of(file, id_column="id"))
    refused(engine, job_of(file, **{"id_column": "id"} | changed), "was made by another job")


def test_the_output_of_another_model_is_refused_and_kept(engine, tmp_path):
    job = job_of(csv_of(TEXTS, tmp_path))
    finished(engine, job)
    refused(hashed(seed=1), job, "was made by another job")
    other = hashed()
    other.backend.identity = replace(other.backend.identity, dtype="float32")
    refused(other, job, "was made by another job")


def refused(engine, job, words):
    before = job.output.read_bytes()
    with pytest.raises(BatchError, match=f"{words}.*; give another --output, or --restart to begin anew$"):
        next(run(engine, job))
    assert job.output.read_bytes() == before


@pytest.mark.parametrize(
    "content, words",
    [
        (b"some notes\n", "line 1 is none of this command's"),
        (b"some notes", "line 1 is none of this job's"),
        (b"{", ""),
        (b'{"row": 0}', "line 1 is none of this job's"),
        (b'{"row": 0, "job": "', ""),
        (b'{"row": 0, "job": "0123', "line 1 is none of this job's"),
        (b'{"row": 0}\n', "line 1 is none of this command's"),
        (b"[]\n", "line 1 is none"),
        (b"[" * 100_000 + b"\n", "line 1 is none"),
        (b"\xff\n", "line 1 is none"),
        (b"\n", "line 1 is none"),
        (b'{"row": 0, "job": 12}\n', "line 1 is none"),
    ],
)
def test_a_file_that_is_not_ours_is_refused_and_kept(engine, tmp_path, content, words):
    job = job_of(csv_of(TEXTS, tmp_path))
    job.output.write_bytes(content)
    if words:
        refused(engine, job, words)
    else:  # as far as it goes, the beginning of a line of ours
        assert finished(engine, job).rows == len(TEXTS)


def test_an_output_with_more_rows_than_the_input_is_refused(engine, tmp_path):
    job = job_of(csv_of(TEXTS, tmp_path))
    finished(engine, job)
    csv_of(TEXTS[:-1], tmp_path)
    refused(engine, job, "has more rows than the input")


def test_an_output_whose_lines_were_moved_is_refused(engine, tmp_path):
    job = job_of(csv_of(TEXTS, tmp_path))
    finished(engine, job)
    first, *others = job.output.read_bytes().splitlines(keepends=True)
    job.output.write_bytes(b"".join([*others, first]))
    refused(engine, job, "line 1 is not row 0: the file was changed")


def test_an_input_whose_ids_were_moved_is_refused(engine, tmp_path):
    job = job_of(csv_of(TEXTS, tmp_path), id_column="id")
    finished(engine, job)
    job.table.file.write_text(job.table.file.read_text().replace("n1,", "n8,"))
    refused(engine, job, "row 1 has another id than in the input")


def test_restart_begins_anew_whatever_was_there(engine, tmp_path):
    job = job_of(csv_of(TEXTS, tmp_path))
    finished(engine, job)
    whole = job.output.read_bytes()
    job.output.write_bytes(b"some notes\n")
    first, *_ = run(engine, replace(job, restart=True))
    assert first == Tally(0, 0)
    assert job.output.read_bytes() == whole


def test_two_runs_do_not_write_to_one_file(engine, tmp_path):
    job = job_of(csv_of(TEXTS, tmp_path), size=2)
    first = run(engine, job)
    next(first)
    with pytest.raises(BatchError, match="another run writes there; wait for it or give another --output"):
        next(run(engine, job))
    assert list(first)[-1].rows == len(TEXTS) == len(lines_of(job.output))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "rows.csv"]


# --- the command ---

#: As people keep them: a part of it is free text.
NOTE = """\
type: object
properties:
  words: {type: string}
  topics: {type: array, uniqueItems: true, minItems: 1, items: {enum: [bill, 'NO']}}
  sender:
    type: object
    properties:
      is_staff: {type: boolean}
      country: {enum: ['NO', SE]}
"""


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Runs the command on a hash: its exit code, what it has said, and the engine."""
    engine = hashed()
    monkeypatch.setattr(Engine, "load", lambda *_, **__: engine)
    (tmp_path / "schema.json").write_text(json.dumps(FIELDS))

    def ran(*more, texts=TEXTS, **changed):
        if texts is not None:
            csv_of(texts, tmp_path)
        named = {"schema": "schema.json", "input": "rows.csv", "output": "out.jsonl"} | changed
        paths = [part for name, file in named.items() for part in (f"--{name}", str(tmp_path / file))]
        code = main([*paths, "--text-column", "text", *more])
        out, err = capsys.readouterr()
        assert out == ""
        return code, err

    ran.engine, ran.folder = engine, tmp_path
    return ran


def test_the_command_says_how_many_rows_it_has_decided_and_how_fast(command):
    code, said = command()
    assert code == 0
    assert re.fullmatch(r"\S+out.jsonl: 7 rows, 0 with an error; 7 in this run, [\d.]+ rows/s; \S+.*\n", said)
    assert len(lines_of(command.folder / "out.jsonl")) == 7


def test_the_values_of_an_import_are_nested_and_its_remarks_are_said(command):
    (command.folder / "note.yaml").write_text(NOTE)
    code, said = command("--on-unsupported", "skip", schema="note.yaml")
    left_out, note, summary = said.splitlines()
    assert code == 0 and left_out == "left out: /properties/words (words): free text"
    assert note.startswith("note: /properties/topics (topics): 1 to 2 items come back")
    assert "7 rows, 0 with an error" in summary
    schema = StructuredSchema.from_text(NOTE, on_unsupported="skip")
    for line, text in zip(lines_of(command.folder / "out.jsonl"), TEXTS, strict=True):
        assert line["values"] == hashed().run_parallel(text, schema).values
        assert list(line["values"]) == ["topics", "sender"]
        assert list(line["values"]["sender"]) == ["is_staff", "country"] and line["values"]["topics"]
        assert list(line["fields"]) == ["topics.bill", "topics.NO", "sender.is_staff", "sender.country"]


def test_the_command_ends_with_3_where_rows_are_bad_and_so_it_does_the_second_time(command):
    texts = ["a", "", "b", ""]
    code, said = command(texts=texts)
    assert code == 3 and "4 rows, 2 with an error; 4 in this run" in said
    code, said = command(texts=texts)
    assert code == 3 and "4 rows, 2 with an error; all of them done already" in said


def test_a_table_without_rows_is_done(command):
    code, said = command(texts=[])
    assert code == 0 and "0 rows" in said
    assert (command.folder / "out.jsonl").read_bytes() == b""


@pytest.mark.parametrize(
    "changed, more, words",
    [
        ({"schema": "none.json"}, [], "none.json: No such file or directory; give a JSON or YAML file"),
        ({"schema": "."}, [], "Is a directory; give a JSON or YAML file"),
        ({"schema": "rows.csv"}, [], "rows.csv: is a table; name the column of choices: rows.csv#COLUMN"),
        ({"schema": "rows.csv#code"}, [], "rows.csv: no column 'code'; the columns are 'id', 'text'"),
        ({"schema": "note.yaml"}, [], "note.yaml: 1 part of the schema cannot be decided: /properties/words"),
        ({"input": "none.csv"}, [], "none.csv: No such file or directory; give the path of a CSV or JSON lines file"),
        ({"input": "schema.json"}, [], "ends in '.json'; use one of .csv"),
        ({}, ["--text-column", "\x1b[2J"], "no column '\\x1b[2J'; the columns are 'id', 'text'"),
        ({}, ["--id-column", "nr"], "no column 'nr'; the columns are 'id', 'text'"),
        ({"output": "rows.csv"}, [], "rows.csv: is the input itself; give another --output"),
        ({"output": "link.jsonl"}, [], "link.jsonl: is the input itself; give another --output"),
        ({"output": "folder"}, [], "folder: is no file; give the path of one as --output"),
        ({"output": "/dev/null"}, [], "/dev/null: is no file"),
        ({"output": "none/out.jsonl"}, [], "none: is no folder; make it or give another --output"),
        ({"output": "schema.json"}, [], "schema.json: is the schema itself; give another --output"),
        ({}, ["--temperature", "0"], "temperature 0.0 must be a finite number above 0"),
        ({}, ["--temperature", "nan"], "temperature nan must be"),
        ({}, ["--size", "0"], "size 0: a chunk has 1 to 100000 rows"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line_and_changes_nothing(command, changed, more, words):
    csv_of(TEXTS, command.folder)
    (command.folder / "note.yaml").write_text(NOTE)
    (command.folder / "folder").mkdir()
    (command.folder / "link.jsonl").symlink_to(command.folder / "rows.csv")
    before = files_of(command.folder)
    code, said = command(*more, **changed, texts=None)
    assert code == 1 and said.startswith("error: ") and words in said
    assert said.count("\n") == 1 and said.removesuffix("\n").isprintable()
    assert files_of(command.folder) == before
    assert command.engine.backend.passes == 0


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_an_output_that_may_not_be_written_is_refused_before_the_model_loads(command, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    code, said = command()
    assert code == 1 and "out.jsonl: cannot be written; give another --output" in said
    assert command.engine.backend.passes == 0


@pytest.mark.parametrize(
    "name, options, words", [("nfc", {}, "become the same tokens"), ("qwen", {"window": 200}, "window of")]
)
def test_a_schema_that_cannot_be_asked_is_one_error_and_no_output(command, monkeypatch, name, options, words):
    monkeypatch.setattr(Engine, "load", lambda *_, **__: hashed(name, **options))
    (command.folder / "schema.json").write_text(json.dumps({"risk": {"type": "enum", "choices": TWINS}}))
    code, said = command()
    assert code == 1 and words in said and said.count("\n") == 1
    assert not (command.folder / "out.jsonl").exists()


def test_a_model_that_is_not_there_is_one_error_and_no_output(command, monkeypatch):
    def load(*_, **__):
        raise ModelNotFound("model 'x' is not known; use another")

    monkeypatch.setattr(Engine, "load", load)
    assert command() == (1, "error: model 'x' is not known; use another\n")
    assert not (command.folder / "out.jsonl").exists()


@pytest.mark.parametrize("more", [["--prior", "x"], ["--scoring", "x"], ["--size", "x"], ["--what"]])
def test_wrong_usage_ends_with_2(command, more, capsys):
    with pytest.raises(SystemExit) as stopped:
        command(*more)
    assert stopped.value.code == 2


def test_the_help_says_what_comes_out_and_how_it_ends(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    assert all(f"  {code} " in said for code in (0, 1, 2, 3, 130))
    assert '{"row": N, "job": digest' in said and "--restart" in said


class Interrupted(HashBackend):
    """Ctrl-C is pressed during a certain pass."""

    stop_at = 0

    def _pass(self):
        super()._pass()
        if self.passes == self.stop_at:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(0.1)


def test_ctrl_c_keeps_what_is_finished_and_the_same_command_goes_on(command, monkeypatch):
    engine = hashed(kind=Interrupted)
    monkeypatch.setattr(Engine, "load", lambda *_, **__: engine)
    engine.backend.stop_at = 10  # each row takes two passes or three
    code, said = command("--size", "4")
    assert code == 130 and said == "stopped; what is finished is kept, and the same command without --restart goes on\n"
    assert [line["row"] for line in lines_of(command.folder / "out.jsonl")] == [0, 1, 2, 3]
    engine.owner.submit(lambda _: None).result()
    assert engine.backend.passes <= 12, "the rest of the chunk is not decided for nobody"
    code, said = command("--size", "4")
    assert code == 0 and "7 rows, 0 with an error; 3 in this run" in said


def test_a_full_disk_is_one_line_and_what_was_written_is_kept(command, monkeypatch):
    synced = []

    def sync(_):
        synced.append(0)
        if len(synced) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", sync)
    code, said = command("--size", "2")
    assert code == 1
    assert said.endswith("out.jsonl: No space left on device; what is finished is kept\n") and said.count("\n") == 1
    assert command("--size", "2")[0] == 0
    assert [line["row"] for line in lines_of(command.folder / "out.jsonl")] == list(range(7))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_rows_and_time_left_and_nothing_of_a_row(command, monkeypatch):
    texts = [HOSTILE, HOSTILE, "", HOSTILE]
    command(texts=texts[:1])
    monkeypatch.setattr(sys, "stderr", Terminal())
    command.engine.backend.pass_s = 0.12  # longer than the bar waits before it draws again
    assert command("--size", "2", texts=texts)[0] == 3
    said = sys.stderr.getvalue()
    assert "| 1/4 [" in said and re.search(r"\| 3/4 \[00:0\d<00:0\d, +[\d.]+ rows/s\]", said)
    assert said.endswith(" rows/s; hash\n") and "3 in this run" in said
    assert "owned" not in said and "\u202e" not in said


# --- the embedded model ---


@pytest.mark.model
def test_a_command_killed_in_the_middle_is_taken_up_as_if_nothing_had_been(tmp_path):
    texts = [f"Payment {n}: my card was charged {n} dollars twice, please help." for n in range(8)]
    csv_of(texts, tmp_path)
    fields = {"risk": FIELDS["risk"], "is_fraud": {"type": "boolean"}}
    (tmp_path / "schema.json").write_text(json.dumps(fields))
    killed, whole = tmp_path / "killed.jsonl", tmp_path / "whole.jsonl"

    with started(tmp_path, killed, "2") as process:
        while process.poll() is None and not (killed.exists() and killed.read_bytes().count(b"\n") >= 4):
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    kept = killed.read_bytes()[:-20]  # as if it had hit a write
    killed.write_bytes(kept)
    assert 3 <= kept.count(b"\n") < len(texts)

    for output, size in ((killed, "2"), (whole, "1")):  # by one row at a time is how rows are decided alone
        with started(tmp_path, output, size) as process:
            _, said = process.communicate(timeout=200)
        assert process.returncode == 0, said
        assert re.fullmatch(r"\S+: 8 rows, 0 with an error; \d in this run, [\d.]+ rows/s; \S+.*\n", said)
    assert killed.read_bytes().startswith(kept[: kept.rindex(b"\n") + 1])
    assert len(lines_of(killed)) == len(texts)
    for line, alone in zip(lines_of(killed), lines_of(whole), strict=True):
        assert list(line) == list(alone) == ["row", "job", "id", "values", "fields"]
        assert [line[key] for key in list(line)[:4]] == [alone[key] for key in list(line)[:4]]
        assert list(line["fields"]) == list(fields)
        for name in fields:
            assert line["fields"][name] == pytest.approx(alone["fields"][name], abs=1e-3)


def started(folder, output, size):
    """The command as its own process, on the embedded model."""
    asked = ["--schema", folder / "schema.json", "--input", folder / "rows.csv", "--output", output, "--size", size]
    asked += ["--text-column", "text", "--id-column", "id", "--model", "smollm2-135m", "--dtype", "float32"]
    # One thread: two that wait for each other crawl on a machine that is busy with other tests.
    return subprocess.Popen(
        [sys.executable, "-m", "core.batch", *map(str, asked)],
        cwd=Path(__file__).parents[1], env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
