"""Make a tiny Qwen3 with random weights, its tokenizer and chat template: `models.py FOLDER`.

Runs in the real engine's own environment (torch, transformers, tokenizers). Nothing is downloaded. The
answers are noise; a test may count tokens, never read them.
"""

import json
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

WORDS = [
    "spark", "memory", "engine", "stream", "token", "cache", "profile", "swap", "graph", "kernel", "tensor", "prefix",
    "draft", "accept", "verify", "load",
]  # fmt: skip
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
VOCABULARY = 1024


def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE learned from made-up sentences, padded to VOCABULARY entries by its three marks."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    lines = [f"The {a} {b}s the {c}, and {i} {a}s follow." for i, a in enumerate(WORDS) for b in WORDS for c in WORDS]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(MARKS), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    bpe.train_from_iterator(lines, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.add_special_tokens({"additional_special_tokens": MARKS})
    fast.chat_template = CHAT_TEMPLATE
    return fast


def qwen3(fast: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """Two layers of 64: about a quarter of a million parameters, the same ones every time."""
    torch.manual_seed(11)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            max_position_embeddings=8192,
            tie_word_embeddings=False,
            eos_token_id=fast.convert_tokens_to_ids("<|im_end|>"),
            pad_token_id=fast.convert_tokens_to_ids("<|endoftext|>"),
            bos_token_id=None,
        )
    )


def main(folder: Path) -> None:
    fast = tokenizer()
    qwen3(fast).to(torch.bfloat16).save_pretrained(folder, safe_serialization=True)
    fast.save_pretrained(folder)
    # the plain class name, so that any version of the engine's libraries loads it
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
