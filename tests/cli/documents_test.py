"""README, CONTRIBUTING, CHANGELOG and docs/: what they name exists, and their lines of prose end at 120 columns. The
command lines of deploy/ are the program's."""

import re
import shutil
import subprocess
import unittest
from pathlib import Path

from program import OUTRIDER, outrider

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = {path: path.read_text() for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])}
# Documents name files from the root or, in docs/design.md, from src/.
BASES = [ROOT, ROOT / "src"]
FOLDERS = {path.name for base in BASES for path in base.iterdir() if path.is_dir()} - {"build"}

FENCED = re.compile(r"^```\n(.*?)^```", re.DOTALL | re.MULTILINE)


def code_lines(text):
    text = re.sub(r" \\\n *", " ", text)
    lines = "".join(FENCED.findall(text)).splitlines()
    return [line.strip() for line in lines + re.findall(r"^    .*", text, re.MULTILINE)]


def code_spans(text):
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", FENCED.sub("", text))]


class Documents(unittest.TestCase):
    def assert_none(self, problems):
        self.assertEqual([f"{document.relative_to(ROOT)}: {problem}" for document, problem in problems], [])

    def test_lines_end_at_120_columns(self):
        self.assert_none((document, line) for document, text in DOCUMENTS.items() for line in text.splitlines()
                         if len(line) > 120 and not line.startswith("|"))

    def test_links_lead_to_files(self):
        links = [(document, link) for document, text in DOCUMENTS.items()
                 for link in re.findall(r"\]\((?!https?:)([^)#]*)[^)]*\)", text)]
        self.assert_none((document, link) for document, link in links if not (document.parent / link).exists())

    def test_paths_exist(self):
        paths = [(document, span.rstrip("/")) for document, text in DOCUMENTS.items() for span in code_spans(text)
                 if re.fullmatch(r"[\w.*/-]+", span) and span.split("/")[0] in FOLDERS and "foo_" not in span]
        self.assertGreater(len(paths), 50)
        self.assert_none((document, path) for document, path in paths if not any(any(b.glob(path)) for b in BASES))

    def test_makefile_has_the_targets(self):
        targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
        self.assert_none((document, f"make {target}") for document, text in DOCUMENTS.items()
                         for line in code_lines(text) + code_spans(text)
                         for target in re.findall(r"^make ([\w-]+)", line) if target not in targets)

    def test_the_program_has_the_commands_and_flags(self):
        manual = outrider("manual").stdout.replace("\\-", "-")
        help_of = {}
        for name in re.findall(r"^\.B outrider ([a-z][a-z -]*)$", manual, re.MULTILINE):
            help_of[name] = outrider(*name.split(), "--help").stdout
        self.assertIn("bench curve", help_of)
        groups = "|".join(sorted({name.split()[0] for name in help_of if " " in name}))

        problems = [(document, span) for document, text in DOCUMENTS.items() for span in code_spans(text)
                    if (flag := re.fullmatch(r"(--[a-z-]+)( [\w.]+)?", span))
                    and not re.search(rf"{flag[1]}\b", manual)]
        lines = {document: code_lines(text) + code_spans(text) for document, text in DOCUMENTS.items()}
        for name in ("outrider.service", "Dockerfile"):
            path = ROOT / "deploy" / name
            lines[path] = re.findall(r"\boutrider serve .*", path.read_text().replace('", "', " "))
            self.assertTrue(lines[path], path)
        for document, lines_of_it in lines.items():
            for line in lines_of_it:
                call = re.match(rf"(?:OUTRIDER_\w+=\w+ )?outrider ((?:(?:{groups}) )?[a-z][a-z-]*)(.*)", line)
                if not call:
                    continue
                flags = re.findall(r" (--?[a-z][\w-]*)", call[2])
                known = help_of.get(call[1])
                if known is None or not all(re.search(rf"[ ,]{flag}\b", known) for flag in flags):
                    problems.append((document, line))
        self.assert_none(problems)

    @unittest.skipUnless(shutil.which("dpkg") and shutil.which("readelf"), "not on Debian")
    def test_the_image_has_the_libraries(self):
        def output(*command):
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout

        libraries = re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", OUTRIDER))
        self.assertGreater(len(libraries), 5)
        owners = output("dpkg", "-S", *(f"*/{library}" for library in libraries))
        packages = set(re.findall(r"^([^:\n]+):\w+: ", owners, re.MULTILINE))
        packages -= {"libc6", "libgcc-s1", "libstdc++6"}  # apt's own
        stage = (ROOT / "deploy" / "Dockerfile").read_text().split("\nFROM ")[-1]
        self.assertEqual(packages - set(stage.split()), set())


if __name__ == "__main__":
    unittest.main()
