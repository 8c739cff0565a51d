#!/usr/bin/env python3
# requirements: torch==2.15.0 transformers==5.24.0 gguf==0.19.0 numpy==2.3.5 sentencepiece==0.2.1 safetensors==0.8.0 scikit-build-core==1.1.2
"""Makes tests/golden/families/: small random models of every family, and what transformers says of texts.

    scripts/golden/families.py FOLDER [NAME...]    FOLDER receives llama.cpp's converter, from the source package of
                                                   llama-cpp-python 0.3.36

NAME.tar.xz holds

model.gguf      the model as llama.cpp's converter writes it, without a vocabulary. Weights are few different numbers,
                exact in F16, so that the file packs well.
expected.gguf   tokens             [96, 11]       sequences of random tokens
                best               [8, 96 * 11]   the 8 most probable next tokens after each token
                log_probabilities  [8, 96 * 11]  theirs, by transformers in float32
"""

import json
import logging
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
import transformers

import packing

PACKAGE = "llama-cpp-python==0.3.36"
VOCABULARY, LENGTH, SEQUENCES, BEST = 64, 96, 11, 8

# Every model, unless it says otherwise.
COMMON = dict(vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
              max_position_embeddings=128, bos_token_id=None, eos_token_id=None, pad_token_id=None, tie_word_embeddings=False)

LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=24)


def longrope(pairs, original):
    return dict(rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=original, short_factor=[1 + i / 16 for i in range(pairs)],
                long_factor=[1.5 + i for i in range(pairs)])


# Name: class of the configuration, what is special about this one.
MODELS = {
    "llama": ("LlamaConfig", dict(rope_parameters=dict(rope_type="default", rope_theta=500.0))),
    "llama3": ("LlamaConfig", dict(rope_parameters=LLAMA3, tie_word_embeddings=True)),
    "llama-biases": ("LlamaConfig", dict(attention_bias=True, mlp_bias=True, head_dim=32)),
    "ministral3": ("Ministral3Config", dict(head_dim=32, rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=1.0, beta_fast=32.0, beta_slow=1.0,
                                                                             llama_4_scaling_beta=0.5))),
    "smollm3": ("SmolLM3Config", dict(tie_word_embeddings=True)),
    "qwen2": ("Qwen2Config", dict()),
    "qwen2-yarn": ("Qwen2Config", dict(rope_parameters=YARN)),
    "qwen3": ("Qwen3Config", dict(head_dim=32, tie_word_embeddings=True)),
    "gemma2": ("Gemma2Config", dict(head_dim=32, query_pre_attn_scalar=32, sliding_window=24, attn_logit_softcapping=4.0, final_logit_softcapping=20.0,
                                    tie_word_embeddings=True)),
    "gemma3": ("Gemma3TextConfig", dict(head_dim=32, query_pre_attn_scalar=32, sliding_window=24, num_hidden_layers=7, tie_word_embeddings=True,
                                        rope_parameters=dict(full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1e6),
                                                             sliding_attention=dict(rope_type="default", rope_theta=10000.0)))),
    "phi3": ("Phi3Config", dict(sliding_window=40, rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "phi3-long": ("Phi3Config", dict(rope_parameters=longrope(8, 48), original_max_position_embeddings=48)),
    "phi4-short": ("Phi3Config", dict(rope_parameters=dict(longrope(6, 100), partial_rotary_factor=0.75), original_max_position_embeddings=100,
                                      tie_word_embeddings=True)),
    "chatglm": ("GlmConfig", dict(head_dim=16, rms_norm_eps=1e-5, attention_bias=True, rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5))),
    "glm4": ("Glm4Config", dict(head_dim=32, attention_bias=True, rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5))),
    "granite": ("GraniteConfig", dict(embedding_multiplier=6.0, attention_multiplier=0.125, residual_multiplier=0.375, logits_scaling=4.0)),
    "olmo2": ("Olmo2Config", dict()),
    "olmo3": ("Olmo3Config", dict(sliding_window=24, rope_parameters=YARN)),
    "command-r": ("CohereConfig", dict(logit_scale=0.25, tie_word_embeddings=True, model_max_length=128)),
    "command-r-plus": ("CohereConfig", dict(logit_scale=0.25, use_qk_norm=True, tie_word_embeddings=True, model_max_length=128)),
    "cohere2": ("Cohere2Config", dict(logit_scale=0.25, sliding_window=24, tie_word_embeddings=True, rotary_pct=1.0)),
    "starcoder2": ("Starcoder2Config", dict(tie_word_embeddings=True)),
    "falcon3": ("LlamaConfig", dict(head_dim=32, num_key_value_heads=1, rope_parameters=dict(rope_type="default", rope_theta=1000042.0))),
    "llama-lengths": ("LlamaConfig", dict(head_dim=32, rope_parameters=dict(rope_type="default", rope_theta=500.0))),
    "glm4-lengths": ("Glm4Config", dict(head_dim=32, attention_bias=True, rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25))),
}


# Name: channels of keys and of values in the file. transformers' models have head_dim of both; those beyond these are 0,
# so that they change nothing.
LENGTHS = {
    "llama-lengths": (32, 24),
    "glm4-lengths": (8, 32),
}


def few_numbers(generator, shape, deviation):
    """Normal numbers, rounded to multiples of their deviation, which is rounded to a power of two."""
    return torch.round(torch.randn(shape, generator=generator)) * 2.0 ** round(np.log2(deviation))


def length_in(name, key):
    """How many channels of each head a model's tensor has in the file; None: all."""
    if name not in LENGTHS:
        return None
    key_length, value_length = LENGTHS[name]
    return key_length if "q_proj" in key or "k_proj" in key else value_length if "v_proj" in key or "o_proj" in key else None


