#!/usr/bin/env python3
"""Draws one step of a sequence as an SVG picture: scripts/step_picture.py >docs/step.svg

The draft tree and the target's choices are made up; rows, what they see, the verdict and what is committed follow from
them as in src/engine/step.cpp.
"""
import html
from collections import namedtuple

from picture import CELL, COLOURS, DIM, MARGIN, PLAIN

TEXT, LENGTH = "We deliver", 42  # before the root; tokens of the sequence, the root included
Node = namedtuple("Node", "token parent drafter kept")
TREE = [Node("on", None, None, True),
        Node("Tuesday", 0, "lookup", True), Node("Friday", 0, "draft model", True),
        Node(",", 1, "lookup", False), Node(",", 2, "draft model", True),
        Node("4", 3, "lookup", False), Node("7", 4, "draft model", True), Node("4", 4, "draft model", True)]
PLACES = [(0, 1), (1, 0), (1, 2), (2, 0), (2, 2), (3, 0), (3, 1.5), (3, 2.5)]  # level and line of each node
CHOICES = {0: "Friday", 1: ",", 2: ",", 4: "7", 6: "March", 7: "March"}  # the target's, by node

LOOKUP, MODEL, ACCEPTED = COLOURS["34"], COLOURS["35"], COLOURS["32"]
COLOUR = {None: PLAIN, "lookup": LOOKUP, "draft model": MODEL}
DROPPED, LINE_COLOUR = COLOURS["30"], "#30363d"
WIDTH, STAGE = 812, 104  # of the picture; where what belongs to a stage begins
CENTRED = ' text-anchor="middle"'
NOTE = 12  # font size of explanations, whose characters are 7.23 wide

shapes = []


def text(x, y, string, colour=PLAIN, size=14, more=""):
    shapes.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="{size}"{more}>'
                  f'{html.escape(string)}</text>')


def box(x, y, width, height, colour, fill="none", dashed=False, radius=5):
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    shapes.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius}" '
                  f'fill="{fill}" stroke="{colour}"{dashes}/>')


def line(x1, y1, x2, y2, colour=LINE_COLOUR, width=1.0, dashed=False):
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    shapes.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
                  f'stroke-width="{width}"{dashes}/>')


def stage(y, *names):
    if shapes:
        line(MARGIN, y - 30, WIDTH - MARGIN, y - 30)
    for i, name in enumerate(names):
        text(MARGIN, y + 20 * i, name, ACCEPTED, more=' font-weight="bold"')


def token_box(x, middle, token, colour, dashed=False):
    width = len(token) * CELL + 16
    box(x, middle - 12, width, 24, colour, dashed=dashed)
    text(x + width / 2, middle + 5, token, colour, more=CENTRED)
    return x + width


def path(node):
    """From the root to the node."""
    return (path(TREE[node].parent) if TREE[node].parent is not None else []) + [node]


def verify():
    """The accepted nodes, root left out, and one token more."""
    accepted, node = [], 0
    while True:
        following = [n for n, other in enumerate(TREE) if other.kept and other.parent == node and
                     other.token == CHOICES[node]]
        if not following:
            return accepted, CHOICES[node]
        node = following[0]
        accepted.append(node)


def draw_tree(top, on_path):
    left, level, height = STAGE + (len(TEXT) + 3.5) * CELL, 104, 32
    places = {n: (left + PLACES[n][0] * level, top + PLACES[n][1] * height) for n in range(len(TREE))}
    right = {n: places[n][0] + len(node.token) * CELL + 16 for n, node in enumerate(TREE)}
    text(STAGE, places[0][1] + 5, "… " + TEXT, DIM)
    for n, node in enumerate(TREE):
        if node.parent is not None:
            both = n in on_path and node.parent in on_path
            line(right[node.parent], places[node.parent][1], *places[n], ACCEPTED if both else DIM, 2 if both else 1,
                 not node.kept)
        token_box(*places[n], node.token, COLOUR[node.drafter] if node.kept else DROPPED, not node.kept)
    for i, name in enumerate(["root", "level 1", "level 2", "level 3"]):
        text(left + i * level, top + 3.4 * height, name, DIM, NOTE)
    x = left + 3 * level + 62
    for i, (colour, name) in enumerate([(LOOKUP, "drafted by lookup"), (MODEL, "by the draft model"),
                                        (DROPPED, "dropped: does not pay")]):
        box(x, top - 8 + 24 * i, 16, 12, colour, dashed=colour == DROPPED, radius=3)
        text(x + 24, top + 2 + 24 * i, name, DIM, NOTE)


