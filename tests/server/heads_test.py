"""A server whose model has a learned head: each user gets the tokens of plain decoding, whatever else runs."""

import signal
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from serving import MODEL, Server, Stream, TestCase, joined, model_path, needs_model, wait_until
from made_head import write_head, write_medusa_heads, write_random_head

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
WORDS = "one two three four five six seven eight nine ten " * 15  # more than two pages of the cache
ALWAYS = ["--budget", "fixed", "--draft-rows", "7", "--draft-depth", "4", "--draft-width", "3"]
OFF = {"speculation": {"draft": "off"}}
FIELDS = {"max_tokens": 60, "ignore_eos": True}
CASES = [(prompt, temperature) for prompt in ("Once upon a time", "The river", WORDS) for temperature in (0, 0.8)]


@needs_model(MODEL)
class Heads(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.head = write_head(model_path(MODEL), cls.folder / "head")
        cls.medusa = write_medusa_heads(model_path(MODEL), cls.folder / "medusa")
        cls.server = cls.enterClassContext(Server("-md", cls.head, "-np", "4", "-c", "1024", *ALWAYS))
        with Server("-np", "2", "-c", "1024", "--draft", "off") as plain:
            cls.plain = staticmethod({
                (prompt, temperature): plain.complete(prompt, temperature=temperature, seed=5, **FIELDS)
                for prompt, temperature in CASES}.get)

    def complete(self, prompt, temperature=0, **fields):
        return self.server.complete(prompt, **{"temperature": temperature, "seed": 5, **FIELDS, **fields})

    def test_one_request(self):
        for prompt, temperature in CASES:
            with self.subTest(prompt=prompt[:20], temperature=temperature):
                self.assertEqual(self.complete(prompt, temperature), self.plain((prompt, temperature)))

    def test_requests_at_once(self):
        with ThreadPoolExecutor(len(CASES)) as pool:
            for _ in range(2):
                texts = list(pool.map(lambda case: self.complete(*case), CASES))
                self.assertEqual(texts, [self.plain(case) for case in CASES])

    def test_other_kinds(self):
        heads = {kind: write_random_head(model_path(MODEL), self.folder / kind, kind) for kind in ("mtp", "dspark")}
        for kind, head in {"medusa": self.medusa, **heads}.items():
            with self.subTest(kind=kind), Server("-md", head, "-np", "4", "-c", "1024", *ALWAYS) as server:
                def ask(case):
                    prompt, temperature = case
                    return server.complete(prompt, temperature=temperature, seed=5, **FIELDS)
                with ThreadPoolExecutor(4) as pool:
                    for _ in range(2):
                        self.assertEqual(list(pool.map(ask, CASES)), [self.plain(case) for case in CASES])
                drafted = [line for line in server.get("/metrics").body.decode().splitlines() if f'"{kind}"' in line]
                self.assertTrue(any(float(line.split()[-1]) > 100 for line in drafted), drafted)

    def test_some_with_drafts_and_some_without(self):
        """They share passes and pages."""
        def ask(fields):
            return self.complete(WORDS, **fields)
        with ThreadPoolExecutor(4) as pool:
            for _ in range(2):
                self.assertEqual(set(pool.map(ask, [{}, OFF, {}, OFF])), {self.plain((WORDS, 0))})

    def test_streams(self):
        def ask(prompt):
            return joined(self.server.events(COMPLETIONS, prompt=prompt, temperature=0, **FIELDS))[0]
        with ThreadPoolExecutor(2) as pool:
            prompts = ("Once upon a time", "The river")
            self.assertEqual(list(pool.map(ask, prompts)), [self.plain((prompt, 0)) for prompt in prompts])

    def test_several_answers_of_a_request(self):
        fields = {"prompt": WORDS, "n": 3, "temperature": 0.8, "seed": 5, **FIELDS}
        headed, plain = (self.server.answer(COMPLETIONS, **fields, **how) for how in ({}, OFF))
        texts = [[choice["text"] for choice in answer["choices"]] for answer in (headed, plain)]
        self.assertEqual(*texts)
        self.assertEqual(len(set(texts[0])), 3)

    def test_a_shared_beginning_is_found(self):
        prompt = "A sentence that only this test has. " + WORDS
        cached = []
        for end in ("and", "but", "and"):
            fields = {"prompt": prompt + end, "temperature": 0, **FIELDS}
            answer = self.server.answer(COMPLETIONS, **fields)
            cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
            plain = self.server.answer(COMPLETIONS, **fields, **OFF)
            self.assertEqual(answer["choices"][0]["text"], plain["choices"][0]["text"])
        self.assertEqual(cached[0], 0)
        self.assertGreaterEqual(cached[1], 128)
        self.assertGreaterEqual(cached[2], 128)

    def test_a_conversation(self):
        messages = [{"role": "user", "content": "Say hello."}]
        for _ in range(3):
            choices = [self.server.answer(CHAT, messages=messages, temperature=0, max_tokens=40, **how)["choices"]
                       for how in ({}, OFF)]
            self.assertEqual(*choices)
            messages += [choices[0][0]["message"], {"role": "user", "content": "And again, in other words."}]

    def test_the_context_s_end(self):
        prompt = WORDS * 6
        tokens = self.server.answer("/tokenize", content=prompt)["tokens"]
        for left in (1, 2, 3, 9, 65):
            fields = {"prompt": tokens[:1024 - left], "temperature": 0, "ignore_eos": True, "max_tokens": 100}
            with self.subTest(left=left):
                headed, plain = (self.server.answer(COMPLETIONS, **fields, **how) for how in ({}, OFF))
                self.assertEqual(headed["choices"], plain["choices"])
                self.assertEqual(headed["usage"]["completion_tokens"], plain["usage"]["completion_tokens"])

    def test_clients_that_leave(self):
        for n_lines in (0, 1, 7):
            fields = {"prompt": WORDS, "max_tokens": 800, "ignore_eos": True, "stream": True}
            with Stream(self.server.port, COMPLETIONS, **fields) as stream:
                for _ in range(n_lines):
                    stream.answer.readline()
        wait_until(lambda: not any(slot["is_processing"] for slot in self.server.get("/slots").json()))
        self.assertEqual(self.complete("The river"), self.plain(("The river", 0)))

    def test_few_pages(self):
        """Texts that do not fit together: some give their pages back and are computed again."""
        prompts = [f"{i} " + WORDS for i in range(4)]
        fields = {"temperature": 0, "max_tokens": 320, "ignore_eos": True}
        with Server("-md", self.head, "-np", "4", "-c", "512", "--cache-memory", "32M", *ALWAYS) as server, \
                ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda prompt: server.answer(COMPLETIONS, prompt=prompt, **fields), prompts))
        self.assertGreater(sum(answer["timings"]["preempted_n"] for answer in answers), 0)
        for prompt, answer in zip(prompts, answers):
            plain = self.server.answer(COMPLETIONS, prompt=prompt, **fields, **OFF)
            self.assertEqual(answer["choices"][0]["text"], plain["choices"][0]["text"])

    def test_verifiers(self):
        for verifier in ("rejection", "typical"):
            text = self.complete("The river", speculation={"verify": verifier})
            self.assertEqual(text, self.plain(("The river", 0)))

    def test_drafts_are_made_accepted_and_counted(self):
        answer = self.server.answer(COMPLETIONS, prompt=WORDS, temperature=0, speculation={"draft": "eagle"}, **FIELDS)
        self.assertGreater(answer["timings"]["draft_n_accepted"], 10, answer["timings"])
        drafted = [line for line in self.server.get("/metrics").body.decode().splitlines() if '"eagle"' in line]
        self.assertTrue(any(float(line.split()[-1]) > 10 for line in drafted), drafted)

    def test_signals(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number=number), Server("-md", self.head, "-np", "2", "-c", "1024", *ALWAYS) as server:
                fields = {"prompt": "The river", "temperature": 0, "stream": True, **FIELDS}
                with Stream(server.port, COMPLETIONS, **fields) as stream:
                    stream.answer.readline()
                    server.send_signal(number)
                    self.assertEqual(joined(stream.events())[0][-20:], self.plain(("The river", 0))[-20:])
                self.assertEqual(server.wait(), 0 if number == signal.SIGTERM else 128 + number)


if __name__ == "__main__":
    unittest.main()