def cut_heads(made, name):
    """Lets a converter write heads of other lengths than its model's."""
    head_dim = made.hparams["head_dim"]
    key_length, value_length = LENGTHS[name]
    modify_tensors, set_gguf_parameters = made.modify_tensors, made.set_gguf_parameters

    def with_lengths():
        set_gguf_parameters()
        made.gguf_writer.add_key_length(key_length)
        made.gguf_writer.add_value_length(value_length)

    def cut(tensor, key, layer):
        length = length_in(name, key)
        if length:
            dim = 1 if "o_proj" in key else 0
            tensor = tensor.unflatten(dim, (-1, head_dim)).narrow(dim + 1, 0, length).flatten(dim, dim + 1)
        if "q_proj" in key:  # scores are multiplied by 1 / sqrt(key length)
            tensor = tensor * (key_length / head_dim) ** 0.5
        return modify_tensors(tensor, key, layer)

    made.modify_tensors, made.set_gguf_parameters = cut, with_lengths


def make_model(name, kind, special, deviation=8):
    """A model whose logits have this standard deviation or so, and random tokens."""
    config = getattr(transformers, kind)(**{**COMMON, **special})
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(sum(name.encode()))
    is_gemma = int(name.startswith("gemma"))  # adds 1 to the weights of its norms
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.dim() == 1 or "_norm." in key:
                ones = 0 if key.endswith("bias") or is_gemma else 1
                parameter.copy_(ones + few_numbers(generator, parameter.shape, 0.125))
                continue
            gain = 2 if any(part in key for part in ("q_proj", "k_proj", "qkv_proj")) else 1
            parameter.copy_(few_numbers(generator, parameter.shape, gain / parameter.shape[1] ** 0.5))
        for key, parameter in model.named_parameters():
            length = length_in(name, key)
            if length and "o_proj" not in key:
                parameter.unflatten(0, (-1, config.head_dim))[:, length:] = 0
        # With a deviation of 8 one token is clearly best, with a second often near.
        tokens = torch.randint(0, VOCABULARY, (SEQUENCES, LENGTH), generator=generator)
        cap, model.config.final_logit_softcapping = getattr(config, "final_logit_softcapping", None), None
        spread = model(tokens, use_cache=False).logits.std().item()
        weight = model.model.norm.weight
        weight.copy_((torch.round((weight + is_gemma) * (deviation / spread) * 8) / 8) - is_gemma)
        model.config.final_logit_softcapping = cap
    return model, tokens


def converter(folder):
    """llama.cpp's classes of models, by the name of the architecture."""
    source = folder / "llama.cpp"
    if not source.exists():
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation", "--no-binary", ":all:", "--dest", folder, PACKAGE],
                       check=True)
        archive = next(folder.glob("llama_cpp_python-*.tar.gz"))
        with tempfile.TemporaryDirectory(dir=folder) as unpacked, tarfile.open(archive) as tar:
            wanted = [m for m in tar.getmembers() if "/vendor/llama.cpp/conversion/" in m.name or "/vendor/llama.cpp/gguf-py/" in m.name]
            tar.extractall(unpacked, wanted, filter="data")
            next(pathlib.Path(unpacked).glob("*/vendor/llama.cpp")).rename(source)
    sys.path[:0] = [str(source), str(source / "gguf-py")]
    import conversion
    return conversion.get_model_class


def convert(get_model_class, name, folder, out, change=lambda made: None, file_type="MOSTLY_F16", **options):
    """change: is given the converter before it writes; options: the converter's."""
    import gguf
    architecture = json.loads((folder / "config.json").read_text())["architectures"][0]
    kind = get_model_class(architecture)
    with torch.inference_mode():
        made = kind(folder, gguf.LlamaFileType[file_type], out, model_name="golden", **options)
        made.set_vocab = lambda: None
        if hasattr(made, "impl"):
            made.impl.set_vocab = lambda: None
        if name in LENGTHS:
            cut_heads(made, name)
        change(made)
        made.write()


def expectations(model, tokens, out):
    import gguf
    with torch.no_grad():
        logits = model(tokens, use_cache=False).logits.double()
    best = torch.log_softmax(logits, -1).topk(BEST, -1)
    others = torch.log_softmax(logits, -1).scatter(-1, best.indices, -torch.inf).logsumexp(-1, keepdim=True)
    stored = torch.cat([best.values[..., 1:], others], -1)
    writer = gguf.GGUFWriter(out, "expectations")
    writer.add_tensor("tokens", tokens.numpy().astype(np.float16))
    writer.add_tensor("best", best.indices.reshape(-1, BEST).numpy().astype(np.float16))
    writer.add_tensor("log_probabilities", stored.reshape(-1, BEST).numpy().astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return f"entropy {-(best.values.exp() * best.values).sum(-1).mean():.2f}, beyond the best {BEST}: {others.exp().mean():.1e}"


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    get_model_class = converter(folder)
    for name in sys.argv[2:] or MODELS:
        model, tokens = make_model(name, *MODELS[name])
        with tempfile.TemporaryDirectory(dir=folder) as work:
            work = pathlib.Path(work)
            model.save_pretrained(work / "source")
            vocabulary = {"model": {"vocab": {str(i): i for i in range(VOCABULARY)}}, "added_tokens": []}  # Gemma 3's converter counts it
            (work / "source" / "tokenizer.json").write_text(json.dumps(vocabulary))
            convert(get_model_class, name, work / "source", work / "model.gguf")
            said = expectations(model, tokens, work / "expected.gguf")
            size = packing.pack(f"families/{name}", {file: (work / file).read_bytes() for file in ("model.gguf", "expected.gguf")})
        print(f"{name}: {size} bytes, {said}", flush=True)


if __name__ == "__main__":
    main()
