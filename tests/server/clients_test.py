"""Other people's clients against the server: what they send is taken, and what they read is what was meant."""

import asyncio
import json
import re
import unittest

import anthropic
import openai
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from serving import MODEL, PATIENCE, TOOL_MODEL, Server, needs_model, outrider

QUESTION = [{"role": "user", "content": "Name the three primary colours."}]
WEATHER = {
    "name": "get_weather",
    "description": "Tells the weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
WEATHER_TOOL = {"type": "function", "function": WEATHER}
WEATHER_QUESTION = [{"role": "user", "content": "What is the weather in Paris? Use the tool."}]
PAGE = 64  # tokens; so many at least are found in the cache, or none
LONG_TEXT = "Here is a list of the days on which it rained, and of those on which it did not. " * 10  # over two pages


def openai_client(server, **changes):
    return openai.OpenAI(**{"base_url": server.url + "/v1", "api_key": "none", "max_retries": 0, "timeout": PATIENCE,
                            **changes})


def anthropic_client(server, **changes):
    return anthropic.Anthropic(**{"base_url": server.url, "api_key": "none", "max_retries": 0, "timeout": PATIENCE,
                                  **changes})


def text_of(chunks):
    """Of a stream of chat answers."""
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


# The Anthropic package has no argument for it.
GREEDY = {"extra_body": {"temperature": 0}}


class ServerTest(unittest.TestCase):
    model = MODEL
    arguments = ()

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server(*cls.arguments, model=cls.model))
        cls.client = cls.enterClassContext(openai_client(cls.server))

    def chat(self, messages=QUESTION, **fields):
        return self.client.chat.completions.create(
            **{"model": self.model, "messages": messages, "temperature": 0, "max_tokens": 24, **fields})

    def complete(self, prompt="The capital of France is", **fields):
        return self.client.completions.create(
            **{"model": self.model, "prompt": prompt, "temperature": 0, "max_tokens": 12, **fields})


