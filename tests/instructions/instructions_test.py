"""Kernels against bounds.txt: their instructions in the library's disassembly, and those of whole products counted by
Valgrind, which knows AVX2 but not AVX-512. Counts are the same on every machine, so they guard speed where clocks cannot.

With --renew, numbers of bounds.txt that no longer fit are replaced: `cmake --build build/release --target renew_bounds`."""

import math
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

FOLDER = Path(__file__).parent
BOUNDS = FOLDER / "bounds.txt"
TYPES = FOLDER.parent.parent / "src/formats/tensor_type.h"
JUMP = re.compile(r"j\w+\s+([0-9a-f]+)")
BOUND = re.compile(r"(\w+)(=|<=)(\d+)")


class Instruction:
    def __init__(self, address, text):
        self.address, self.text = address, text
        jump = JUMP.match(text)
        self.target = int(jump[1], 16) if jump else None

    def counts_as(self, what):
        """what: the beginning of a name; or `all`; or `stack` for a wide register saved to the stack or read from it."""
        if what == "all":
            return True
        if what == "stack":
            return "(%rsp" in self.text and re.search("%[xyz]mm", self.text) is not None
        return self.text.startswith(what)


def lines():
    """Of bounds.txt: (line, the section it is in, its words, the bounds among them as (what, = or <=, number))."""
    section = None
    for line in BOUNDS.read_text().splitlines():
        text = line.partition("#")[0].strip()
        if text.startswith("["):
            section, text = text.strip("[]"), ""
        words = text.split()
        bounds = [match for match in map(BOUND.fullmatch, words) if match]
        yield (line, section, [word for word in words if not BOUND.fullmatch(word)],
               [(what, relation, int(number)) for what, relation, number in map(re.Match.groups, bounds)])


def table(section):
    return [(words, bounds) for _, where, words, bounds in lines() if where == section and words]


def disassembly(library):
    """Functions by a short form of their names: panel<q4_k,8> for void outrider::panel<(outrider::TensorType)12, 8>(...)."""
    numbers = {number: name for name, number in re.findall(r"(\w+) = (\d+)", TYPES.read_text())}
    output = subprocess.run(["objdump", "-d", "-C", "--no-show-raw-insn", library], capture_output=True, text=True,
                            check=True).stdout
    functions = {}
    for line in output.splitlines():
        header = re.fullmatch(r"[0-9a-f]+ <(.*)>:", line)
        if header:
            name = re.sub(r"\(outrider::TensorType\)(\d+)", lambda m: numbers.get(m[1], m[1]), header[1])
            name = re.sub(r"\(anonymous namespace\)::|outrider::|tiled::", "", name)
            name = re.sub(r"\(([\w:]+)\)(\d+)", r"\1\2", name).partition("(")[0]
            body = functions[re.sub(r"^void ", "", name).replace(" ", "")] = []
            continue
        line = re.fullmatch(r"\s*([0-9a-f]+):\s+(.*)", line)
        if line:
            body.append(Instruction(int(line[1], 16), line[2]))
    return functions


def inner_loops(function):
    """Of loops, those that have none inside."""
    spans = [(jump.target, jump.address) for jump in function
             if jump.target is not None and function[0].address <= jump.target <= jump.address]
    inner = [a for a in spans if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in spans)]
    return [[i for i in function if first <= i.address <= last] for first, last in inner]


def count(instructions, what):
    return sum(instruction.counts_as(what) for instruction in instructions)


def kernel_counts(function, scope, bounds):
    """What is counted for each bound."""
    if scope == "loop":
        function = max(inner_loops(function), key=lambda loop: count(loop, bounds[0][0]))
    return [count(function, what) for what, _, _ in bounds]


def product_count(isa, arguments):
    """Instructions of one call."""
    once, thrice = (executed(isa, arguments, calls) for calls in (1, 3))
    return (thrice - once) // 2


def executed(isa, arguments, calls):
    """Instructions of a run of product_calls."""
    run = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
                          os.environ["PRODUCT_CALLS"], isa, *arguments, str(calls)], capture_output=True, text=True)
    if run.returncode == 77:
        raise unittest.SkipTest(run.stderr.splitlines()[-1])
    assert run.returncode == 0, run.stderr
    return int(re.search(r"Collected : (\d+)", run.stderr)[1])


def renewed(relation, bound, found):
    """A limit stays where it holds and is at most 5 % too high; a new one leaves the compiler 2 %."""
    if relation == "=":
        return found
    return bound if found <= bound <= math.ceil(1.05 * found) else math.ceil(1.02 * found)


def renew():
    functions = disassembly(os.environ["CPU_LIBRARY"])
    text = []
    for line, section, words, bounds in lines():
        if bounds:
            if section == "kernels":
                found = kernel_counts(functions[words[0]], words[1], bounds)
            else:
                found = [product_count(words[0], words[1:])] * len(bounds)
            for (what, relation, bound), now in zip(bounds, found):
                line = line.replace(f"{what}{relation}{bound}", f"{what}{relation}{renewed(relation, bound, now)}")
        text.append(line + "\n")
    BOUNDS.write_text("".join(text))


class Instructions(unittest.TestCase):
    def setUp(self):
        build = os.environ["BUILD"]
        if build != "GNU Release":
            self.skipTest(f"{build}: bounds are for what users run, GNU Release")

    def need(self, program):
        if shutil.which(program) is None:
            self.skipTest(f"{program} is not installed")

    def hold(self, name, what, relation, bound, found):
        text = f"{name}: {what} {found}, expected {relation} {bound}"
        if relation == "=":
            self.assertEqual(found, bound, text)
        else:
            self.assertLessEqual(found, bound, text)

    def test_kernels(self):
        self.need("objdump")
        functions = disassembly(os.environ["CPU_LIBRARY"])
        for (name, scope), bounds in table("kernels"):
            with self.subTest(name):
                self.assertTrue(name in functions, "no such function")
                for bound, found in zip(bounds, kernel_counts(functions[name], scope, bounds)):
                    self.hold(name, *bound, found)

    def test_products(self):
        self.need("valgrind")
        for (isa, *arguments), bounds in table("products"):
            name = " ".join([isa, *arguments])
            with self.subTest(name):
                found = product_count(isa, arguments)
                for bound in bounds:
                    self.hold(name, *bound, found)


if __name__ == "__main__":
    if sys.argv[1:] == ["--renew"]:
        renew()
    else:
        unittest.main(verbosity=2)
