"""The schema's table in Chromium: edited as a person would, it is the text beside it, and the text is what runs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Browser, Locator, Page, expect

from core.field import FieldDefinition
from core.presets import load_presets
from core.schema import SchemaError, StructuredSchema
from core.ui.components import SchemaTable
from core.ui.page import build
from core.ui.sheet import Sheet, written
from core.ui.views import schema_text
from tests.chromium import CHROMIUM, PATIENCE_MS, OpenPage, choose, expect_phase, opener, run_to_the_end, type_schema
from tests.scripted import FOUR, HOSTILE, NASTY, TICKET, ScriptedEngine, ScriptedResident, served
from tests.test_properties import NAMES, TEXTS, checked

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no Chromium at {CHROMIUM}"),
]

SHIPPED = load_presets()
TARIFF = next(preset for preset in SHIPPED if preset.id == "customs_tariff")
TRIAGE = next(preset for preset in SHIPPED if preset.id == "support_triage")
HOSTILES = (HOSTILE, "<img src=x onerror=window.__pwned=3>", "${7*7}", "{{x}}", "</script>", "\u202eevil", "__proto__")


@pytest.fixture(scope="module")
def engine() -> ScriptedEngine:
    return ScriptedEngine(token_ms=4, pass_ms=100)


@pytest.fixture(scope="module")
def url(engine: ScriptedEngine) -> Iterator[str]:
    with served(build(ScriptedResident(engine), (FOUR, TARIFF, TRIAGE, NASTY))) as address:
        yield address


@pytest.fixture
def open_page(browser: Browser, url: str) -> Iterator[OpenPage]:
    """Opens the page on the table; at the end nothing may be on the console, and no hostile text may have run."""
    pages: list[Page] = []
    with opener(browser, url) as open_any:

        def open_one(**options: Any) -> Page:
            size = {"width": 1440, "height": 1000}
            permissions = ["clipboard-read", "clipboard-write"]
            pages.append(open_any(**{"viewport": size, "permissions": permissions, **options}))
            show(pages[-1], "Table")
            return pages[-1]

        yield open_one
        assert {page.evaluate("window.__pwned") for page in pages} <= {None}


def show(page: Page, view: str) -> None:
    page.get_by_role("group", name="Edit as").get_by_role("button", name=view, exact=True).click()


def text_of(page: Page) -> str:
    """All of the editor's text; on the page are only the lines that are seen."""
    return page.locator("#schema .cm-content").evaluate("node => node.cmTile.view.state.doc.toString()")


def data_of(page: Page) -> Any:
    return json.loads(text_of(page))


def expect_note(page: Page, words: str) -> None:
    expect(page.locator("#verdict .notice")).to_contain_text(words, timeout=PATIENCE_MS)


def expect_told(page: Page, words: str) -> None:
    expect(page.locator(".sheet .told")).to_contain_text(words)


def cards(page: Page) -> Locator:
    return page.locator(".sheet .card")


def names(page: Page) -> list[str]:
    return cards(page).evaluate_all("cards => cards.map((card) => card.querySelector('.name').value)")


def opened(page: Page, name: str) -> Locator:
    """The card of a field, opened."""
    card = cards(page).nth(names(page).index(name))
    if card.locator(".more").get_attribute("aria-expanded") == "false":
        card.locator(".more").click()
    return card


def chips(card: Locator) -> list[str]:
    return card.locator(".chips li > button:first-child").evaluate_all(
        "buttons => buttons.map((button) => button.firstChild.textContent)"
    )


def add(card: Locator, *typed: str) -> None:
    for text in typed:
        card.locator(".new-choice").fill(text)
        card.locator(".new-choice").press("Enter")


def active(page: Page) -> str:
    return page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.textContent")


def hold_answers(page: Page) -> tuple[list[Any], Callable[[], None]]:
    """Questions to the server wait until they are released."""
    held: list[Any] = []
    is_open = False

    def take(route: Any) -> None:
        if is_open:
            route.continue_()
        else:
            held.append(route)

    def release() -> None:
        nonlocal is_open
        is_open = True
        for route in held:
            route.continue_()

    page.route("**/gradio_api/run/**", take)
    return held, release


# --- what is pure: a schema through the table and back ---


@pytest.fixture(scope="module")
def script(browser: Browser) -> Iterator[Callable[[str, Any], Any]]:
    """Calls a function of the editor's script in a page of its own."""
    page = browser.new_page()
    known = "readChoice, showChoice, rowsOf, textOf, readTable, pastedChoices"
    source = SchemaTable().js_on_load.rpartition("const shown = ")[0]
    page.evaluate(
        "([source, known]) => { window.made = new Function(`${source}; return { ${known} };`)(); }", [source, known]
    )
    yield lambda body, value: page.evaluate(
        f"(value) => {{ const {{ {known} }} = window.made; return {body}; }}", value
    )
    page.close()


