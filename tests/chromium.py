"""Driving the page in Chromium: the browser, a spy in the page, and what a person does there."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Locator, Page, expect

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
).split()
PATIENCE_MS = 30_000

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


def part(page: Page, name: str) -> Locator:
    return page.locator(f'.board [data-part="{name}"]')


def expect_phase(page: Page, phase: str) -> None:
    expect(page.locator(".board")).to_have_attribute("data-phase", phase, timeout=PATIENCE_MS)


def choose(page: Page, title: str) -> None:
    page.locator("#preset input").click()
    page.get_by_role("option", name=title).click()


def run_to_the_end(page: Page) -> None:
    page.locator("#run").click()
    expect_phase(page, "done")


def hot(page: Page) -> list[str]:
    """The fields of everything that is lit."""
    return page.locator(".board .hot").evaluate_all("nodes => nodes.map((node) => node.dataset.field)")


def type_schema(page: Page, text: str) -> None:
    page.locator("#schema .cm-content").click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(text)
