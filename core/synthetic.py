"""Synthetic requests whose size is chosen: fields, choices of one field, tokens of the text.

Deterministic, of our own writing. A smaller request is always the beginning of a larger one, so
that along one axis nothing changes but the size. Knows nothing of models or clocks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import count, islice, product

from core.schema import FieldDefinition, StructuredSchema

#: Subjects and aspects make the field names; an aspect's choices share beginnings, as codes of one list do.
_SUBJECTS = ("payment", "delivery", "account", "invoice", "contract", "product", "support", "refund")
_ASPECTS = {
    "status": ("OPEN_NEW", "OPEN_WAITING", "CLOSED_SOLVED", "CLOSED_REJECTED"),
    "priority": ("P1_TODAY", "P1_THIS_WEEK", "P2_THIS_MONTH", "P2_LATER"),
    "risk": ("LOW_ACCEPTED", "LOW_WATCHED", "HIGH_WATCHED", "HIGH_STOPPED"),
    "channel": ("PHONE_CALL", "PHONE_MESSAGE", "WEB_FORM", "WEB_CHAT"),
    "region": ("EU_NORTH", "EU_SOUTH", "US_EAST", "US_WEST"),
    "cause": ("INPUT_MISSING", "INPUT_WRONG", "SYSTEM_SLOW", "SYSTEM_DOWN"),
    "owner": ("TEAM_SALES", "TEAM_STOCK", "PARTNER_CARRIER", "PARTNER_BANK"),
    "outcome": ("PAID_IN_FULL", "PAID_IN_PART", "NOT_PAID_YET", "NOT_PAID_EVER"),
}
MOST_FIELDS = len(_SUBJECTS) * len(_ASPECTS)
CHOICES_A_FIELD = 4

_AREAS = ("BILLING", "DELIVERY", "ACCOUNT", "PRODUCT", "RETURNS", "SECURITY", "CONTRACT", "SUPPORT")
_THINGS = ("ADDRESS", "DATE", "PRICE", "NAME", "STATUS", "LIMIT", "DOCUMENT", "ACCESS")
_FAULTS = ("MISSING", "WRONG", "LATE", "DISPUTED")
_CODES = tuple("_".join(parts) for parts in product(_AREAS, _THINGS, _FAULTS))
MOST_CHOICES = len(_CODES)

_SENTENCES = (
    "On day {n} the office in {town} opened at eight and took {n} calls before noon.",
    "A customer asked why order {order} had come in two parts and whether the second one was paid for.",
    "The clerk looked it up, found the parcel in {town} and promised an answer within {days} days.",
    "Invoice {order} lists {n} boxes of paper, and the note beside it counts one box less.",
    "The carrier says that the van left {town} on time and waited {days} hours at the bridge.",
    "Nobody was hurt, two boxes got wet, and the driver took pictures of both of them.",
    "The contract allows {days} days for a complaint, and the letter came on the last of them.",
    "Because the account has an old address, a copy of the letter went to {town} as well.",
    "The team agreed to send {n} new boxes, to keep the price, and to write again next week.",
    "Later the same customer called a second time, thanked the clerk and asked for a receipt.",
)
_TOWNS = ("Bergen", "Leeds", "Porto", "Graz", "Turku", "Lille", "Gdansk")


def schema_of_fields(size: int) -> StructuredSchema:
    """So many fields of four choices each: the first of 64, whose kinds are mixed."""
    names = [(subject, aspect) for aspect in _ASPECTS for subject in _SUBJECTS]
    turned = [names[8 * ((i + i // 8) % 8) + i % 8] for i in range(MOST_FIELDS)]  # another aspect for each subject
    return StructuredSchema(
        [
            FieldDefinition(f"{subject}_{aspect}", "enum", f"The {aspect} of the {subject}.", _ASPECTS[aspect])
            for subject, aspect in turned[:size]
        ]
    )


def schema_of_choices(size: int) -> StructuredSchema:
    """One field with so many codes: the first of 256."""
    return StructuredSchema([FieldDefinition("complaint_code", "enum", "What the complaint is about.", _CODES[:size])])


def text_of_tokens(size: int, tokens: Callable[[str], int]) -> str:
    """The longest text of whole words that has at most so many tokens, as `tokens` counts them.

    Never empty: one word, where even that has more.
    """
    words = list(islice(_words(), size + 1))
    whole = bisect_right(range(1, len(words) + 1), size, key=lambda n: tokens(" ".join(words[:n])))
    return " ".join(words[: max(1, whole)])


def _words() -> Iterator[str]:
    """The words of an endless text."""
    for i in count():
        sentence = _SENTENCES[i % len(_SENTENCES)]
        n = 11 + 7 * i % 83
        yield from sentence.format(n=n, days=3 + i % 9, order=40_213 + 37 * i, town=_TOWNS[i % len(_TOWNS)]).split()