def there_and_back(script: Callable[[str, Any], Any], text: str) -> str:
    return script("textOf(rowsOf(value))", json.loads(Sheet.of(text).to_json()))


@pytest.mark.parametrize("preset", (*SHIPPED, NASTY, FOUR), ids=lambda preset: preset.id)
def test_a_presets_text_comes_back_to_the_letter(script, preset) -> None:
    text = schema_text(preset.schema)
    assert there_and_back(script, text) == text


@st.composite
def schemas(draw: st.DrawFn) -> StructuredSchema:
    fields: list[FieldDefinition] = []
    for name in draw(st.lists(NAMES, min_size=1, max_size=4, unique=True)):
        kind = draw(st.sampled_from(["boolean", "enum", "const"]))
        size = {"boolean": (0, 0), "enum": (2, 5), "const": (1, 1)}[kind]
        scalars = TEXTS | st.booleans() | st.none() | st.integers()
        unique = st.lists(scalars, min_size=size[0], max_size=size[1], unique_by=lambda one: (type(one), one))
        choices = tuple(draw(unique))
        titles = draw(st.just(()) | st.lists(TEXTS, min_size=len(choices) or 2, max_size=len(choices) or 2))
        known = [field.name for field in fields]
        depends = draw(st.lists(st.sampled_from(known), unique=True)) if known else []
        try:
            fields.append(FieldDefinition(name, kind, draw(TEXTS), choices, tuple(depends), tuple(titles)))
        except SchemaError:  # half a character
            continue
    return StructuredSchema(fields or [FieldDefinition("a", "boolean")])


@checked(150)
@given(schema=schemas())
def test_every_schema_comes_back_to_the_letter(script, schema: StructuredSchema) -> None:
    text = schema_text(schema)
    back = there_and_back(script, text)
    assert StructuredSchema.from_text(back) == schema
    assert back == text


@checked(150)
@given(choice=TEXTS | st.booleans() | st.none() | st.integers() | st.integers(min_value=0, max_value=9).map(str))
def test_what_is_shown_of_a_choice_is_what_one_types_for_it(script, choice) -> None:
    text = written(choice)
    assert script("readChoice(showChoice(value))", text) == text


@pytest.mark.parametrize(
    "choice, shown",
    [
        ('"LOW"', "LOW"),
        ("1", "1"),
        ('"1"', '"1"'),
        ("true", "true"),
        ('"true"', '"true"'),
        ('"True"', '"True"'),
        ("null", "null"),
        ('"null"', '"null"'),
        ('"010121"', '"010121"'),
        ('"1.5"', '"1.5"'),
        ('"2026-03-24"', "2026-03-24"),
        ('""', '""'),
        ('" a"', '" a"'),
        ('"a, b"', "a, b"),
        ('"say \\"hi\\""', 'say "hi"'),
        ('"\\"1\\""', '"\\"1\\""'),
        ('"\u202eevil"', '"\\u202eevil"'),
        ("12345678901234567890123", "12345678901234567890123"),
    ],
)
def test_a_text_that_looks_like_a_value_stands_in_quotes(script, choice: str, shown: str) -> None:
    assert script("showChoice(value)", choice) == shown
    assert script("readChoice(value)", shown) == choice


@pytest.mark.parametrize(
    "text",
    [
        '{"": {"type": "enum", "choices": ["x"]}, "": 5}',
        '{"a": {"description": "first", "type": "enum", "extra": {"b": [1.0]}, "choices": [1, "1", true, null, 1e5]}}',
        '{"a": {"type": "boolean", "choices": [false, true], "titles": ["no", "yes"], "description": ""}}',
        '{"a": {"type": "enum", "choices": ["x", "y"], "titles": ["only one"], "depends_on": ["b", 7]}}',
        '{"a": {"type": "enum", "type": "const", "choices": "x", "choices": ["y"], "titles": [1]}}',
        '{"a": {}, "b": null, "c": [{"d": 12345678901234567890123}], "d": {"depends_on": [], "titles": []}}',
    ],
)
def test_an_unfinished_text_comes_back_whole(script, text: str) -> None:
    def pairs(text: str) -> object:
        return json.loads(text, object_pairs_hook=tuple, parse_int=str, parse_float=str)

    assert pairs(there_and_back(script, text)) == pairs(text)


