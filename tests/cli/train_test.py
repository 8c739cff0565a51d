"""outrider train, as far as it goes without PyTorch: what it refuses, and what it says before it begins."""

import pathlib
import tempfile
import unittest

from program import MODEL, TestCase, model_path, needs_model, outrider


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

    def test_what_features_have_already(self):
        for flag, value in ("--data", "x.jsonl"), ("--without", "x.jsonl"), ("--tokens", "9"):
            self.assert_fails(outrider("train", "eagle3", "--features", str(self.path), flag, value), 2,
                              f"{flag}: the answers of --features are there already")

    def test_keeps_another_head(self):
        self.out.mkdir()
        (self.out / "config.json").write_text("{}")
        self.assert_fails(outrider("train", "eagle3", "--out", str(self.out)), 1,
                          f"{self.out}: holds another head; give another --out")

    def first_lines(self, *arguments):
        """Of a run that has the model but no Python environment, and the error."""
        cache = self.path / "cache"
        cache.mkdir(exist_ok=True)
        if not (cache / "models").exists():
            (cache / "models").symlink_to(pathlib.Path(model_path(MODEL)).parent)
        result = outrider("train", *arguments, "--offline", "--out", str(self.out), "-m", MODEL,
                          OUTRIDER_CACHE=str(cache))
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertFalse(self.out.exists())
        return result.stderr.splitlines()

    @needs_model(MODEL)
    def test_says_what_it_needs(self):
        plan, memory, error = self.first_lines("eagle3", "--hours", "2")
        self.assertEqual(plan, f"eagle3 for {MODEL} in {self.out}: 2 h 0 min in all, 48 min of answers, 1 h 6 min "
                               "of training, 6 min of measuring")
        self.assertRegex(memory, r"^training takes about \d\.\d+ GB of memory")
        self.assertIn(f"{self.out}: there is no Python environment with PyTorch", error)
        plan, *_ = self.first_lines("medusa", "--tokens", "5000")
        self.assertIn("1 h 0 min in all, 5000 tokens of answers, 33 min of training, 3 min of measuring", plan)

    @needs_model(MODEL)
    def test_features_of_another_model(self):
        features = self.path / "features"
        features.mkdir()
        error = self.first_lines("eagle3", "--features", str(features))[-1]
        self.assertIn(f"{features}: holds no features; outrider features writes them", error)
        (features / "features.json").write_text('{"model": {"name": "other", "file": "00"}}')
        error = self.first_lines("eagle3", "--features", str(features))[-1]
        self.assertIn(f"{features}: holds features of another model file than that of {MODEL}", error)


if __name__ == "__main__":
    unittest.main()
