"""The bundled presets: what the page offers must be complete, decidable and honest."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from core.presets import FOLDER, Preset, PresetError, load_presets
from core.schema import choice_key

PRESETS = {preset.id: preset for preset in load_presets()}


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_every_preset_tells_people_what_it_is(preset: Preset) -> None:
    assert all((preset.id, preset.title, preset.description, preset.context, preset.look_for))
    assert all(field.description for field in preset.schema)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_every_expected_value_is_a_choice_of_its_field(preset: Preset) -> None:
    assert preset.expected
    for name, value in preset.expected.items():
        assert choice_key(value) in map(choice_key, preset.schema[name].choices), name


@pytest.mark.parametrize(
    "name, fields",
    [
        ("code_audit", 4),
        ("content_moderation", 12),
        ("customs_tariff", 1),
        ("fintech_fraud", 4),
        ("spam_phishing", 9),
        ("support_triage", 28),
        ("talk_routing", 8),
        ("time_zone", 1),
    ],
)
def test_the_scenarios_have_their_sizes(name: str, fields: int) -> None:
    assert len(PRESETS[name].schema) == fields


#: Set aside for examples: RFC 2606 (names) and RFC 5737 (addresses).
NOBODYS = re.compile(r"(.+\.)?example(\.(com|net|org))?|(192\.0\.2|198\.51\.100|203\.0\.113)\.\d+")


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_addresses_in_a_text_are_nobodys(preset: Preset) -> None:
    found = re.findall(r"(?:\w@|://|\[)([\w-]+(?:\.[\w-]+)+)", preset.context)
    assert [address for address in found if not NOBODYS.fullmatch(address)] == []


def test_a_false_mail_shows_one_address_and_opens_another() -> None:
    mail = PRESETS["spam_phishing"]
    [(opened, shown)] = re.findall(r'<a href="https://([^/"]+)[^"]*">https://([^/<]+)', mail.context)
    assert (opened != shown) is mail.expected["link_hides_target"]


@pytest.mark.parametrize(
    "name, field, start",
    [
        ("fintech_fraud", "fraud_pattern", "ACCOUNT_"),
        ("fintech_fraud", "routing", "HOLD_FOR_"),
        ("spam_phishing", "action", "BLOCK_AND_"),
        ("talk_routing", "next_step", "PASS_TO_"),
    ],
)
def test_choices_that_people_shall_watch_begin_alike(name: str, field: str, start: str) -> None:
    assert start in PRESETS[name].look_for
    assert len([choice for choice in PRESETS[name].schema[field].choices if str(choice).startswith(start)]) == 2


def test_the_tariff_has_255_choices_that_are_distinct_without_their_codes() -> None:
    choices = [str(choice) for choice in PRESETS["customs_tariff"].schema.fields[0].choices]
    names = {choice.rsplit(" ", 1)[0] for choice in choices}
    codes = {choice.rsplit(" ", 1)[1] for choice in choices}
    assert (len(choices), len(names), len(codes)) == (255, 255, 255)


def test_a_scenario_that_pcd_loses_says_so_in_its_title_and_why() -> None:
    losing = {preset.id: preset for preset in PRESETS.values() if preset.pcd_loses}
    assert losing.keys() == {"time_zone"} == {preset.id for preset in PRESETS.values() if "loses" in preset.title}
    [field] = losing["time_zone"].schema.fields
    assert len(set(field.choices)) == 255


def test_triage_has_booleans_enums_and_choices_that_begin_alike() -> None:
    schema = PRESETS["support_triage"].schema
    assert {field.field_type for field in schema} == {"boolean", "enum"}
    assert {"BILLING", "BILLING_DISPUTE"} <= set(schema["category"].choices)


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "No such file"),
        ("[]", "a preset is a JSON object"),
        ('{"context": "x"}', "'schema'"),
        ('{"schema": {"a": {"type": "boolean"}}}', "'context'|context"),
        ('{"context": "x", "schema": {"a": {"type": "boolean"}, "a": {"type": "boolean"}}}', "appears twice"),
        ('{"context": "x", "schema": {"a": {"type": "text"}}}', "unknown"),
        ('{"context": "x", "title": 5, "schema": {"a": {"type": "boolean"}}}', "'title' is 5; give a text"),
        ('{"context": ["x"], "schema": {"a": {"type": "boolean"}}}', "'context' is .'x'.; give a text"),
        ("{", "Expecting"),
    ],
)
def test_a_file_that_is_no_preset_is_refused_by_name(tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "mine.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(PresetError, match=rf"mine\.json.*({message})"):
        Preset.load(file)


def test_a_file_with_only_text_and_schema_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"context": "Hello", "schema": {"polite": {"type": "boolean"}}}))
    assert Preset.load(file).context == "Hello"


def test_two_presets_of_one_id_are_refused_by_name(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text('{"id": "x", "context": "x", "schema": {"a": {"type": "boolean"}}}')
    with pytest.raises(PresetError, match=r"b\.json: its id 'x' is another preset's"):
        load_presets(tmp_path)


def test_preset_files_are_named_by_their_id() -> None:
    assert {file.stem for file in FOLDER.glob("*.json")} == set(PRESETS)


def test_a_preset_may_begin_with_a_byte_order_mark_and_may_not_be_nested_for_ever(tmp_path):
    file = tmp_path / "preset.json"
    file.write_bytes(b"\xef\xbb\xbf" + b'{"context": "x", "schema": {"a": {"type": "boolean"}}}')
    assert Preset.load(file).context == "x"
    file.write_text("[" * 100_000)
    with pytest.raises(PresetError, match="is nested too deeply"):
        Preset.load(file)


# --- a fact that may be another ---

CHANGED = {name: preset for name, preset in PRESETS.items() if preset.change}


@pytest.mark.parametrize("preset", CHANGED.values(), ids=CHANGED)
def test_a_changed_fact_is_one_place_of_the_text_and_nothing_else(preset: Preset) -> None:
    change, changed = preset.change, preset.changed
    before, after = preset.context.split(change.before), changed.context.split(change.after)
    assert len(before) == 2 and before == after
    assert (changed.id, changed.expected, changed.schema) == (f"{preset.id}_changed", {}, preset.schema)
    assert change.flipped(preset.context) == changed.context and change.flipped(changed.context) == preset.context
    assert change.flipped("Neither of them.") is None


def test_a_scenario_without_a_fact_to_change_has_no_changed_one() -> None:
    assert PRESETS["time_zone"].changed is None
    assert {"support_triage", "fintech_fraud", "spam_phishing"} == set(CHANGED)


@pytest.mark.parametrize(
    "change, message",
    [
        ("x", "'change' is 'x'; give it a label, from and to"),
        ({"label": "x", "from": "Hello"}, "give it a label, from and to"),
        ({"label": "x", "from": "Hello", "to": ""}, "give texts that are not empty"),
        ({"label": 1, "from": "Hello", "to": "Bye"}, "give texts that are not empty"),
        ({"label": "x", "from": "Bye", "to": "Hello"}, "replaces 'Bye', which stands 0 times in the context"),
        ({"label": "x", "from": "l", "to": "k"}, "replaces 'l', which stands 2 times in the context; once is right"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused_by_name(tmp_path: Path, change: object, message: str) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"context": "Hello", "schema": {"polite": {"type": "boolean"}}, "change": change}))
    with pytest.raises(PresetError, match=rf"mine\.json: .*{re.escape(message)}"):
        Preset.load(file)