@pytest.mark.parametrize(
    "pasted, known, added, words",
    [
        ("A\nB\n", [], ["A", "B"], "2 choices added, each as text."),
        ("A\r\nB", [], ["A", "B"], "2 choices added"),
        ("1\n01\ntrue\n", [], ["1", "01", "true"], "3 choices added, each as text."),
        ("A\tB\tC", [], ["A", "B", "C"], "3 choices added"),
        ("A\tfirst\nB\tsecond\n", [], ["A", "B"], "Of 2 columns the first was taken."),
        (" A \n\nA,b\n", [], [" A ", "A,b"], "1 empty cell left out."),
        ('"A, b"\n"say ""hi"""\n"two\nlines"\n', [], ["A, b", 'say "hi"', "two\nlines"], "3 choices added"),
        ('"open\nB', [], ['"open', "B"], "2 choices added"),
        ("A\nB\nA\nC\n", ['"C"'], ["A", "B"], "2 left out, there already: A, C."),
        ("\n".join("A" * 9) + "\nB", [], ["A", "B"], "8 left out, there already: A, A, A, A, A and 3 more."),
        ("\n".join(map(str, range(1024))), [], list(map(str, range(1024))), "1,024 choices added"),
        (
            "\n".join(map(str, range(1025))),
            [],
            [],
            "Nothing was added: 1025 new choices beside 0 are 1025; at most 1024",
        ),
        (
            "\n".join(map(str, range(1024))),
            ['"A"'],
            [],
            "1024 new choices beside 1 are 1025; at most 1024 are allowed.",
        ),
    ],
)
def test_a_pasted_column_adds_its_cells_and_names_what_it_leaves_out(script, pasted, known, added, words) -> None:
    taken = script("pastedChoices(readTable(value[0]), value[1])", [pasted, known])
    assert [json.loads(one) for one in taken["added"]] == added
    assert words in taken["words"]


# --- two ways ---


def test_an_edit_in_the_table_is_in_the_json(open_page: OpenPage) -> None:
    page = open_page()
    card = opened(page, "channel")
    add(card, "1", '"1"', "a, b", "null")
    card.locator(".description").fill('How "it" was paid.\nOr not.')
    page.get_by_role("button", name="+ Add a field").click()
    assert active(page) == "Name of the field without a name"
    page.keyboard.type("urgent")
    cards(page).nth(0).locator(".name").fill("risk")
    expect_note(page, "5 fields, 17 choices")
    expected = {"risk": FOUR.schema["risk_level"].to_json()} | FOUR.schema.to_json()
    expected["channel"]["choices"] += [1, "1", "a, b", None]
    expected["channel"]["description"] = 'How "it" was paid.\nOr not.'
    expected["urgent"] = {"type": "boolean"}
    del expected["risk_level"]
    assert list(data_of(page).items()) == list(expected.items())
    assert text_of(page) == schema_text(StructuredSchema(expected))
    rows = page.locator(".rows:not(.invented) .row[data-field] .name")
    expect(rows).to_have_text(list(expected))
    show(page, "JSON")
    expect(page.locator("#schema .cm-content")).to_contain_text('"urgent": {')


def test_an_edit_of_the_json_is_in_the_table(open_page: OpenPage) -> None:
    page = open_page()
    show(page, "JSON")
    fields = {
        "b": {"type": "enum", "choices": [1, "1", True, None], "titles": ["one", "", "", ""], "depends_on": ["a"]},
        "a": {"type": "const", "choices": ["x"], "description": "always x"},
        "c": {"type": "boolean"},
    }
    type_schema(page, json.dumps(fields))
    expect_note(page, "3 fields, 7 choices")
    show(page, "Table")
    expect(cards(page)).to_have_count(3)
    assert names(page) == ["b", "a", "c"]
    assert chips(opened(page, "b")) == ["1", '"1"', "true", "null"]
    assert opened(page, "b").locator(".chips li").evaluate_all("nodes => nodes.map((n) => n.dataset.kind)") == [
        "number", "", "boolean", "null",
    ]  # fmt: skip
    expect(opened(page, "b").locator(".chips small")).to_have_text(["one"])
    expect(opened(page, "b").locator(".depends li")).to_contain_text("a")
    assert cards(page).locator(".type").evaluate_all("all => all.map((s) => s.selectedOptions[0].text)") == [
        "enum", "fixed", "boolean",
    ]  # fmt: skip
    assert opened(page, "a").locator(".description").input_value() == "always x"
    opened(page, "c").locator(".name").fill("cc")
    expect_note(page, "3 fields, 7 choices")
    assert data_of(page) == {"b": fields["b"], "a": fields["a"], "cc": fields["c"]}


