"""Share links: inputs in the part of an address behind its `#`, and what is refused there."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from urllib.parse import parse_qs, urlencode

import pytest

from core.ui.links import LONGEST, MOST_UNPACKED, Link, LinkError, Shared, link_to, read_link, space_page
from core.ui.scenarios import checksum, script
from core.ui.views import schema_text
from tests.scripted import FOUR, HOSTILE, NASTY, PRESETS

OWN = Link("A text of my own.", '{"a": {"type": "boolean"}}')
SETTINGS = Shared(mode="schema", style="compact", cache=False, first="ar", temperature=0.25)


def packed(data: bytes) -> str:
    deflate = zlib.compressobj(9, wbits=-15)
    return base64.urlsafe_b64encode(deflate.compress(data) + deflate.flush()).rstrip(b"=").decode()


@pytest.mark.parametrize("settings", [Shared(), SETTINGS])
@pytest.mark.parametrize(
    "context, schema",
    [
        ("A text of my own.", '{"a": {"type": "boolean"}}'),
        ("", ""),
        (HOSTILE + " \u202e&own=#%00\0\r\n\t", '{"</script>": 12345678901234567890123}'),
        ("生气 👩\u200d🚀 שלום" * 20, "not yet JSON"),
    ],
)
def test_own_inputs_and_settings_come_back_as_they_were(context: str, schema: str, settings: Shared) -> None:
    link = Link(context, schema, settings)
    part = link_to(link)
    assert part.startswith("#own=")
    assert read_link(part, PRESETS) == link


def test_a_scenario_is_named_and_its_text_is_not_in_the_link() -> None:
    link = Link(FOUR.context, schema_text(FOUR.schema), SETTINGS, FOUR)
    part = link_to(link)
    assert parse_qs(part[1:]) == {
        "preset": [FOUR.id],
        "mode": ["schema"],
        "style": ["compact"],
        "cache": ["off"],
        "first": ["ar"],
        "temperature": ["0.25"],
    }
    assert read_link(part, PRESETS) == link


def test_a_link_without_settings_has_those_that_the_page_starts_with() -> None:
    assert read_link(f"#preset={FOUR.id}", PRESETS).settings == Shared()


def test_a_link_of_inputs_too_long_is_not_made_and_the_way_out_is_named() -> None:
    noise = "".join(chr(0x4E00 + zlib.crc32(bytes([i % 256, i // 256])) % 20_000) for i in range(4_000))
    with pytest.raises(LinkError, match=f"programs cut links of more than {LONGEST:,}; shorten .* or take the report"):
        link_to(replace(OWN, context=noise))


def test_half_a_character_is_refused_where_a_link_is_made() -> None:
    with pytest.raises(LinkError, match="half a character"):
        link_to(replace(OWN, context="\ud83d"))


@pytest.mark.parametrize(
    "part, words",
    [
        ("nonsense", "the link is damaged"),
        ("#&&", "the link is damaged"),
        ("#preset=%ff", "the link is damaged"),
        ("#" + "&".join(f"a{i}=1" for i in range(30)), "the link is damaged"),
        ("#mode=json", "names no scenario and has no inputs"),
        (f"#preset={FOUR.id}&own={packed(b'[]')}", "or both"),
        (f"#preset={FOUR.id}&preset={FOUR.id}", "says something twice"),
        ("#preset=nowhere", "scenario 'nowhere' is none of this page's"),
        ("#preset=", "scenario '' is none of this page's"),
        (f"#{urlencode({'preset': HOSTILE + chr(0x202E)})}", r"scenario '<img src=x onerror=.* is none of this page's"),
        (f"#preset={FOUR.id}&color=red", "setting 'color' is unknown; this page has mode, style, cache"),
        (f"#preset={FOUR.id}&mode=fast", "mode 'fast' is unknown; use one of: free, json, schema"),
        (f"#preset={FOUR.id}&style=", "style '' is unknown; use one of: pretty, compact"),
        (f"#preset={FOUR.id}&cache=maybe", "cache 'maybe' is unknown; use one of: on, off"),
        (f"#preset={FOUR.id}&first=both", "first 'both' is unknown; use one of: pcd, ar"),
        *((f"#preset={FOUR.id}&temperature={n}", "no number above 0") for n in ("", "x", "0", "-1", "nan", "inf")),
        ("#own=", "the inputs in the link are damaged"),
        ("#own=%21%21", "the inputs in the link are damaged"),
        ("#own=AAAA", "the inputs in the link are damaged"),
        (f"#own={packed(b'[]')[:-4]}", "the inputs in the link are damaged"),
        (f"#own={packed(b'not JSON')}", "the inputs in the link are damaged"),
        (f"#own={packed(b'[1, 2]')}", "the inputs in the link are damaged"),
        (f"#own={packed(b'[1, 2, 3]')}", "the inputs in the link are damaged"),
        (f"#own={packed(bytes([0xFF, 0xFE]))}", "the inputs in the link are damaged"),
        (f"#own={packed(json.dumps([chr(0xD83D), '']).encode())}", "the inputs in the link are damaged"),
        (f"#own={packed(b'[' * 100_000)}", "the inputs in the link are damaged"),
        (f"#own={'A' * LONGEST}", "at most 8,000 are read"),
        (f"#own={packed(b' ' * (MOST_UNPACKED + 1))}", "unpacks to more than 512 KiB"),
        (f"#own={packed(b' ' * 4_000_000)}", "unpacks to more than 512 KiB"),
    ],
)
def test_a_link_that_is_none_of_ours_is_refused_in_one_line(part: str, words: str) -> None:
    with pytest.raises(LinkError, match=words) as refused:
        read_link(part, PRESETS)
    assert str(refused.value).isprintable() and len(str(refused.value)) < 400


@pytest.mark.parametrize(
    "space, page",
    [
        ("someone/race.1", "https://huggingface.co/spaces/someone/race.1"),
        (None, ""),
        ("", ""),
        ("someone", ""),
        ('a/b"><script>', ""),
        ("a/b/../c", ""),
    ],
)
def test_a_link_is_built_for_the_page_of_the_space(space: str | None, page: str) -> None:
    assert space_page(space) == page


# --- which scenario a run was of ---


def test_a_scenario_is_told_by_all_that_its_text_and_fields_say() -> None:
    seen = {checksum(preset.context, preset.schema) for preset in PRESETS}
    assert len(seen) == len(PRESETS)
    assert checksum(FOUR.context.replace("24,600", "34,600"), FOUR.schema) not in seen
    assert checksum(FOUR.context, NASTY.schema) not in seen
    assert all(preset.id in script(PRESETS) for preset in PRESETS)
