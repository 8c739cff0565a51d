"""Borders of prompt and answer with a real model: letters that tokens split, and the context's last position."""

import unittest

from serving import MODEL, Server, TestCase, joined, needs_model

COMPLETIONS = "/v1/completions"
CONTEXT = 100  # more than a page of the cache


@needs_model(MODEL)
class Borders(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server("-c", str(CONTEXT)))

    def tokens(self, text):
        return self.server.answer("/tokenize", content=text)["tokens"]

    def test_letters(self):
        for text in ("café", "é", "naïve 😀", "漢字", "𝕏", "👩‍👩‍👧"):
            tokens = self.tokens(text)
            parts = [bytes(p["piece"]) if isinstance(p["piece"], list) else p["piece"].encode()
                     for p in self.server.answer("/tokenize", content=text, with_pieces=True)["tokens"]]
            self.assertEqual(b"".join(parts), text.encode())
            for n in range(1, len(tokens)):
                with self.subTest(text, n=n):
                    fields = {"prompt": tokens[:n], "max_tokens": 1, "logit_bias": {str(tokens[n]): 100},
                              "temperature": 0}
                    for echo in (False, True):
                        shown = b"".join(parts[0 if echo else n:n + 1])
                        asked = {**fields, "echo": echo, "logprobs": 0}
                        [choice] = self.server.answer(COMPLETIONS, **asked)["choices"]
                        self.assertEqual(choice["text"], shown.decode(errors="replace"))
                        self.assertEqual(joined(self.server.events(COMPLETIONS, **asked)), {0: choice["text"]})
                        offsets = choice["logprobs"]["text_offset"]
                        self.assertEqual(len(offsets), n + 1 if echo else 1)
                        self.assertEqual(offsets[0], 0)
                        self.assertEqual(offsets, sorted(offsets))
                        if echo:  # a letter's tokens have its place
                            for at, part in enumerate(parts[:n + 1]):
                                before = b"".join(parts[:at])
                                self.assertEqual(offsets[at], len(before.decode(errors="ignore")))

    def test_the_context_s_last_position(self):
        words = self.tokens(" one two three four five six seven eight nine ten" * 11)
        with Server("-c", "256") as longer:
            for left in (2, 1, 0, -1):
                prompt = words[:CONTEXT - left]
                for n in (0, 1, 2, None):
                    for echo in (False, True):
                        fields = {"prompt": prompt, "temperature": 0, "echo": echo, "logprobs": 1, "ignore_eos": True}
                        if n is not None:
                            fields["max_tokens"] = n
                        with self.subTest(left=left, max_tokens=n, echo=echo):
                            answer = self.server.post(COMPLETIONS, **fields)
                            if left < (0 if n == 0 else 1):
                                self.assertEqual(answer.status, 400)
                                self.assertEqual(answer.json()["error"]["code"], "context_length_exceeded")
                                continue
                            self.assertEqual(answer.status, 200, answer.body)
                            fields["max_tokens"] = min(left, 16 if n is None else n)
                            other = longer.answer(COMPLETIONS, **fields)
                            for document in (answer.json(), other):
                                self.assertEqual(document["usage"]["total_tokens"], len(prompt) + fields["max_tokens"])
                            self.assertEqual(answer.json()["choices"], other["choices"])

    def test_a_prompt_without_an_answer_is_read_into_the_cache(self):
        prompt = self.tokens(" " + " ".join(str(i) for i in range(100)))[:CONTEXT]
        for cached in (False, True):
            answer = self.server.answer(COMPLETIONS, prompt=prompt, max_tokens=0)
            details = answer["usage"]["prompt_tokens_details"]
            self.assertEqual(details["cached_tokens"] > 0, cached)
            self.assertEqual(answer["usage"]["completion_tokens"], 0)

    def test_messages_of_no_tokens(self):
        message = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 0}
        n = self.server.answer("/v1/messages/count_tokens", model=MODEL, messages=message["messages"])["input_tokens"]
        with Server("-c", str(n)) as full, Server("-c", str(n - 1)) as less:
            answer = full.answer("/v1/messages", **message)
            self.assertEqual((answer["stop_reason"], answer["content"]), ("max_tokens", []))
            self.assertIn("prompt is too long", full.post("/v1/messages", **{**message, "max_tokens": 1}).body.decode())
            self.assertIn("prompt is too long", less.post("/v1/messages", **message).body.decode())


if __name__ == "__main__":
    unittest.main()