@needs_model(MODEL)
class Chat(ServerTest):
    arguments = ("--budget", "fixed")  # drafts as much as it may

    def test_answer(self):
        answer = self.chat()
        self.assertTrue(answer.id.startswith("chatcmpl-"))
        self.assertEqual((answer.object, answer.model), ("chat.completion", MODEL))
        [choice] = answer.choices
        self.assertEqual((choice.index, choice.message.role, choice.logprobs), (0, "assistant", None))
        self.assertTrue(choice.message.content)
        self.assertIsNone(choice.message.tool_calls)
        self.assertIn(choice.finish_reason, ("stop", "length"))
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
        self.assertLessEqual(answer.usage.completion_tokens, 24)

    def test_content_as_parts(self):
        parts = [{"type": "text", "text": "Name the three "}, {"type": "text", "text": "primary colours."}]
        self.assertEqual(self.chat([{"role": "user", "content": parts}]).choices[0].message.content,
                         self.chat().choices[0].message.content)

    def test_stream(self):
        whole = self.chat()
        with self.chat(stream=True, stream_options={"include_usage": True}) as stream:
            chunks = list(stream)
        self.assertEqual({chunk.object for chunk in chunks}, {"chat.completion.chunk"})
        self.assertEqual(len({chunk.id for chunk in chunks}), 1)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices),
                         whole.choices[0].message.content)
        self.assertEqual([chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1],
                         whole.choices[0].finish_reason)
        self.assertEqual([chunk.usage.completion_tokens for chunk in chunks if chunk.usage],
                         [whole.usage.completion_tokens])

    def test_stream_helper(self):
        messages = [{"role": "user", "content": "Say hello."}]  # the helper fails for answers that are cut off
        with self.client.chat.completions.stream(model=MODEL, messages=messages, temperature=0) as stream:
            for _ in stream:
                pass
            answer = stream.get_final_completion()
        self.assertEqual(answer.choices[0].message.content,
                         self.chat(messages, max_tokens=None).choices[0].message.content)
        # Sent back as the helper made it, with fields that only the helper has.
        messages += [answer.choices[0].message, {"role": "user", "content": "Say it again."}]
        self.assertTrue(self.chat(messages).choices[0].message.content)

    def test_raw_response(self):
        answer = self.client.chat.completions.with_raw_response.create(model=MODEL, messages=QUESTION, max_tokens=2)
        self.assertEqual(answer.status_code, 200)
        self.assertEqual(answer.headers["content-type"], "application/json")
        self.assertEqual(len(answer.parse().choices), 1)

    def test_async(self):
        async def ask():
            async with openai.AsyncOpenAI(base_url=self.server.url + "/v1", api_key="none", timeout=PATIENCE) as client:
                fields = {"model": MODEL, "messages": QUESTION, "temperature": 0, "max_tokens": 24}
                answers = await asyncio.gather(*[client.chat.completions.create(**fields) for _ in range(4)])
                stream = await client.chat.completions.create(**fields, stream=True)
                streamed = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
                return [answer.choices[0].message.content for answer in answers] + ["".join(streamed)]
        self.assertEqual(asyncio.run(ask()), [self.chat().choices[0].message.content] * 5)

    def test_stop(self):
        whole = self.chat().choices[0].message.content
        word = whole.split()[3]
        for stop in (word, ["never said", word]):
            answer = self.chat(stop=stop).choices[0]
            self.assertEqual((answer.message.content, answer.finish_reason), (whole[:whole.index(word)], "stop"))

    def test_seed_and_choices(self):
        several = self.chat(n=3, seed=7, temperature=1)
        again = self.chat(n=3, seed=7, temperature=1)
        texts = [choice.message.content for choice in several.choices]
        self.assertEqual([choice.index for choice in several.choices], [0, 1, 2])
        self.assertEqual(texts, [choice.message.content for choice in again.choices])
        self.assertEqual(len(set(texts)), 3)
        self.assertEqual(texts[0], self.chat(seed=7, temperature=1).choices[0].message.content)
        self.assertNotEqual(texts[0], self.chat(seed=8, temperature=1).choices[0].message.content)

    def test_drawn_seed(self):
        """Each answer tells it, and with it comes again."""
        whole = self.chat(temperature=1)
        chunks = list(self.chat(temperature=1, stream=True))
        [streamed_seed] = {chunk.seed for chunk in chunks}
        self.assertNotEqual(whole.seed, streamed_seed)
        for seed, text in ((whole.seed, whole.choices[0].message.content), (streamed_seed, text_of(chunks))):
            again = self.chat(temperature=1, seed=seed)
            self.assertEqual((again.seed, again.choices[0].message.content), (seed, text))
            self.assertEqual(text_of(self.chat(temperature=1, seed=seed, stream=True)), text)

    def test_logprobs(self):
        [choice] = self.chat(logprobs=True, top_logprobs=3).choices
        text = b""
        for token in choice.logprobs.content:
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertEqual([other.logprob for other in token.top_logprobs],
                             sorted([other.logprob for other in token.top_logprobs], reverse=True))
            # At temperature 0 the best is chosen.
            self.assertEqual((token.token, token.logprob), (token.top_logprobs[0].token, token.top_logprobs[0].logprob))
            text += bytes(token.bytes)
        self.assertTrue(text.startswith(choice.message.content.encode()))
        [plain] = self.chat(logprobs=True).choices
        self.assertEqual([token.logprob for token in plain.logprobs.content],
                         [token.logprob for token in choice.logprobs.content])
        self.assertEqual(plain.logprobs.content[0].top_logprobs, [])
        streamed = [token.logprob for chunk in self.chat(logprobs=True, stream=True) if chunk.choices
                    for token in (chunk.choices[0].logprobs.content if chunk.choices[0].logprobs else [])]
        self.assertEqual(streamed, [token.logprob for token in plain.logprobs.content])

    def test_logit_bias(self):
        token = 28  # a piece of text in this vocabulary
        piece = self.complete([token], echo=True, max_tokens=0).choices[0].text
        self.assertEqual(self.complete(max_tokens=3, logit_bias={token: 100}).choices[0].text, 3 * piece)
        self.assertNotIn(piece, self.complete(piece * 20, max_tokens=12, logit_bias={token: -100}).choices[0].text)

    def test_prediction(self):
        text = "import os\n\n\ndef size(path):\n    return os.stat(path).st_size\n"
        messages = [{"role": "user", "content": "Repeat this exactly:\n" + text}]
        plain = self.chat(messages, max_tokens=48)
        predicted = self.chat(messages, max_tokens=48,
                              prediction={"type": "content", "content": plain.choices[0].message.content})
        self.assertEqual(predicted.choices[0].message.content, plain.choices[0].message.content)
        self.assertGreater(predicted.usage.completion_tokens_details.accepted_prediction_tokens, 0)

    def test_cached_prompt(self):
        def ask(**fields):
            answer = self.complete(LONG_TEXT, extra_body=fields)
            self.assertGreaterEqual(answer.usage.prompt_tokens, 2 * PAGE + 2)
            n_cached = answer.usage.prompt_tokens_details.cached_tokens
            self.assertEqual(answer.timings["cache_n"], n_cached)
            self.assertEqual(answer.timings["prompt_n"], answer.usage.prompt_tokens - n_cached)
            return answer.choices[0].text, n_cached
        text, n_cached = ask()
        self.assertEqual(n_cached, 0)
        for fields, is_cached in [({}, True), ({"cache_salt": "a"}, False), ({"cache_salt": "a"}, True),
                                  ({"cache_salt": "b"}, False), ({}, True)]:
            again, n_cached = ask(**fields)
            self.assertEqual(again, text)
            self.assertTrue(n_cached >= PAGE if is_cached else n_cached == 0, (fields, n_cached))

    def test_timings(self):
        def ask(speculation):
            return self.complete("1, 2, 3, 1, 2, 3, 1, 2, 3, 1,", max_tokens=60,
                                 extra_body={"ignore_eos": True, "speculation": speculation})
        plain, drafted, one_row = ask({"draft": "off"}), ask({"draft": "auto"}), ask({"rows": 1})
        for answer in (plain, drafted, one_row):
            figures = answer.timings
            self.assertEqual(answer.choices[0].text, plain.choices[0].text)
            self.assertEqual(figures["predicted_n"], answer.usage.completion_tokens)
            self.assertEqual(sum(n * steps for n, steps in enumerate(figures["accepted_lengths"])),
                             figures["draft_n_accepted"])
            self.assertLessEqual(figures["draft_n_accepted"], figures["draft_n"])
            # One token comes with the prompt; each step brings one, and those that it accepts.
            self.assertEqual(1 + sum((n + 1) * steps for n, steps in enumerate(figures["accepted_lengths"]))
                             + sum(figures["not_drafted"].values()), 60)
        figures = plain.timings
        self.assertEqual((figures["draft_n"], figures["no_draft_reason"], figures["not_drafted"]["off"]), (0, "off", 59))
        for answer in (drafted, one_row):
            self.assertGreater(answer.timings["draft_n"], 0)
            self.assertNotIn("no_draft_reason", answer.timings)
        self.assertGreater(len(drafted.timings["accepted_lengths"]), 2)
        self.assertEqual(len(one_row.timings["accepted_lengths"]), 2)

        *_, last = self.chat(stream=True)
        self.assertEqual(set(last.timings) - {"no_draft_reason"}, set(drafted.timings))

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], [MODEL])
        self.assertEqual(self.client.models.retrieve(MODEL).id, MODEL)
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("gpt-4")

    def test_aliases(self):
        for flags in (["--alias", "one", "--alias", "two"], ["-a", "one,two"]):
            with self.subTest(flags), Server(*flags) as server, openai_client(server) as client:
                self.assertEqual([model.id for model in client.models.list()], ["one", "two"])
                for name in ("one", "two"):
                    self.assertEqual(client.models.retrieve(name).id, name)
                    answer = client.completions.create(model=name, prompt="x", max_tokens=1)
                    self.assertEqual(answer.model, name)
                for name in ("three", "one,two"):
                    with self.assertRaises(openai.NotFoundError):
                        client.completions.create(model=name, prompt="x", max_tokens=1)

    def test_any_name(self):
        with Server("-a", "*") as server, openai_client(server) as client, anthropic_client(server) as other:
            self.assertEqual([model.id for model in client.models.list()], [MODEL])
            for name in (MODEL, "gpt-4", "*"):
                self.assertEqual(client.models.retrieve(name).id, name)
                self.assertEqual(client.completions.create(model=name, prompt="x", max_tokens=1).model, name)
                self.assertEqual(other.messages.create(model=name, messages=QUESTION, max_tokens=1).model, name)

    def test_sampling_flags_hold_where_a_request_says_nothing(self):
        with Server("--temp", "0") as server, openai_client(server) as client:
            fields = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 40}
            best = client.completions.create(**fields, temperature=0).choices[0].text
            self.assertEqual(client.completions.create(**fields).choices[0].text, best)
            self.assertNotEqual(client.completions.create(**fields, temperature=2).choices[0].text, best)

    def test_unknown_fields_are_ignored(self):
        """Each is told once, and all are counted."""
        def n_ignored():
            metrics = self.server.get("/metrics").body.decode()
            self.assertNotIn("temprature", metrics)
            return int(re.search(r"^outrider_ignored_fields_total (\d+)$", metrics, re.MULTILINE)[1])
        messages = [{**QUESTION[0], "chat_id": 7}]
        before = n_ignored()
        for _ in range(2):
            answer = self.chat(messages, extra_body={"temprature": 1, "a\nb": 2})
            self.assertEqual(answer.choices[0].message.content, self.chat().choices[0].message.content)
        for name in ("temprature", r"messages\[\]\.chat_id"):
            self.server.wait_for_line(f'field "{name}"')
        told = [line for line in self.server.log if line and "temprature" in line]
        self.assertEqual(len(told), 1, told)
        self.assertEqual(n_ignored() - before, 6)

    def test_a_special_token_as_stop(self):
        """Its text is in no answer."""
        [token] = self.server.answer("/tokenize", content="<|im_start|>")["tokens"]
        for stop, text, reason in (("<|im_start|>", "", "stop"), ("<|im_end|>", "", "length")):
            answer = self.chat(stop=[stop], logit_bias={token: 100}, max_tokens=5)
            self.assertEqual((answer.choices[0].message.content or "", answer.choices[0].finish_reason), (text, reason))

    def test_no_limit(self):
        messages = [{"role": "user", "content": "Say hello."}]
        self.assertEqual(self.chat(messages, max_tokens=-1).choices[0].message.content,
                         self.chat(messages, max_tokens=None).choices[0].message.content)

    def test_errors(self):
        cases = [
            ("another model", openai.NotFoundError, "model_not_found", {"model": "gpt-4"}),
            ("no messages", openai.BadRequestError, None, {"messages": []}),
            ("unknown role", openai.BadRequestError, None, {"messages": [{"role": "king", "content": "x"}]}),
            ("a picture", openai.BadRequestError, "unsupported_value", {"messages": [{"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]}]}),
            ("too hot", openai.BadRequestError, None, {"temperature": 3}),
            ("a schema", openai.BadRequestError, "unsupported_value", {"response_format": {"type": "json_object"}}),
            ("a parameter of others", openai.BadRequestError, "unsupported_value", {"extra_body": {"mirostat": 2}}),
            ("too long", openai.BadRequestError, "context_length_exceeded",
             {"messages": [{"role": "user", "content": "word " * 9000}]}),
        ]
        for name, kind, code, fields in cases:
            for stream in (False, True):
                with self.subTest(name, stream=stream), self.assertRaises(kind) as raised:
                    self.chat(**{"messages": QUESTION, "stream": stream, **fields})
                if code:
                    self.assertEqual(raised.exception.code, code, name)
                self.assertTrue(raised.exception.body["message"], name)


@needs_model(MODEL)
class Completions(ServerTest):
    arguments = ("--budget", "fixed")

    def test_answer(self):
        answer = self.complete(seed=3)
        self.assertTrue(answer.id.startswith("cmpl-"))
        self.assertEqual(answer.object, "text_completion")
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.usage.completion_tokens, 12)
        self.assertEqual("".join(chunk.choices[0].text for chunk in self.complete(stream=True) if chunk.choices),
                         answer.choices[0].text)

    def test_echo_and_logprobs(self):
        prompt = "The capital of France is"
        [choice] = self.complete(prompt, echo=True, logprobs=2).choices
        self.assertTrue(choice.text.startswith(prompt))
        figures = choice.logprobs
        self.assertEqual("".join(figures.tokens), choice.text)
        self.assertEqual([choice.text[offset:offset + len(token)] for token, offset in
                          zip(figures.tokens, figures.text_offset)], figures.tokens)
        self.assertIsNone(figures.token_logprobs[0])
        self.assertTrue(all(logprob <= 0 for logprob in figures.token_logprobs[1:]))
        # What was read and what was written have the same figures.
        [again] = self.complete(choice.text, echo=True, logprobs=2, max_tokens=0).choices
        self.assertEqual(again.text, choice.text)
        if again.logprobs.tokens == figures.tokens:  # as a rule
            self.assertEqual(again.logprobs.token_logprobs, figures.token_logprobs)

    def test_echo_with_and_without_an_answer(self):
        """The prompt's figures are the same."""
        fields = {"prompt": "The capital of France is Paris.", "echo": True, "logprobs": 2}
        prompt, more = (self.complete(**fields, max_tokens=n).choices[0].logprobs for n in (0, 1))
        n_prompt = len(prompt.tokens)
        self.assertEqual("".join(prompt.tokens), fields["prompt"])
        self.assertEqual(len(more.tokens), n_prompt + 1)
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            self.assertEqual(getattr(more, name)[:n_prompt], getattr(prompt, name), name)

    def test_drawn_seed(self):
        whole = self.complete(temperature=1)
        chunks = list(self.complete(temperature=1, stream=True))
        [streamed_seed] = {chunk.seed for chunk in chunks}
        for seed, text in ((whole.seed, whole.choices[0].text),
                           (streamed_seed, "".join(chunk.choices[0].text for chunk in chunks))):
            again = self.complete(temperature=1, seed=seed)
            self.assertEqual((again.seed, again.choices[0].text), (seed, text))

    def test_arrays_and_token_ids(self):
        prompts = ["One, two,", "Roses are red,", "def add(a, b):"]
        alone = [self.complete(prompt).choices[0].text for prompt in prompts]
        together = self.complete(prompts)
        self.assertEqual([choice.index for choice in together.choices], [0, 1, 2])
        self.assertEqual([choice.text for choice in together.choices], alone)
        self.assertEqual(together.usage.completion_tokens, 36)

        pairs = self.complete(prompts[:2], n=2, seed=5, temperature=1).choices
        self.assertEqual([choice.index for choice in pairs], [0, 1, 2, 3])
        for i, prompt in enumerate(prompts[:2]):
            self.assertEqual([choice.text for choice in pairs[2 * i:2 * i + 2]],
                             [choice.text for choice in self.complete(prompt, n=2, seed=5, temperature=1).choices])

        ids = [504, 3575, 282, 4649, 314]
        [one] = self.complete(ids, echo=True).choices
        [text] = self.complete(one.text, max_tokens=0, echo=True).choices
        self.assertEqual(text.text, one.text)
        self.assertEqual([choice.text for choice in self.complete([ids, ids[:3]], echo=True).choices],
                         [one.text, self.complete(ids[:3], echo=True).choices[0].text])

    def test_errors(self):
        for name, fields in [("a token that is none", {"prompt": [10**6]}), ("negative", {"prompt": [-1]}),
                             ("empty", {"prompt": ""}), ("nothing", {"prompt": []}), ("suffix", {"suffix": "x"}),
                             ("best_of", {"best_of": 2}), ("n", {"n": 1000})]:
            with self.subTest(name), self.assertRaises(openai.BadRequestError):
                self.complete(**fields)

    def test_the_same_text_in_every_way(self):
        prompt = "Once upon a time, there was a"
        for sampling in ({"temperature": 0}, {"temperature": 0.9, "seed": 42}, {"temperature": 1, "seed": 1, "top_p": .9}):
            with self.subTest(**sampling):
                fields = {"max_tokens": 40, **sampling}
                alone = self.complete(prompt, **fields).choices[0].text
                self.assertEqual("".join(chunk.choices[0].text for chunk in self.complete(prompt, stream=True, **fields)),
                                 alone)
                self.assertEqual(self.complete(prompt, n=2, **fields).choices[0].text, alone)
                self.assertEqual([choice.text for choice in self.complete(["Another", prompt, prompt], **fields).choices][1:],
                                 [alone, alone])
                self.assertEqual(self.complete(prompt, logprobs=5, echo=True, **fields).choices[0].text, prompt + alone)
                self.assertEqual(self.complete(prompt, extra_body={"speculation": {"draft": "off"}}, **fields)
                                 .choices[0].text, alone)
                self.assertEqual(self.complete(prompt, extra_body={"prediction": {"type": "content", "content": alone}},
                                               **fields).choices[0].text, alone)


@needs_model(MODEL)
class DraftModel(ServerTest):
    """A draft model that is nearly always right, since it is the model itself."""
    arguments = ("-np", "2", "-md", MODEL, "--budget", "fixed", "--draft-rows", "4")

    def test_the_same_text(self):
        prompts = ["Once upon a time, there was a", "The capital of France is"]
        for sampling in ({"temperature": 0}, {"temperature": 0.9, "seed": 42, "top_p": .9}):
            with self.subTest(**sampling):
                def texts(draft):
                    return self.complete(prompts, max_tokens=32, extra_body={"speculation": {"draft": draft}}, **sampling)
                plain, by_model, by_all = texts("off"), texts("model"), texts("auto")
                self.assertEqual([choice.text for choice in by_model.choices], [choice.text for choice in plain.choices])
                self.assertEqual([choice.text for choice in by_all.choices], [choice.text for choice in plain.choices])
                self.assertEqual(plain.timings["draft_n"], 0)
                self.assertGreater(by_model.timings["draft_n_accepted"], 20)


@needs_model(MODEL)
class Context(ServerTest):
    """What has to do with how much the model takes, and the routes of llama-server and vLLM that say so."""
    arguments = ("-c", "128", "-np", "2")

    def test_status(self):
        properties = self.server.get("/props").json()
        self.assertEqual(properties["default_generation_settings"]["n_ctx"], 128)
        self.assertEqual(properties["total_slots"], 2)
        self.assertEqual([slot["n_ctx"] for slot in self.server.get("/slots").json()], [128, 128])
        self.assertEqual([model.max_model_len for model in self.client.models.list()], [128])
        version = self.server.get("/version").json()["version"]
        self.assertEqual(outrider("--version").stdout.split()[:2], ["outrider", version])

    def test_more_tokens_than_the_context_has(self):
        fields = {"max_tokens": 10**6, "extra_body": {"ignore_eos": True}}
        counting = [{"role": "user", "content": "Count from 1 to 100."}]
        for answer in (self.complete(**fields), self.chat(counting, **fields)):
            self.assertEqual((answer.choices[0].finish_reason, answer.usage.total_tokens), ("length", 128))
        *_, reason, usage = self.chat(counting, **fields, stream=True, stream_options={"include_usage": True})
        self.assertEqual((reason.choices[0].finish_reason, usage.usage.total_tokens), ("length", 128))
        with anthropic_client(self.server) as client:
            message = client.messages.create(model=MODEL, messages=counting, max_tokens=10**6, **GREEDY)
            self.assertEqual((message.stop_reason, message.usage.input_tokens + message.usage.output_tokens),
                             ("max_tokens", 128))

    def test_prompts_as_long_as_the_context(self):
        longest = self.complete([28] * 127, max_tokens=10)
        self.assertEqual((longest.choices[0].finish_reason, longest.usage.completion_tokens), ("length", 1))
        with self.assertRaises(openai.BadRequestError) as raised:
            self.complete([28] * 128)
        self.assertEqual(raised.exception.code, "context_length_exceeded")
        long = [{"role": "user", "content": LONG_TEXT}]
        with anthropic_client(self.server) as client, self.assertRaises(anthropic.BadRequestError) as raised:
            client.messages.create(model=MODEL, messages=long, max_tokens=1)
        self.assertRegex(raised.exception.body["error"]["message"], r"^prompt is too long: \d+ tokens > 127 maximum")

    def test_tokens(self):
        text = "Hello, wörld 🙂!<|im_end|>\n"
        tokens = self.server.answer("/tokenize", content=text)["tokens"]  # as llama-server has it
        self.assertEqual(self.server.answer("/detokenize", tokens=tokens), {"content": text, "prompt": text})
        pieces = self.server.answer("/tokenize", content=text, with_pieces=True)["tokens"]
        self.assertEqual([piece["id"] for piece in pieces], tokens)
        self.assertEqual(b"".join(piece.encode() if isinstance(piece, str) else bytes(piece)
                                  for piece in (piece["piece"] for piece in pieces)), text.encode())
        as_text = self.server.answer("/tokenize", content=text, parse_special=False)["tokens"]
        self.assertGreater(len(as_text), len(tokens))
        self.assertEqual(self.server.answer("/detokenize", tokens=as_text)["content"], text)

        whole = self.server.answer("/tokenize", prompt=text)  # as vLLM has it
        self.assertEqual(whole, {"count": len(tokens), "max_model_len": 128, "tokens": tokens, "token_strs": None})
        self.assertEqual(len(self.server.answer("/tokenize", prompt=text, return_token_strs=True)["token_strs"]),
                         len(tokens))
        self.assertEqual(self.complete(tokens).choices[0].text, self.complete(text).choices[0].text)
        self.assertEqual(self.complete(text).usage.prompt_tokens, len(tokens))

    def test_template(self):
        prompt = self.server.answer("/apply-template", messages=QUESTION)["prompt"]
        self.assertIn(QUESTION[0]["content"], prompt)
        tokens = self.server.answer("/tokenize", messages=QUESTION)["tokens"]
        self.assertEqual(self.server.answer("/tokenize", content=prompt)["tokens"], tokens)
        answer = self.chat()
        self.assertEqual(answer.usage.prompt_tokens, len(tokens))
        self.assertEqual(self.complete(prompt, max_tokens=24).choices[0].text, answer.choices[0].message.content)
        begun = [*QUESTION, {"role": "assistant", "content": "Red,"}]
        self.assertEqual(self.server.answer("/apply-template", messages=begun, continue_final_message=True,
                                            add_generation_prompt=False)["prompt"], prompt + "Red,")


@needs_model(MODEL)
class Refusals(unittest.TestCase):
    def test_keys(self):
        with Server("--api-key", "secret", "--api-key", "other") as server:
            for key, opens in (("secret", True), ("other", True), ("wrong", False)):
                with self.subTest(key=key), openai_client(server, api_key=key) as client, \
                        anthropic_client(server, api_key=key) as other:
                    if opens:
                        self.assertEqual(client.models.list().data[0].id, MODEL)
                        self.assertEqual(other.models.list().data[0].id, MODEL)
                    else:
                        self.assertRaises(openai.AuthenticationError, client.models.list)
                        self.assertRaises(anthropic.AuthenticationError, other.models.list)

    def test_cached_prompts_are_a_key_s_own(self):
        messages = [{"role": "user", "content": LONG_TEXT}]
        with Server("--api-key", "one", "--api-key", "two") as server:
            def ask_openai(key):
                with openai_client(server, api_key=key) as client:
                    usage = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=1).usage
                    return usage.prompt_tokens_details.cached_tokens

            def ask_anthropic(key):
                with anthropic_client(server, api_key=key) as client:
                    usage = client.messages.create(model=MODEL, messages=messages, max_tokens=1).usage
                    return usage.cache_read_input_tokens
            self.assertEqual(ask_openai("one"), 0)
            self.assertEqual(ask_anthropic("two"), 0)
            for ask in (ask_openai, ask_anthropic):
                for key in ("one", "two"):
                    self.assertGreaterEqual(ask(key), PAGE, (ask, key))

        with Server("--api-key", "one", "--api-key", "two", "--share-cache") as server:
            for key in ("one", "two"):
                with openai_client(server, api_key=key) as client:
                    usage = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=1).usage
                    self.assertEqual(usage.prompt_tokens_details.cached_tokens >= PAGE, key == "two")

    def test_request_seconds(self):
        """An answer that takes longer ends as at a token limit."""
        with Server("--request-seconds", "2", "-c", "8192") as server, openai_client(server) as client:
            fields = {"model": MODEL, "prompt": "x", "max_tokens": 8000,
                      "extra_body": {"ignore_eos": True, "speculation": {"draft": "off"}}}
            answer = client.completions.create(**fields)
            self.assertEqual(answer.choices[0].finish_reason, "length")
            self.assertLess(answer.usage.completion_tokens, 8000)

    def test_overload(self):
        with Server("-np", "1", "--max-queue", "1") as server, openai_client(server) as client:
            fields = {"model": MODEL, "prompt": "x", "max_tokens": 4000, "extra_body": {"ignore_eos": True}}
            with client.completions.create(**fields, stream=True), client.completions.create(**fields, stream=True):
                with self.assertRaises(openai.RateLimitError) as raised:
                    client.completions.create(**fields)
                self.assertGreater(int(raised.exception.response.headers["retry-after"]), 0)


@needs_model(TOOL_MODEL)
class Tools(ServerTest):
    model = TOOL_MODEL

    def test_call_and_result(self):
        answer = self.chat(WEATHER_QUESTION, tools=[WEATHER_TOOL], max_tokens=64)
        [choice] = answer.choices
        self.assertEqual(choice.finish_reason, "tool_calls", choice)
        [call] = choice.message.tool_calls
        self.assertEqual((call.type, call.function.name), ("function", "get_weather"))
        self.assertIn("Paris", json.loads(call.function.arguments)["city"])

        messages = [*WEATHER_QUESTION, choice.message,
                    {"role": "tool", "tool_call_id": call.id, "content": "19 degrees, sunny"}]
        # This small model would call the tool again if it could.
        final = self.chat(messages, tools=[WEATHER_TOOL], tool_choice="none", max_tokens=64)
        self.assertIn("19", final.choices[0].message.content)

        # Streamed: the same call, in pieces.
        name, arguments, reasons = "", "", []
        for chunk in self.chat(WEATHER_QUESTION, tools=[WEATHER_TOOL], max_tokens=64, stream=True):
            [part] = chunk.choices
            for piece in part.delta.tool_calls or []:
                self.assertEqual(piece.index, 0)
                name += piece.function.name or ""
                arguments += piece.function.arguments or ""
            reasons.append(part.finish_reason)
        self.assertEqual((name, arguments), (call.function.name, call.function.arguments))
        self.assertEqual((set(reasons[:-1]), reasons[-1]), ({None}, "tool_calls"))

    def test_stream_helper(self):
        """Its message is sent back with fields that only the helper has, in calls, too."""
        with self.client.chat.completions.stream(model=self.model, messages=WEATHER_QUESTION, tools=[WEATHER_TOOL],
                                                 temperature=0) as stream:
            for _ in stream:
                pass
            message = stream.get_final_completion().choices[0].message
        [call] = message.tool_calls
        messages = [*WEATHER_QUESTION, message,
                    {"role": "tool", "tool_call_id": call.id, "content": "19 degrees, sunny"}]
        final = self.chat(messages, tools=[WEATHER_TOOL], tool_choice="none", max_tokens=64)
        self.assertIn("19", final.choices[0].message.content)

    def test_none_calls_no_tool(self):
        [choice] = self.chat(WEATHER_QUESTION, tools=[WEATHER_TOOL], tool_choice="none").choices
        self.assertIsNone(choice.message.tool_calls)
        self.assertNotEqual(choice.finish_reason, "tool_calls")

    def test_langchain(self):
        @tool
        def get_weather(city: str) -> str:
            """Tells the weather in a city."""
            return f"19 degrees and sunny in {city}"

        model = ChatOpenAI(base_url=self.server.url + "/v1", api_key="none", model=self.model, temperature=0,
                           max_tokens=64, max_retries=0, timeout=PATIENCE)
        whole = model.invoke("Name the three primary colours.")
        self.assertTrue(whole.content)
        self.assertGreater(whole.usage_metadata["output_tokens"], 0)
        self.assertEqual("".join(chunk.content for chunk in model.stream("Name the three primary colours.")),
                         whole.content)

        with_tools = model.bind_tools([get_weather])
        question = HumanMessage("What is the weather in Paris? Use the tool.")
        asked = with_tools.invoke([question])
        [call] = asked.tool_calls
        self.assertEqual(call["name"], "get_weather")
        result = get_weather.invoke(call)
        self.assertIsInstance(result, ToolMessage)
        self.assertIn("19", model.invoke([question, asked, result]).content)

    # Anthropic's API --------------------------------------------------------------------------------------------------

    def test_messages(self):
        fields = {"model": self.model, "max_tokens": 24, "messages": QUESTION, **GREEDY}
        with anthropic_client(self.server) as client:
            message = client.messages.create(**fields)
            self.assertEqual((message.type, message.role, message.model), ("message", "assistant", self.model))
            [block] = message.content
            self.assertEqual(block.text, self.chat().choices[0].message.content)
            self.assertIn(message.stop_reason, ("end_turn", "max_tokens"))
            self.assertLessEqual(message.usage.output_tokens, 24)

            with client.messages.stream(**fields) as stream:
                self.assertEqual("".join(stream.text_stream), block.text)
                final = stream.get_final_message()
            self.assertEqual((final.stop_reason, final.usage.output_tokens),
                             (message.stop_reason, message.usage.output_tokens))

            word = block.text.split()[3]
            stopped = client.messages.create(**fields, stop_sequences=[word])
            self.assertEqual((stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", word))
            self.assertEqual(stopped.content[0].text, block.text[:block.text.index(word)])

            system = client.messages.create(**fields, system=[{"type": "text", "text": "Answer in one word."}])
            self.assertEqual(
                system.content[0].text,
                self.chat([{"role": "system", "content": "Answer in one word."}, *QUESTION]).choices[0].message.content)

            counted = client.messages.count_tokens(model=self.model, messages=QUESTION)
            self.assertEqual(counted.input_tokens, message.usage.input_tokens)

    def test_messages_drawn_seed(self):
        fields = {"model": self.model, "max_tokens": 24, "messages": QUESTION}
        with anthropic_client(self.server) as client:
            whole = client.messages.create(**fields, extra_body={"temperature": 1})
            with client.messages.stream(**fields, extra_body={"temperature": 1}) as stream:
                streamed = stream.get_final_message()
            self.assertNotEqual(whole.seed, streamed.seed)
            for message in (whole, streamed):
                again = client.messages.create(**fields, extra_body={"temperature": 1, "seed": message.seed})
                self.assertEqual((again.seed, again.content[0].text), (message.seed, message.content[0].text))

    def test_messages_with_tools(self):
        tools = [{"name": WEATHER["name"], "description": WEATHER["description"],
                  "input_schema": WEATHER["parameters"]}]
        fields = {"model": self.model, "max_tokens": 64, "tools": tools, **GREEDY}
        with anthropic_client(self.server) as client:
            message = client.messages.create(**fields, messages=WEATHER_QUESTION)
            self.assertEqual(message.stop_reason, "tool_use", message)
            call = message.content[-1]
            self.assertEqual((call.type, call.name), ("tool_use", "get_weather"))
            self.assertIn("Paris", call.input["city"])
            with client.messages.stream(**fields, messages=WEATHER_QUESTION) as stream:
                streamed = stream.get_final_message()
            self.assertEqual((streamed.content[-1].name, streamed.content[-1].input), (call.name, call.input))
            self.assertEqual(streamed.stop_reason, "tool_use")
            final = client.messages.create(**fields, tool_choice={"type": "none"}, messages=[
                *WEATHER_QUESTION, {"role": "assistant", "content": message.content},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": call.id, "content": "19 degrees, sunny"}]}])
            self.assertIn("19", final.content[0].text)

    def test_messages_refused(self):
        cases = [
            ("another model", anthropic.NotFoundError, {"model": "claude"}),
            ("no messages", anthropic.BadRequestError, {"messages": []}),
            ("unknown role", anthropic.BadRequestError, {"messages": [{"role": "king", "content": "x"}]}),
            ("too hot", anthropic.BadRequestError, {"extra_body": {"temperature": 3}}),
            ("no room", anthropic.BadRequestError, {"max_tokens": -1}),
            ("a picture", anthropic.BadRequestError, {"messages": [{"role": "user", "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}]}]}),
        ]
        with anthropic_client(self.server) as client:
            for name, kind, fields in cases:
                with self.subTest(name), self.assertRaises(kind) as raised:
                    client.messages.create(
                        **{"model": self.model, "max_tokens": 4, "messages": QUESTION, **GREEDY, **fields})
                self.assertEqual(raised.exception.body["type"], "error", name)


if __name__ == "__main__":
    unittest.main()
