#!/usr/bin/env python3
# requirements: gguf==0.19.0 numpy==2.4.6
"""Makes src/numerics/weight_tables.cpp: the tables of IQ1 to IQ3, as the Python package gguf has them, with the number of
a weight among those that its table knows instead of the weight."""

import pathlib

import gguf.quants
import numpy as np

TABLES = [("kIq1", "IQ1_S", 2), ("kIq2Xxs", "IQ2_XXS", 2), ("kIq2Xs", "IQ2_XS", 2), ("kIq2S", "IQ2_S", 2),
          ("kIq3Xxs", "IQ3_XXS", 4), ("kIq3S", "IQ3_S", 4)]


def entries(quantization, bits):
    quantization.init_grid()
    weights = quantization.grid.reshape(quantization.grid_shape).astype(int)
    numbers = np.searchsorted(quantization.grid_map, weights)
    assert (np.array(quantization.grid_map)[numbers] == weights).all()
    return [sum(int(number) << bits * i for i, number in enumerate(entry)) for entry in numbers]


def main():
    lines = ["// Made by scripts/weight_tables.py.", "", '#include "numerics/weight_tables.h"', "", "namespace outrider {", "",
             "// clang-format off"]
    for name, source, bits in TABLES:
        values = [f"0x{entry:x}" for entry in entries(getattr(gguf.quants, source), bits)]
        lines.append(f"const std::uint16_t {name}[{len(values)}] = {{")
        line = ""
        for value in values:
            if len(line) + len(value) + 1 > 118:
                lines.append(line)
                line = ""
            line += value + ","
        lines += [line, "};"]
    lines += ["// clang-format on", "", "}  // namespace outrider", ""]
    (pathlib.Path(__file__).resolve().parents[1] / "src/numerics/weight_tables.cpp").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
