"""Driving the page in Chromium: the browser, a spy in the page, and what a person does there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Locator, Page, TimeoutError, expect

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
).split()
PATIENCE_MS = 30_000
#: What Gradio's plots say on the console of their own making, whatever they are given.
VEGA = ("WARN The input spec uses Vega-Lite", 'WARN y-scale\'s "zero" is dropped', 'WARN Dropping "fit-y" because')

OpenPage = Callable[..., Page]

# What the page cannot be asked from outside: each event as it is read, each number as it is
# shown, each move of the layout.
SPY = """
window.events = []; window.shown = []; window.shifts = [];
const parse = JSON.parse;
JSON.parse = (text, reviver) => {
  const value = parse(text, reviver);
  if (reviver && value?.kind) window.events.push(value);
  return value;
};
addEventListener('load', () => {
  new PerformanceObserver((list) => window.shifts.push(...list.getEntries())).observe({ type: 'layout-shift' });
  new MutationObserver(() => {
    for (const lane of ['pcd', 'ar']) {
      const clock = document.querySelector(`[data-part="${lane}.clock"]`);
      if (!clock) continue;
      const ms = parseFloat(clock.textContent) * (clock.textContent.endsWith('ms') ? 1 : 1000);
      const received = Math.max(...window.events.filter((e) => e.lane === lane && e.kind !== 'row').map((e) => e.ms));
      window.shown.push({ lane, ms, received });
    }
  }).observe(document.body, { subtree: true, childList: true, characterData: true });
});
"""


def spy_on(page: Page, address: str, complaints: list[str]) -> None:
    """Collects what is on the console, and requests that leave for another host."""
    own = (address, "data:", "blob:")
    page.add_init_script(SPY)
    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(own) else complaints.append(request.url))


@contextmanager
def opener(browser: Browser, url: str, script: str = "0", forgiven: tuple[str, ...] = ()) -> Iterator[OpenPage]:
    """Opens the page, each time in a browser of its own unless a `context` is given; `script` runs before it.

    At the end nothing else than `forgiven` may be on the console, and no request may have left for another host.
    """
    complaints: list[str] = []
    contexts: list[BrowserContext] = []

    def open_one(
        query: str = "",
        *,
        address: str = url,
        script: str = script,
        context: BrowserContext | None = None,
        **options: Any,
    ) -> Page:
        if context is None:
            context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **options})
            contexts.append(context)
        page = context.new_page()
        spy_on(page, address, complaints)
        page.add_init_script(script)
        page.goto(address + query)
        expect(page.locator(".board .row[data-field]").first).to_be_visible(timeout=PATIENCE_MS)
        return page

    try:
        yield open_one
    finally:
        for context in contexts:
            context.close()
    left = [said for said in complaints if not any(word in said for word in forgiven)]
    assert left == [], left


def part(page: Page, name: str) -> Locator:
    return page.locator(f'.board [data-part="{name}"]')


def expect_phase(page: Page, phase: str) -> None:
    expect(page.locator(".board")).to_have_attribute("data-phase", phase, timeout=PATIENCE_MS)


def choose(page: Page, title: str) -> None:
    """Chooses a scenario, and waits for its text where it is another one: what comes next is meant for it."""
    before = page.locator("#context textarea").input_value()
    page.locator("#preset input").click()
    page.get_by_role("option", name=title).click()
    with suppress(TimeoutError):  # the same text
        changed = "(text) => document.querySelector('#context textarea').value !== text"
        page.wait_for_function(changed, arg=before, timeout=5_000)


def run_to_the_end(page: Page) -> None:
    page.locator("#run").click()
    expect_phase(page, "done")


def run(page: Page, text: str | None = None) -> None:
    """A run to its end, also where the board shows another that is at its end."""
    if text is not None:
        page.locator("#context textarea").fill(text)
    page.evaluate("window.events.length = 0")
    page.locator("#run").click()
    page.wait_for_function("window.events.some(({ kind }) => kind === 'end')", timeout=PATIENCE_MS)
    expect_phase(page, "done")
    expect(page.locator("#run")).to_be_enabled()


def hot(page: Page) -> list[str]:
    """The fields of everything that is lit."""
    return page.locator(".board .hot").evaluate_all("nodes => nodes.map((node) => node.dataset.field)")


def type_schema(page: Page, text: str) -> None:
    page.locator("#schema .cm-content").click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(text)
