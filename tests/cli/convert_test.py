"""`convert-head`: a draft head of PyTorch's becomes a safetensors file. Python and pip are played by scripts, except in
the last tests, which are skipped where the program's environment with PyTorch is not in OUTRIDER_CACHE."""

import json
import os
import shutil
import struct
import subprocess
import tempfile
import unittest

from program import TestCase, outrider

ZIP = b"PK\x03\x04" + bytes(26) + b"archive/data.pkl"
NEEDED_DISK = 10_000_000_000

# `python3`: makes an environment whose python it is as well. The file `says` beside it changes what happens.
STUB = """#!/bin/sh
here={folder}
echo "$*" | head -c 200 >>"$here/log"
says=$(cat "$here/says" 2>/dev/null)
case "$*" in
"-I -m venv "*)
  if [ "$says" = "no venv" ]; then echo "ensurepip is not"; echo "available."; exit 1; fi
  mkdir -p "$4/bin" && cp "$here/python3" "$4/bin/python" ;;
"-m pip install "*)
  test -d "$TMPDIR" || exit 9
  case "$says" in
  "no network") echo "WARNING: x" >&2; echo "ERROR: No matching distribution found for torch==1" >&2; exit 1 ;;
  "no pip") echo "python: No module named pip" >&2; exit 1 ;;
  "no space") echo "OSError: [Errno 28] No space left on device" >&2; exit 1 ;;
  esac
  touch "$(dirname "$0")/installed" ;;
"-I -c "*)
  test -e "$(dirname "$0")/installed" || {{ echo "No module named 'torch'" >&2; exit 3; }}
  case "$says" in
  refuses) echo "holds no tensors" >&2; exit 2 ;;
  fails) echo "Killed" >&2; exit 9 ;;
  esac
  cp "$here/made" "$5"
  echo '{{"tensors": 1, "bytes": 4, "left_out": ["epoch", "\\u001b[31m"]}}' ;;
esac
"""


def safetensors(path):
    """Header and bytes of a file."""
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(size)), file.read()


class Folder(TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name, content=None):
        path = os.path.join(self.folder, name)
        if content is not None:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(content)
        return path


