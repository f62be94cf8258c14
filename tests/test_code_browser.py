"""The run that is shown as code: each snippet is run, and what the engine is asked then is what the run was asked."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi import Request as HttpRequest
from playwright.sync_api import Browser, Page, expect

from core.catalog import Catalog
from core.contract import MOST_CHOICES, MOST_CONTEXT_BYTES
from core.engine import Engine
from core.engine_torch import TorchBackend
from core.intake import MAX_BODY_BYTES
from core.owner import Job
from core.race import Race
from core.request import Request
from core.schema import StructuredSchema
from core.server import routes, service
from core.trace import RunStarted, to_lines
from core.ui.components import board_script
from core.ui.page import build
from core.ui.tools import require_mcp
from tests.chromium import CHROMIUM, choose, opener, part, run_to_the_end
from tests.scripted import FOUR, NASTY, ScriptedEngine, ScriptedResident, served, started
from tests.serving import listening, resident_of

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}"),
]
HAS_MCP = find_spec("mcp") is not None
needs_mcp = pytest.mark.skipif(not HAS_MCP, reason="no package mcp: pip install -r tests/requirements.txt")
ROOT = Path(__file__).parents[1]

#: What a shell, Python, JSON, a browser or a terminal would do something about.
HOSTILE = {
    "quotes": "' '' ''' '\\'' \" \"\" \"\"\" \\\" ' + 'x",
    "backslashes": "\\ \\\\ \\n \\x41 \\u0041 \\N{DASH} C:\\new C:\\",
    "shell": "$(touch pwned) `touch pwned` ${PATH} $PATH $? !! !t ~ * ; touch pwned & | > pwned #",
    "delimiters": "x\nJSON\n JSON\nEOF\n'\nJSON",
    "lines": "a\nb\r\nc\rd\te\x0bf\x0c\n\n",
    "controls": "\x00 \x01 \x08 \x1b[31m \x7f \x85 \x9b",
    "separators": "a\u2028b\u2029c\ufeff\u00ad\u200b",
    "markup": "</script><!-- <img src=x onerror=window.__pwned=1> {{x}} ${7*7} &lt;",
    "letters": "\U0001f469\u200d\U0001f680 e\u0301 é שלום 漢字 \U0010ffff",
    "directions": "\u202e desrever \u2066 \u200f",
    "formats": "{context} {0} %s %(x)s {{}} True None true null",
}
LONGEST = ("x'\"\\\n$(x)é" * 10_000).encode()[: MOST_CONTEXT_BYTES - 1].decode(errors="ignore") + "y"
SETTINGS: dict[str, Any] = {"temperature": 0.7, "style": "compact", "cache": False}


def schema_of(text: str) -> StructuredSchema:
    """The text as name, description, choice and title, in what a mapping, JavaScript and Python could change."""
    name = text.encode()[:120].decode(errors="ignore")
    return StructuredSchema(
        {
            name: {"type": "boolean", "description": text},
            "10": {"type": "enum", "choices": [name, "b"], "titles": [text, ""]},
            "2": {"type": "enum", "choices": [12345678901234567890123, -1, None, True, False, "true", "1", 1]},
            "__proto__": {"type": "boolean", "depends_on": [name, "10"]},
            "type": {"type": "const", "choices": [name]},
        }
    )


CASES = [Request(text, schema_of(text), **SETTINGS) for text in HOSTILE.values()]
EVERYTHING = Request("\n".join(HOSTILE.values()), schema_of("".join(text[:9] for text in HOSTILE.values())), **SETTINGS)


class Hearing(Engine):
    """A tiny random model, and what it was asked."""

    heard: list[tuple[Request, str]]  # and the baseline's mode

    def submit(self, context: str, schema: StructuredSchema, temperature: float = 1.0, **options: Any) -> Job:
        self.heard.append((Request(context, schema, temperature, **options), ""))
        return super().submit(context, schema, temperature, **options)

    def race(self, context: str, schema: StructuredSchema, *, mode: Any = "json", **options: Any) -> Race:
        given = {name: value for name, value in options.items() if name not in ("order", "asked")}
        self.heard.append((Request(context, schema, **given), mode))
        return super().race(context, schema, mode=mode, **options)


@pytest.fixture(scope="module")
def loaded(checkpoint: Callable[[str, str], Path], tiny: Callable[..., TorchBackend]) -> Hearing:
    engine = Hearing(tiny("llama", "qwen"), str(checkpoint("llama", "qwen")), "asked for")
    engine.heard = []
    return engine


@pytest.fixture
def engine(loaded: Hearing) -> Hearing:
    loaded.heard.clear()
    return loaded


@pytest.fixture(scope="module")
def url(loaded: Hearing) -> Iterator[str]:
    """The page and the service on the tiny model."""
    resident = resident_of(loaded)
    with served(build(resident, [FOUR]), routes(service(resident, Catalog(None))), mcp=HAS_MCP) as address:
        yield address


Snippets = Callable[..., dict[str, dict[str, Any]]]
CALL = """([source, line, place]) => {
  const { snippetsOf, exactIntegers } = new Function(`${source}; return { snippetsOf, exactIntegers };`)();
  return snippetsOf(JSON.parse(line, exactIntegers), place);
}"""


@pytest.fixture(scope="module")
def snippets(browser: Browser) -> Iterator[Snippets]:
    """By their ids, those of a run of a request, without a page."""
    page = browser.new_page()
    source = board_script([])

    def of(asked: Request, address: str = "http://127.0.0.1:1", mcp: bool = True, **run: Any) -> dict[str, Any]:
        line = to_lines([run_of(asked, **run)])
        found = page.evaluate(CALL, [source, line, {"address": address.rstrip("/"), "mcp": mcp}])
        return {snippet["id"]: snippet for snippet in found}

    yield of
    page.close()


def run_of(asked: Request, **run: Any) -> RunStarted:
    usual = {"context": asked.context, "temperature": asked.temperature, "style": asked.style}
    return started(asked.schema, **usual, cache="miss" if asked.cache else "off", mode="schema", **run)


def asked(one: Request, complete: bool | None = True) -> Request:
    return Request(one.context, one.schema, one.temperature, one.cache, complete=complete, style=one.style)


# --- each snippet, run ---


def run_by(shell: Sequence[str], text: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    script = folder / "snippet"
    script.write_text(text, encoding="utf-8", newline="")
    done = subprocess.run(
        [*shell, str(script)],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )
    script.unlink()
    assert list(folder.iterdir()) == [], "something in the text was run"
    return done


@pytest.mark.parametrize("one", [*CASES, Request(LONGEST, FOUR.schema)], ids=[*HOSTILE, "longest"])
def test_curl_asks_what_the_run_was_asked(
    one: Request, snippets: Snippets, url: str, engine: Hearing, tmp_path: Path
) -> None:
    text = snippets(one, url)["curl"]["text"]
    done = run_by(["bash", "-eu"], text, tmp_path)
    assert done.returncode == 0 and done.stderr == "" and json.loads(done.stdout)
    assert engine.heard == [(asked(one), "")]


def test_another_shell_reads_it_alike(snippets: Snippets, url: str, engine: Hearing, tmp_path: Path) -> None:
    for one in CASES:
        run_by(["sh", "-eu"], snippets(one, url)["curl"]["text"], tmp_path)
    assert engine.heard == [(asked(one), "") for one in CASES]


#: Each script as if it were started alone; one that fails is told of and does not hold up the next.
RUN_ALL = """
import runpy, sys
for path in sys.argv[1:]:
    try:
        runpy.run_path(path, run_name="__main__")
    except Exception as error:
        print(type(error).__name__, error, file=sys.stderr)
