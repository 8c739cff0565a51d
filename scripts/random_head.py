#!/usr/bin/env python3
# requirements: gguf==0.19.0 numpy==2.4.6
"""Makes a head with random weights for a model, to measure sizes and times.

    scripts/random_head.py MODEL.gguf FOLDER [--rows 16384] [--ffn N]
    scripts/random_head.py MODEL.gguf FOLDER --medusa 3 [--outputs]
    scripts/random_head.py MODEL.gguf FOLDER --block 7 [--layers 2] [--markov 256] [--ffn N]

An EAGLE-3 head in the layout of SpecForge. --rows: of its output matrix, the model's first tokens. --ffn: width of its
MLP; not given: the model's. --medusa: so many of Medusa's heads in the layout of TGI, whose outputs are the model's;
with --outputs in that of FasterDecoding, with output matrices of their own. --block: a head that guesses blocks of so
many rows, in the layout of DeepSpec, with the model's outputs; --markov: with a Markov head of this rank.
"""

import argparse
import json
import pathlib
import struct

import gguf
import numpy as np


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, array in tensors.items():
        kind = {"float16": "F16", "int64": "I64"}[str(array.dtype)]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(array.tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=16384)
    parser.add_argument("--ffn", type=int)
    parser.add_argument("--medusa", type=int)
    parser.add_argument("--outputs", action="store_true")
    parser.add_argument("--block", type=int)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--markov", type=int, default=0)
    options = parser.parse_args()
    reader = gguf.GGUFReader(options.model)
    family = reader.fields["general.architecture"].contents()

    def number(key):
        return reader.fields[f"{family}.{key}"].contents()

    width, heads, kv_heads = number("embedding_length"), number("attention.head_count"), number("attention.head_count_kv")
    vocabulary = next(tensor.shape[1] for tensor in reader.tensors if tensor.name == "token_embd.weight")
    head_dim, ffn = width // heads, options.ffn or number("feed_forward_length")
    chance = np.random.default_rng(8)

    def matrix(rows, columns):
        values = chance.standard_normal((rows, columns), np.float32) / np.sqrt(columns)
        return values.astype(np.float16)

    options.folder.mkdir(parents=True, exist_ok=True)
    if options.medusa:
        tensors = {}
        for head in range(options.medusa):
            tensors[f"{head}.0.linear.weight"] = matrix(width, width)
            tensors[f"{head}.0.linear.bias"] = np.zeros(width, np.float16)
            if options.outputs:
                tensors[f"{head}.1.weight"] = matrix(vocabulary, width)
        write_safetensors(options.folder / "medusa_lm_head.safetensors", tensors)
        (options.folder / "config.json").write_text(json.dumps({"medusa_num_heads": options.medusa}))
        return
    norm = np.ones(width, np.float16)

    def layer(name, reads):
        """A decoder layer whose attention reads so many numbers."""
        return {
            name + "self_attn.q_proj.weight": matrix(heads * head_dim, reads),
            name + "self_attn.k_proj.weight": matrix(kv_heads * head_dim, reads),
            name + "self_attn.v_proj.weight": matrix(kv_heads * head_dim, reads),
            name + "self_attn.o_proj.weight": matrix(width, heads * head_dim),
            name + "input_layernorm.weight": norm,
            name + "post_attention_layernorm.weight": norm,
            name + "mlp.gate_proj.weight": matrix(ffn, width),
            name + "mlp.up_proj.weight": matrix(ffn, width),
            name + "mlp.down_proj.weight": matrix(width, ffn),
        }

    config = {
        "hidden_size": width,
        "intermediate_size": ffn,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000,
        "vocab_size": int(vocabulary),
    }
    if options.block:
        taps = [1, number("block_count") // 2, number("block_count") - 3]
        tensors = {"fc.weight": matrix(width, len(taps) * width), "hidden_norm.weight": norm, "norm.weight": norm}
        for i in range(options.layers):
            tensors |= layer(f"layers.{i}.", width)
        if options.markov:
            tensors["markov_head.markov_w1.weight"] = matrix(vocabulary, options.markov)
            tensors["markov_head.markov_w2.weight"] = matrix(vocabulary, options.markov)
        config |= {"num_hidden_layers": options.layers, "target_layer_ids": taps, "block_size": options.block,
                   "mask_token_id": int(vocabulary) - 1}
    else:
        tensors = {
            "d2t": np.zeros(options.rows, np.int64),
            "fc.weight": matrix(width, 3 * width),
            "lm_head.weight": matrix(options.rows, width),
            "norm.weight": norm,
            "midlayer.hidden_norm.weight": norm,
            **layer("midlayer.", 2 * width),
        }
        config |= {"num_hidden_layers": 1, "draft_vocab_size": options.rows}
    write_safetensors(options.folder / "model.safetensors", tensors)
    (options.folder / "config.json").write_text(json.dumps(config, indent=1))


if __name__ == "__main__":
    main()
