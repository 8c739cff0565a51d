"""outrider features: what it says, what it refuses, and that an interrupted run goes on."""

import json
import pathlib
import signal
import struct
import subprocess
import tempfile
import time
import unittest

from program import MODEL, OUTRIDER, TestCase, environment, needs_model, outrider


def shard_header(path):
    data = path.read_bytes()
    return json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])


class Usage(TestCase):
    def test_needs_a_folder(self):
        self.assert_fails(outrider("features"), 2, "features: needs --out FOLDER")

    def test_values(self):
        self.assert_fails(outrider("features", "--out", "x", "--tokens", "0"), 2, "--tokens 0: at least 1")
        self.assert_fails(outrider("features", "--out", "x", "--without", ""), 2, "must not be empty")
        with tempfile.TemporaryDirectory() as folder:
            missing = f"{folder}/missing.jsonl"
            for flag in ("--data", "--without"):
                self.assert_fails(outrider("features", "--out", f"{folder}/out", flag, missing), 1, missing)
            empty = pathlib.Path(folder, "empty.jsonl")
            empty.write_text("")
            self.assert_fails(outrider("features", "--out", f"{folder}/out", "--data", str(empty)), 1,
                              f"{empty}: holds no prompts")
            self.assertFalse(pathlib.Path(folder, "out").exists())


@needs_model(MODEL)
class Features(TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.data = self.path / "data.jsonl"
        texts = ["What is a lake?", "Count to ten.", "Name three colours.", "Why is the sky blue?"]
        self.data.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
        self.command = ["features", "-m", MODEL, "--out", str(self.path / "out"), "--data", str(self.data), "-n", "12"]

    def tearDown(self):
        self.folder.cleanup()

    def test_writes_what_it_says(self):
        result = outrider(*self.command, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, r"^1000000 tokens of answers, 32 at a time: about .* and .* in ")
        said = json.loads(result.stdout)
        self.assertEqual((said["prompts"], said["shards"], said["own"], said["built"]), (4, 1, 0, 0))
        header = shard_header(self.path / "out/shard-00000.safetensors")
        rows, width = header["features"]["shape"]
        self.assertEqual(width, 3 * 576)
        self.assertEqual(header["final"]["shape"], [rows, 576])
        self.assertEqual(header["lengths"]["shape"], [4])
        self.assertEqual(header["tokens"]["shape"], [rows + 2 * 4])
        about = json.loads((self.path / "out/features.json").read_text())
        self.assertEqual(about["taps"], [1, 14, 26])
        self.assertEqual((about["model"]["name"], about["model"]["heads"], about["model"]["kv_heads"]), (MODEL, 9, 3))
        self.assertAlmostEqual(about["model"]["rope_theta"], 100000, delta=0.1)
        self.assertEqual(shard_header(self.path / "out/target.safetensors")["embedding"]["shape"], [49152, 576])

    def test_context_without_room(self):
        result = outrider("features", "-m", MODEL, "--out", str(self.path / "out"), "-c", "512", "-n", "512")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("the context of 512 tokens has no room for answers of 512 tokens and their prompts: "
                      "give a larger -c or a smaller -n\n", result.stderr)

    def test_goes_on(self):
        """With prompts of its own: a signal ends the work while answers are written, and none changes them."""
        files = []
        for signal_number, status in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
            out = self.path / f"own-{signal_number}"
            command = [OUTRIDER, "features", "-m", MODEL, "--out", str(out), "-n", "4", "--tokens", "60"]
            process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            deadline = time.monotonic() + 120
            while not (out / "prompts.jsonl").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            process.send_signal(signal_number)
            process.communicate()
            self.assertEqual(process.returncode, status)
            prompts = (out / "prompts.jsonl").read_bytes()
            result = subprocess.run(command, env=environment(), capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertTrue((out / "prompts.jsonl").read_bytes().startswith(prompts))
            self.assertEqual(sorted(path.suffix for path in out.iterdir() if "partial" in path.name), [])
            files.append({path.name: path.read_bytes() for path in out.iterdir()})
        self.assertEqual(sorted(files[0]), sorted(files[1]))
        self.assertTrue(files[0] == files[1])  # not printed where they differ
        self.assert_fails(subprocess.run([*command, "--seed", "2"], env=environment(), capture_output=True, text=True),
                          1, "holds features made with another \"texts\"")


if __name__ == "__main__":
    unittest.main()