def test_titles_and_dependences_go_with_their_choices_and_fields(open_page: OpenPage) -> None:
    page = open_page()
    show(page, "JSON")
    spec = {"type": "enum", "choices": ["x", "y", "z"], "titles": ["ex", "", "zed"], "depends_on": ["a"]}
    type_schema(page, json.dumps({"a": {"type": "boolean"}, "ab": {"type": "boolean"}, "b": spec}))
    expect_note(page, "3 fields")
    show(page, "Table")
    card = opened(page, "b")
    card.locator(".chips li").last.locator("button").first.focus()
    page.keyboard.press("Alt+Home")
    card.get_by_role("button", name="Remove y").click()
    add(card, "w")
    name = cards(page).first.locator(".name")
    name.press("End")
    name.press_sequentially("b")  # for a moment it has another field's name
    name.press_sequentially("c")
    expect_note(page, "3 fields, 7 choices")
    after = {"type": "enum", "choices": ["z", "x", "w"], "titles": ["zed", "ex", ""], "depends_on": ["abc"]}
    assert data_of(page) == {"abc": {"type": "boolean"}, "ab": {"type": "boolean"}, "b": after}
    card.get_by_role("button", name="Not after abc").click()
    card.locator(".depend").select_option("ab")
    expect_note(page, "3 fields, 7 choices")
    assert data_of(page)["b"]["depends_on"] == ["ab"]


def test_a_preset_fills_the_table_and_an_edit_before_it_does_not_come_back(open_page: OpenPage) -> None:
    page = open_page()
    cards(page).first.locator(".name").fill("mine")
    choose(page, TRIAGE.title)
    expect(cards(page)).to_have_count(len(TRIAGE.schema))
    assert names(page) == [field.name for field in TRIAGE.schema]
    expect_note(page, "28 fields")
    assert text_of(page) == schema_text(TRIAGE.schema)
    choose(page, FOUR.title)
    expect(cards(page)).to_have_count(len(FOUR.schema))
    assert names(page) == [field.name for field in FOUR.schema]


def test_a_run_takes_what_the_table_shows(open_page: OpenPage, engine: ScriptedEngine) -> None:
    page = open_page()
    card = opened(page, "is_fraud")
    card.locator(".type").select_option("enum")
    page.keyboard.type("maybe")
    page.keyboard.press("Enter")
    page.keyboard.type("never")  # not entered, and shown
    page.keyboard.press("Control+Enter")
    expect_phase(page, "done")
    assert active(page) == "New choice of is_fraud"
    assert engine.races[-1].schema["is_fraud"].choices == ("maybe", "never")
    assert engine.races[-1].schema == StructuredSchema.from_text(text_of(page))


def test_a_run_is_not_disturbed_by_an_edit(open_page: OpenPage, engine: ScriptedEngine) -> None:
    page = open_page()
    choose(page, TRIAGE.title)
    expect(cards(page)).to_have_count(len(TRIAGE.schema))
    page.locator("#run").click()
    expect_phase(page, "running")
    cards(page).first.locator(".name").fill("another")
    expect_note(page, "28 fields")
    expect_phase(page, "done")
    assert engine.races[-1].schema == TRIAGE.schema
    rows = page.locator(".rows:not(.invented) .row[data-field] .name")
    expect(rows.first).to_have_text(TRIAGE.schema.fields[0].name)


# --- order ---


def test_keys_move_a_field_and_the_focus_stays(open_page: OpenPage) -> None:
    page = open_page()
    for control in (".name", ".more", ".remove", ".description", ".new-choice"):
        opened(page, "risk_level").locator(control).focus()
        before = active(page)
        for key in ("Alt+ArrowDown", "Alt+ArrowDown", "Alt+ArrowUp", "Alt+ArrowUp", "Alt+ArrowUp", "Alt+ArrowDown"):
            page.keyboard.press(key)
            assert active(page) == before, control
        assert names(page) == ["is_fraud", "risk_level", "channel", "routing"], control
        expect_told(page, "risk_level is 2 of 4.")
        expect(page.locator(".board .row[data-field] .name").first, control).to_have_text("is_fraud")
        assert list(data_of(page)) == names(page), control
        page.keyboard.press("Alt+ArrowUp")
        expect_told(page, "risk_level is 1 of 4.")
        expect(page.locator(".board .row[data-field] .name").first, control).to_have_text("risk_level")


def test_buttons_move_a_field(open_page: OpenPage) -> None:
    page = open_page()
    page.get_by_role("button", name="Move channel up").click()
    page.get_by_role("button", name="Move channel up").press("Enter")
    page.get_by_role("button", name="Move risk_level down").click()
    assert active(page) == "Move risk_level down"
    expect(page.locator(".board .row[data-field] .name").first).to_have_text("channel")
    assert list(data_of(page)) == names(page) == ["channel", "is_fraud", "risk_level", "routing"]


