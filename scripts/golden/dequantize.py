#!/usr/bin/env python3
# requirements: gguf==0.19.0 numpy==2.4.6
"""Makes tests/golden/dequantize.gguf: random blocks of every tensor type, and their values.

Tensor NAME.blocks has type NAME; NAME.values holds in float32 what gguf.quants.dequantize gives for it.
"""

import pathlib

import gguf
import numpy as np

TYPES = "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S IQ4_NL IQ4_XS " \
    "TQ1_0 TQ2_0 Q1_0".split()
# Where a block keeps numbers in half precision. Random bits seldom make the numbers below.
HALVES = {"F16": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
          "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ1_S": [0], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0],
          "IQ3_XXS": [0], "IQ3_S": [0], "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64], "Q1_0": [0]}
EXTREMES = [0.0, -0.0, 6e-8, -6e-8, 6.1e-5, 65504.0, -65504.0, np.inf, -np.inf, np.nan]
ELEMENTS = 4096


def random_blocks(name, random):
    block_elements, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    blocks = random.integers(0, 256, (ELEMENTS // block_elements, block_bytes), dtype=np.uint8)
    for n, offset in enumerate(HALVES.get(name, [])):
        # Each place has its own order, so that extremes meet ordinary numbers too.
        rows = random.permutation(len(blocks))[: len(EXTREMES)]
        extremes = np.array(EXTREMES[: len(rows)], dtype=np.float16).view(np.uint8).reshape(-1, 2)
        blocks[rows, offset : offset + 2] = extremes
    if name == "IQ1_M":  # four bits each above four numbers of twelve
        extremes = np.array(EXTREMES, dtype=np.float16).view(np.uint16)
        for digit in range(4):
            high = blocks[: len(extremes), 49 + 2 * digit]
            high[:] = high & 15 | (extremes >> 4 * digit & 15).astype(np.uint8) << 4
    return blocks


def dequantized(blocks, kind):
    if kind == gguf.GGMLQuantizationType.Q1_0:  # which gguf.quants lacks: a sign a weight
        d = blocks[:, :2].copy().view(np.float16).astype(np.float32)
        return np.where(np.unpackbits(blocks[:, 2:], axis=1, bitorder="little") == 1, d, -d)
    return gguf.quants.dequantize(blocks.reshape(-1), kind)


def main():
    random = np.random.default_rng(20250101)
    path = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/dequantize.gguf"
    writer = gguf.GGUFWriter(path, "none")
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        blocks = random_blocks(name, random)
        with np.errstate(all="ignore"):
            values = dequantized(blocks, kind)
        assert values.dtype == np.float32 and values.size == ELEMENTS
        writer.add_tensor(f"{name}.blocks", blocks.reshape(1, -1), raw_dtype=kind)
        writer.add_tensor(f"{name}.values", values.reshape(1, -1))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
