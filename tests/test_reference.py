"""The service's own reference: its OpenAPI document, tried on the service, and a page that needs no network."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from playwright.sync_api import Browser
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from core.catalog import Catalog
from core.contract import BatchRequest, DecodeRequest, RaceRequest
from core.engine import Engine
from core.engine_torch import TorchBackend
from core.flags import flags
from core.reference import ASSETS
from core.server import routes, service
from core.ui.page import build
from tests.scripted import PRESETS, served
from tests.serving import GOOD, app_of, client_of, listening, resident_of

CLIENT = client_of()
EXAMPLES = 8  # of each operation: a race of a random model is written to the limit of its tokens
PATHS = ["/health", "/v1/models", "/v1/models/select", "/v1/pcd/decode", "/v1/pcd/batch", "/v1/race"]


def document() -> dict[str, Any]:
    return CLIENT.get("/openapi.json").json()


def test_the_document_has_our_paths_and_no_others() -> None:
    assert document()["openapi"].startswith("3.") and list(document()["paths"]) == PATHS


def test_every_operation_says_what_its_errors_look_like() -> None:
    for path, operations in document()["paths"].items():
        for operation in operations.values():
            assert operation["description"], path
            for status in ("400", "404", "405", "413", "422", "500", "503"):
                shape = operation["responses"][status]["content"]["application/json"]["schema"]
                assert shape == {"$ref": "#/components/schemas/Refused"}
    assert document()["components"]["schemas"]["Refused"]["required"] == ["code", "message"]


def test_the_document_tells_the_limits_that_are_kept() -> None:
    shapes = document()["components"]["schemas"]
    field = shapes["FieldSpec"]["properties"]
    limits = (field["name"]["maxLength"], field["choices"]["anyOf"][1]["maxItems"], field["description"]["maxLength"])
    assert limits == (128, 256, 1024)
    assert shapes["DecodeRequest"]["properties"]["fields"]["maxItems"] == 128
    assert shapes["DecodeRequest"]["properties"]["context"]["maxLength"] == 65_536


@pytest.mark.parametrize("request_model", [DecodeRequest, BatchRequest, RaceRequest])
def test_the_examples_are_good_requests(request_model: type[DecodeRequest | BatchRequest]) -> None:
    for example in request_model.model_json_schema()["examples"]:
        asked = request_model.model_validate(example)
        assert len(asked.structured()) == 2


# --- tried ---


@pytest.fixture(scope="module")
def app(tiny: Callable[..., TorchBackend]) -> FastAPI:
    return app_of(Engine(tiny("llama", "qwen"), "tiny"))


@pytest.mark.parametrize(
    ("path", "mode"),
    [(path, GenerationMode.POSITIVE) for path in PATHS] + [(path, GenerationMode.NEGATIVE) for path in PATHS[2:]],
)
def test_what_is_made_up_from_the_document_never_breaks_the_service(
    app: FastAPI, path: str, mode: GenerationMode
) -> None:
    seen: list[int] = []
    found = schemathesis.openapi.from_asgi("/openapi.json", app).include(path=path)
    (operation,) = [one.ok() for one in found.get_all_operations()]
    kept = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    ]

    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def tried(case: schemathesis.Case) -> None:
        answer = case.call()
        seen.append(answer.status_code)
        case.validate_response(answer, checks=kept)

    tried()
    assert len(seen) == (1 if path in ("/health", "/v1/models") else EXAMPLES)


# --- the page ---


def test_the_reference_names_no_other_host() -> None:
    page = CLIENT.get("/docs")
    assert page.headers["Content-Type"].startswith("text/html") and "<!doctype html>" in page.text.lower()
    assert not re.findall(r"https?:|['\"(]//", page.text) and '"validatorUrl": null' in page.text
    named = re.findall(r"(?:href|src)=\"(.*?)\"", page.text)
    assert sorted(named) == sorted(f"docs/{name}" for name in ASSETS) and "url: 'openapi.json'" in page.text


@pytest.mark.parametrize("name", ASSETS)
def test_the_reference_has_its_files(name: str) -> None:
    asset = CLIENT.get(f"/docs/{name}")
    assert asset.status_code == 200 and asset.headers["Content-Type"].startswith(ASSETS[name])
    assert len(asset.content) > 1000


@pytest.mark.parametrize("name", ["core.py", "..%2fcore.py", "%2e%2e/core.py", "redoc.standalone.js", "x"])
def test_no_other_file_is_served(name: str) -> None:
    assert CLIENT.get(f"/docs/{name}").status_code == 404


@pytest.mark.browser
def test_the_reference_is_drawn_without_a_network(browser: Browser) -> None:
    asked: list[str] = []
    with listening(app_of()) as port:
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"http://127.0.0.1:{port}/docs")
        page.locator(".opblock").nth(len(PATHS) - 1).wait_for()
        assert page.locator(".opblock-summary-path").all_inner_texts() == PATHS
        page.close()
    assert asked and all(url.startswith((f"http://127.0.0.1:{port}/", "data:")) for url in asked)


# --- beside the page ---


def test_the_flags_of_the_service(capsys: pytest.CaptureFixture[str]) -> None:
    given = flags().parse_args(["--models-dir", "tests", "--cache-entries", "0", "--cache-bytes", "4096"])
    assert (given.models_dir, given.cache_entries, given.cache_bytes) == (Path("tests"), 0, 4096)
    usual = flags().parse_args([])
    assert (usual.models_dir, usual.cache_entries, usual.cache_bytes) == (None, 32, 512 * 2**20)
    for flag, bad in (("--cache-entries", "-1"), ("--cache-bytes", "1e9"), ("--cache-entries", "many")):
        with pytest.raises(SystemExit, match="2"):
            flags().parse_args([f"{flag}={bad}"])
        assert f"{flag}: {bad!r} is no count" in capsys.readouterr().err


def test_beside_the_page_the_service_is_the_same(tiny: Callable[..., TorchBackend]) -> None:
    resident = resident_of(Engine(tiny("llama", "qwen"), "tiny"))
    app = service(resident, Catalog())

    def get(path: str) -> Any:
        with urllib.request.urlopen(url + path, timeout=20) as answer:
            return answer.read()

    with served(build(resident, PRESETS), routes(app)) as url:
        assert json.loads(get("openapi.json")) == document()
        assert json.loads(get("health"))["model"] == "tiny" and b"swagger-ui" in get("docs")
        assert b"gradio" in get("") and b'"/gradio_api"' in get("config")
        for path, status in (("v1/nope", 404), ("v1/pcd/decode", 405), ("v1", 404)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                get(path)
            assert refused.value.code == status and set(json.loads(refused.value.read())) == {"code", "message"}
        body = json.dumps(GOOD).encode()
        request = urllib.request.Request(url + "v1/pcd/decode", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert (
                json.loads(answer.read())["values"]
                == TestClient(app).post("/v1/pcd/decode", json=GOOD).json()["values"]
            )