class Refused(Folder):
    """Before any Python is started: there is none in PATH."""

    def convert(self, *arguments):
        return outrider("convert-head", *arguments, PATH=self.folder, OUTRIDER_CACHE=self.path("cache"))

    def test_what_is_no_head_of_pytorch(self):
        header = b'{"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
        os.mkdir(self.path("empty"))
        self.path("head/medusa_lm_head.pt", ZIP)
        cases = [
            (self.path("missing.bin"), "cannot be opened: No such file"),
            (self.path("empty.bin", b""), "the file is empty"),
            (self.path("empty"), "is a folder, expected a .safetensors file in it"),
            (self.path("head"), f"convert it: outrider convert-head {self.path('head/medusa_lm_head.pt')}"),
            (self.path("a.safetensors", struct.pack("<Q", len(header)) + header + b"1234"), "it needs no conversion"),
            (self.path("a.gguf", b"GGUF\3\0\0\0"), "is a GGUF file, expected a safetensors file"),
            (self.path("page.bin", b"<!DOCTYPE html>"), "is a web page that a server gave"),
            (self.path("pointer.bin", b"version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"),
            (self.path("other.zip", b"PK\x03\x04" + bytes(26) + b"a.txt"), "is a zip archive"),
        ]
        for path, problem in cases:
            with self.subTest(path):
                self.assert_fails(self.convert(path), 1, f"outrider: {path}: ", problem)

    def test_places_that_cannot_be_written(self):
        head = self.path("head.bin", ZIP)
        self.path("config.json", b'{"a": 1}')
        self.path("other/config.json", b'{"a": 2}')
        for out, problem in [
                (self.path("nowhere/x.safetensors"), "cannot be written: there is no such folder"),
                (self.path("other"), "cannot be written: is no regular file"),
                (head, "is the file to convert, expected another one to write"),
                (self.path("other/x.safetensors"), f"config.json: is another configuration than {self.path('config.json')}"),
        ]:
            with self.subTest(out):
                self.assert_fails(self.convert(head, "-o", out), 1, problem)

    def test_without_python(self):
        head = self.path("head.bin", ZIP)
        has_room = shutil.disk_usage(self.folder).free > NEEDED_DISK
        problem = "python3 cannot be started: No such file or directory; install the packages python3 and python3-venv"
        self.assert_fails(self.convert(head, "--quiet"), 1, f"{head}: {problem}" if has_room else "of free disk")
        self.assert_fails(self.convert(head, "--offline"), 1,
                          f"{head}: there is no Python environment with PyTorch in ", "offline none is made")


@unittest.skipUnless(shutil.disk_usage(tempfile.gettempdir()).free > NEEDED_DISK, "no room for an environment")
class Played(Folder):
    def setUp(self):
        super().setUp()
        stub = self.path("bin/python3", STUB.format(folder=self.path("bin")).encode())
        os.chmod(stub, 0o755)
        header = b'{"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
        self.path("bin/made", struct.pack("<Q", len(header)) + header + b"1234")
        self.head = self.path("head/pytorch_model.bin", ZIP)

    def convert(self, *arguments):
        return outrider("convert-head", *arguments, PATH=f"{self.path('bin')}:{os.environ['PATH']}",
                        OUTRIDER_CACHE=self.path("cache"))

    def said(self):
        with open(self.path("bin/log")) as log:
            return log.read()

    def test_the_environment_is_made_once(self):
        result = self.convert(self.head)
        self.assertEqual((result.returncode, result.stdout.split(":")[0]), (0, self.path("head/pytorch_model.safetensors")))
        self.assertRegex(result.stdout, r": 1 tensors, \d+ bytes\n$")
        self.assertIn("making a Python environment with PyTorch", result.stderr)
        self.assertIn(r"2 entries are no tensors and left out, the first is epoch", result.stderr)
        self.assertNotIn("\x1b", result.stderr)
        self.assertRegex(self.said(), r"-m pip install .*torch==\d.* matplotlib==\d")
        self.assertEqual(safetensors(self.path("head/pytorch_model.safetensors"))[1], b"1234")
        self.assertEqual(sorted(os.listdir(self.path("cache/python"))), ["torch"])
        self.assertFalse(os.path.exists(self.path("cache/python/torch/tmp")))

        os.remove(self.path("bin/log"))
        result = self.convert(self.head, "--offline", "--quiet")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertNotIn("venv", self.said())
        self.assertNotIn("pip", self.said())

        os.remove(self.path("cache/python/torch/bin/installed"))  # as after an update of Python
        self.assert_fails(self.convert(self.head, "--offline"), 1, "offline none is made")
        self.assertEqual(self.convert(self.head).returncode, 0)

    def test_output_and_configuration(self):
        self.path("head/config.json", b'{"a": 1}')
        os.mkdir(self.path("out"))
        result = self.convert(self.head, "--json", "-o", self.path("out/x.safetensors"))
        self.assertEqual(json.loads(result.stdout),
                         {"file": self.path("out/x.safetensors"), "tensors": 1, "left_out": ["epoch", "\x1b[31m"],
                          "bytes": os.path.getsize(self.path("out/x.safetensors")), "config_copied": True})
        with open(self.path("out/config.json")) as config:
            self.assertEqual(config.read(), '{"a": 1}')
        again = self.convert(self.head, "--json", "-o", self.path("out/x.safetensors"))
        self.assertFalse(json.loads(again.stdout)["config_copied"])
        self.assertFalse(json.loads(self.convert(self.head, "--json").stdout)["config_copied"])

    def test_what_goes_wrong(self):
        for says, *parts in [
                ("no venv", f"{self.head}: python3 cannot make environments; install the package python3-venv"),
                ("no network", f"{self.head}: PyTorch cannot be installed: ERROR: No matching distribution found for torch==1"),
                ("no pip", f"{self.head}: python3 has no pip; install the packages python3-pip and python3-venv"),
                ("no space", "cache/python: the disk is full"),
                ("refuses", f"{self.head}: holds no tensors"),
                ("fails", f"{self.head}: the Python environment in ", " does not work: Killed; delete it"),
        ]:
            with self.subTest(says):
                self.path("bin/says", says.encode())
                self.assert_fails(self.convert("--quiet", self.head), 1, *parts)
                self.assertFalse(os.path.exists(self.path("head/pytorch_model.safetensors")))
                if says.startswith("no "):  # nothing is left of an environment that does not work
                    self.assertEqual(os.listdir(self.path("cache/python")), [])


ENVIRONMENT = os.path.join(os.environ.get("OUTRIDER_CACHE", ""), "python/torch/bin/python")


@unittest.skipUnless(os.environ.get("OUTRIDER_CACHE") and os.path.exists(ENVIRONMENT),
                     "no environment with PyTorch is in OUTRIDER_CACHE")
class Converted(Folder):
    def make(self, code):
        """Files made by PyTorch; in the code, path(name) names one."""
        start = "import os, pickle, sys, torch\npath = lambda name: os.path.join(sys.argv[1], name)\n"
        subprocess.run([ENVIRONMENT, "-I", "-c", start + code, self.folder], check=True, stderr=subprocess.DEVNULL)

    def test_tensors_keep_names_and_values(self):
        self.make("""
shared = torch.arange(6, dtype=torch.float32).reshape(2, 3)
head = {"fc.weight": shared.half(), "0.0.linear.weight": shared, "0.1.linear.weight": shared, "t": shared.t(),
        "b": shared.bfloat16(), "d2t": torch.tensor([5, -1]), "t2d": torch.tensor([True, False, True]),
        "scale": torch.tensor(2.5), "none": torch.zeros(0, 4), "wide": torch.tensor([1.5], dtype=torch.float64),
        "small": torch.tensor([-3], dtype=torch.int8), "p": torch.nn.Parameter(torch.ones(1)), "epoch": 3}
torch.save(head, path("zip.bin"))
torch.save(head, path("legacy.pt"), _use_new_zipfile_serialization=False)
torch.save({"state_dict": head, "lr": 0.1}, path("nested.pth"))
""")
        shared = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
        expected = {
            "fc.weight": ("F16", [2, 3], struct.pack("<6e", *shared)),
            "0.0.linear.weight": ("F32", [2, 3], struct.pack("<6f", *shared)),
            "0.1.linear.weight": ("F32", [2, 3], struct.pack("<6f", *shared)),
            "t": ("F32", [3, 2], struct.pack("<6f", 0, 3, 1, 4, 2, 5)),
            "b": ("BF16", [2, 3], b"".join(struct.pack("<f", x)[2:] for x in shared)),
            "d2t": ("I64", [2], struct.pack("<2q", 5, -1)),
            "t2d": ("BOOL", [3], b"\1\0\1"),
            "scale": ("F32", [], struct.pack("<f", 2.5)),
            "none": ("F32", [0, 4], b""),
            "wide": ("F32", [1], struct.pack("<f", 1.5)),
            "small": ("I32", [1], struct.pack("<i", -3)),
            "p": ("F32", [1], struct.pack("<f", 1)),
        }
        for name in ("zip.bin", "legacy.pt", "nested.pth"):
            with self.subTest(name):
                result = outrider("convert-head", "--json", "--offline", self.path(name))
                self.assertEqual(result.returncode, 0, result.stderr)
                answer = json.loads(result.stdout)
                self.assertEqual((answer["tensors"], answer["left_out"]), (len(expected), ["epoch"]))
                header, data = safetensors(answer["file"])
                self.assertEqual(header.pop("__metadata__"), {"format": "pt"})
                found = {key: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for key, t in header.items()}
                self.assertEqual(found, expected)
                self.assertEqual(os.path.exists(answer["file"] + ".partial"), False)

    def test_code_in_a_file_is_not_run(self):
        self.make("""
class Evil:
    def __reduce__(self):
        return os.system, (f"touch {path('touched')}",)
torch.save({"w": torch.ones(1), "x": Evil()}, path("evil.bin"))
torch.save({"w": torch.ones(1), "x": Evil()}, path("evil.pt"), _use_new_zipfile_serialization=False)
del Evil.__reduce__
torch.save({"x": Evil()}, path("own.bin"))
torch.save([torch.ones(1)], path("list.bin"))
torch.save({"epoch": 1}, path("none.bin"))
torch.save({"c": torch.ones(1, dtype=torch.complex64)}, path("complex.bin"))
torch.save({"s": torch.eye(2).to_sparse()}, path("sparse.bin"))
torch.save({1: torch.ones(1)}, path("number.bin"))
torch.save({"w": torch.ones(1000)}, path("cut.bin"))
os.truncate(path("cut.bin"), 2000)
with open(path("other.pt"), "wb") as file:
    pickle.dump({"a": 1}, file)
with open(path("damaged.pt"), "wb") as file:
    file.write(b"\\x80\\x02" + bytes(100))
""")
        for name, problem in [
                ("evil.bin", "holds Python objects that are no weights (posix.system), which could run code and are not"),
                ("evil.pt", "holds Python objects that are no weights (posix.system), which could run code and are not"),
                ("own.bin", "holds Python objects that are no weights (__main__.Evil), which could run code"),
                ("list.bin", "holds a list, expected a dictionary of tensors"),
                ("none.bin", "holds no tensors, expected a dictionary of tensors"),
                ("complex.bin", "tensor c is complex64, which is not read"),
                ("sparse.bin", "tensor s is torch.sparse_coo, expected plain numbers"),
                ("number.bin", "has a tensor called 1, expected text"),
                ("cut.bin", "cannot be loaded: PytorchStreamReader failed reading zip archive"),
                ("other.pt", "cannot be loaded: it is damaged or none of PyTorch"),
                ("damaged.pt", "cannot be loaded: "),
        ]:
            with self.subTest(name):
                self.assert_fails(outrider("convert-head", self.path(name)), 1, f"outrider: {self.path(name)}: {problem}")
        self.assertFalse(os.path.exists(self.path("touched")))
        self.assertEqual([name for name in os.listdir(self.folder) if "safetensors" in name], [])


if __name__ == "__main__":
    unittest.main()
