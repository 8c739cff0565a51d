"""Text that comes in is the same text by every way, whatever program wrote it and whatever the locale is."""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "server"))
from program import MODEL, OUTRIDER, TestCase, environment, needs_model  # noqa: E402
from serving import Server  # noqa: E402
from terminal import Terminal  # noqa: E402

LINE = "Übersetze «naïve café» – 東京 🙂 – ins Englische."
TEXT = f"{LINE}\n\n\tzweite Zeile: ÄÖÜ ß ẞ €\n  é\u0301 \ufeff dritte\n"
NO_LOCALE = dict.fromkeys(("LC_ALL", "LC_CTYPE", "LANG", "LOCPATH"))
# What terminals in containers and of foreign machines say of their letters.
LOCALES = [{}, {"LC_ALL": "C"}, {"LC_ALL": "POSIX"}, {"LANG": "C"}, {"LC_CTYPE": "xx_YY.UTF-8"}, {"LC_ALL": "de_DE.ISO-8859-1"},
           {"LC_ALL": "C.UTF-8"}, {"LC_ALL": "C", "LOCPATH": "/nonexistent"}]  # the last: no locale is installed
CHAT = ["run", "-m", MODEL, "--temp", "0", "-n", "16", "--draft", "off"]


def written(text, windows=False, bom=False):
    return (b"\xef\xbb\xbf" if bom else b"") + (text.replace("\n", "\r\n") if windows else text).encode()


# As programs of all systems write a text.
WAYS = [{"windows": windows, "bom": bom} for windows in (False, True) for bom in (False, True)]


