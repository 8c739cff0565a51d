"""outrider train, as far as it goes without PyTorch: what it refuses, and what it says before it begins."""

import pathlib
import tempfile
import unittest

from program import MODEL, TestCase, outrider


class Train(TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.out = self.path / "head"

    def tearDown(self):
        self.folder.cleanup()

    def test_usage(self):
        self.assert_fails(outrider("train"), 2, "train: ")
        self.assert_fails(outrider("train", "eagle4"), 2, "train eagle4: expected eagle3 or medusa")
        self.assert_fails(outrider("train", "eagle3", "--hours", "0"), 2, "--hours 0: at least 0.01")
        self.assert_fails(outrider("train", "eagle3", "--hours", "soon"), 2, "--hours soon: expected a number")

    def test_offline_without_an_environment(self):
        result = outrider("train", "eagle3", "--offline", "--out", str(self.out), "--hours", "2",
                          OUTRIDER_CACHE=str(self.path / "cache"))
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        first, last = result.stderr.splitlines()
        self.assertEqual(first, f"eagle3 for {MODEL} in {self.out}: 2 h 0 min in all, 48 min of answers, 1 h 6 min "
                                "of training, 6 min of measuring")
        self.assertIn(f"{self.out}: there is no Python environment with PyTorch", last)
        self.assertFalse(self.out.exists())


if __name__ == "__main__":
    unittest.main()
