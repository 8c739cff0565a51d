"""The conversation: through a pipe, and on a terminal with its keys."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest

from program import MODEL, OUTRIDER, TestCase, environment, has_model, model_path, needs_model, outrider
from terminal import Terminal

FLAGS = ["run", "--temp", "0", "-n", "24"]


@needs_model(MODEL)
class Chat(TestCase):
    def test_turns_from_a_pipe(self):
        result = outrider(*FLAGS, input="Say hello.\n\n/stats\n/draft off\n/nonsense\n/reset\n/stats\nSay hello.\n/exit\nno\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        alone = outrider(*FLAGS, "-p", "Say hello.").stdout
        self.assertEqual(result.stdout, alone + alone)
        for part in ("tokens of context used; --draft auto", "--draft off", "/nonsense: no such command", "forgotten", "\n0 of "):
            self.assertIn(part, result.stderr)

    @unittest.skipUnless(has_model("qwen2.5-coder:1.5b") and has_model("qwen2.5-coder:0.5b"), "no pair of models")
    def test_the_catalogues_draft_model_joins(self):
        chat = [*FLAGS, "-m", "qwen2.5-coder:1.5b"]
        said = "Count from one to ten in words.\n" * 3
        with_model = outrider(*chat, "--budget", "fixed", input=said + "/stats\n")
        self.assertEqual(with_model.returncode, 0, with_model.stderr)
        self.assertRegex(with_model.stderr, r"model [1-9]\d* of \d+ accepted")
        self.assertEqual(with_model.stdout, outrider(*chat, "--draft", "off", input=said).stdout)
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "models"))
            os.symlink(model_path("qwen2.5-coder:1.5b"), os.path.join(folder, "models", "qwen2.5-coder-1.5b.gguf"))
            without = outrider(*chat, input=said + "/stats\n", OUTRIDER_CACHE=folder)
            self.assertRegex(without.stderr, r"times as fast with a draft model: outrider pull qwen2.5-coder:0.5b")
            self.assertEqual(without.stdout, with_model.stdout)

    def test_the_beginning_is_read_once(self):
        result = outrider(*FLAGS, input="Say hello.\n/stats\n/reset\nName a colour.\n/stats\n")
        self.assertEqual(len(re.findall(r"prompt \d+ tokens, \d+ of them reused", result.stderr)), 1)
        alone = [outrider(*FLAGS, "-p", prompt).stdout for prompt in ("Say hello.", "Name a colour.")]
        self.assertEqual(result.stdout, "".join(alone))

    def test_later_turns_know_the_earlier(self):
        result = outrider(*FLAGS, input="Say hello.\nSay it again.\n")
        first = outrider(*FLAGS, "-p", "Say hello.").stdout
        self.assertTrue(result.stdout.startswith(first))
        self.assertNotEqual(result.stdout[len(first):], outrider(*FLAGS, "-p", "Say it again.").stdout)

    def test_a_full_context_names_the_way_out(self):
        result = outrider("run", "--temp", "0", "--ignore-eos", "-c", "64", input="Tell me a story.\nMore.\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("is full: /reset", result.stderr)

    def test_keys(self):
        terminal = Terminal(*FLAGS)
        terminal.wait_for("> ")
        terminal.press("\x03")
        terminal.wait_for("once more, or Ctrl-D.*> ")
        terminal.type("/hxlp")
        terminal.wait_for("hxlp")
        terminal.type("\x1b[D\x1b[D\x7fe\r")  # two left, rub out, e
        terminal.wait_for("/reset +forget.*> ")
        terminal.type("\x1b[A")  # the line before
        terminal.wait_for("/help")
        terminal.press("\x03")  # a line that is not empty: gone, and the chat goes on
        terminal.wait_for(r"\^C.*> ")
        terminal.type("/exit\r")
        self.assertEqual(terminal.end(), 0)

    def test_ctrl_d_ends(self):
        terminal = Terminal(*FLAGS)
        terminal.wait_for("> ")
        terminal.type("\x04")
        self.assertEqual(terminal.end(), 0)

    def test_two_ctrl_c_end(self):
        terminal = Terminal(*FLAGS)
        terminal.wait_for("> ")
        terminal.press("\x03")
        terminal.wait_for("once more.*> ")
        terminal.press("\x03")
        self.assertEqual(terminal.end(), 130)

    def test_ctrl_c_stops_the_answer_and_not_the_program(self):
        terminal = Terminal("run", "--temp", "0", "--ignore-eos", "-n", "4000")
        terminal.wait_for("> ")
        terminal.type("Count to a thousand.\r")
        terminal.wait_for(r"thousand\.\s+\w")
        terminal.press("\x03")
        terminal.wait_for("stopped.*> ")
        terminal.type("/stats\r")
        terminal.wait_for("tokens of context used.*> ")
        terminal.type("\x04")
        self.assertEqual(terminal.end(), 0)

    def test_steps_are_lines_of_their_own(self):
        terminal = Terminal("run", "--temp", "0", "-n", "24", "--steps", "-p", "Count from 1 to 9.")
        shown = re.sub(r"\x1b\[[0-9;]*[mK]", "", terminal.wait_for(r"tokens/s[^\n]*\]"))
        self.assertEqual(terminal.end(), 0)
        lines = [line.split("\r")[-1] for line in shown.replace("\r\n", "\n").split("\n")]
        steps = [line for line in lines if "step " in line]
        self.assertGreater(len(steps), 3)
        for line in steps:
            self.assertRegex(line, r"^step \d+: .* ms$")

    def test_a_model_file_that_is_cut_short_ends_the_program_with_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copyfile(model_path(MODEL), os.path.join(folder, "copy.gguf"))
            process = subprocess.Popen([OUTRIDER, *FLAGS, "-m", copy], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True, env=environment())
            self.assertIn("/help", process.stderr.readline())
            os.truncate(copy, 4096)
            answer, error = process.communicate("Say hello.\n")
            self.assertEqual(process.returncode, 1)
            self.assertEqual((answer, error), ("", f"outrider: {copy}: was changed or became unreadable while in use\n"))

    def test_accepted_drafts_are_coloured_on_a_terminal(self):
        prompt = "Repeat: one two three one two three one two three one two three"
        terminal = Terminal("run", "--temp", "0", "-n", "24", "-p", prompt, "--budget", "fixed")
        terminal.wait_for(r"\x1b\[32m[^\x1b]+\x1b\[0m")
        self.assertEqual(terminal.end(), 0)


if __name__ == "__main__":
    unittest.main()
