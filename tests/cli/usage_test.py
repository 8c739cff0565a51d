"""Command lines: what is accepted, and what the program says about the others. Loads no model."""

import os
import pty
import re
import subprocess
import unittest

from program import OUTRIDER, TestCase, environment, outrider

COMMANDS = ["run", "serve", "prove", "bench bandwidth", "bench curve", "bench generate", "pull", "list", "rm", "inspect",
            "tokenize", "datastore build", "convert-head", "tune self", "profile show", "profile clear", "history show",
            "history clear", "completions", "manual"]


class Usage(TestCase):
    def test_wrong_command_lines(self):
        cases = [
            ([], "a command is missing"),
            (["runn"], 'did you mean "run"?'),
            (["bench"], "expected bandwidth or curve or generate"),
            (["profile"], "expected show or clear"),
            (["tune"], "expected self"),
            (["bench", "curv"], 'did you mean "curve"?'),
            (["-p", "hi"], "a command comes first"),
            (["run", "--tmp", "0"], "--tmp: run has no such flag", 'did you mean "--temp"?'),
            (["list", "--temp", "0"], "--temp: not a flag of list, but of run"),
            (["serve", "--parallel", "0", "-m", "x"], "--parallel 0: at least 1"),
            (["serve", "-np", "many", "-m", "x"], "--parallel many: expected a whole number"),
            (["serve", "--port", "65536", "-m", "x"], "--port 65536: at most 65535"),
            (["serve", "--prompt", "x", "-m", "x"], "--prompt: not a flag of serve, but of run"),
            (["run", "hello"], "write the prompt after -p"),
            (["run", "-p"], "-p: a value is missing"),
            (["run", "--draft-rows", "900"], "--draft-rows 900: at most 64"),
            (["run", "--draft-rows", "x"], "--draft-rows x: expected a whole number"),
            (["run", "--draft-quantize", "q2_k"], "--draft-quantize q2_k: expected q4_128 or q4_0 or q5_0 or q8_0 or off"),
            (["run", "--draft-vocab", "0"], "--draft-vocab 0: at least 1"),
            (["run", "--draft-vocab", "few"], "--draft-vocab few: expected a whole number"),
            (["run", "--draft-vocab", "all=x.txt"], "expected a number, and a file after =, as in 32768=letters.txt"),
            (["run", "--draft-vocab", "100="], "a file after ="),
            (["run", "--draft-vocab", "100", "-p", "x"], "--draft-vocab: no --draft asks for model; write --draft model=MODEL", "write --draft model=MODEL"),
            (["run", "--draft-quantize", "off", "--draft", "lookup", "-p", "x"], "--draft-quantize: no --draft asks for model"),
            (["run", "--draft", "lookup", "-md", "y", "-p", "x"], "--model-draft: no --draft asks"),
            (["prove", "--draft", "off", "--draft", "lookup", "-md", "y", "-p", "x"], "--model-draft: no --draft asks"),
            (["prove", "--draft-vocab", "all", "-p", "x"], "--draft-vocab: no --draft asks for model; write --draft model=MODEL"),
            (["bench", "generate", "--draft-vocab", "9", "--prompts", "x"], "--draft-vocab: no --draft asks for model; write --draft model=MODEL"),
            (["run", "--temp", "-1"], "--temp -1: at least 0"),
            (["run", "--temp", "1e-38"], "--temp 1e-38: 0, or at least 1e-06"),
            (["run", "--temp", "nan"], "--temp nan: expected a number"),
            (["run", "--temp", "0,5"], "--temp 0,5: expected a number"),
            (["run", "-n", "99999999999"], "--predict 99999999999: expected a whole number"),
            (["run", "--cache-type", "q4_0"], "--cache-type q4_0: expected f16 or q8_0 or f32"),
            (["run", "--draft", "5", "-p", "x"], "--draft-depth 5"),
            (["run", "--draft", "hydra", "-p", "x"], 'no drafter is called "hydra"'),
            (["run", "--draft", "lokup", "-p", "x"], 'did you mean "lookup"?'),
            (["run", "--draft", "model", "-p", "x"], "names no model"),
            (["run", "--stop", "", "-p", "x"], "must not be empty"),
            (["run", "--stop=", "-p", "x"], "--stop : must not be empty"),
            (["run", "-p", "x", "--temp=", "--json"], "--temp : expected a number"),
            (["run", "--logit-bias", "12", "-p", "x"], "15043+1"),
            (["run", "-p", "a", "-p", "b"], "--prompt: given 2 times"),
            (["run", "-p", "a", "-f", "b"], "one of them, not both"),
            (["run", "--json"], "needs a prompt"),
            (["run", "-m", "smolm2:135m", "-p", "x"], "smollm2:135m"),
            (["run", "-m", "hf:a/b", "-p", "x"], "hf:"),
            (["run", "-m", "https://a.b/c.gguf", "-p", "x"], "does not fetch from addresses; give"),
            (["prove", "--full", "-p", "x"], "--full: takes no prompt"),
            (["run", "-p", "x", "--typical-epsilon", "0.1"], "--typical-epsilon: needs --verify typical"),
            (["run", "-p", "x", "--verify", "typical", "--typical-delta", "-1"], "--typical-delta -1: at least 0"),
            (["prove", "--draft", "off", "-p", "x"], "give a second --draft"),
            (["bench", "generate"], "needs --prompts"),
            (["run", "-p", "x", "--draft", "lookup+prediction"], "prediction has no text; write prediction=FILE"),
            (["prove", "-p", "x", "--draft", "off", "--draft", "prediction="], "write prediction=FILE"),
            (["pull"], "NAME… is missing"),
            (["pull", "smolm2:135m"], 'did you mean "smollm2:135m"?'),
            (["completions", "tcsh"], "expected bash or zsh or fish"),
            (["convert-head"], "FILE is missing"),
            (["convert-head", "a", "b"], "b: takes no such argument"),
            (["inspect", "a", "b"], "b: takes no such argument"),
            (["inspect", "a", "-m", "b"], "a: --model b is given, too"),
            (["prove", "hello"], "write the prompt after -p"),
            (["tokenize", "a", "-p", "b"], "a: the text is given by --prompt, too"),
            (["tokenize", "a", "-f", "b"], "a: the text is given by --file, too"),
            (["tokenize", "-p", "a", "-f", "b"], "one of them, not both"),
            (["tokenize", "--chat", "a", "-p", "b"], "--chat a: takes neither a text nor --raw"),
        ]
        for arguments, *parts in cases:
            with self.subTest(arguments):
                self.assert_fails(outrider(*arguments), 2, *parts)

    def test_nothing_on_a_terminal_is_help(self):
        screen, terminal = pty.openpty()
        result = subprocess.run([OUTRIDER], stdout=terminal, stderr=subprocess.PIPE, env=environment())
        os.close(terminal)
        shown = b""
        try:
            while part := os.read(screen, 4096):
                shown += part
        except OSError:  # Linux's end of a terminal
            pass
        os.close(screen)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertEqual(shown.decode().replace("\r\n", "\n"), outrider("--help").stdout)

    def test_llama_cpp_spellings(self):
        # Each is understood as far as the model, which does not exist.
        for flags in (["-md", "b.gguf"], ["-n", "5"], ["-n", "-1"], ["--n-predict", "5"], ["-n5"], ["-s", "-1"],
                      ["--temperature", "0.5"], ["-sys", "Be brief."], ["--temp=0.5"], ["-t", "1"]):
            with self.subTest(flags):
                result = outrider("run", "-m", "/nowhere/a.gguf", "-p", "x", *flags)
                self.assert_fails(result, 1, "/nowhere/a.gguf")

    def test_flags_of_draft_models_are_taken_where_one_may_come(self):
        # Each is understood as far as the model, which does not exist.
        for flags in (["-p", "x", "--draft", "lookup+model=b.gguf"], ["-p", "x", "-md", "b.gguf"], []):
            with self.subTest(flags):
                result = outrider("run", "-m", "/nowhere/a.gguf", "--draft-vocab", "100", "--draft-quantize", "q5_0", *flags)
                self.assert_fails(result, 1, "/nowhere/a.gguf")

    def test_predictions_are_read_before_models(self):
        result = outrider("run", "-m", "/nowhere/a.gguf", "-p", "x", "--draft", "prediction=/nowhere/old.py")
        self.assert_fails(result, 1, "/nowhere/old.py: cannot be read: No such file")

    def test_values_that_look_like_flags(self):
        for value in ("-md", "--json", "-"):
            with self.subTest(value):
                result = outrider("run", "-m", "/nowhere/a.gguf", "-p", value)
                self.assert_fails(result, 1, "/nowhere/a.gguf")

    def test_help(self):
        overview = outrider("--help")
        self.assertEqual(overview.returncode, 0)
        for command in COMMANDS:
            self.assertIn(f"\n  {command} ", overview.stdout)
            result = outrider(*command.split(), "--help")
            self.assertEqual(result.returncode, 0, command)
            self.assertTrue(result.stdout.startswith(f"usage: outrider {command}"))
            self.assertTrue(all(len(line) <= 80 for line in result.stdout.splitlines()), command)
            self.assertEqual(outrider("help", *command.split()).stdout, result.stdout)
        serve = " ".join(outrider("serve", "--help").stdout.split())
        self.assertRegex(serve, r"--host ADDRESS address[^[]* \[127\.0\.0\.1\]")
        self.assertRegex(serve, r"--port N [^[]* \[8080\]")
        run = outrider("run", "--help").stdout
        for group in ("Model", "Prompt", "Generation", "Sampling", "Speculation", "Output"):
            self.assertIn(f"\n{group}\n", run)
        self.assertIn("-md, --model-draft MODEL", run)
        self.assertRegex(run, r"--draft-rows N +[^\[]*\[16\]")

    def test_version(self):
        result = outrider("--version")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"^outrider \d+\.\d+\.\d+ \(commit \S+\)\n"
                                        r"instruction sets: reference.*; in use: \w+\n$")
        self.assertIn("in use: reference", outrider("--version", OUTRIDER_ISA="reference").stdout)
        self.assert_fails(outrider("--version", OUTRIDER_ISA="sse9"), 1, "sse9")

    def test_manual(self):
        page = outrider("manual").stdout
        self.assertTrue(page.startswith(".TH OUTRIDER 1"))
        sections = re.findall(r"^\.SH (.*)$", page, re.M)
        self.assertEqual(sections[:2], ["NAME", "SYNOPSIS"])
        for section in ("COMMANDS", "FLAGS", "ENVIRONMENT", "EXIT STATUS", "EXAMPLES"):
            self.assertIn(section, sections)
        self.assertIn("\\-\\-draft\\-rows N", page)
        for line in page.splitlines():
            self.assertFalse(re.match(r"\.(?!TH|SH|SS|TP|B|br)", line), line)

    def test_completions_know_every_command_and_flag(self):
        flags = set(re.findall(r"(--[a-z0-9-]+)", outrider("run", "--help").stdout)) - {"--draft auto"}
        for shell in ("bash", "zsh", "fish"):
            script = outrider("completions", shell).stdout
            for word in [w for c in COMMANDS for w in c.split()]:
                self.assertIn(word, script)
            for flag in flags:
                self.assertIn(f"-l {flag[2:]}" if shell == "fish" else flag, script, shell)
            self.assertIn("smollm2:135m", script)

    def test_bash_completes(self):
        def complete(*words):
            script = ('source <("$0" completions bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
                      '_outrider; printf "%s\\n" "${COMPREPLY[@]}"')
            return subprocess.run(["bash", "-c", script, OUTRIDER, *words], capture_output=True, text=True,
                                  env=environment()).stdout.split()
        self.assertEqual(complete("outrider", "prov"), ["prove"])
        self.assertEqual(complete("outrider", "bench", ""), ["bandwidth", "curve", "generate"])
        self.assertEqual(complete("outrider", "profile", ""), ["show", "clear"])
        self.assertEqual(complete("outrider", "profile", "show", "--j"), ["--json"])
        self.assertEqual(complete("outrider", "bench", "curve", "--prof"), ["--profile"])
        self.assertEqual(complete("outrider", "run", "--draft-r"), ["--draft-rows"])
        self.assertEqual(complete("outrider", "run", "--color", "a"), ["auto", "always"])
        self.assertIn("smollm2:135m", complete("outrider", "pull", "smol"))
        self.assertEqual(complete("outrider", "completions", "z"), ["zsh"])


if __name__ == "__main__":
    unittest.main()