def test_a_field_is_dragged_by_its_grip(open_page: OpenPage) -> None:
    page = open_page()
    grip, target = cards(page).nth(0).locator(".grip").bounding_box(), cards(page).nth(2).bounding_box()
    assert grip and target
    page.mouse.move(grip["x"] + 4, grip["y"] + 8)
    page.mouse.down()
    page.mouse.move(grip["x"] + 8, grip["y"] + 60, steps=4)
    page.mouse.move(grip["x"] + 8, target["y"] + target["height"] - 4, steps=6)
    assert list(data_of(page)) == [field.name for field in FOUR.schema]  # not before it is let go
    page.mouse.up()
    expect_told(page, "risk_level is 3 of 4.")
    expect(page.locator(".board .row[data-field] .name").first).to_have_text("is_fraud")
    assert list(data_of(page)) == names(page) == ["is_fraud", "channel", "risk_level", "routing"]


def test_a_removed_field_can_be_put_back(open_page: OpenPage) -> None:
    page = open_page()
    page.get_by_role("button", name="Remove is_fraud").click()
    assert active(page) == "Name of channel"
    expect_note(page, "3 fields")
    page.get_by_role("button", name="Put it back").click()
    expect_note(page, "4 fields, 11 choices")
    assert text_of(page) == schema_text(FOUR.schema)
    page.get_by_role("button", name="Remove is_fraud").click()
    choose(page, TRIAGE.title)
    expect(cards(page)).to_have_count(len(TRIAGE.schema))
    expect(page.get_by_role("button", name="Put it back")).to_have_count(0)


# --- choices ---


