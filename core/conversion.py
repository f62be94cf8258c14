"""GGUF to a Hugging Face folder in bf16, in a child process that gives its memory back.

The child (`python -m core.conversion GGUF FOLDER FAMILY`) prints how far it is and dies with its parent.
Tensors are unpacked slab by slab: Qwen 1.5B peaks at 0.78 times the 3.56 GB that it writes, where the whole
model through `save_pretrained` takes 1.59. Knows nothing of names, downloads or caches.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.gguf_tokenizer import check_tokens, write_tokenizer
from core.model_cache import ModelError, Progress, more_room, require_room, tells_full_disk

if TYPE_CHECKING:
    import torch
    from gguf import GGUFReader, ReaderTensor
    from transformers import PretrainedConfig, PreTrainedModel

#: Raise it whenever a conversion writes something else: cached folders of an older one are made again.
REVISION = 1

#: GGUF architectures whose tensors are the model's own, one to one. The others go through transformers whole.
_ONE_TO_ONE = {"llama", "qwen2", "qwen3"}
_SHARD_BYTES = 500_000_000
_SLAB_VALUES = 16 << 20  # unpacked at a time: 64 MB of float32

Report = Callable[[float], None]


def convert(gguf: Path, folder: Path, family: str, progress: Progress) -> None:
    """Fills the empty `folder` from `gguf`; raises `ModelError` with the child's last word.

    `family` names the published token ids that the tokenizer must give, "" for none.
    """
    stage = f"converting {gguf.name} to safetensors, once"
    command = [sys.executable, "-m", "core.conversion", str(gguf.absolute()), str(folder), family]
    variables = os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TQDM_DISABLE": "1"}
    progress(stage, 0.0)
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said,
        subprocess.Popen(
            command,
            cwd=Path(__file__).parents[1],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        ) as child,
    ):
        try:
            for line in child.stdout or ():
                progress(stage, float(line))
            child.wait()
        finally:
            child.kill()
        if child.returncode:
            said.seek(0)
            raise ModelError(_last_word(gguf, child.returncode, said.read()))


def _last_word(gguf: Path, code: int, said: str) -> str:
    if code < 0:
        return f"{gguf}: the conversion was ended by signal {-code}; free some memory and start again"
    lines = [line for line in said.splitlines() if line.strip()] or ["no reason given"]
    own = f"{ModelError.__module__}.{ModelError.__name__}: "
    if lines[-1].startswith(own):
        return lines[-1].removeprefix(own)
    if tells_full_disk(lines[-1]):
        return f"{gguf} cannot be converted: {os.strerror(errno.ENOSPC)}; {more_room()}"
    return f"{gguf} cannot be converted: {lines[-1]}; give a Hugging Face folder of the model instead"


def convert_here(gguf: Path, folder: Path, family: str, report: Report) -> None:
    """What the child does."""
    from gguf import GGUFReader

    reader = GGUFReader(gguf)
    metadata = {key: field.contents() for key, field in reader.fields.items()}
    _write_model(gguf, reader, metadata, folder, report)
    write_tokenizer(gguf, metadata, folder)
    if family:
        from transformers import AutoTokenizer

        check_tokens(AutoTokenizer.from_pretrained(folder), family)


def _write_model(gguf: Path, reader: GGUFReader, metadata: Mapping[str, Any], folder: Path, report: Report) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, GgufConfig

    config = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    state = _untied_state(model)
    require_room(sum(tensor.nbytes for tensor in state.values()), folder, f"converting {gguf.name}")
    sources = _sources(reader, metadata["general.architecture"], state, config)
    if sources is None:
        whole = GgufConfig(dequantize=True)
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16, quantization_config=whole
        )
        model.save_pretrained(folder)
    else:
        _write_tensors(state, sources, config, folder, report)
    _write_settings(model, metadata, folder)


def _untied_state(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The model's tensors by name, without the output matrix where that is the input's."""
    state = model.state_dict()
    if model.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    return state


