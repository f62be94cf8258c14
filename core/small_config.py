"""The configuration of a small model with the same kinds of layers as a real one. Knows no framework."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

#: What a small model has at most. Widths of heads stay: rotary factors are lists of that length.
AT_MOST = {
    "vocab_size": 64, "vocab_size_per_layer_input": 64, "hidden_size_per_layer_input": 16,
    "max_position_embeddings": 4096,
    "intermediate_size": 64, "ffn_dim": 64, "ffn_hidden_size": 64, "block_ff_dim": 64, "intermediate_size_mlp": 64,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "shared_intermediate_size": 32,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1,
    "n_group": 1, "topk_group": 1, "q_lora_rank": 32, "kv_lora_rank": 32,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "mamba_d_state": 16, "state_size": 16, "mamba_n_groups": 1, "n_groups": 1, "mamba_chunk_size": 16, "chunk_size": 16,
    "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1,
    "sliding_window": 8, "attention_chunk_size": 8,  # shorter than the probe's text
    "attn_logit_softcapping": 2.0, "final_logit_softcapping": 4.0,  # low, so that small logits meet them
    "attention_multiplier": 0.1, "logits_scaling": 2.0,  # neither all at one token, nor all tokens alike
}  # fmt: skip
#: Layers of different kinds that a small model has at most.
MOST_LAYERS = 8


class NotSmall(RuntimeError):
    """No small model of this kind could be made; the message says why."""


def small_values(given: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """A configuration's values for a narrow model with one layer of each kind, or two; nothing given is altered.

    `names` is the configuration class's own name of a common one.
    """
    values = _Values(given, names)
    values.keep_layers(_one_of_each(values, values.get("num_hidden_layers")))
    values.narrow()
    values.cap(**AT_MOST)
    values.put(attn_layer_indices=[1])
    values.put(initializer_range=1.5 / values.get("hidden_size") ** 0.5)  # far from even: a wrong reading shows
    no_ids = {name: None for name in values.all if name.endswith("_token_id")}
    kept = {name: value for name, value in values.all.items() if name != "quantization_config"}
    return kept | no_ids | {"dtype": "float32"}


class _Values:
    """A configuration's values, by the names that most classes share."""

    def __init__(self, given: Mapping[str, Any], names: Mapping[str, str]) -> None:
        self.all = copy.deepcopy(dict(given))
        self._names = names

    def get(self, name: str) -> Any:
        return self.all.get(self._names.get(name, name))

    def put(self, **values: Any) -> None:
        """Sets what the class has; None is a choice too, and stays."""
        for name, value in values.items():
            if self.get(name) is not None:
                self.all[self._names.get(name, name)] = value

    def narrow(self) -> None:
        """Two key heads, and two queries for each where queries share them; a mixer of four heads."""
        heads, keys = self.get("num_attention_heads"), self.get("num_key_value_heads")
        width = 64
        if heads:
            head_width = self.get("head_dim") or self.get("hidden_size") // heads
            few = min(2, keys or heads)
            heads = min(heads, 2 * few if keys and keys < heads else few)
            width = heads * head_width
            self.put(num_attention_heads=heads, num_key_value_heads=few, num_kv_heads=few)
            self.cap(num_key_value_heads=few)
            if "head_dim" in self.all:
                self.all["head_dim"] = head_width
        mixed = int(width * (self.get("mamba_expand") or self.get("expand") or 1))
        self.put(hidden_size=width, mamba_d_ssm=mixed, mamba_n_heads=4, mamba_d_head=mixed // 4)
        if not heads and self.get("num_heads"):  # Mamba 2
            self.put(num_heads=4, head_dim=mixed // 4)

    def cap(self, **most: float) -> None:
        """Lowers the numbers among these, those of single layers too."""
        for name, value in most.items():
            for values in (self.all, *self.own.values()):
                own_name = self._names.get(name, name)
                now = values.get(own_name)
                if isinstance(now, list) and now and isinstance(now[0], int | float):  # a number for each layer
                    values[own_name] = [min(number, value) for number in now]
                elif isinstance(now, int | float):
                    values[own_name] = min(now, value)

    @property
    def own(self) -> dict[int, dict[str, Any]]:
        """What single layers have of their own: Gemma 4's heads are wider where it sees all."""
        return {int(layer): values for layer, values in (self.all.get("per_layer_config") or {}).items()}

    def by_layer(self, layers: int) -> dict[str, list]:
        return {name: value for name, value in self.all.items() if isinstance(value, list) and len(value) == layers}

    def keep_layers(self, layers: list[int]) -> None:
        of, own = self.get("num_hidden_layers"), self.own
        for name, value in self.by_layer(of).items():
            self.all[name] = [value[layer] for layer in layers]
        if own:
            self.all["per_layer_config"] = {i: own[layer] for i, layer in enumerate(layers) if layer in own}
        shared = self.get("num_kv_shared_layers") or 0
        self.put(num_hidden_layers=len(layers), num_kv_shared_layers=sum(layer >= of - shared for layer in layers))


def _one_of_each(values: _Values, layers: int) -> list[int]:
    """The first layer of each kind, a kind being all that is said of a layer; two where all are the same."""
    said = values.by_layer(layers).values()
    borrowing = layers - (values.get("num_kv_shared_layers") or 0)
    kinds: dict[str, int] = {}
    for layer in range(layers):
        kinds.setdefault(repr((layer >= borrowing, values.own.get(layer), [value[layer] for value in said])), layer)
    chosen = list(kinds.values())[:MOST_LAYERS]
    return chosen if len(chosen) > 1 else [0, layers - 1]
