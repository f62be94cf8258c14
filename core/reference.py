"""The reference of the service: its OpenAPI document, and a page that shows it without any network."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from starlette.routing import BaseRoute

TITLE = "Parallel constrained decoding"
ABOUT = """\
Every field of a schema is a boolean or a closed list of choices. A model reads the text once, every choice of every
field is scored, and the JSON is put together from the likeliest ones.

`POST` takes `application/json` in UTF-8, at most 1 MiB. An error is always `{"code", "message"}`.
"""

#: Swagger UI's files, of a package that carries them, and their types.
ASSETS = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon.png": "image/png",
}


def openapi(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """The document of these routes and no others."""
    return get_openapi(title=TITLE, version="1", description=ABOUT, routes=routes)


def page() -> bytes:
    """Swagger UI. Its addresses are relative: the service may stand behind a prefix that it does not know."""
    shown = get_swagger_ui_html(
        openapi_url="openapi.json",
        title=TITLE,
        swagger_js_url="docs/swagger-ui-bundle.js",
        swagger_css_url="docs/swagger-ui.css",
        swagger_favicon_url="docs/favicon.png",
        # Else it shows the document's address to a validator on the internet.
        swagger_ui_parameters={"validatorUrl": None},
    )
    return bytes(shown.body)


def asset(name: str) -> bytes:
    """One of `ASSETS`."""
    return (files("fastapi_offline") / "static" / name).read_bytes()
