"""Small real things to test with: tokenizers trained on the spot, language models whose
logits are a hash, and tiny random checkpoints. Nothing is downloaded, nothing is mocked.
"""

from __future__ import annotations

import copy
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, LlamaConfig, PhiConfig, PreTrainedTokenizerFast, Qwen2Config
from transformers.convert_slow_tokenizer import bytes_to_unicode

from core.backend import Identity, Strategy, TreeBatch

# --- tokenizers ---

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
#: Added, yet not marked special: `encode_special_tokens` would not spare it.
ADDED = "<tool_call>"

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = _QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")

_VALUES = (
    '"HIGH" "LOW" "BILLING" "BILLING_DISPUTE" "YES" "Yes" "Yes." "No" "No." "A+" "A-" "-" "" "true" "false" "null" '
    '"1" "10" "100" "CWE-79" "CWE-798" "us" "US" "café" "生气" "high" "high " true false null 1 10 100 250 125'
).split(" ")
_WORDS = "the text says that a form is filled in with one value for each key and nothing else in this order".split()
#: What the tokenizers are trained on: JSON, so that merges such as ` "`, `",\n` and `":` exist, and a few words.
CORPUS = [
    *(f'{{\n  "{key}": {value},\n  "{key}": {value}\n}}' for key in ("risk", "is_fraud", "code") for value in _VALUES),
    *(" ".join(_WORDS[n:] + _WORDS[:n]) for n in range(len(_WORDS))),
    *(f'"{key}": 10\nnote' for key in ("risk", "code")),
    'You read a text. Answer with one JSON object. Allowed values: "HIGH", "LOW", "YES". Keys:\n- "risk": ',
] * 3  # fmt: skip


@dataclass(frozen=True)
class Lexicon:
    """A tokenizer as the engine gets it, and what a test needs to check it by other means."""

    name: str
    chat: PreTrainedTokenizerFast
    plain: Tokenizer  # the same before any special or added token was put in
    texts: tuple[bytes, ...]  # what each id stands for; empty for control tokens

    def encode(self, text: str) -> list[int]:
        """Ids of `text` as nothing but text."""
        return self.plain.encode(text, add_special_tokens=False).ids

    def encode_after(self, before: str, text: str) -> list[int]:
        return self.encode(before + text)[len(self.encode(before)) :]


LEXICONS = ("qwen", "nfc", "smol", "three_digits", "metaspace")
#: Tokenizers that put a space before texts, or keep runs of white space as added tokens.
SPACING = ("metaspace_first", "metaspace_always", "llama2", "gemma", "neox")
#: Runs of white space among the added tokens.
BLANKS = {"gemma": ("\n", "\n\n", "▁▁", "▁▁▁▁"), "neox": ("\n", "\n\n", "  ", "    ")}


@cache
def lexicon(name: str) -> Lexicon:
    """`qwen`, `nfc`: a newline glues to what precedes; `smol`: to what follows, control tokens
    in the base vocabulary; `three_digits`: as Llama 3; `metaspace`: sentencepiece with byte fallback;
    `metaspace_first`: the same, which begins each text with a space of its own; `metaspace_always`,
    `llama2`: which begins each stretch between control tokens with one; `gemma`: sentencepiece whose
    white space is added tokens of its vocabulary; `neox`: byte-level, and they are beyond it."""
    if name in ("llama2", "gemma"):
        plain = _sentencepiece(prepends=name == "llama2", blanks=BLANKS.get(name, ()))
    elif name.startswith("metaspace"):
        plain = _metaspace(name.partition("_")[2] or "never")
    else:
        plain = _byte_level(_pre_tokenizer(name), specials_first=name == "smol")
    if name == "nfc":
        plain.normalizer = normalizers.NFC()
    full = Tokenizer.from_str(plain.to_str())
    full.add_special_tokens(list(SPECIAL))
    added = (ADDED, *BLANKS.get(name, ()))
    full.add_tokens([AddedToken(text, special=False, normalized=False) for text in added])
    chat = PreTrainedTokenizerFast(tokenizer_object=full, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    chat.chat_template = CHATML
    return Lexicon(name, chat, plain, token_texts(chat))


def token_texts(tokenizer: PreTrainedTokenizerFast) -> tuple[bytes, ...]:
    """The bytes of each id, empty for special and added tokens."""
    bytes_of = {character: byte for byte, character in bytes_to_unicode().items()}
    added = set(tokenizer.added_tokens_decoder)
    byte_level = "ByteLevel" in tokenizer.backend_tokenizer.to_str()
    texts = [b""] * len(tokenizer)
    for token, i in tokenizer.get_vocab().items():
        if i in added:
            continue
        if byte_level:
            texts[i] = bytes(bytes_of[character] for character in token)
        elif token.startswith("<0x"):
            texts[i] = bytes.fromhex(token[3:5])
        else:
            texts[i] = token.replace("▁", " ").encode()
    return tuple(texts)


def _pre_tokenizer(name: str) -> pre_tokenizers.PreTokenizer:
    if name == "smol":
        parts = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    else:
        pattern = Regex(_LLAMA3 if name == "three_digits" else _QWEN)
        parts = [
            pre_tokenizers.Split(pattern, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    return pre_tokenizers.Sequence(parts)


def _byte_level(pre_tokenizer: pre_tokenizers.PreTokenizer, specials_first: bool) -> Tokenizer:
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizer
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False)
    trained.train_from_iterator(CORPUS, trainer)
    names, merges = _parts(trained)
    if specials_first:  # as in SmolLM2: control tokens are entries of the model's own vocabulary
        names = [*SPECIAL, *names]
    plain = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=merges))
    plain.pre_tokenizer = pre_tokenizer
    plain.decoder = decoders.ByteLevel()
    return plain


