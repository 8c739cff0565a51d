"""Starts the program under test and looks at what it says."""

import os
import subprocess
import unittest

OUTRIDER = os.environ["OUTRIDER"]
MODEL = "smollm2:135m"


def environment(**changes):
    """The caller's, without what would change output; None removes a variable."""
    result = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "OUTRIDER_ISA", "OUTRIDER_PREFETCH")}
    for key, value in changes.items():
        result.pop(key, None)
        if value is not None:
            result[key] = value
    return result


def outrider(*arguments, input="", **changes):
    return subprocess.run([OUTRIDER, *arguments], input=input, capture_output=True, text=True,
                          env=environment(**changes))


def model_path(name):
    return f"{os.environ.get('OUTRIDER_CACHE', '')}/models/{name.replace(':', '-')}.gguf"


def has_model(name):
    return bool(os.environ.get("OUTRIDER_CACHE")) and os.path.exists(model_path(name))


def needs_model(name):
    return unittest.skipUnless(has_model(name), f"{name} is not in OUTRIDER_CACHE")


class TestCase(unittest.TestCase):
    maxDiff = None

    def assert_fails(self, result, status, *parts):
        """One line on standard error that holds all parts, nothing on standard output."""
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertEqual(result.stdout, "")
        lines = [l for l in result.stderr.splitlines() if not l.startswith("seed ")]
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertTrue(lines[0].startswith("outrider: "), lines[0])
        for part in parts:
            self.assertIn(part, lines[0])
