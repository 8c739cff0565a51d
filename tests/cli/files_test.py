"""The cache, broken files, and where output goes. Loads no real model."""

import json
import os
import shutil
import struct
import subprocess
import tempfile
import unittest

from program import MODEL, OUTRIDER, TestCase, environment, outrider


def gguf(*entries):
    """A file that holds metadata, strings and integers, and nothing else."""
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(
        text(key) + (struct.pack("<I", 8) + text(value) if isinstance(value, str) else struct.pack("<IH", 2, value))
        for key, value in entries)


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

    def test_what_is_no_gguf_file_is_named(self):
        header = b'{"model.layers.0.mlp.up_proj.qweight":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}}'
        weights = struct.pack("<Q", len(header)) + header + b"1234"
        os.mkdir(self.path("checkpoint"))
        self.path("checkpoint/config.json", b'{"quantization_config": {"quant_method": "awq"}}')
        cases = [
            (self.path("checkpoint/model.safetensors", weights), "is a safetensors file; AWQ weights are not read"),
            (self.path("checkpoint"), "is a folder with a Hugging Face checkpoint; AWQ weights are not read"),
            (self.path("loose.safetensors", weights), "AWQ or GPTQ weights are not read"),
            (self.path("page.gguf", b"<!DOCTYPE html>\n<title>Log in</title>"), "is a web page that a server gave"),
            (self.path("pointer.gguf", b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n"), "git lfs pull"),
            (self.folder.name, "is a folder, expected a GGUF file; give one of its files, as "),
        ]
        for path, problem in cases:
            for command in (["inspect", path], ["run", "-m", path, "-p", "x"], ["tokenize", "-m", path, "x"]):
                with self.subTest(command):
                    self.assert_fails(outrider(*command), 1, f"outrider: {path}: ", problem)

    def test_files_that_can_be_read_and_not_run(self):
        cases = [
            ("other.gguf", [("general.architecture", "mamba")],
             r'"mamba" \(recurrent layers\) is not supported in this version; choose a model of'),
            ("experts.gguf", [("general.architecture", "llama"), ("llama.expert_count", 8)],
             r"is a mixture of 8 experts \(llama.expert_count\), which this version does not support; choose a dense"),
            ("x-00003-of-00003.gguf", [("split.no", 2), ("split.count", 3)],
             "is part 3 of 3 of a model; open the first, whose name ends in -00001-of-00003.gguf"),
        ]
        for name, entries, problem in cases:
            path = self.path(name, gguf(*entries))
            with self.subTest(name):
                shown = outrider("inspect", path)
                self.assertEqual((shown.returncode, shown.stderr), (0, ""))
                self.assertIn(f"\n  {entries[0][0]} = ", shown.stdout)
                self.assertRegex(shown.stdout, f"\ncannot be run: {path}: .*{problem}.*\n$")
                document = json.loads(outrider("inspect", "--json", path).stdout)
                self.assertRegex(document["problem"], problem)
                self.assertEqual(document["metadata"], dict(entries))
                self.assertNotIn("memory", document)
                self.assert_fails(outrider("run", "-m", path, "-p", "x"), 1, document["problem"])
                # Its vocabulary would be enough.
                self.assert_fails(outrider("tokenize", "-m", path, "x"), 1, f"{path}: key tokenizer.ggml.model is missing")

    def test_a_part_is_missing(self):
        first = self.path("x-00001-of-00002.gguf", gguf(("general.architecture", "llama"), ("split.no", 0), ("split.count", 2)))
        for command in (["inspect", first], ["run", "-m", first, "-p", "x"], ["tokenize", "-m", first, "x"]):
            self.assert_fails(outrider(*command), 1, f"{first}: part 2 of 2 of this model is missing: ", "x-00002-of-00002.gguf")

    def test_without_permission(self):
        # Root may do everything, so somebody else tries.
        other = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        try:
            subprocess.run(["true"], check=True, **other)
        except (OSError, subprocess.SubprocessError) as error:
            self.skipTest(f"there is nobody else to be: {error}")
        os.chmod(self.folder.name, 0o755)
        program = shutil.copy(OUTRIDER, self.path("outrider"))  # the build may lie where others cannot go

        def protect(path, mode):
            os.chmod(path, mode)
            self.addCleanup(os.chmod, path, 0o755)
            return path

        def cache(name, mode):
            os.makedirs(self.path(f"{name}/models"))
            self.path(f"{name}/models/mine.gguf", b"x")
            protect(self.path(f"{name}/models"), mode)
            return self.path(name)

        secret = protect(self.path("secret.gguf", gguf()), 0)
        hidden, fixed = cache("hidden", 0), cache("fixed", 0o555)
        cases = [
            (None, ["inspect", secret], secret),
            (None, ["run", "-m", secret, "-p", "x"], secret),
            (None, ["tokenize", "-m", secret, "x"], secret),
            (None, ["run", "-f", secret], secret),
            (None, ["bench", "generate", "--prompts", secret], secret),
            (None, ["inspect", f"{hidden}/models/mine.gguf"], f"{hidden}/models/mine.gguf"),
            (hidden, ["list"], f"{hidden}/models"),
            (hidden, ["rm", "mine"], f"{hidden}/models"),
            (hidden, ["pull", MODEL], f"{hidden}/models"),
            (hidden, ["run", "--offline", "-p", "x"], f"{hidden}/models"),
            (fixed, ["rm", "mine"], f"{fixed}/models/mine.gguf"),
            (fixed, ["pull", MODEL], f"{fixed}/models"),
        ]
        for folder, arguments, path in cases:
            with self.subTest(arguments, cache=folder):
                result = subprocess.run([program, *arguments], input="", capture_output=True, text=True,
                                        cwd=self.folder.name, env=environment(OUTRIDER_CACHE=folder), **other)
                self.assert_fails(result, 1, path, "Permission denied")
        self.assertTrue(os.path.exists(f"{fixed}/models/mine.gguf"))

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

    def test_things_in_the_place_of_files(self):
        folder, empty, pipe = self.folder.name, self.path("empty", b""), self.path("pipe")
        os.mkfifo(pipe)
        cases = [
            (["run", "-f", folder], f"outrider: {folder}: is a folder, expected a file of text"),
            (["prove", "--prompts", folder], f"outrider: {folder}: is a folder, expected a file of text"),
            (["perplexity", "-f", empty], f"outrider: {empty}: the text is empty"),
            (["inspect", pipe], f"outrider: {pipe}: is no regular file; copy what it gives into one"),
        ]
        for arguments, problem in cases:
            with self.subTest(arguments):
                self.assert_fails(outrider(*arguments), 1, problem)

    def test_a_file_that_is_not_whole(self):
        tensor = struct.pack("<Q", 1) + b"t" + struct.pack("<IQIQ", 1, 1000, 0, 0)
        whole = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + tensor
        whole += b"\0" * (-len(whole) % 32 + 4000)
        self.assertIn("cannot be run", outrider("inspect", self.path("whole.gguf", whole)).stdout)
        for n_bytes in (3, 10, 30, 1000, len(whole) - 1):
            path = self.path("part.gguf", whole[:n_bytes])
            with self.subTest(n_bytes):
                self.assert_fails(outrider("inspect", path), 1, f"outrider: {path}: ", "cut off", "; ", "fetch it again")

    @unittest.skipUnless(shutil.which("mount") and shutil.which("umount"), "no mount, which a bare Debian need not have")
    def test_a_disk_that_is_too_small(self):
        disk = self.path("disk")
        os.mkdir(disk)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True).returncode:
            self.skipTest("no disk can be mounted")
        self.addCleanup(subprocess.run, ["umount", disk])
        for arguments in (["pull", MODEL], ["run", "-p", "x"]):
            with self.subTest(arguments):
                self.assert_fails(outrider(*arguments, "--quiet", OUTRIDER_CACHE=disk), 1,
                                  f"outrider: {disk}/models: pulling {MODEL} needs 295 MB of free disk, 1.05 MB are left; "
                                  "make room or set OUTRIDER_CACHE to another disk")

    def test_a_cache_that_is_no_folder(self):
        file = self.path("file", b"")
        for arguments in (["list"], ["run", "-p", "x"], ["pull", MODEL]):
            with self.subTest(arguments):
                self.assert_fails(outrider(*arguments, OUTRIDER_CACHE=file), 1, f"outrider: {file}/models",
                                  "OUTRIDER_CACHE can name another folder for models")

    def test_wrong_prompt_files(self):
        cases = [
            (b"", "holds no prompts"),
            (b'{"prompt": "a"}\nnonsense\n', "line 2", "not valid JSON"),
            (b'{"text": "a"}', "line 1", "neither prompt nor turns"),
            (b'{"turns": []}', "line 1", "turns"),
            (b'{"prompt": 5}', "line 1", "expected a string, found number"),
            (b"[1]", "line 1", "expected an object, found array"),
            (b'{"prompt": "a", "id": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "line 1", "nested"),
        ]
        for content, *parts in cases:
            with self.subTest(content):
                path = self.path("prompts.jsonl", content)
                self.assert_fails(outrider("bench", "generate", "--prompts", path), 1, "prompts.jsonl", *parts)

    def test_an_empty_cache(self):
        cache = self.path("cache")
        self.assertIn("no models yet", outrider("list", OUTRIDER_CACHE=cache).stdout)
        self.assertEqual(json.loads(outrider("list", "--json", OUTRIDER_CACHE=cache).stdout), [])
        listed = json.loads(outrider("list", "--all", "--json", OUTRIDER_CACHE=cache).stdout)
        self.assertIn("smollm2:135m", [model["name"] for model in listed])
        self.assertTrue(all(model["state"] == "can be pulled" for model in listed))
        offline = outrider("run", "--offline", "-p", "x", OUTRIDER_CACHE=cache)
        self.assert_fails(offline, 1, "smollm2:135m", "offline")
        self.assert_fails(outrider("rm", "smollm2:135m", OUTRIDER_CACHE=cache), 1, "smollm2:135m")
        self.assertFalse(os.path.exists(cache))

    def test_profiles_that_are_not_there_or_damaged(self):
        cache = self.path("cache")

        def expect_none():
            for arguments, output in ((["show"], "no profiles\n"), (["show", "--json"], "[]\n"),
                                      (["clear"], "0 profiles removed\n")):
                result = outrider("profile", *arguments, OUTRIDER_CACHE=cache)
                self.assertEqual((result.returncode, result.stdout, result.stderr), (0, output, ""))

        expect_none()
        self.assertFalse(os.path.exists(cache))
        os.makedirs(cache)
        with open(cache + "/profiles.db", "w") as file:
            file.write("no profiles, only text")
        damaged = outrider("profile", "show", OUTRIDER_CACHE=cache)
        self.assertEqual((damaged.returncode, damaged.stdout), (0, "no profiles\n"))
        self.assertRegex(damaged.stderr, r"^.*/profiles\.db: damaged \(.*\), moved to profiles\.db\.damaged and begun anew\n$")
        self.assertEqual(os.listdir(cache), ["profiles.db.damaged"])
        expect_none()
        self.assertEqual(os.listdir(cache), [])

    def test_a_folder_in_the_place_of_profiles(self):
        cache = self.path("cache")
        os.makedirs(cache + "/profiles.db")
        for command in ("show", "clear"):
            self.assert_fails(outrider("profile", command, OUTRIDER_CACHE=cache), 1, "profiles.db: profiles cannot be used")

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

    def test_an_error_that_nobody_can_read_is_still_the_status(self):
        with open("/dev/full", "wb") as full:
            for arguments, status in ((["run", "--tmp"], 2), (["run", "-m", self.path("no.gguf"), "-p", "x"], 1)):
                result = subprocess.run([OUTRIDER, *arguments], stderr=full, env=environment())
                self.assertEqual(result.returncode, status)

    def test_no_file_takes_the_place_of_a_closed_stream(self):
        result = subprocess.run(["sh", "-c", '"$0" manual >&-', OUTRIDER], stderr=subprocess.PIPE, text=True, env=environment())
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"^outrider: cannot write to standard output: .*\n$")
        result = subprocess.run(["sh", "-c", '"$0" bench generate --prompts - <&-', OUTRIDER], capture_output=True,
                                text=True, env=environment())
        self.assert_fails(result, 1, "standard input")


if __name__ == "__main__":
    unittest.main()