def _sentencepiece(prepends: bool, blanks: Sequence[str]) -> Tokenizer:
    """As it was converted before there was Metaspace: spaces are a normalizer's business, nothing splits."""
    plain = _metaspace("never", blanks)
    spaces = normalizers.Replace(" ", "▁")
    plain.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces]) if prepends else spaces
    plain.pre_tokenizer = None
    return plain


def _metaspace(prepend_scheme: str, blanks: Sequence[str] = ()) -> Tokenizer:
    pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme)
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizer
    ascii_letters = [chr(i) for i in range(0x20, 0x7F)]
    trained.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=500, initial_alphabet=ascii_letters, show_progress=False)
    )
    learnt, merges = _parts(trained)
    names = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *learnt]
    names += [text for text in blanks if text not in learnt]
    merges += [(text[: len(text) // 2],) * 2 for text in blanks if "▁" in text]
    plain = Tokenizer(
        models.BPE(
            vocab={name: i for i, name in enumerate(names)}, merges=merges, unk_token="<unk>", byte_fallback=True
        )
    )
    plain.pre_tokenizer = pre_tokenizer
    plain.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return plain


def _parts(trained: Tokenizer) -> tuple[list[str], list[tuple[str, str]]]:
    """Token strings by id, and merges."""
    model = json.loads(trained.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), [tuple(pair) for pair in model["merges"]]


# --- language models whose logits are a hash ---


@dataclass(frozen=True)
class HashPrefix:
    ids: tuple[int, ...]

    @property
    def length(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        return 8 * len(self.ids)

    def seal(self) -> int:
        return hash(self.ids)

    def head(self, length: int) -> HashPrefix:
        return HashPrefix(self.ids[:length])


class HashBackend:
    """A backend over a language model that is exact: its logits are a hash of the whole token path.

    Another token anywhere before gives other numbers, and nothing is rounded: float64
    crosses the border here. `pass_s`: how long a pass takes.
    """

    def __init__(
        self,
        lexicon: Lexicon,
        seed: int = 0,
        window: int = 1_000_000,
        pass_s: float = 0.0,
        room: int = 1_000_000,
        strategy: Strategy = "tree",
    ) -> None:
        self.tokenizer = lexicon.chat
        self.seed = seed
        self.pass_s = pass_s
        self.passes = 0
        end = frozenset([lexicon.chat.eos_token_id])
        # Checkpoints are padded: there are more logits than tokens.
        self.identity = Identity(
            "hash", "cpu (a hash)", "float64", window, len(lexicon.chat) + 5, end, strategy, f"hash {seed}"
        )
        self.nodes_read: list[int] = []  # by read
        self._room = room

    def logits(self, prompt: Sequence[int], after: Sequence[int]) -> np.ndarray:
        """Logits (V,) float64 of what follows `prompt` and `after`."""
        path = np.array([self.seed, *prompt, *after], dtype=np.int64).tobytes()
        seed = int.from_bytes(hashlib.blake2b(path, digest_size=8).digest())
        return np.random.default_rng(seed).normal(0.0, 3.0, self.identity.vocab_size)

    def log_probabilities(self, path: Sequence[int]) -> np.ndarray:
        logits = self.logits(path, ())
        return logits - np.logaddexp.reduce(logits)

    def prefill(self, ids: Sequence[int], after: HashPrefix | None = None) -> HashPrefix:
        self._pass()
        return HashPrefix((*(after.ids if after else ()), *ids))

    def read(
        self,
        prefix: HashPrefix | None,
        ids: Sequence[int],
        tree: TreeBatch,
        rows: Sequence[int],
        wanted: Sequence[np.ndarray],
        keep: bool = False,
    ) -> tuple[list[np.ndarray], HashPrefix | None]:
        assert len(ids) + len(tree.tokens) <= self._room or len(set(tree.depths)) == len(tree.depths)
        if self.identity.strategy == "rows" and ids:
            self._pass()
        self._pass()
        self.nodes_read.append(len(tree.tokens))
        prompt = [*(prefix.ids if prefix else ()), *ids]
        values = []
        for row, tokens in zip(rows, wanted, strict=True):
            path: list[int] = []
            node = row
            while node >= 0:
                path.insert(0, tree.tokens[node])
                node = tree.parents[node]
            assert tree.depths[row] == len(path) - 1, "a node's position is its depth in its own line"
            logits = self.logits(prompt, path)
            values.append((logits - np.logaddexp.reduce(logits))[tokens])
        return values, HashPrefix(tuple(prompt)) if keep else None

    def room(self, length: int) -> int:
        return self._room

    def decoder(self, prefix: HashPrefix) -> HashDecoder:
        return HashDecoder(self, prefix.ids)

    def synchronize(self) -> None: ...

    def _pass(self) -> None:
        self.passes += 1
        time.sleep(self.pass_s)


class HashDecoder:
    def __init__(self, backend: HashBackend, prompt: tuple[int, ...]) -> None:
        self._backend = backend
        self._prompt = prompt
        self._written: list[int] = []

    def choose(self, mask: np.ndarray | None = None) -> int:
        logits = self._backend.logits(self._prompt, self._written)
        if mask is not None:
            allowed = np.unpackbits(mask.view(np.uint8), bitorder="little")[: len(logits)]
            logits[~allowed.astype(bool)] = -np.inf
        return int(logits.argmax())

    def append(self, ids: Sequence[int]) -> None:
        self._backend._pass()
        self._written += ids


class PreferringBackend(HashBackend):
    """A model that means to write the first of the texts given to `intend` right after the prompt, less any other.

    It likes best the token with which its tokenizer would go on, less any other token that
    goes on with the text; the rest is noise.
    """

    def __init__(self, lexicon: Lexicon, **kwargs: float) -> None:
        super().__init__(lexicon, **kwargs)
        self._lexicon = lexicon
        self.intend()

    def intend(self, *texts: str, before: str = "") -> None:
        """`before` is the plain text at the prompt's end."""
        self._before = self._lexicon.encode(before)
        self._intentions = [(text.encode(), self._lexicon.encode_after(before, text)) for text in texts]

    def logits(self, prompt: Sequence[int], after: Sequence[int]) -> np.ndarray:
        given, after = after, [*self._beyond(prompt), *after]
        texts = self._lexicon.texts
        written = b"".join(texts[token] for token in after if token < len(texts))  # the rest is padding
        liking = np.zeros(self.identity.vocab_size)
        for rank, (text, path) in enumerate(self._intentions):
            much = 4.0 if rank else 6.0
            rest = text[len(written) :] if text.startswith(written) else b""
            for token, piece in enumerate(texts):
                if piece and rest.startswith(piece):
                    liking[token] = max(liking[token], much)
            if path[: len(after)] == list(after) and len(path) > len(after):
                liking[path[len(after)]] = max(liking[path[len(after)]], 2 * much)
        return liking + super().logits(prompt, given) / 10

    def _beyond(self, prompt: Sequence[int]) -> Sequence[int]:
        """What was read with the prompt and is part of the answer: tokens that were forced."""
        size = len(self._before)
        ends = (end for end in range(len(prompt), 0, -1) if list(prompt[end - size : end]) == self._before)
        return prompt[next(ends, len(prompt)) :] if size else ()


# --- tiny random checkpoints ---

_SIZE = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
_SHAPE = _SIZE | {"initializer_range": 0.3, "max_position_embeddings": 8192}
ARCHITECTURES = {
    "llama": LlamaConfig(**_SHAPE, num_key_value_heads=2, tie_word_embeddings=True),
    "qwen2": Qwen2Config(**_SHAPE, num_key_value_heads=1, tie_word_embeddings=False),
    "phi": PhiConfig(**_SHAPE, num_key_value_heads=4),  # its output head has a bias
}


def checkpoint(folder: Path, architecture: str, lexicon: Lexicon) -> Path:
    """A random float32 model with the lexicon's tokenizer, as a Hugging Face folder."""
    config = copy.deepcopy(ARCHITECTURES[architecture])
    config.vocab_size = len(lexicon.chat) + 5
    config.bos_token_id, config.eos_token_id, config.pad_token_id = None, lexicon.chat.eos_token_id, None
    torch.manual_seed(len(architecture))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    model.save_pretrained(folder)
    lexicon.chat.save_pretrained(folder)
    return folder


# --- choices that break engines: own work, and names of public schemes ---

TRAPS: dict[str, list[str]] = {
    "bool_like": ["true", "false", "True", "False", "TRUE", "yes", "no", "Yes", "No", "on", "off", "1", "0", "Y", "N"],
    "case_only": ["us", "US", "Us", "May", "may", "MAY", "polish", "Polish", "turkey", "Turkey"],
    "escape": [
        'he said "stop"', "C:\\temp\\new", "path\\", "line1\nline2", "tab\there", "back`tick", "{{name}}", "${x}",
        "</script>", "<b>bold</b>", "a\\u0041", '"', "it's", "50% off", "%s", "{0}", "[INST]", "<|im_end|>", "<think>",
        "a\0b", ADDED, "<|im_start|>system", "${7*7}", "<img src=x onerror=alert(1)>", '",', '"\n}',
    ],
    "none_like": [
        "none", "None", "NONE", "null", "NULL", "nan", "NaN", "N/A", "n/a", "NA", "undefined", "nil", "-", "unknown",
        "",
    ],
    "numeric_like": ["01", "1", "1.0", "1e0", "001", "10", "100", "+1", "-1", "\u0663", "½", "0x1F", "1_000", "1,000"],
    "trailing_punct": ["Yes", "Yes.", "Yes!", "Yes?", "Yes…", "No", "No.", "No, thanks", "etc", "etc."],
    "unicode": [
        "生气", "平静", "高兴", "嬉しい", "悲しい", "سعيد", "حزين", "खुश", "दुखी", "😀", "😡", "👩\u200d👩\u200d👧",
        "🇳🇴", "🇳🇦", "caf\u00e9", "Straße", "STRASSE", "ﬁne", "fine", "İstanbul", "istanbul", "ﺷﻜﺮ", "ก็", "\u00e9",
        "A", "\u0391", "\u0410",
    ],
    "whitespace": ["high", "high ", " high", "hi gh", "high\u00a0", "high\u200b", "HIGH\t", "low"],
    "blood_types": ["A+", "A-", "B+", "B-", "AB+", "AB-", "O+", "O-"],
    "cwe": ["CWE-79", "CWE-787", "CWE-89", "CWE-352", "CWE-22", "CWE-125", "CWE-78", "CWE-94", "CWE-798", "CWE-7"],
    "ratings": ["AAA", "AA+", "AA", "AA-", "A+", "A", "A-", "BBB+", "BBB", "BBB-", "B", "CCC+", "CC", "C", "D"],
    "prefixes": ["BILLING", "BILLING_DISPUTE", "BILL", "B", "b", "bb"],
    "quotes": ['"north"', '"south"', "Dr. Ito", "Prof. Ito", "C++", "a|b", "(x)", "[y]", "^z$"],
}  # fmt: skip
#: Composed and decomposed: one and the same to a normalising tokenizer.
TWINS = ["caf\u00e9", "cafe\u0301", "\u00e9", "e\u0301"]
