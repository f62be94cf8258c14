"""The form for the key, in Chromium: with and without JavaScript, on a phone, light and dark, and what it opens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from core.api_key import ApiKey
from core.catalog import Catalog
from core.server import routes, service
from core.ui.page import build
from tests.chromium import CHROMIUM, run_to_the_end
from tests.scripted import PRESETS, ScriptedEngine, ScriptedResident, served
from tests.serving import resident_of

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}"),
]

KEY = "a-key-of-thirty-two-characters-x"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    page = build(ScriptedResident(ScriptedEngine(token_ms=1, pass_ms=30)), PRESETS)
    with served(page, routes(service(resident_of(None), Catalog())), ApiKey(KEY)) as address:
        yield address


@pytest.fixture
def complaints() -> list[str]:
    return []


@pytest.fixture
def phone(browser: Browser, url: str, complaints: list[str]) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 390, "height": 800})
    yield watched(context.new_page(), url, complaints)
    context.close()


def watched(page: Page, url: str, complaints: list[str]) -> Page:
    """Collects requests for other hosts, and what is on the console but the 401 that the form comes with."""
    page.on("request", lambda it: None if it.url.startswith((url, "data:", "blob:")) else complaints.append(it.url))
    page.on(
        "console",
        lambda it: complaints.append(it.text) if it.type in ("error", "warning") and "401" not in it.text else None,
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    return page


def give(page: Page, key: str) -> None:
    page.get_by_label("Key").fill(key)
    page.get_by_role("button", name="Open the page").click()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("chosen_by", ["the address", "the system"])
def test_the_form_is_for_everyone(phone: Page, url: str, theme: str, chosen_by: str, complaints: list[str]) -> None:
    if chosen_by == "the system":
        phone.emulate_media(color_scheme=theme)
        phone.goto(url)
    else:
        phone.emulate_media(color_scheme="light" if theme == "dark" else "dark")
        phone.goto(f"{url}?__theme={theme}")
    for _ in range(2):  # as it comes, and after a wrong key
        red = phone.evaluate("parseInt(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])")
        assert (red < 64) == (theme == "dark")
        assert phone.evaluate("document.documentElement.scrollWidth") == 390
        assert Axe().run(phone).response["violations"] == []
        expect(phone.get_by_label("Key")).to_be_focused()
        if phone.get_by_role("alert").count() == 0:
            give(phone, KEY[::-1])
            expect(phone.get_by_role("alert")).to_have_text("this is not the key; nothing was done")
    assert complaints == []


def test_the_right_key_opens_the_page_where_a_link_led_to(phone: Page, url: str, complaints: list[str]) -> None:
    phone.goto(f"{url}?__theme=dark#part")
    give(phone, KEY[::-1])
    give(phone, KEY)
    expect(phone.locator("#run")).to_be_visible()
    assert phone.url == f"{url}?__theme=dark#part"
    run_to_the_end(phone)
    assert KEY not in phone.evaluate("document.cookie + document.documentElement.outerHTML")
    phone.goto(f"{url}docs")
    expect(phone.locator(".opblock").first).to_be_visible()
    assert complaints == []


def test_the_form_works_without_javascript(browser: Browser, url: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(url)
    give(page, KEY[::-1])
    expect(page.get_by_role("alert")).to_be_visible()
    with page.expect_response(url) as found:
        give(page, KEY)
        expect(page.get_by_label("Key")).to_have_count(0)
    assert found.value.status in (200, 303)
    (cookie,) = context.cookies()
    assert cookie["httpOnly"] and cookie["sameSite"] == "Lax" and KEY not in cookie["value"]
    context.close()
