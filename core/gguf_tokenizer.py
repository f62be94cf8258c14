"""The tokenizer of a GGUF file, made equal to the one that its model was trained with.

A GGUF names its pre-tokenizer and does not carry it, and transformers 5.24 rebuilds a part of it. This
module mends what is missing, refuses what it cannot mend, and holds the token ids that the published
tokenizers give, to prove it. Runs in the conversion's child process; knows nothing of weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.model_cache import ModelError
from core.token_ids import PUBLISHED_IDS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

#: Byte-level vocabularies (by GGUF's name) that split text as GPT-2 does, which is what transformers falls back on.
_SPLIT_AS_GPT2 = {"gpt-2", "phi-2", "mpt", "olmo"}
#: As GPT-2, but every digit is a token of its own; transformers 5.24 leaves the digits together.
_SPLIT_DIGITS = {"smollm", "starcoder"}
_QWEN = {"qwen2"}

_UNUSED = 5  # GGUF's token type for the padding up to the size of the embedding, `[PAD151665]` and so on
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
#: llama.cpp marks these as control tokens; Qwen published them as plain added tokens.
_QWEN_PLAIN = {"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"}


def write_tokenizer(gguf: Path, metadata: Mapping[str, Any], folder: Path) -> None:
    """Writes tokenizer.json, tokenizer_config.json and the chat template of `gguf` to `folder`.

    Raises `ModelError` for a vocabulary whose splitting rule nobody here knows.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    tokenizer.save_pretrained(folder)
    split = metadata.get("tokenizer.ggml.pre", "")
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text("utf-8"))
    if metadata["tokenizer.ggml.model"] == "gpt2":
        _mend(content, split, gguf)
        _drop_unused(content, metadata)
    path.write_text(json.dumps(content, ensure_ascii=False), "utf-8")
    window = metadata[f"{metadata['general.architecture']}.context_length"]
    _mend_settings(folder / "tokenizer_config.json", split, window)


def _mend(content: dict[str, Any], split: str, gguf: Path) -> None:
    if split in _QWEN:
        content["normalizer"] = {"type": "NFC"}
        for token in content["added_tokens"]:
            if token["content"] in _QWEN_PLAIN:
                token["special"] = False
    elif split in _SPLIT_DIGITS:
        digits = {"type": "Digits", "individual_digits": True}
        content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [digits, _BYTE_LEVEL]}
    elif content["pre_tokenizer"]["type"] == "ByteLevel" and split not in _SPLIT_AS_GPT2:
        raise ModelError(
            f"{gguf}: its pre-tokenizer {split!r} is not known here and would give wrong tokens; "
            "use the model's Hugging Face folder instead of the GGUF"
        )


def _drop_unused(content: dict[str, Any], metadata: Mapping[str, Any]) -> None:
    pairs = zip(metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"], strict=True)
    vocabulary = content["model"]["vocab"]
    for token in [token for token, kind in pairs if kind == _UNUSED]:
        vocabulary.pop(token, None)


def _mend_settings(path: Path, split: str, window: int) -> None:
    settings = json.loads(path.read_text("utf-8"))
    for key in ("backend", "is_local", "local_files_only"):  # of this load, not of the tokenizer
        settings.pop(key, None)
    if split in _QWEN:  # published without; the GGUF format has a slot and llama.cpp fills it
        settings |= {"bos_token": None, "add_prefix_space": False}
        settings.pop("unk_token", None)
    # The name that transformers 4 and mlx-lm know as well: read tokenizer.json as it stands.
    settings |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": window}
    settings |= {"clean_up_tokenization_spaces": False}
    path.write_text(json.dumps(settings, ensure_ascii=False, indent=2), "utf-8")


def check_tokens(tokenizer: PreTrainedTokenizerBase, family: str) -> None:
    """Raises `ModelError` unless `tokenizer` gives the published ids of `family` for every probe line."""
    for line, expected in PUBLISHED_IDS[family].items():
        given = tuple(tokenizer.encode(line, add_special_tokens=False))
        if given != expected:
            raise ModelError(
                f"the {family} tokenizer gives {given} for {line!r} and the published one {expected}; "
                "remove the model's folder and install the transformers version of requirements.txt"
            )