def _sources(
    reader: GGUFReader, architecture: str, state: Mapping[str, torch.Tensor], config: PretrainedConfig
) -> dict[str, ReaderTensor] | None:
    """The file's tensor for each of the model's names, or None where that is not the whole story."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    if architecture not in _ONE_TO_ONE:
        return None
    kind = next(key for key, name in MODEL_ARCH_NAMES.items() if name == architecture)
    names = get_tensor_name_map(kind, config.num_hidden_layers)
    found = {tensor.name: tensor for tensor in reader.tensors}
    sources = {name: found.get(names.get_name(name, try_suffixes=(".weight", ".bias")) or "") for name in state}
    if None in sources.values():
        return None
    for name, source in sources.items():
        shape = tuple(int(size) for size in reversed(source.shape))
        if shape != tuple(state[name].shape):  # transformers misread the metadata, and would load noise
            raise ModelError(
                f"{source.name} has shape {shape} in the file and {tuple(state[name].shape)} in transformers' "
                f"{config.model_type}; use the model's Hugging Face folder instead of the GGUF"
            )
    return sources


def _write_tensors(
    state: Mapping[str, torch.Tensor],
    sources: Mapping[str, ReaderTensor],
    config: PretrainedConfig,
    folder: Path,
    report: Report,
) -> None:
    from huggingface_hub import split_torch_state_dict_into_shards
    from safetensors.torch import save_file

    split = split_torch_state_dict_into_shards(dict(state), max_shard_size=_SHARD_BYTES)
    total, written = sum(tensor.nbytes for tensor in state.values()), 0
    for filename, names in split.filename_to_tensors.items():
        shard = {}
        for name in names:
            shard[name] = _unpacked(sources[name], name, state[name].shape, config)
            written += shard[name].nbytes
            report(written / total)
        save_file(shard, folder / filename, metadata={"format": "pt"})
    if split.is_sharded:
        index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2), "utf-8")


def _unpacked(source: ReaderTensor, name: str, shape: torch.Size, config: PretrainedConfig) -> torch.Tensor:
    import torch
    from gguf import dequantize

    tensor = torch.empty(shape, dtype=torch.bfloat16)
    rows = tensor.view(shape[0], -1)
    step = max(1, _SLAB_VALUES // rows.shape[1])
    packed = source.data.reshape(shape[0], -1)
    for start in range(0, shape[0], step):
        values = dequantize(packed[start : start + step], source.tensor_type)
        rows[start : start + step] = torch.from_numpy(values.reshape(len(values), -1).copy())
    if config.model_type in ("llama", "mistral") and name.endswith((".q_proj.weight", ".k_proj.weight")):
        heads = config.num_attention_heads if ".q_proj." in name else config.num_key_value_heads
        return _rotary_halves(tensor, heads)
    return tensor


def _rotary_halves(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """llama.cpp interleaves the two halves of each head's rotary pairs; transformers keeps them apart."""
    pairs = weight.view(heads, -1, 2, weight.shape[1])  # (head, pair, half, input)
    return pairs.transpose(1, 2).reshape(weight.shape)


def _write_settings(model: PreTrainedModel, metadata: Mapping[str, Any], folder: Path) -> None:
    from transformers import GenerationConfig

    config = model.config
    config.architectures, config.dtype = [type(model).__name__], "bfloat16"
    config.save_pretrained(folder)
    # <|im_end|> ends a turn, <|endoftext|> a document; after either the model has no more to say.
    eos = config.eos_token_id
    ends = list(eos) if isinstance(eos, list) else [eos]
    tokens = metadata["tokenizer.ggml.tokens"]
    if "<|endoftext|>" in tokens and (text_end := tokens.index("<|endoftext|>")) not in ends:
        ends.append(text_end)
    pad = config.pad_token_id
    GenerationConfig(bos_token_id=config.bos_token_id, eos_token_id=ends, pad_token_id=pad).save_pretrained(folder)


def _die_with_the_parent() -> None:
    def wait() -> None:
        sys.stdin.read()  # ends when the parent does, however it ends
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main(arguments: list[str]) -> None:
    _die_with_the_parent()
    gguf, folder, family = arguments
    parent, sys.stdout = sys.stdout, sys.stderr  # what a library prints is not for the parent
    convert_here(Path(gguf), Path(folder), family, lambda part: print(part, file=parent, flush=True))


if __name__ == "__main__":
    main(sys.argv[1:])