"""


def run_python(texts: Sequence[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    paths = [folder / f"snippet_{i}.py" for i in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, encoding="utf-8", newline="")
    return subprocess.run(
        [sys.executable, "-c", RUN_ALL, *map(str, paths)],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_httpx_asks_what_the_run_was_asked(snippets: Snippets, url: str, engine: Hearing, tmp_path: Path) -> None:
    requests = [*CASES, Request(LONGEST, FOUR.schema)]
    run_python([snippets(one, url)["httpx"]["text"] for one in requests], tmp_path)
    assert engine.heard == [(asked(one), "") for one in requests]


def test_gradio_client_asks_both_lanes_what_the_run_was_asked(
    snippets: Snippets, url: str, engine: Hearing, tmp_path: Path
) -> None:
    texts = lanes_of(snippets(EVERYTHING, url, order=("ar", "pcd"))["client"]["text"])
    run_python(texts, tmp_path)
    # The endpoints have no `complete`, and the baseline has no temperature.
    assert engine.heard == [(baseline(EVERYTHING), "schema"), (asked(EVERYTHING, None), "")]


def lanes_of(text: str) -> list[str]:
    """A script of both lanes as one for each: this model cannot tell the choices apart, and the first would end it."""
    ar = text.index("\nfor ")
    pcd = next(at for at in (text.find("\nanswer ="), text.find("\nresult =")) if at > ar)
    return [text[:pcd], text[:ar] + text[pcd:]]


def baseline(one: Request) -> Request:
    return Request(one.context, one.schema, cache=one.cache, style=one.style)


def test_the_library_asks_both_lanes_what_the_run_was_asked(
    snippets: Snippets, engine: Hearing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "load", lambda name, **options: engine)
    for one in (*CASES, EVERYTHING):
        for text in lanes_of(snippets(one, order=("ar", "pcd"))["library"]["text"]):
            with suppress(ValueError):
                exec(compile(text, "snippet", "exec", dont_inherit=True), {})
    told = [[(baseline(one), "schema"), (asked(one), "")] for one in (*CASES, EVERYTHING)]
    assert engine.heard == [pair for both in told for pair in both]


def test_python_alone_loads_the_model_and_runs_both_lanes(snippets: Snippets, engine: Hearing, tmp_path: Path) -> None:
    one = Request(FOUR.context, FOUR.schema)
    here = {"model": engine.model, "backend": "torch", "dtype": "float32"}
    done = run_python([snippets(one, **here)["library"]["text"]], tmp_path, HOME=str(tmp_path))
    lines = done.stdout.splitlines()
    assert json.loads("".join(lines[: lines.index("}") + 1])) == engine.run_parallel(one.context, one.schema).values
    assert lines[-3].startswith("PCD: ") and lines[-1].startswith("baseline: ")
    assert list(json.loads(json.loads(lines[-2]))) == [field.name for field in FOUR.schema], done.stderr


#: Connects as a client with this configuration does, and prints its tools and what each call answers.
MCP_CLIENT = """
import asyncio, json, sys
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