class Text(TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def file(self, content, name="text"):
        path = os.path.join(self.folder.name, name)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def program(self, *arguments, input=b""):
        return subprocess.run([OUTRIDER, *arguments], input=input, capture_output=True, env=environment(), timeout=120)

    def output(self, *arguments, input=b""):
        result = self.program(*arguments, input=input)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.decode()

    def tokens(self, *arguments, input=b""):
        return json.loads(self.output("tokenize", "-m", MODEL, "--json", *arguments, input=input))["tokens"]

    def answer(self):
        """To LINE, and the tokens of its prompt."""
        answer = json.loads(self.output(*CHAT, "--json", "-p", LINE))
        return answer["text"], answer["usage"]["prompt_tokens"]

    @needs_model(MODEL)
    def test_the_same_text_gives_the_same_tokens_by_all_five_ways(self):
        expected = self.tokens("-p", TEXT)
        windows = TEXT.replace("\n", "\r\n")
        self.assertNotEqual(self.tokens("-p", windows), expected)  # flags: byte for byte
        for way in WAYS:
            with self.subTest(way):
                text, line_end = written(TEXT, **way), written("\n", windows=way["windows"])
                self.assertEqual(self.tokens("-f", self.file(text + line_end)), expected)
                self.assertEqual(self.tokens("-f", "-", input=text + line_end), expected)
                self.assertEqual(self.tokens("-", input=text + line_end), expected)
                self.assertEqual(self.tokens(input=text + line_end), expected)
        terminal = Terminal("tokenize", "-m", MODEL, "--json", **NO_LOCALE)
        terminal.press(TEXT + "\n\x04")
        shown = terminal.wait_for(r'\{\s*"tokens".*\}\s*$')  # after what was typed
        self.assertEqual(json.loads(shown[shown.rindex("{"):])["tokens"], expected)
        self.assertEqual(terminal.end(), 0)
        with Server() as server:
            self.assertEqual(server.answer("/tokenize", content=TEXT)["tokens"], expected)
            self.assertNotEqual(server.answer("/tokenize", content=windows)["tokens"], expected)  # strings of JSON: as they are

    @needs_model(MODEL)
    def test_a_chat_hears_the_same_by_all_five_ways(self):
        answer, n_tokens = self.answer()
        self.assertEqual(self.output(*CHAT, "-f", self.file(written(LINE + "\n", windows=True, bom=True))), answer + "\n")
        for way in WAYS:
            with self.subTest(way):
                piped = self.program(*CHAT, input=written(f"{LINE}\n/stats\n", **way))
                self.assertEqual(piped.stdout.decode(), answer + "\n")
                self.assertIn(f"; prompt {n_tokens} tokens", piped.stderr.decode())
                conversation = json.dumps([{"role": "user", "content": LINE}], ensure_ascii=False, indent=1)
                path = self.file(written(conversation, **way))
                self.assertEqual(len(self.tokens("--chat", path)), n_tokens)
        with Server() as server:
            reply = server.answer("/v1/chat/completions", messages=[{"role": "user", "content": LINE}], temperature=0, max_tokens=16)
            self.assertEqual(reply["choices"][0]["message"]["content"], answer)
            self.assertEqual(reply["usage"]["prompt_tokens"], n_tokens)

    @needs_model(MODEL)
    def test_terminals_keep_all_letters_whatever_the_locale(self):
        answer, n_tokens = self.answer()
        for locale in LOCALES:
            with self.subTest(locale):
                terminal = Terminal(*CHAT, **NO_LOCALE | locale)
                terminal.wait_for("> ")
                terminal.type("ü" + LINE + "é東")
                terminal.type("\x7f\x7f\x01\x1b[3~\r")  # rubs two letters out, and one at the beginning
                shown = terminal.wait_for(re.escape(answer.replace("\n", "\r\n")) + "\r\n> ")
                if "LOCPATH" not in locale:
                    self.assertIn("東京 🙂", shown)
                terminal.type("/stats\r")
                self.assertIn(f"; prompt {n_tokens} tokens", terminal.wait_for("tokens of context used.*> "))
                terminal.type("/reset\r")
                terminal.wait_for("forgotten.*> ")
                terminal.type("\x1b[A\x1b[A\x1b[A\r")  # three lines before
                terminal.wait_for(re.escape(answer.replace("\n", "\r\n")) + "\r\n> ")
                terminal.type("\x04")
                self.assertEqual(terminal.end(), 0)

    @needs_model(MODEL)
    def test_bytes_that_are_no_letters_are_kept_on_terminals_as_in_pipes(self):
        for line in (b"Gr\xfc\xdfe aus K\xf6ln", b"\xe6\x9d x \xf0\x9f", b"\x85 \xed\xa0\x80 \x80"):
            answer = self.program(*CHAT, input=line + b"\n").stdout.decode("utf-8", "replace").rstrip("\n")
            for locale in ({"LC_ALL": "C.UTF-8"}, {"LC_ALL": "C", "LOCPATH": "/nonexistent"}):
                with self.subTest(line=line, **locale):
                    terminal = Terminal(*CHAT, **NO_LOCALE | locale)
                    terminal.wait_for("> ")
                    terminal.type(line.decode("utf-8", "surrogateescape") + "\r")
                    terminal.wait_for(re.escape(answer.replace("\n", "\r\n")) + "\r\n> ")
                    terminal.type("\x04")
                    self.assertEqual(terminal.end(), 0)

    @needs_model(MODEL)
    def test_tabs_are_text_on_terminals(self):
        line = "if x:\n\treturn".replace("\n", " ")
        answer = self.output(*CHAT, "-p", line).rstrip("\n")
        terminal = Terminal(*CHAT, **NO_LOCALE)
        terminal.wait_for("> ")
        terminal.type(line + "\r")
        terminal.wait_for(re.escape(answer.replace("\n", "\r\n")) + "\r\n> ")
        terminal.type("\x04")
        self.assertEqual(terminal.end(), 0)

    @needs_model(MODEL)
    def test_files_of_other_systems_are_read_alike(self):
        template = "{% for message in messages %}\n<{{ message.role }}>\n\n{{ message.content }}\n{% endfor %}\nend\n"
        chat = self.file(b'[{"role": "user", "content": "Hi"}]', "chat")
        said = self.output(*CHAT, "--ignore-eos", "-p", "Write two lines.\nThen more.")
        readers = [
            lambda path: self.tokens("--chat", chat, "--chat-template-file", path),
            lambda path: json.loads(self.output(*CHAT[:-2], "--json", "--ignore-eos", "--budget", "fixed", "-p",
                                                "Write two lines.\nThen more.", "--draft", f"prediction={path}"))["draft"],
        ]
        for read, text in zip(readers, (template, "> " + said)):
            results = [read(self.file(written(text, **way))) for way in WAYS]
            self.assertEqual(results, results[:1] * len(WAYS))
        with Server("--api-key-file", self.file(written("first\nsecond\n", windows=True, bom=True))) as server:
            for key, status in (("first", 200), ("second", 200), ("third", 401)):
                self.assertEqual(server.request("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"}).status, status)

    @needs_model(MODEL)
    def test_utf_16_is_refused_by_name(self):
        chat = self.file(b'[{"role": "user", "content": "Hi"}]', "chat")
        readers = [["tokenize", "-f"], ["tokenize", "--chat"], ["tokenize", "--chat", chat, "--chat-template-file"],
                   ["run", "-f"], ["run", "-p", "x", "--draft", "prediction="], ["perplexity", "-f"], ["prove", "--prompts"],
                   ["run", "-p", "x", "-md", MODEL, "--draft", "model", "--draft-vocab", "300="],
                   ["bench", "generate", "--prompts"], ["serve", "--port", "0", "--api-key-file"]]
        for encoding in ("utf-16-le", "utf-16-be"):
            content = "\ufeff{\"prompt\": \"é\"}\r\n".encode(encoding)
            path = self.file(content)
            problem = "is UTF-16 by its byte order mark, expected UTF-8; iconv -f UTF-16 -t UTF-8 converts it"
            files = [([*arguments, last + path] if last.endswith("=") else [*arguments, last, path], path)
                     for *arguments, last in readers]
            pipes = [(arguments, "standard input") for arguments in
                     (["tokenize"], ["tokenize", "-f", "-"], ["tokenize", "--chat", "-"], ["run", "-f", "-"], ["run"])]
            for arguments, name in files + pipes:
                with self.subTest(encoding, arguments=arguments):
                    result = self.program(*arguments, "-m", MODEL, input=content)
                    self.assertIn(f"outrider: {name}: {problem}\n", result.stderr.decode())
                    self.assertEqual((result.stdout, result.returncode), (b"", 1))


if __name__ == "__main__":
    unittest.main()
