#!/usr/bin/env python3
"""Writes src/jinja/case_table.cpp: the one-to-one case mappings of Python's str, as ranges.

Needs: Python 3.11 (Unicode 14), nothing else. Run it at the root of the repository.
"""

import pathlib


def mappings(function):
    """(code, delta) of each character beyond ASCII that `function` maps to exactly one other."""
    for code in range(0x80, 0x110000):
        if 0xD800 <= code < 0xE000:
            continue
        mapped = function(chr(code))
        if len(mapped) == 1 and ord(mapped) != code:
            yield code, ord(mapped) - code


def ranges(pairs):
    """Joins neighbours of equal delta that are 1 or 2 apart: (first, last, stride, delta)."""
    pairs = list(pairs)
    begin = 0
    while begin < len(pairs):
        best_end, best_stride = begin, 1
        for stride in (1, 2):
            end = begin
            while end + 1 < len(pairs) and pairs[end + 1] == (pairs[end][0] + stride, pairs[begin][1]):
                end += 1
            if end > best_end:
                best_end, best_stride = end, stride
        yield pairs[begin][0], pairs[best_end][0], best_stride, pairs[begin][1]
        begin = best_end + 1


def table(name, function):
    rows = [f"    {{0x{first:x}, 0x{last:x}, {stride}, {delta}}},"
            for first, last, stride, delta in ranges(mappings(function))]
    return f"const CaseRange {name}[] = {{\n" + "\n".join(rows) + f"\n}};\nconst std::size_t {name}Count = {len(rows)};\n"


SOURCE = f"""// Made by scripts/golden/unicode_case.py.

#include "jinja/case_table.h"

namespace outrider::jinja {{

// clang-format off
{table("kToUpper", str.upper)}
{table("kToLower", str.lower)}
// clang-format on

}}  // namespace outrider::jinja
"""

pathlib.Path("src/jinja/case_table.cpp").write_text(SOURCE)
