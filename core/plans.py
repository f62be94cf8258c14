"""Compiled plans and head prefixes of one engine, kept for the next request.

Both are immutable and keyed by the ordered schema. Bounded: the least recently used go
first. Belongs to the owner thread.
"""

from __future__ import annotations

from collections import OrderedDict

from core.backend import Prefix
from core.prompt import ChatFormat
from core.schema import StructuredSchema
from core.trie import Plan, compile_plan
from core.vocabulary import Vocabulary

MAX_ENTRIES = 32
MAX_BYTES = 512 * 2**20


class Plans:
    def __init__(self, chat: ChatFormat, vocabulary: Vocabulary) -> None:
        self._chat = chat
        self._vocabulary = vocabulary
        self._plans: OrderedDict[StructuredSchema, Plan] = OrderedDict()
        self._heads: OrderedDict[StructuredSchema, Prefix] = OrderedDict()

    def plan(self, schema: StructuredSchema) -> Plan:
        """The compiled schema; raises `TokenizationError`."""
        plan = self._plans.get(schema) or compile_plan(schema, self._chat, self._vocabulary)
        self._plans[schema] = plan
        self._plans.move_to_end(schema)
        if len(self._plans) > MAX_ENTRIES:
            self._plans.popitem(last=False)
        return plan

    def head(self, schema: StructuredSchema) -> Prefix | None:
        """The state after the schema's head, if it is here."""
        if schema in self._heads:
            self._heads.move_to_end(schema)
        return self._heads.get(schema)

    def keep(self, schema: StructuredSchema, head: Prefix) -> None:
        """Stores a head prefix; one that is larger than the whole budget is not kept."""
        if head.nbytes > MAX_BYTES:
            return
        self._heads[schema] = head
        while len(self._heads) > MAX_ENTRIES or sum(h.nbytes for h in self._heads.values()) > MAX_BYTES:
            self._heads.popitem(last=False)
