"""The cache, broken files, and where output goes. Loads no real model."""

import json
import os
import struct
import subprocess
import tempfile
import unittest

from program import OUTRIDER, TestCase, environment, outrider


class Files(TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name, content=None):
        path = os.path.join(self.folder.name, name)
        if content is not None:
            with open(path, "wb") as file:
                file.write(content)
        return path

    def test_broken_models(self):
        cases = [
            ("empty.gguf", b""),
            ("text.gguf", b"This is no model at all, only text."),
            ("version.gguf", b"GGUF" + struct.pack("<IQQ", 99, 0, 0)),
            ("counts.gguf", b"GGUF" + struct.pack("<IQQ", 3, 1 << 62, 1 << 62)),
            ("short.gguf", b"GGUF" + struct.pack("<IQQ", 3, 0, 5)),
        ]
        for name, content in cases:
            for arguments in (["inspect", self.path(name, content)], ["run", "-m", self.path(name), "-p", "x"],
                              ["tokenize", "-m", self.path(name), "x"]):
                with self.subTest(arguments):
                    self.assert_fails(outrider(*arguments), 1, name)

    def test_names_in_files_cannot_paint_the_terminal(self):
        def text(value):
            return struct.pack("<Q", len(value)) + value

        evil = b"\x1b[31m\nred"
        entries = [(b"general.architecture", evil), (b"key" + evil, evil)]
        tensor = text(b"tensor" + evil) + struct.pack("<IQIQ", 1, 8, 0, 0)
        path = self.path("evil\x1b[31m.gguf", b"GGUF" + struct.pack("<IQQ", 3, 1, len(entries)) + b"".join(
            text(key) + struct.pack("<I", 8) + text(value) for key, value in entries) + tensor + b"\0" * 64)
        shown = outrider("inspect", "--all", path)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn("cannot be run", shown.stdout)
        failed = outrider("run", "-m", path, "-p", "x")
        self.assert_fails(failed, 1, "architecture")
        for output in (shown.stdout.replace(path, ""), failed.stderr):
            self.assertNotRegex(output, r"[\x00-\x09\x0b-\x1f]")

    def test_missing_files(self):
        missing = self.path("missing")
        self.assert_fails(outrider("inspect", missing + ".gguf"), 1, "missing.gguf")
        self.assert_fails(outrider("run", "-f", missing), 1, "missing", "No such file")
        self.assert_fails(outrider("prove", "--prompts", missing), 1, "missing", "No such file")

    def test_wrong_prompt_files(self):
        cases = [
            (b"", "holds no prompts"),
            (b'{"prompt": "a"}\nnonsense\n', "line 2", "not JSON"),
            (b'{"text": "a"}', "line 1", "neither prompt nor turns"),
            (b'{"turns": []}', "line 1", "turns"),
            (b'{"prompt": 5}', "line 1", "expected a string, found number"),
            (b"[1]", "line 1", "expected an object, found array"),
        ]
        for content, *parts in cases:
            with self.subTest(content):
                path = self.path("prompts.jsonl", content)
                self.assert_fails(outrider("bench", "generate", "--prompts", path), 1, "prompts.jsonl", *parts)

    def test_an_empty_cache(self):
        cache = self.path("cache")
        self.assertIn("no models here", outrider("list", OUTRIDER_CACHE=cache).stdout)
        self.assertEqual(json.loads(outrider("list", "--json", OUTRIDER_CACHE=cache).stdout), [])
        listed = json.loads(outrider("list", "--all", "--json", OUTRIDER_CACHE=cache).stdout)
        self.assertIn("smollm2:135m", [model["name"] for model in listed])
        self.assertTrue(all(model["state"] == "can be pulled" for model in listed))
        offline = outrider("run", "--offline", "-p", "x", OUTRIDER_CACHE=cache)
        self.assert_fails(offline, 1, "smollm2:135m", "offline")
        self.assert_fails(outrider("rm", "smollm2:135m", OUTRIDER_CACHE=cache), 1, "smollm2:135m")
        self.assertFalse(os.path.exists(cache))

    def test_a_cached_file_is_listed_and_removed(self):
        cache = self.path("cache")
        os.makedirs(cache + "/models")
        with open(cache + "/models/mine.gguf", "wb") as file:
            file.write(b"x" * 1000)
        listed = json.loads(outrider("list", "--json", OUTRIDER_CACHE=cache).stdout)
        self.assertEqual([(m["name"], m["bytes"]) for m in listed], [("mine", 1000)])
        removed = outrider("rm", "mine", OUTRIDER_CACHE=cache)
        self.assertEqual((removed.returncode, os.listdir(cache + "/models")), (0, []), removed.stderr)

    def test_a_full_disk_is_an_error_and_a_closed_pipe_is_none(self):
        with open("/dev/full", "wb") as full:
            result = subprocess.run([OUTRIDER, "manual"], stdout=full, stderr=subprocess.PIPE, text=True,
                                    env=environment())
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"^outrider: cannot write to standard output: .*\n$")

        read, write = os.pipe()
        os.close(read)
        try:
            result = subprocess.run([OUTRIDER, "manual"], stdout=write, stderr=subprocess.PIPE, text=True,
                                    env=environment())
        finally:
            os.close(write)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_no_file_takes_the_place_of_a_closed_stream(self):
        result = subprocess.run(["sh", "-c", '"$0" manual >&-', OUTRIDER], stderr=subprocess.PIPE, text=True, env=environment())
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"^outrider: cannot write to standard output: .*\n$")
        result = subprocess.run(["sh", "-c", '"$0" bench generate --prompts - <&-', OUTRIDER], capture_output=True,
                                text=True, env=environment())
        self.assert_fails(result, 1, "standard input")


if __name__ == "__main__":
    unittest.main()