def draw_rows(top, rows, on_path):
    cell, height = 22, 24
    token_at, position_at, seen_at, choice_at = STAGE + 42, STAGE + 118, STAGE + 192, STAGE + 396
    for x, name in [(STAGE, "row"), (token_at, "token"), (position_at, "position"),
                    (seen_at, "attends to: text, rows"), (choice_at, "the target's choice")]:
        text(x, top, name, DIM, NOTE)
    for i, n in enumerate(rows):
        y, reached = top + 24 + height * i, n in on_path
        text(STAGE + 8, y, str(i), DIM)
        text(token_at, y, TREE[n].token, ACCEPTED if reached else PLAIN)
        text(position_at, y, str(LENGTH + len(path(n)) - 2), DIM)
        box(seen_at, y - 13, 2.2 * cell, 16, DIM, DIM, radius=2)
        for j, other in enumerate(rows[:i + 1]):
            seen = other in path(n)
            box(seen_at + (2.5 + j) * cell, y - 13, cell - 5, 16, DIM if seen else LINE_COLOUR,
                DIM if seen else "none", radius=2)
        text(choice_at, y, CHOICES[n], ACCEPTED if reached else DROPPED)
        if not reached:
            note = "not reached"
        elif n == on_path[-1]:
            note = "no such child: one token more"
        else:
            note = f"is row {rows.index(on_path[on_path.index(n) + 1])}: accepted"
        text(choice_at + 66, y, note, DIM, NOTE)


def main():
    accepted, more = verify()
    on_path = [0, *accepted]
    rows = [n for n, node in enumerate(TREE) if node.kept]

    top = 48
    stage(top, "draft", "plan")
    draw_tree(top - 2, on_path)

    top += 156
    stage(top, "forward", "verify")
    draw_rows(top, rows, on_path)

    top += 24 * len(rows) + 56
    stage(top, "emit")
    x = STAGE
    for token, colour in [("…", DIM), *((word, DIM) for word in TEXT.split()), ("on", DIM),
                          *((TREE[n].token, ACCEPTED) for n in accepted), (more, PLAIN)]:
        x += 0 if token == "," or token == "…" else CELL
        text(x, top, token, colour)
        x += len(token) * CELL
    text(x + 24, top, f"{len(accepted)} accepted and one token more, in one pass", DIM, NOTE)

    top += 54
    stage(top, "commit")
    width = (len(TEXT) + 2) * CELL + 16
    box(STAGE, top - 17, width, 24, DIM, LINE_COLOUR)
    text(STAGE + width / 2, top, "… " + TEXT, DIM, more=CENTRED)
    x = STAGE + width + 6
    for n in on_path:
        x = token_box(x, top - 5, TREE[n].token, ACCEPTED) + 6
    dropped = " and ".join(str(i) for i, n in enumerate(rows) if n not in on_path)
    text(x + 18, top, f"in the cache; rows {dropped} are dropped", DIM, NOTE)
    text(STAGE, top + 26, f"{more} is the root of the next step: no pass has computed it yet", DIM, NOTE)

    top += 80
    stage(top, "learn")
    text(STAGE, top, f"drafters see the new text, the planner that {len(accepted)} of {len(rows) - 1} drafts were "
         f"accepted and what {len(rows)} rows took", DIM, NOTE)

    height = top + 24
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
          f'font-family="ui-monospace,Menlo,Consolas,monospace">')
    print('<rect width="100%" height="100%" rx="8" fill="#0d1117"/>')
    print("\n".join(shapes))
    print("</svg>")


if __name__ == "__main__":
    main()
