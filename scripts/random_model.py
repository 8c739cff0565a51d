#!/usr/bin/env python3
# requirements: gguf==0.19.0 numpy==2.4.6
"""Makes a model file of the shape of Llama 3 8B in Q4_K_M (4.9 GB) with random weights, to measure sizes and times.

    scripts/random_model.py FILE.gguf [--layers 32]
"""

import argparse

import gguf
import numpy as np

EMBEDDING, WIDTH, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY = 4096, 14336, 32, 8, 128, 128256
HALVES = {"Q4_K": {0: 2e-4, 2: 1.5e-3}, "Q6_K": {208: 2e-5}}  # places of a block's halves: of a size that keeps activations ordinary


class Blocks:
    """Random blocks of each type, of which every tensor takes as many as it needs."""

    def __init__(self):
        chance = np.random.default_rng(8)
        self.pool = {}
        for name, halves in HALVES.items():
            elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
            blocks = chance.integers(0, 256, (1 << 20, size), dtype=np.uint8)
            for place, value in halves.items():
                blocks[:, place:place + 2] = np.array([value], np.float16).view(np.uint8)
            self.pool[name] = blocks

    def matrix(self, name, columns, rows):
        elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
        n = columns // elements * rows
        pool = self.pool[name]
        return np.resize(pool, (n, size)).reshape(rows, -1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--layers", type=int, default=32)
    options = parser.parse_args()
    writer = gguf.GGUFWriter(options.file, "llama", use_temp_file=True)
    writer.add_name("random")
    writer.add_block_count(options.layers)
    writer.add_context_length(131072)
    writer.add_embedding_length(EMBEDDING)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500000.0)
    writer.add_rope_dimension_count(HEAD_DIM)
    plain = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    other = [byte for byte in range(256) if byte not in plain]
    letters = [chr(byte) for byte in plain] + [chr(256 + i) for i in range(len(other))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list([*letters, "!!", *(f"<{i}>" for i in range(VOCABULARY - 257))])
    writer.add_token_types([1] * VOCABULARY)
    writer.add_token_merges(["! !"])
    writer.add_bos_token_id(VOCABULARY - 256)
    writer.add_eos_token_id(VOCABULARY - 1)

    blocks = Blocks()

    def matrix(name, kind, columns, rows):
        writer.add_tensor(name, blocks.matrix(kind, columns, rows), raw_dtype=gguf.GGMLQuantizationType[kind])

    def norm(name):
        writer.add_tensor(name, np.ones(EMBEDDING, np.float32))

    matrix("token_embd.weight", "Q4_K", EMBEDDING, VOCABULARY)
    norm("output_norm.weight")
    matrix("output.weight", "Q6_K", EMBEDDING, VOCABULARY)
    for layer in range(options.layers):
        # Q4_K_M keeps more bits in half of the values and of what goes down.
        more = "Q6_K" if layer < options.layers // 8 or layer >= 7 * options.layers // 8 or (layer - options.layers // 8) % 3 == 2 else "Q4_K"
        block = f"blk.{layer}."
        norm(block + "attn_norm.weight")
        matrix(block + "attn_q.weight", "Q4_K", EMBEDDING, HEADS * HEAD_DIM)
        matrix(block + "attn_k.weight", "Q4_K", EMBEDDING, KV_HEADS * HEAD_DIM)
        matrix(block + "attn_v.weight", more, EMBEDDING, KV_HEADS * HEAD_DIM)
        matrix(block + "attn_output.weight", "Q4_K", HEADS * HEAD_DIM, EMBEDDING)
        norm(block + "ffn_norm.weight")
        matrix(block + "ffn_gate.weight", "Q4_K", EMBEDDING, WIDTH)
        matrix(block + "ffn_up.weight", "Q4_K", EMBEDDING, WIDTH)
        matrix(block + "ffn_down.weight", more, WIDTH, EMBEDDING)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
