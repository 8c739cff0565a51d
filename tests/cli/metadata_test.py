"""What files say of their models and what they leave out, as a user meets it: the smallest real model with other metadata."""

import json
import pathlib
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

from program import MODEL, TestCase, model_path, needs_model, outrider

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "server"))
from made_models import write_changed_model
from serving import Server

ANSWER = ["-p", "Say the word river four times.", "-n", "8", "--temp", "0"]
BROKEN_TEMPLATE = {"tokenizer.chat_template": "a\n{% if %}"}


@needs_model(MODEL)
class Metadata(TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "changed.gguf"

    def change(self, changes):
        write_changed_model(pathlib.Path(model_path(MODEL)), self.path, changes)
        return str(self.path)

    def answer(self, model, *arguments):
        result = outrider("run", "-m", model, *ANSWER, *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def test_what_nobody_uses_is_no_obstacle(self):
        same = self.answer(MODEL)
        cases = [
            ({"tokenizer.ggml.padding_token_id": 2**32 - 1}, None),
            ({"llama.attention.head_count_kv": [3] * 30}, None),
            ({"llama.feed_forward_length": [1536] * 30, "llama.attention.head_count": [9] * 30}, None),
            ({"tokenizer.ggml.eot_token_id": 2**32 - 1}, "tokenizer.ggml.eot_token_id is 4294967295, but the vocabulary has 49152"),
            ({"llama.attention.no_such_key": 1}, "key llama.attention.no_such_key is not known to this version and is ignored"),
        ]
        for changes, warning in cases:
            with self.subTest(changes):
                result = self.answer(self.change(changes))
                self.assertEqual(result.stdout, same.stdout)
                lines = [line for line in result.stderr.splitlines() if self.path.name in line]
                self.assertEqual(len(lines), 1 if warning else 0, result.stderr)
                if warning:
                    self.assertIn(warning, lines[0])

    def test_scaling_without_its_kind(self):
        text = ["-p", pathlib.Path(__file__).read_text()[:2000], "--json"]
        def perplexity(changes):
            result = outrider("perplexity", "-m", self.change(changes), *text)
            self.assertEqual(result.returncode, 0, result.stderr)
            return json.loads(result.stdout)["perplexity"]["mean"]
        plain = perplexity({})
        scaled = perplexity({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 8.0})
        self.assertGreater(scaled, 1.5 * plain)
        for changes in ({"llama.rope.scale_linear": 8.0}, {"llama.rope.scaling.factor": 8.0}):
            self.assertEqual(perplexity(changes), scaled, changes)

    def test_a_template_that_does_not_parse(self):
        model = self.change(BROKEN_TEMPLATE)
        problem = f"{model}: chat template, line 2"
        self.assert_fails(outrider("run", "-m", model, *ANSWER), 1, problem, "choose another chat template (--chat-template-file)")
        self.assert_fails(outrider("run", "-m", model), 1, problem, "(--chat-template-file)")
        self.answer(model, "--raw")
        self.assertEqual(outrider("perplexity", "-m", model, "-p", "The river runs to the sea.").returncode, 0)
        own = self.path.with_suffix(".jinja")
        own.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
        self.answer(model, "--chat-template-file", str(own))
        own.write_text(" \n")
        self.assert_fails(outrider("run", "-m", model, *ANSWER, "--chat-template-file", str(own)), 1, f"{own}: is empty, expected a chat template")
        own.write_text("{# nothing #}{{ '' }}")
        self.assert_fails(outrider("run", "-m", model, *ANSWER, "--chat-template-file", str(own)), 1, "the chat template writes nothing",
                          "(--chat-template-file)")
        warnings = json.loads(outrider("inspect", "-m", model, "--json").stdout)["warnings"]
        self.assertEqual(len(warnings), 1)
        self.assertIn(problem, warnings[0])
        model = self.change({"tokenizer.chat_template": 5})
        self.assert_fails(outrider("run", "-m", model, *ANSWER), 1, "tokenizer.chat_template holds an integer", "(--chat-template-file)")
        self.answer(model, "--raw")

    def test_a_server_with_a_broken_template_continues_texts(self):
        model = self.change(BROKEN_TEMPLATE)
        with Server(model=model) as server:
            body = {"prompt": "The river", "max_tokens": 2, "messages": [{"role": "user", "content": "x"}], "reasoning_effort": "high",
                    "tools": [{"type": "function", "function": {"name": "f"}}]}
            def post(route, *fields):
                request = urllib.request.Request(server.url + route, json.dumps({f: body[f] for f in fields}).encode(),
                                                 {"Content-Type": "application/json"})
                return urllib.request.urlopen(request, timeout=60)
            with post("/v1/completions", "prompt", "max_tokens") as answer:
                self.assertTrue(json.load(answer)["choices"][0]["text"])
            for more in ([], ["tools"], ["reasoning_effort"]):
                with self.assertRaises(urllib.error.HTTPError) as failed:
                    post("/v1/chat/completions", "messages", "max_tokens", *more)
                message = json.load(failed.exception)["error"]["message"]
                self.assertEqual(failed.exception.code, 400)
                self.assertIn("chat template, line 2", message)
                self.assertIn("--chat-template-file", message)

    def test_an_empty_template_is_none(self):
        result = self.answer(self.change({"tokenizer.chat_template": ""}))
        self.assertIn("tokenizer.chat_template is empty: taken as none", result.stderr)
        self.assertIn("has no chat template: it continues the prompt as it is", result.stderr)

    def test_the_pre_tokenizer_can_be_named(self):
        text = "x = 12345 + don't\n"
        tokens = lambda model, *flags: outrider("tokenize", "-m", model, "--json", "-p", text, *flags)
        expected = tokens(MODEL).stdout
        model = self.change({"tokenizer.ggml.pre": None})
        self.assert_fails(tokens(model), 1, "tokenizer.ggml.pre is missing", "(--tokenizer-pre)")
        self.assert_fails(outrider("run", "-m", model, *ANSWER), 1, "(--tokenizer-pre)")
        self.assertEqual(tokens(model, "--tokenizer-pre", "smollm").stdout, expected)
        self.assertEqual(self.answer(model, "--tokenizer-pre", "smollm").stdout, self.answer(MODEL).stdout)
        self.assert_fails(tokens(model, "--tokenizer-pre", "gpt-9"), 1, "\"gpt-9\"", "smollm")
        default = tokens(self.change({"tokenizer.ggml.pre": "default"}))
        self.assertEqual(default.returncode, 0)
        self.assertIn("its pre-tokenizer is \"default\"", default.stderr)

    def test_inspect_shows_what_holds_by_default(self):
        model = self.change({"llama.rope.freq_base": None, "llama.context_length": 32768, "llama.no_such_key": 1})
        report = json.loads(outrider("inspect", "-m", model, "--json").stdout)
        self.assertEqual(report["defaults"]["llama.rope.freq_base"], "10000")
        self.assertEqual(report["defaults"]["llama.attention.sliding_window"], "0")
        self.assertNotIn("llama.context_length", report["defaults"])
        self.assertIn("llama.vocab_size", report["unused"])
        self.assertEqual(len(report["warnings"]), 1)
        shown = outrider("inspect", "-m", model).stdout
        self.assertIn("\nnot in the file, by default\n", shown)
        self.assertIn("\n  llama.rope.freq_base = 10000\n", shown)
        self.assertIn("\n  llama.vocab_size = 49152  (not used: rows of token_embd.weight are counted)\n", shown)
        self.assertIn("\nwarning: ", shown)


if __name__ == "__main__":
    unittest.main()