def test_chips_are_moved_edited_and_removed_by_keys(open_page: OpenPage) -> None:
    page = open_page()
    card = opened(page, "risk_level")
    card.locator(".new-choice").focus()
    page.keyboard.press("Shift+Tab")  # one tab stop, and from there the arrow keys
    assert active(page) == "LOW"
    page.keyboard.press("Alt+ArrowRight")
    assert (chips(card), active(page)) == (["MEDIUM", "LOW", "HIGH"], "LOW")
    page.keyboard.press("Alt+ArrowRight")
    page.keyboard.press("Alt+ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert (chips(card), active(page)) == (["MEDIUM", "HIGH", "LOW"], "HIGH")
    page.keyboard.press("Enter")
    page.keyboard.type("2")
    page.keyboard.press("Enter")
    assert chips(card) == ["MEDIUM", "2", "LOW"]
    page.keyboard.press("Enter")
    page.keyboard.type("LOW")
    page.keyboard.press("Enter")
    expect_told(page, "LOW is among the choices already; 2 stays.")
    page.keyboard.press("Enter")
    page.keyboard.type("nothing")
    page.keyboard.press("Escape")
    assert (chips(card), active(page)) == (["MEDIUM", "2", "LOW"], "2")
    page.keyboard.press("Delete")
    assert (chips(card), active(page)) == (["MEDIUM", "LOW"], "LOW")
    card.locator(".new-choice").focus()
    page.keyboard.press("Backspace")
    assert (chips(card), active(page)) == (["MEDIUM", "LOW"], "LOW")  # the first press only goes there
    page.keyboard.press("Backspace")
    assert chips(card) == ["MEDIUM"]
    expect(card.locator(".fault")).to_contain_text("only one choice, 'MEDIUM'")
    assert data_of(page)["risk_level"]["choices"] == ["MEDIUM"]


def test_a_choice_that_is_there_already_stays_in_the_box(open_page: OpenPage) -> None:
    page = open_page()
    card = opened(page, "risk_level")
    add(card, "LOW")
    expect_told(page, "LOW is among the choices already.")
    assert card.locator(".new-choice").input_value() == "LOW"
    assert chips(card) == ["LOW", "MEDIUM", "HIGH"]


def test_a_column_of_255_lines_is_pasted_counted_and_filtered(open_page: OpenPage, engine: ScriptedEngine) -> None:
    page = open_page()
    card = opened(page, "channel")
    lines = [f"{i:06}" for i in range(250)] + [" kept as it is ", "1", "true", "a, b", "card"]
    page.evaluate("text => navigator.clipboard.writeText(text)", "\r\n".join(lines) + "\r\n")
    card.locator(".new-choice").focus()
    page.keyboard.press("Control+V")
    expect_told(page, "254 choices added, each as text. 1 left out, there already: card.")
    expect(card.locator(".count")).to_have_text("257 choices")
    expect_note(page, "4 fields, 265 choices")
    assert data_of(page)["channel"]["choices"] == ["wire", "card", "cash", *lines[:-1]]
    box = card.locator(".chips").bounding_box()
    assert box and box["height"] <= 200
    card.locator(".filter").fill("00024")
    expect(card.locator(".count")).to_have_text("11 of 257 choices")
    expect(card.locator(".chips li:visible")).to_have_count(11)
    made = card.locator(".chips li").first.evaluate_handle("node => node")
    card.locator(".filter").fill("")
    add(card, "last")
    assert page.evaluate(
        "made => made === document.querySelectorAll('.sheet .card')[2].querySelector('.chips li')", made
    )
    run_to_the_end(page)
    assert len(engine.races[-1].schema["channel"].choices) == 258


def test_a_key_changes_no_other_chip_and_no_other_card(open_page: OpenPage) -> None:
    page = open_page()
    choose(page, TARIFF.title)
    expect(cards(page)).to_have_count(1)
    card = opened(page, "goods_category")
    expect(card.locator(".chips li")).to_have_count(255)
    page.evaluate("""() => {
      window.moved = 0;
      const watch = new MutationObserver((all) => { window.moved += all.length; });
      watch.observe(document.querySelector('.sheet .chips'), { subtree: true, childList: true, attributes: true });
    }""")
    card.locator(".description").fill("What is it?")
    card.locator(".new-choice").press_sequentially("new")
    card.locator(".new-choice").fill("")
    card.locator(".name").fill("goods")
    expect_note(page, "1 field, 255 choices")
    # The list's own label says whose choices they are.
    assert page.evaluate("window.moved") == 1
    assert list(data_of(page)) == ["goods"] and data_of(page)["goods"]["description"] == "What is it?"


def test_128_fields_are_found_moved_and_run(open_page: OpenPage) -> None:
    page = open_page()
    show(page, "JSON")
    type_schema(page, json.dumps({f"field_{i}": {"type": "enum", "choices": ["a", "b"]} for i in range(128)}))
    expect_note(page, "128 fields")
    show(page, "Table")
    expect(cards(page)).to_have_count(128)
    page.get_by_label("Find a field").fill("d_12")
    expect(cards(page).locator("visible=true").locator(".name")).to_have_count(9)
    page.get_by_role("button", name="Move field_12 down").click()
    assert names(page).index("field_12") == 120
    page.get_by_label("Find a field").fill("")
    page.get_by_role("button", name="+ Add a field").click()
    page.keyboard.type("one too many")
    expect(page.locator(".sheet .general")).to_contain_text("129 fields; at most 128 are allowed")
    expect_note(page, "129 fields; at most 128 are allowed")


# --- what is wrong ---

LONG = "x" * 1025


def fill_name(text: str) -> Callable[[Page], None]:
    return lambda page: cards(page).nth(1).locator(".name").fill(text)


def as_type(kind: str, *choices: str) -> Callable[[Page], None]:
    def change(page: Page) -> None:
        card = opened(page, "is_fraud")
        card.locator(".type").select_option(kind)
        add(card, *choices)

    return change


def depends_on_a_removed_one(page: Page) -> None:
    opened(page, "is_fraud").locator(".depend").select_option("risk_level")
    page.get_by_role("button", name="Remove risk_level").click()


FAULTS = [
    (fill_name(""), "a field has an empty name; give it one"),
    (fill_name("risk_level"), "field 'risk_level' appears twice; each name must be unique"),
    (fill_name("é" * 65), "has 130 bytes; at most 128 are allowed"),
    (as_type("enum"), "field 'is_fraud': no choices; an enum needs at least 2"),
    (as_type("enum", "<b>"), "field 'is_fraud': only one choice, '<b>'; an enum needs at least 2"),
    (as_type("fixed", "a", "b"), "field 'is_fraud': 2 choices; a const has exactly 1"),
    (as_type("enum", "ok", "y" * 257), "has 257 bytes; at most 256 are allowed"),
    (
        lambda page: opened(page, "is_fraud").locator(".description").fill(LONG),
        "field 'is_fraud': the description has 1025 bytes; at most 1024 are allowed",
    ),
    (depends_on_a_removed_one, "field 'is_fraud': depends_on names 'risk_level', which is no field"),
]


def test_what_is_wrong_stands_at_the_field_and_in_the_note(open_page: OpenPage) -> None:
    page = open_page()
    fault = page.locator(".sheet .fault:visible")
    name = page.locator(".sheet .name[aria-invalid=true]")
    for change, words in FAULTS:
        change(page)
        expect(fault, words).to_have_count(1, timeout=PATIENCE_MS)
        expect(fault).to_contain_text(words, timeout=PATIENCE_MS)
        expect(name, words).to_have_count(1)
        assert name.get_attribute("aria-describedby") == fault.get_attribute("id"), words
        note = page.locator("#verdict .notice")
        expect(note, words).to_have_attribute("data-tone", "error", timeout=PATIENCE_MS)
        before = text_of(page)
        show(page, "JSON")
        show(page, "Table")
        expect(fault).to_contain_text(words, timeout=PATIENCE_MS)
        assert text_of(page) == before, words
        for preset in (TRIAGE, FOUR):
            choose(page, preset.title)
            expect(cards(page), words).to_have_count(len(preset.schema))
            expect(fault, words).to_have_count(0, timeout=PATIENCE_MS)
            expect(note, words).not_to_have_attribute("data-tone", "error", timeout=PATIENCE_MS)


def test_a_circle_stands_above_the_fields(open_page: OpenPage) -> None:
    page = open_page()
    opened(page, "risk_level").locator(".depend").select_option("is_fraud")
    opened(page, "is_fraud").locator(".depend").select_option("risk_level")
    words = "fields 'risk_level' -> 'is_fraud' -> 'risk_level' depend on each other in a circle; remove one of these"
    expect(page.locator(".sheet .general")).to_have_text(words)
    expect_note(page, words)


def test_json_that_is_none_yet_is_told_and_kept(open_page: OpenPage) -> None:
    page = open_page()
    show(page, "JSON")
    type_schema(page, '{"a": {"type": "boolean"},')
    expect_note(page, "not valid JSON")
    show(page, "Table")
    expect(page.locator(".sheet .reason")).to_contain_text("not valid JSON")
    expect(cards(page)).to_have_count(0)
    expect(page.get_by_role("button", name="+ Add a field")).to_be_hidden()
    assert text_of(page).startswith('{"a": {"type": "boolean"},')


# --- late answers ---


def test_late_answers_do_not_overwrite_what_was_typed_since(open_page: OpenPage) -> None:
    page = open_page()
    held, release = hold_answers(page)
    name = cards(page).first.locator(".name")
    name.fill("")
    name.press_sequentially("first")
    page.wait_for_timeout(200)
    assert held, "the server is asked"
    name.press_sequentially("_second")
    release()
    expect_note(page, "4 fields")
    expect(page.locator(".board .row[data-field] .name").first).to_have_text("first_second")
    assert name.input_value() == "first_second"
    assert active(page) == "Name of first_second"
    assert next(iter(data_of(page))) == "first_second"
    expect(page.locator(".sheet .fault:visible")).to_have_count(0)


def test_a_text_of_its_own_that_comes_back_late_is_no_news(browser: Browser) -> None:
    table = SchemaTable()
    script = table.js_on_load.rpartition("const shown = ")[0]
    page = browser.new_page()
    page.set_content(f'<div id="editors">{table.html_template}</div>')
    inert = page.evaluate(
        """([script, sheet]) => {
          const createSheet = new Function(`${script}; return createSheet;`)();
          const texts = [];
          const table = createSheet(document.body, (text) => texts.push(text));
          table.show({ sheet });
          document.querySelector('[data-view=table]').click();
          const view = document.querySelector('.table-view');
          const name = document.querySelector('.name');
          for (const text of ['a', 'ab']) {
            name.value = text;
            name.dispatchEvent(new Event('input', { bubbles: true }));
          }
          return [texts[0], texts[1], '{}'].map((now) => {
            table.show({ now });
            return view.inert;
          });
        }""",
        [script, Sheet.of(schema_text(FOUR.schema)).to_json()],
    )
    page.close()
    assert inert == [False, False, True]


def test_a_table_of_a_text_that_is_no_more_cannot_be_edited(open_page: OpenPage) -> None:
    page = open_page()
    show(page, "JSON")
    held, release = hold_answers(page)
    type_schema(page, '{"new": {"type": "boolean"}}')
    show(page, "Table")
    assert page.locator(".sheet .table-view").evaluate("node => node.inert")
    assert names(page) == [field.name for field in FOUR.schema]
    release()
    expect(cards(page)).to_have_count(1)
    assert names(page) == ["new"]
    assert not page.locator(".sheet .table-view").evaluate("node => node.inert")


# --- what people have ---


def test_a_json_schema_is_shown_and_becomes_fields_only_when_asked(open_page: OpenPage, engine: ScriptedEngine) -> None:
    page = open_page()
    show(page, "JSON")
    type_schema(page, json.dumps(TICKET))
    expect_note(page, "Left out, 2 of its parts:")
    before = text_of(page)
    show(page, "Table")
    schema = StructuredSchema.from_text(before, on_unsupported="skip")
    expect(cards(page)).to_have_count(len(schema))
    expect(page.locator(".sheet .reason")).to_contain_text("its nested shape, and what was left out of it, are lost")
    expect(page.locator(".sheet .card :is(.name, .type, .remove, .up):enabled")).to_have_count(0)
    opened(page, names(page)[0])
    cards(page).first.locator(".more").press("Alt+ArrowDown")
    assert text_of(page) == before
    page.get_by_role("button", name="Edit as fields").click()
    expect(page.locator("#verdict .notice")).not_to_contain_text("JSON Schema")
    assert StructuredSchema.from_text(text_of(page)).key == schema.key
    expect(page.get_by_role("button", name="Edit as fields")).to_be_hidden()
    cards(page).first.locator(".name").fill("mine")
    expect_note(page, f"{len(schema)} fields")
    assert next(iter(data_of(page))) == "mine"


FILES = [
    ("fields.json", '\ufeff{"a": {"type": "boolean"},\r\n "b": {"type": "boolean"}}', "2 fields, 4 choices", "fields"),
    ("ticket.json", json.dumps(TICKET), "Left out, 2 of its parts:", "locked"),
    ("fields.yaml", "a: {type: boolean} # mine\n", "1 field, 2 choices", "locked"),
    ("broken.json", '{"a": ', "not valid JSON", "unreadable"),
]


def test_a_file_is_read_into_the_editor(open_page: OpenPage) -> None:
    page = open_page()
    for view, (name, content, note, state) in itertools.product(("Table", "JSON"), FILES):
        show(page, view)
        with page.expect_file_chooser() as chooser:
            page.get_by_role("button", name="Open a .json file").press("Enter")
        chooser.value.set_files({"name": name, "mimeType": "application/json", "buffer": content.encode()})
        expect_note(page, note)
        expect_told(page, f"{name} is in the editor.")
        assert text_of(page) == content.removeprefix("\ufeff").replace("\r\n", "\n"), (view, name)
        show(page, "Table")
        expect(page.locator(".sheet"), f"{name} from {view}").to_have_attribute("data-state", state)
        if state != "unreadable":
            expect(page.locator(".board .row[data-field] .name").first).to_have_text(names(page)[0])


def test_a_file_that_cannot_be_read_says_why_and_changes_nothing(open_page: OpenPage) -> None:
    page = open_page()
    before = text_of(page)
    for name, content, words in [
        ("big.json", b" " * (2**20 + 1), "big.json has 1,048,577 bytes; at most 1,048,576 are read"),
        ("image.json", b"\x89PNG\xff\xfe", "image.json cannot be read as a text in UTF-8"),
        (
            "<img src=x onerror=window.__pwned=4>.json",
            b"\xff",
            "<img src=x onerror=window.__pwned=4>.json cannot be read",
        ),
    ]:
        page.locator(".sheet [data-part=file]").set_input_files(
            {"name": name, "mimeType": "application/json", "buffer": content}
        )
        expect_told(page, words)
        assert text_of(page) == before, name
        assert names(page) == [field.name for field in FOUR.schema], name


# --- hostile text, narrow screens ---


def test_hostile_text_stays_text(open_page: OpenPage) -> None:
    page = open_page()
    for i, text in enumerate(HOSTILES):
        page.get_by_role("button", name="+ Add a field").click()
        page.keyboard.insert_text(text)
        card = opened(page, text)
        card.locator(".type").select_option("enum")
        add(card, text, f"{text} {i}")
        card.locator(".description").fill(text)
        card.locator(".depend").select_option(index=1)
    expect_note(page, f"{4 + len(HOSTILES)} fields")
    assert list(data_of(page))[4:] == list(HOSTILES)
    for text in HOSTILES:
        assert data_of(page)[text]["choices"][0] == data_of(page)[text]["description"] == text
    assert page.locator(".sheet img").count() == 0
    assert "\u202e" not in (page.locator(".sheet").text_content() or "")
    choose(page, NASTY.title)
    expect(cards(page)).to_have_count(len(NASTY.schema))
    for name in names(page):
        opened(page, name)
    assert names(page) == [field.name for field in NASTY.schema]
    cards(page).nth(2).locator(".name").fill(HOSTILE + "2")
    expect_note(page, "6 fields")
    assert list(data_of(page)) == [
        HOSTILE + "2" if name == HOSTILE else name for name in (f.name for f in NASTY.schema)
    ]
    assert page.locator(".sheet img").count() == 0


@pytest.mark.parametrize("width, scheme", [(390, "dark"), (390, "light"), (768, "dark")])
def test_the_table_fits_narrow_screens(open_page: OpenPage, width: int, scheme: str) -> None:
    page = open_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
    opened(page, "risk_level")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for control in page.locator(".sheet :is(button, input, select, textarea):visible").all():
        box = control.bounding_box()
        assert box and box["x"] >= 0 and box["x"] + box["width"] <= width
        if width < 640:
            assert box["height"] >= 44
            assert float(control.evaluate("node => parseFloat(getComputedStyle(node).fontSize)")) >= 16 or (
                control.evaluate("node => node.tagName") == "BUTTON"
            )


def test_every_control_has_a_name(open_page: OpenPage) -> None:
    page = open_page()
    for name in names(page):
        opened(page, name)
    nameless = page.locator(".sheet :is(button, input, select, textarea):visible").evaluate_all(
        "all => all.filter((one) => !(one.ariaLabel || one.textContent.trim())).map((one) => one.outerHTML)"
    )
    assert nameless == []
    assert page.locator(".sheet [aria-live], .sheet [role=status]").count() == 1