async def main(config, *calls):
    (server,) = json.loads(config)["mcpServers"].values()
    async with streamablehttp_client(server["url"]) as (read, write, _), ClientSession(read, write) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools
        print(json.dumps([[tool.name, tool.description, tool.inputSchema] for tool in tools]))
        for call in calls:
            answer = await session.call_tool("parallel", json.loads(call))
            print(json.dumps([answer.isError, answer.content[0].text]))

asyncio.run(main(*map(json.loads, sys.stdin)))
"""


def mcp_client(config: str, *calls: str) -> list[Any]:
    given = "".join(json.dumps(text) + "\n" for text in (config, *calls))
    command = [sys.executable, "-c", MCP_CLIENT]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, input=given, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@needs_mcp
def test_an_mcp_client_asks_what_the_run_was_asked(snippets: Snippets, url: str, engine: Hearing) -> None:
    plain = Request(FOUR.context, FOUR.schema, **SETTINGS)
    shown = [snippets(one, url) for one in (plain, *CASES)]
    calls = (one["call"]["text"] for one in shown)
    tools, answer, *_, refused = mcp_client(shown[0]["mcp"]["text"], *calls, '{"context": " ", "schema": "{}"}')
    assert engine.heard == [(asked(one, None), "") for one in (plain, *CASES)]
    [(name, about, inputs)] = tools
    assert name == "parallel" and "allowed choices" in about and inputs["required"] == ["context", "schema"]
    assert all(spec["description"] for spec in inputs["properties"].values())
    assert refused[0] and "the schema has no fields; add at least one" in refused[1]
    is_error, text = answer
    assert not is_error
    assert json.loads(text)["values"] == engine.run_parallel(plain.context, plain.schema, **SETTINGS).values


@needs_mcp
def test_nothing_else_of_the_page_is_a_tool(snippets: Snippets, url: str) -> None:
    config = snippets(CASES[0], url)["mcp"]["text"].replace("?tools=parallel", "")
    [tools] = mcp_client(config)
    assert [name for name, *_ in tools] == ["parallel", "autoregressive"]


@needs_mcp
@pytest.mark.parametrize(
    "call", [{"method": "tools/call", "params": {"name": "x-secret-x", "arguments": {}}}, {"method": "x-secret-x"}]
)
def test_what_a_client_of_mcp_sends_is_not_logged(
    call: dict[str, Any], url: str, caplog: pytest.LogCaptureFixture
) -> None:
    headers = {"Accept": "application/json, text/event-stream"}
    httpx.post(f"{url}gradio_api/mcp/", json={"jsonrpc": "2.0", "id": 1, **call}, headers=headers)
    logging.getLogger().warning("the log is read")
    assert "the log is read" in caplog.text and "x-secret-x" not in caplog.text


def test_mcp_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(SystemExit, match=r'^error: --mcp needs .*: pip install "mcp>=1.21,<2"$'):
        require_mcp()


@pytest.mark.parametrize("key", ["k'$(x) 1", None])
def test_a_key_goes_along_where_there_is_one(key: str | None, snippets: Snippets, tmp_path: Path) -> None:
    app, told = FastAPI(), []

    @app.post("/v1/pcd/decode")
    async def decode(request: HttpRequest) -> dict[str, str]:
        told.append(request.headers.get("x-api-key"))
        return {}

    variables = {} if key is None else {"PCD_API_KEY": key}
    with listening(app) as port:
        shown = snippets(CASES[0], f"http://127.0.0.1:{port}")
        run_by(["bash", "-eu"], shown["curl"]["text"], tmp_path, **variables)
        run_python([shown["httpx"]["text"]], tmp_path, **variables)
    assert told == [key, key]


# --- what cannot be asked so, and what is said of it ---


def choices(count: int) -> StructuredSchema:
    return StructuredSchema({"code": {"type": "enum", "choices": [f"C{i}" for i in range(count)]}})


BIG = StructuredSchema(
    {f"f{i}": {"type": "enum", "choices": [f"{'x' * 200}{j}" for j in range(MOST_CHOICES)]} for i in range(30)}
)


@pytest.mark.parametrize(
    "one, words",
    [
        (Request(LONGEST + "z", FOUR.schema), "REST takes a text of at most 65,536 bytes, this one has 65,537 bytes."),
        (Request("é" * 40_000, FOUR.schema), "this one has 80,000 bytes"),
        (
            Request("text", choices(MOST_CHOICES + 1)),
            "REST takes at most 256 choices in a field, code has 257 choices.",
        ),
        (Request("text", BIG), "REST takes a request of at most 1,048,576 bytes, this one has 1,"),
    ],
)
def test_what_rest_does_not_take_is_said_and_not_shown(one: Request, words: str, snippets: Snippets) -> None:
    shown = snippets(one)
    for way in ("curl", "httpx"):
        assert shown[way]["text"] == "" and words in shown[way]["notes"][0], way
    assert all(shown[way]["text"] for way in ("library", "client", "call"))


def test_the_limits_are_those_of_the_service(snippets: Snippets) -> None:
    assert (MOST_CONTEXT_BYTES, MOST_CHOICES, MAX_BODY_BYTES) == (65_536, 256, 2**20)
    assert len(LONGEST.encode()) == MOST_CONTEXT_BYTES
    assert snippets(Request(LONGEST, choices(MOST_CHOICES)))["curl"]["text"]


IMPORTED = {"source": "json_schema"}


@pytest.mark.parametrize(
    "way, run, words",
    [
        ("curl", {"reading": "best-first"}, '"complete": false'),
        ("curl", {"scoring": "full", "prior": "content_free"}, '"scoring": "full",\n  "prior": "content_free"'),
        ("library", {"scoring": "full"}, 'complete=True, scoring="full")'),
        ("library", {"dtype": "float32, 4-bit weights", "backend": "script"}, 'Engine.load("scripted-1b")'),
        ("library", {"dtype": "bfloat16", "backend": "mlx"}, '("scripted-1b", backend="mlx", dtype="bfloat16")'),
        ("library", {"model": "a\"); x('\u202e"}, 'Engine.load("a\\"); x(\'\\u202e", '),
        ("client", {"prior": "content_free"}, "knows no prior (this run: content_free)"),
        ("call", {"scoring": "full"}, "knows no scoring (this run: full)"),
        ("curl", IMPORTED, "The schema was imported"),
        ("library", IMPORTED, "The schema was imported"),
        ("httpx", {}, "this run is of scripted-1b"),
    ],
)
def test_a_snippet_says_under_which_settings(way: str, run: dict[str, Any], words: str, snippets: Snippets) -> None:
    shown = snippets(Request("text", FOUR.schema), **run)[way]
    assert words in "\n".join([shown["text"], *shown["notes"]])


def test_a_server_without_mcp_says_how_to_have_it(snippets: Snippets) -> None:
    shown = snippets(Request("text", FOUR.schema), mcp=False)
    for way in ("mcp", "call"):
        assert shown[way]["text"] == "" and "start the app with --mcp" in shown[way]["notes"][0]


PLACE = "([source, place]) => new Function(`${source}; return pageAddress;`)()(place)"


@pytest.mark.parametrize(
    "origin, pathname, address",
    [
        ("http://127.0.0.1:7860", "/", "http://127.0.0.1:7860"),
        ("https://owner-name.hf.space", "/", "https://owner-name.hf.space"),
        ("https://example.org", "/behind/a/proxy/", "https://example.org/behind/a/proxy"),
        ("https://example.org", "/it's/$(x)/", "https://example.org/it%27s/$(x)"),
    ],
)
def test_the_address_is_that_of_the_page(browser: Browser, origin: str, pathname: str, address: str) -> None:
    page = browser.new_page()
    assert page.evaluate(PLACE, [board_script([]), {"origin": origin, "pathname": pathname}]) == address
    page.close()


# --- the panel ---


def opened(page: Page, way: str) -> str:
    if part(page, "code").is_hidden():
        page.get_by_role("button", name="Code", exact=True).click()
    page.locator(f'[data-way="{way}"]').click()
    expect(page.locator(f'[data-way="{way}"]')).to_have_attribute("aria-pressed", "true")
    return part(page, "code.text").text_content() or ""


def test_what_is_copied_asks_for_the_race_that_is_shown(
    browser: Browser, url: str, engine: Hearing, tmp_path: Path
) -> None:
    with opener(browser, url) as open_one:
        page = open_one(permissions=["clipboard-read", "clipboard-write"])
        page.locator("#context textarea").fill('It\'s "wet": $(touch pwned) \\ `x`\n</script> \u202e 👩‍🚀')
        page.locator("#temperature input").fill("0.5")
        page.get_by_label("Compact").check()
        run_to_the_end(page)
        race, _ = engine.heard[0]
        for way in ("curl", "httpx"):
            text = opened(page, way)
            part(page, "code.copy").click()
            expect(part(page, "code.said")).to_have_text("Copied.")
            assert page.evaluate("navigator.clipboard.readText()") == text
            run_by(["bash"], text, tmp_path) if way == "curl" else run_python([text], tmp_path)
        assert engine.heard[1:] == [(asked(race), "")] * 2
        assert race.temperature == 0.5 and race.style == "compact" and "\u202e" in race.context


def test_each_run_has_code_of_its_own_and_before_one_there_is_none(browser: Browser) -> None:
    resident = ScriptedResident(ScriptedEngine(token_ms=1, pass_ms=20))
    with served(build(resident, [FOUR, NASTY])) as address, opener(browser, address) as open_one:
        page = open_one()
        page.get_by_role("button", name="Code", exact=True).click()
        expect(part(page, "code.notes")).to_contain_text("There is no run to show as code yet")
        expect(part(page, "code.copy")).to_be_hidden()
        run_to_the_end(page)
        assert f'context = "{FOUR.context}"' in opened(page, "library")
        choose(page, NASTY.title)
        expect(part(page, "code.notes")).to_contain_text("There is no run to show as code yet")
        run_to_the_end(page)
        expect(part(page, "code.text")).to_contain_text('context = "<img src=x')
        for way in ("curl", "httpx", "library", "client"):
            assert opened(page, way)
            assert part(page, "code.text").locator("*").count() == 0
        assert opened(page, "mcp") == ""
        expect(part(page, "code.notes")).to_contain_text("start the app with --mcp")
        assert page.evaluate("window.__pwned") is None
