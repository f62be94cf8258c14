"""The log: no word of what people send, unless the program was told to; then on one line, escaped and cut."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator

import httpx
import pytest
from gradio_client import Client

from core.catalog import Catalog
from core.engine import Engine
from core.engine_torch import TorchBackend
from core.faults import told
from core.outline import outline
from core.owner import Owner
from core.refusal import Refusal
from core.schema import StructuredSchema
from core.server import routes, service
from core.text_log import MOST_LOGGED, log, log_request, start_log
from core.ui.page import build
from tests.fakes import HashBackend, lexicon
from tests.scripted import PRESETS, ScriptedEngine, ScriptedResident, served
from tests.serving import GOOD, resident_of

WORD = "xyzzy-of-a-text"
SCHEMA = StructuredSchema({"urgent": {"type": "boolean", "description": WORD}})


@pytest.fixture
def lines() -> Iterator[Callable[[bool], list[str]]]:
    """Starts the log as the app does; what is logged from then on, as it would be printed."""
    made, root = logging.getLogRecordFactory(), logging.getLogger()
    handlers, levels = list(root.handlers), (log.level, logging.getLogger("core").level)
    found: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(self.format(record))

    keep, alone = Keep(), [logging.getLogger(name) for name in ("uvicorn", "transformers")]
    for one in (root, *alone):
        one.addHandler(keep)

    def start(texts: bool) -> list[str]:
        start_log(texts)
        return found

    yield start
    logging.setLogRecordFactory(made)
    root.handlers = handlers
    for one in alone:
        one.removeHandler(keep)
    log.setLevel(levels[0])
    logging.getLogger("core").setLevel(levels[1])


def failed() -> BaseException:
    try:
        raise KeyError(WORD)
    except KeyError as error:
        try:
            raise RuntimeError(f"the context was {WORD}") from error
        except RuntimeError as second:
            second.add_note(WORD)
            return second


WAYS: dict[str, Callable[[BaseException], object]] = {
    "a request of REST": lambda error: Refusal.of(AssertionError(WORD)),
    "an engine's error": lambda error: told(error, "a race"),
    "the server": lambda error: logging.getLogger("uvicorn.error").error("Exception in app", exc_info=error),
    "asyncio": lambda error: logging.getLogger("asyncio").error(
        "Task exception was never retrieved\nfuture: %r", error, exc_info=error
    ),
    "a framework": lambda error: logging.getLogger("transformers").warning("slow", exc_info=error),
    "several at once": lambda error: told(ExceptionGroup(WORD, [OSError(WORD)]), "a race"),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_an_error_is_logged_without_its_words_and_with_where_it_came_from(
    lines: Callable[[bool], list[str]], way: str
) -> None:
    found = lines(False)
    WAYS[way](failed())
    said = "\n".join(found)
    assert WORD not in said and "--log-text" in said
    assert any(kind in said for kind in ("RuntimeError", "AssertionError", "OSError"))


def test_told_to_the_log_has_the_words(lines: Callable[[bool], list[str]]) -> None:
    found = lines(True)
    told(failed(), "a race")
    assert f"the context was {WORD}" in "\n".join(found)


def test_an_outline_names_kinds_and_lines_and_no_words() -> None:
    said = outline(failed())
    assert WORD not in said and said.index("KeyError") < said.index("Which led to") < said.index("RuntimeError")
    assert "in failed" in said and 'raise RuntimeError(f"the context was' in said, "the line of the program, not values"


def test_an_error_that_came_over_from_the_owner_thread_still_says_where_it_was() -> None:
    def work(job: object) -> None:
        raise OSError(WORD)

    job = Owner().submit(work)
    job.wait()
    assert job.error is not None and job.error.__traceback__ is None
    assert "in work" in outline(job.error) and WORD not in outline(job.error)
    assert WORD not in "".join(job.error.__notes__)


# --- requests ---


def test_requests_are_not_logged_unless_the_log_was_started_with_them(lines: Callable[[bool], list[str]]) -> None:
    found, engine = lines(False), Engine(HashBackend(lexicon("qwen")), "hash")
    logging.getLogger("core").setLevel(logging.DEBUG)
    engine.run_parallel(WORD, SCHEMA)
    engine.race(WORD, SCHEMA).wait()
    assert WORD not in "\n".join(found)


def test_told_to_the_log_has_each_request_on_one_line(lines: Callable[[bool], list[str]]) -> None:
    found, engine = lines(True), Engine(HashBackend(lexicon("qwen")), "hash")
    engine.run_parallel(f"{WORD} 1\n\x1b[2J\u202e", SCHEMA)
    engine.decode_many([f"{WORD} 2", f"{WORD} 3"], SCHEMA)
    engine.race(f"{WORD} 4", SCHEMA).wait()
    requests = [line for line in found if line.startswith("context ")]
    assert requests[0].startswith(f"context {WORD} 1\\n\\x1b[2J\\u202e; schema {{") and len(requests) == 4
    assert all(line.isprintable() and f"{WORD} {i}" in line for i, line in enumerate(requests, start=1))
    assert all(f'"description": "{WORD}"' in line for line in requests)


def test_a_long_text_is_cut_and_its_length_told(lines: Callable[[bool], list[str]]) -> None:
    found = lines(True)
    log_request(["a" * MOST_LOGGED, "b" * 60_000], SCHEMA)
    assert "a" * MOST_LOGGED + "; " in found[0] and "b" * MOST_LOGGED + "... (60000 characters); " in found[1]


# --- the whole ---


def test_no_word_of_a_request_to_the_page_or_the_service_is_printed_or_logged(
    lines: Callable[[bool], list[str]], capfd: pytest.CaptureFixture[str], tiny: Callable[..., TorchBackend]
) -> None:
    found = lines(False)
    page = build(ScriptedResident(ScriptedEngine(token_ms=0.1, pass_ms=5)), PRESETS)
    file = {"path": WORD, "meta": {"_type": "gradio.FileData"}}
    rest = routes(service(resident_of(Engine(tiny("llama", "qwen"), "tiny")), Catalog()))
    with served(page, rest) as url, httpx.Client(base_url=url, timeout=30) as client:
        asked = client.post("/gradio_api/call/parallel", json={"data": [file, WORD]}).json()
        client.get(f"/gradio_api/call/parallel/{asked['event_id']}")
        for number in range(len(page.fns)):
            body = {"fn_index": number, "data": [file, *[WORD] * 20], "session_hash": WORD}
            client.post("/gradio_api/run/predict", json=body)
        client.post("/gradio_api/run/predict", content=WORD)
        client.get(f"/{WORD}?{WORD}={WORD}", headers={"X-API-Key": WORD})
        assert client.post("/v1/pcd/decode", json={**GOOD, "context": WORD, WORD: WORD}).status_code == 200
        client.post("/v1/pcd/decode", content=WORD, headers={"Content-Type": WORD})
        Client(url, verbose=False).submit(WORD, WORD, api_name="/parallel").exception()
    printed = "".join(capfd.readouterr()) + "\n".join(found)
    assert "an event of the page failed" in printed, "or nothing was tried"
    assert WORD not in printed


@pytest.mark.parametrize("given, is_told", [([], False), (["--log-text"], True)])
def test_the_app_starts_its_log_as_its_flag_says(given: list[str], is_told: bool) -> None:
    script = (
        "import logging, sys; from core.flags import flags; from core.text_log import start_log, log_request\n"
        "from core.schema import StructuredSchema\n"
        "start_log(flags().parse_args(sys.argv[1:]).log_text)\n"
        f"log_request(['{WORD}'], StructuredSchema({{'a': {{'type': 'boolean'}}}}))\n"
    )
    ran = subprocess.run([sys.executable, "-c", script, *given], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert (WORD in ran.stderr, json.dumps("boolean") in ran.stderr) == (is_told, is_told)
