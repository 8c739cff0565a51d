#!/usr/bin/env python3
# requirements: gguf==0.19.0 numpy==2.4.6
"""Makes tests/corpus/gguf_fuzz: small sound GGUF files that fuzzing begins with."""

import pathlib
import struct

import gguf
import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests/corpus/gguf_fuzz"


def write(name, fill, alignment=None):
    writer = gguf.GGUFWriter(FOLDER / name, "llama")
    if alignment:
        writer.add_custom_alignment(alignment)
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def every_value(writer):
    for kind in "uint8 int8 uint16 int16 uint32 int32 uint64 int64".split():
        getattr(writer, f"add_{kind}")(kind, 7)
    writer.add_float32("f", 0.5)
    writer.add_float64("d", 0.25)
    writer.add_bool("b", True)
    writer.add_array("integers", [1, 2, 3])
    writer.add_array("floats", [1.0, 2.0])
    writer.add_array("bools", [True, False])


def vocabulary(writer):
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["a", "b", "ab", "<s>"])
    writer.add_token_types([1, 1, 1, 3])
    writer.add_token_merges(["a b"])


def tensors(writer):
    writer.add_tensor("token_embd.weight", np.zeros((2, 8), np.float32))
    writer.add_tensor("blk.0.attn_q.weight", np.zeros((1, 144), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q4_K)
    writer.add_tensor("output_norm.weight", np.zeros(8, np.float16))


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    write("values.gguf", every_value)
    write("vocabulary.gguf", vocabulary)
    write("tensors.gguf", tensors)
    write("aligned.gguf", tensors, alignment=8)
    version_2 = bytearray((FOLDER / "tensors.gguf").read_bytes())
    version_2[4:8] = struct.pack("<I", 2)
    (FOLDER / "version2.gguf").write_bytes(version_2)


if __name__ == "__main__":
    main()
