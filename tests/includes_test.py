#!/usr/bin/env python3
"""Includes point one way: a file of src/ includes headers of its own folder and of folders that its target links.

src/CMakeLists.txt passes FOLDERS, in its order, and LINKS, a line "target: linked targets" each. A folder links only
folders before it. src/cli/main.cpp belongs to the program, which also links a device; no other file of cli/ can
include one. Unit tests and fuzz targets follow the rules of their folder. Every header begins with #pragma once.
"""

import os
import pathlib
import re
import sys

INCLUDE = re.compile(r'\s*#\s*include\s*["<]([a-z_]+)/[^">]*[">]')


def reachable(links, target):
    """The folder of `target`, and those that it links, directly or through others."""
    found, waiting = set(), [target]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += links.get(name, [])
    return found


def wrong_links(folders, links):
    for at, folder in enumerate(folders):
        for link in links[folder]:
            if link in folders[at:]:
                yield f"src/{folder}/CMakeLists.txt: links {link}, which is not above {folder} in src/CMakeLists.txt"


def wrong_includes(src, folders, links):
    for folder in folders:
        for path in sorted([*(src / folder).rglob("*.h"), *(src / folder).rglob("*.cpp")]):
            target = "program" if path == src / "cli" / "main.cpp" else folder
            allowed = reachable(links, target)
            for number, line in enumerate(path.read_text().splitlines(), 1):
                include = INCLUDE.match(line)
                if include and include[1] in folders and include[1] not in allowed:
                    yield f"{path}:{number}: {line.strip()}: {target} does not link {include[1]}/"


def wrong_headers(root):
    for path in sorted(path for top in ("src", "tests", "bench") for path in (root / top).rglob("*.h")):
        lines = [line for line in path.read_text().splitlines() if line and not line.startswith("//")]
        if not lines or lines[0] != "#pragma once":
            yield f"{path}:1: expected #pragma once before anything but comments"


def main():
    root = pathlib.Path(__file__).parent.parent
    src = root / "src"
    folders = os.environ["FOLDERS"].split()
    links = {}
    for line in os.environ["LINKS"].splitlines():
        target, _, linked = line.partition(":")
        links[target.strip()] = linked.split()
    wrong = [*wrong_links(folders, links), *wrong_includes(src, folders, links), *wrong_headers(root)]
    print("\n".join(wrong) or f"{len(folders)} folders: every include points to what its folder links")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
