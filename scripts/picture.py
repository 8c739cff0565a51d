#!/usr/bin/env python3
"""Draws a terminal's output, colours included, as an SVG picture: docs/demo.svg is made by

  outrider prove --model smollm2:135m --temp 0 --predict 256 --file assets/demo.txt --color always | scripts/picture.py 'make demo' >docs/demo.svg

usage: picture.py [COMMAND] < output > picture.svg      COMMAND: shown as what was typed
"""
import html
import re
import sys
import textwrap

COLUMNS, CELL, LINE, MARGIN = 92, 8.43, 19, 18
COLOURS = {"30": "#6e7681", "31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff",
           "36": "#76e3ea", "37": "#c9d1d9"}
PLAIN, DIM = "#c9d1d9", "#8b949e"


def cells(text):
    """(character, colour) of each character; the codes that set colours are taken out."""
    colour = PLAIN
    for code, character in re.findall(r"\x1b\[([0-9;]*)m|([^\x1b])", text):
        if character:
            yield character, colour
            continue
        for part in code.split(";"):
            if part in ("", "0"):
                colour = PLAIN
            elif part == "2":
                colour = DIM
            elif part in COLOURS:
                colour = COLOURS[part]


def lines(text):
    """Lines of cells, wrapped between words."""
    line = []
    for cell in cells(text):
        if cell[0] == "\n":
            yield from wrapped(line)
            line = []
        else:
            line.append(cell)
    if line:
        yield from wrapped(line)


def wrapped(line):
    plain = "".join(c for c, _ in line)
    at = 0
    for part in textwrap.wrap(plain, COLUMNS, drop_whitespace=False) or [""]:
        yield line[at:at + len(part)]
        at += len(part)


def main():
    rows = list(lines(sys.stdin.read().rstrip("\n")))
    if len(sys.argv) > 1:
        rows = [[("$", DIM), (" ", PLAIN)] + [(c, PLAIN) for c in sys.argv[1]], []] + rows
    width, height = COLUMNS * CELL + 2 * MARGIN, len(rows) * LINE + 2 * MARGIN
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
          f'font-family="ui-monospace,Menlo,Consolas,monospace" font-size="14">')
    print(f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>')
    for number, row in enumerate(rows):
        spans, at = [], 0
        while at < len(row):
            end = at
            while end < len(row) and row[end][1] == row[at][1]:
                end += 1
            text = html.escape("".join(c for c, _ in row[at:end]))
            spans.append(f'<tspan fill="{row[at][1]}">{text}</tspan>')
            at = end
        print(f'<text x="{MARGIN}" y="{MARGIN + LINE * number + 14}" xml:space="preserve">{"".join(spans)}</text>')
    print("</svg>")


if __name__ == "__main__":
    main()
