"""The flags that choose a model or a server: the same in the app and in every command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from core import batch, benchmark, check, decode, record
from core.address import is_url, servers, without_login
from core.engine import Engine
from core.flags import flags
from core.model_flags import load_options
from core.models import ModelNotFound
from core.owner import Unavailable
from core.public import pathless, public_name
from tests.fakes import HashBackend, lexicon

ROOT = Path(__file__).parents[1]
ONE, OTHER = "http://127.0.0.1:8000", "https://gpu-2:8001"
PRESET = "presets/fintech_fraud.json"


@pytest.fixture
def rows(tmp_path: Path) -> list[str]:
    """The arguments of a batch."""
    (tmp_path / "rows.csv").write_text("text\na text\nanother\na third\n")
    places = {"--schema": ROOT / PRESET, "--input": tmp_path / "rows.csv", "--output": tmp_path / "out.jsonl"}
    return [*(str(part) for pair in places.items() for part in pair), "--text-column", "text"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, rows: list[str], tmp_path: Path) -> Callable[..., dict[str, object]]:
    """What a command asks of `Engine.load`."""
    monkeypatch.chdir(ROOT)
    for name in ("MODEL", "BACKEND", "DTYPE"):
        monkeypatch.delenv(f"PCD_{name}", raising=False)
    commands: dict[str, tuple[Callable[..., int], list[str]]] = {
        "decode": (decode.main, [PRESET]),
        "batch": (batch.main, rows),
        "check": (check.main, []),
        "record": (record.main, ["fintech_fraud", "--output", str(tmp_path)]),
        "benchmark": (benchmark.main, ["--preset", "fintech_fraud"]),
        "throughput": (benchmark.main, ["--throughput", "1,8"]),
    }

    def of(command: str, *arguments: str) -> dict[str, object]:
        found: dict[str, object] = {}

        def load(name: str, **options: object) -> None:
            del options["progress"]
            found.update(name=name, **options)
            raise ModelNotFound("it stops here")

        monkeypatch.setattr(Engine, "load", load)
        main, needed = commands[command]
        assert main([*needed, *arguments]) == 1
        return found

    return of


COMMANDS = ("decode", "batch", "check", "record", "benchmark")
USUAL = {"backend": "auto", "dtype": "auto", "offline": False}


def of_batch(command: str) -> dict[str, object]:
    """A server that restarts does not end a batch; whoever sits in front of another command wants to know."""
    return {"patience_s": 300.0} if command == "batch" else {}


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_flag_every_command_loads_the_usual_model_and_knows_of_no_server(asked, command: str) -> None:
    name = "qwen2.5-coder-1.5b" if command == "record" else "auto"
    assert asked(command) == {"name": name, **USUAL}


@pytest.mark.parametrize("command", (*COMMANDS, "throughput"))
def test_every_command_takes_servers_and_what_they_ask_for(asked, command: str) -> None:
    flags = ["--url", f"{ONE}/v1", "--url", f"{OTHER}/", "--server-key", "sk-1", "--tokenizer", "folder"]
    flags += [] if command == "throughput" else ["--in-flight", "64"]
    given = {"key": "sk-1", "tokenizer": "folder"} | ({} if command == "throughput" else {"in_flight": 64})
    assert asked(command, *flags) == {"name": f"{ONE},{OTHER}", **USUAL, **given, **of_batch(command)}


@pytest.mark.parametrize("command", (*COMMANDS, "throughput"))
def test_the_environment_may_name_a_server_and_a_flag_takes_its_place(asked, monkeypatch, command: str) -> None:
    monkeypatch.setenv("PCD_MODEL", ONE)
    monkeypatch.setenv("VLLM_API_KEY", "of another program")
    assert asked(command) == {"name": ONE, **USUAL, **of_batch(command)}
    assert asked(command, "--url", OTHER, "--backend", "vllm") == {
        "name": OTHER, **USUAL, "backend": "vllm", **of_batch(command),
    }  # fmt: skip


def test_the_app_asks_for_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PCD_MODEL", raising=False)
    given = flags().parse_args(["--url", f"{ONE},{OTHER}", "--in-flight", "256", "--api-key", "for-page-and-rest"])
    assert given.model == f"{ONE},{OTHER}" and load_options(given) == {**USUAL, "in_flight": 256}
    usual = flags().parse_args([])
    assert usual.model == "auto" and load_options(usual) == USUAL


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--url", ONE, "--model", "smollm2-135m"], "argument --model: not allowed with argument --url"),
        (["--model", ONE, "--url", OTHER], "argument --url: not allowed with argument --model"),
        (["--url", "localhost:8000"], "url 'localhost:8000' is no server's address; use http://HOST:PORT"),
        (["--url", ""], "url '' is no server's address"),
        (["--url", f"{ONE},"], "url '' is no server's address"),
        (["--url", "ftp://h:1"], "url 'ftp://h:1' is no server's address"),
        (["--url", "http://:8000"], "is no server's address"),
        (["--url", "http://h:99999"], "url 'http://h:99999' is no server's address"),
        (["--url", "http://h:0"], "is no server's address"),
        (["--url", "http://[::1"], "is no server's address"),
        (["--url", "http://h:1/v2"], "is no server's address"),
        (["--url", "http://h:1/v1?key=x"], "is no server's address"),
        (["--url", f"{ONE},{ONE}/v1"], f"url '{ONE}' is given twice; give each server once"),
        (["--url", ONE, "--url", ONE], "a server is given twice; give each once"),
        (["--url", "http://me:hunter2@h:1"], "a url with a user's name in it would be shown with it; give the key as"),
        (["--url", "http://me:hunter2@h:1/v2"], "a user's name in it"),
        (["--in-flight", "0"], "'0' in flight: give a number from 1 to 256"),
        (["--in-flight", "257"], "'257' in flight"),
        (["--in-flight", "many"], "'many' in flight"),
        (["--backend", "cuda"], "invalid choice: 'cuda'"),
        (["--dtype", "int8"], "invalid choice: 'int8'"),
        (["--url"], "expected one argument"),
    ],
)
@pytest.mark.parametrize("command", ["app", "batch"])
def test_what_is_no_choice_of_a_model_is_wrong_usage(
    command: str, arguments: list[str], words: str, rows: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    parsers = {"app": (flags(), []), "batch": (batch.parser(), rows)}
    parser, needed = parsers[command]
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args([*needed, *arguments])
    said = capsys.readouterr().err
    assert words in said.splitlines()[-1] and "hunter2" not in said


@pytest.mark.parametrize("arguments", [["smollm2-135m", "--url", ONE], ["--url", ONE, "smollm2-135m"]])
def test_the_model_that_check_takes_without_a_flag_is_one_beside_a_url_too(arguments: list[str], capsys) -> None:
    with pytest.raises(SystemExit, match="2"):
        check.main(arguments)
    assert "not allowed with argument" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--throughput", "1,8"], "--throughput is for a vLLM server, which takes several requests at a time; give"),
        (["--throughput", "1,0", "--url", ONE], "'0' in flight: give a number from 1 to 256"),
        (["--throughput", "8,8", "--url", ONE], "8 in flight is given twice; give each number once"),
        (["--throughput", "1", "--url", ONE, "--in-flight", "8"], "--in-flight is not for --throughput"),
        (["--throughput", "1", "--url", ONE, "--modes", "json"], "--modes is not for --throughput"),
        (["--throughput", "1", "--url", ONE, "--preset", "a,b"], "--throughput is for one of --preset"),
        (["--throughput", "1", "--micro"], "not allowed with argument"),
        (["--micro", "--url", ONE], "--micro measures parts of the torch backend; leave --backend and --url out"),
    ],
)
def test_a_throughput_that_cannot_be_measured_is_wrong_usage(arguments: list[str], words: str, monkeypatch, capsys):
    monkeypatch.delenv("PCD_MODEL", raising=False)
    monkeypatch.delattr(Engine, "load")
    with pytest.raises(SystemExit, match="2"):
        benchmark.main(arguments)
    assert words in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("command", ["app", "decode"])
def test_the_help_tells_the_two_keys_apart(command: str, capsys) -> None:
    with pytest.raises(SystemExit):
        flags().parse_args(["--help"]) if command == "app" else decode.main(["--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "others on this machine see a flag with ps, so better set VLLM_API_KEY" in said
    assert "the app's --api-key is another one and guards page and REST" in said


@pytest.mark.parametrize(
    "command, variables, words",
    [
        (["app.py"], {"PCD_MODEL": "http://h:1/v2"}, "error: url 'http://h:1/v2' is no server's address; use http://"),
        (["app.py", "--model", "http://me:hunter2@h:1"], {}, "error: a url with a user's name in it would be shown"),
        (["-m", "core.decode", PRESET, "--backend", "vllm"], {}, "error: backend vllm is a server; give its address"),
    ],
)
def test_what_leads_to_no_server_is_one_line(command: Sequence[str], variables: dict[str, str], words: str) -> None:
    ran = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 1 and ran.stderr.splitlines()[-1].startswith(words)
    assert "Traceback" not in ran.stderr and "hunter2" not in ran.stderr


# --- a server that goes away in the middle ---


class Leaving(HashBackend):
    """A server that is gone from a certain pass on."""

    last = 10_000

    def _pass(self) -> None:
        super()._pass()
        if self.passes > self.last:
            raise Unavailable("the vLLM server does not answer (ConnectError); try again when it is back")


def test_a_batch_whose_server_is_gone_is_one_line_keeps_what_is_finished_and_goes_on_later(
    monkeypatch: pytest.MonkeyPatch, rows: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = Engine(Leaving(lexicon("qwen")), "hash")
    monkeypatch.setattr(Engine, "load", lambda *_, **__: engine)
    real = engine.decode_many

    def many(texts: Sequence[str], *given: object, **options: object) -> list[object]:
        engine.backend.last = engine.backend.passes if texts == ["a third"] and is_gone else 10_000
        return real(texts, *given, **options)

    monkeypatch.setattr(engine, "decode_many", many)
    is_gone = True
    assert batch.main([*rows, "--url", ONE, "--size", "1"]) == 1
    said = capsys.readouterr().err
    assert said == "error: the vLLM server does not answer (ConnectError); try again when it is back\n"
    is_gone = False
    assert batch.main([*rows, "--url", ONE, "--size", "1"]) == 0
    assert "3 rows, 0 with an error; 1 in this run" in capsys.readouterr().err
    assert [json.loads(line)["row"] for line in (tmp_path / "out.jsonl").read_text().splitlines()] == [0, 1, 2]


@pytest.mark.parametrize("main, arguments", [(decode.main, [PRESET]), (check.main, []), (record.main, ["--all"])])
def test_a_server_that_is_away_is_one_line_of_a_command(main, arguments, monkeypatch, tmp_path, capsys) -> None:
    def load(*_: object, **__: object) -> None:
        raise Unavailable("the vLLM server does not answer (ConnectError); try again when it is back")

    monkeypatch.setattr(Engine, "load", load)
    more = ["--output", str(tmp_path)] if main is record.main else []
    monkeypatch.chdir(ROOT)
    assert main([*arguments, "--url", ONE, *more]) == 1
    assert capsys.readouterr().err == (
        "error: the vLLM server does not answer (ConnectError); try again when it is back\n"
    )


# --- addresses ---


def test_addresses_are_told_from_names_and_shown_to_nobody() -> None:
    assert [is_url(name) for name in (ONE, f" {OTHER}", "HTTP://h", "auto", "org/http", "./http", "")] == [
        True, True, True, False, False, False, False,
    ]  # fmt: skip
    assert servers(f"{ONE}/v1, {OTHER}/") == (ONE, OTHER) and servers("http://[::1]:8") == ("http://[::1]:8",)
    assert public_name(f"{ONE},{OTHER}") == "a vLLM server"
    assert without_login("asks http://me:hunter2@h:1/v1, mail@example.org") == "asks http://h:1/v1, mail@example.org"


@pytest.mark.parametrize(
    "said, told",
    [
        (f"finding {ONE},{OTHER}", "finding a vLLM server"),
        (f"the server at {ONE} is no vLLM; see '/srv/log'", "the server at a vLLM server is no vLLM; see 'log'"),
        (f"({OTHER}/v1): no answer", "(a vLLM server): no answer"),
        (f"url '{ONE}/x y' is none", "url 'a vLLM server y' is none"),
    ],
)
def test_a_message_keeps_no_address(said: str, told: str) -> None:
    assert pathless(said) == told
