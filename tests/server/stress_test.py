"""Clients that are careless, hostile, many, or gone: the server refuses in one document, and goes on."""

import http.client
import json
import random
import signal
import socket
import tempfile
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from serving import MODEL, PATIENCE, Server, Stream, TestCase, joined, needs_model, outrider, raw

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MESSAGES = [{"role": "user", "content": "Hi"}]
LONG = {"prompt": "Once upon a time", "max_tokens": 4000, "ignore_eos": True}

# What every field of each route is given in turn: nothing that a program should send.
VALUES = [None, True, False, -1, 0, 1, 1.5, -0.0, 1e-320, 1e308, -1e308, 2**31, -2**31 - 1, 2**53 + 1, 2**63, 2**64, -2**63,
          10**400, "", "x", "\0", "\ud800", "é" * 3000, [], [[]], [None], [1, "x"], [[[1]]], [-1], [2**31], {}, {"": None},
          {"type": "text"}, {"x": {"y": []}}, [{}], [{"role": "user"}], [{"role": "user", "content": [{}]}],
          {"1": 1e9}, {"-1": 1}, {"x": 1}, {"99999999999": 1}, {"type": "function", "function": {"name": "x"}}]
COMMON = ["model", "stream", "speculation", "priority", "cache_salt", "stream_options", "n", "stop", "seed", "temperature",
          "top_p", "presence_penalty", "frequency_penalty", "logit_bias", "prediction", "top_k", "min_p", "typical_p",
          "repeat_penalty", "repetition_penalty", "repeat_last_n", "ignore_eos", "user", "store", "metadata", "service_tier",
          "prompt_cache_key", "safety_identifier", "cache_control", "cache_prompt", "request_id", "best_of", "min_tokens",
          "stop_token_ids", "include_stop_str_in_output", "skip_special_tokens", "spaces_between_special_tokens",
          "use_beam_search", "length_penalty", "truncate_prompt_tokens", "prompt_logprobs", "logits_processors",
          "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "json_schema", "grammar",
          "max_tokens", "logprobs", "echo", "response_format", "no_such_field", ""]
FIELDS = {
    COMPLETIONS: [*COMMON, "prompt", "add_special_tokens", "suffix"],
    CHAT: [*COMMON, "messages", "tools", "tool_choice", "parallel_tool_calls", "reasoning_effort", "chat_template_kwargs",
           "add_generation_prompt", "continue_final_message", "functions", "function_call", "chat_template", "documents",
           "max_completion_tokens", "top_logprobs", "modalities", "verbosity", "include_reasoning", "audio",
           "web_search_options"],
}
SMALL = {COMPLETIONS: {"prompt": "Hi", "max_tokens": 1}, CHAT: {"messages": MESSAGES, "max_tokens": 1}}


@needs_model(MODEL)
class Stress(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())
        cls.texts = cls.two_texts(cls.server)

    def setUp(self):
        self.addCleanup(self.check_server)

    def check_server(self):
        """Two texts at once are as they were at first; and before long nothing runs."""
        self.assertEqual(self.two_texts(self.server), self.texts)
        deadline = time.monotonic() + PATIENCE
        while (slots := self.server.get("/slots")).status == 200 and any(slot["is_processing"] for slot in slots.json()):
            self.assertLess(time.monotonic(), deadline, slots.body)
            time.sleep(0.05)

    @staticmethod
    def two_texts(server):
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda prompt: server.complete(prompt, max_tokens=16), ["One, two,", "Roses are"]))

    def assert_refused(self, answer, status=400):
        self.assertEqual(answer.status, status, answer)
        error = answer.json()["error"]
        self.assertTrue(error["message"])
        self.assertNotIn("\n", error["message"])

    # What is sent -----------------------------------------------------------------------------------------------------

    def test_bodies_that_are_no_request(self):
        cases = {
            "nothing": b"", "space": b" \n", "half": b'{"prompt": "x', "a list": b"[]", "a string": b'"x"', "null": b"null",
            "a number": b"1", "two": b"{}{}", "a comma more": b'{"prompt": "x",}', "single quotes": b"{'prompt': 'x'}",
            "NaN": b'{"prompt": "x", "temperature": NaN}', "Infinity": b'{"prompt": "x", "temperature": Infinity}',
            "-Infinity": b'{"prompt": "x", "temperature": -Infinity}', "1e999": b'{"prompt": "x", "temperature": 1e999}',
            "invalid UTF-8": b'{"prompt": "\xff\xfe"}', "overlong": b'{"prompt": "\xc0\xaf"}',
            "surrogate in UTF-8": b'{"prompt": "\xed\xa0\x80"}', "lone surrogate": b'{"prompt": "\\ud800"}',
            "invalid key": b'{"\xff": 1}', "control character": b'{"prompt": "a\nb"}', "NUL": b'\0', "a zero inside": b'{"a\0": 1}',
            "BOM of UTF-16": b'\xff\xfe{\0}\0', "comment": b'/* x */ {"prompt": "x"}',
            "deep lists": b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
            "deep lists, open": b"[" * 1_000_000, "deep objects": b'{"a":' * 200_000,
            "deep metadata": b'{"prompt": "x", "metadata": ' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}",
            "a million keys": b"{" + b",".join(b'"%d":1' % i for i in range(100_000)) + b"}",
            "a long number": b'{"prompt": "x", "seed": ' + b"9" * 100_000 + b"}",
            "a long key": b'{"' + b"k" * 1_000_000 + b'": 1}',
        }
        for name, body in cases.items():
            for path in (CHAT, COMPLETIONS):
                with self.subTest(name, path=path):
                    self.assert_refused(self.server.request("POST", path, body))

    def test_every_field_with_every_value(self):
        def ask(case):
            path, field, value = case
            answer = self.server.post(path, **{**SMALL[path], field: value})
            return case, answer
        cases = [(path, field, value) for path, fields in FIELDS.items() for field in fields for value in VALUES]
        seed = random.randrange(10**6)
        print(f"seed {seed}", flush=True)
        # A share of them: all take minutes.
        chosen = random.Random(seed).sample(cases, 800)
        with ThreadPoolExecutor(8) as pool:
            for (path, field, value), answer in pool.map(ask, chosen):
                with self.subTest(path=path, field=field, value=str(value)[:40]):
                    self.assertIn(answer.status, (200, 400, 404), answer.body[:300])
                    if answer.status == 404:
                        self.assertEqual(field, "model")
                    if answer.status != 200:
                        self.assert_refused(answer, answer.status)
                    elif not answer.headers["content-type"].startswith("text/event-stream"):
                        self.assertTrue(answer.json()["choices"])

    def test_refused_prompts(self):
        for name, fields in {
            "empty": {"prompt": ""}, "none": {"prompt": None}, "no prompts": {"prompt": []}, "an empty one": {"prompt": ["x", ""]},
            "empty tokens": {"prompt": [[]]}, "mixed": {"prompt": [1, "x"]}, "no token": {"prompt": [2**31 - 1]},
            "too long": {"prompt": [1] * 9000}, "too many": {"prompt": ["x"] * 1000}, "too many answers": {"prompt": ["x"] * 100, "n": 100},
        }.items():
            with self.subTest(name):
                self.assert_refused(self.server.post(COMPLETIONS, **fields))
        for name, messages in {
            "none": [], "no content": [{"role": "user"}], "null": [{"role": "user", "content": None}],
            "not a list": "Hi", "too long": [{"role": "user", "content": "word " * 9000}],
        }.items():
            with self.subTest(name):
                self.assert_refused(self.server.post(CHAT, messages=messages))

    def test_what_is_no_http(self):
        for name, data, status in [
            ("no request", b"hello\r\n\r\n", b"400"), ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20, b"400"),
            ("another version", b"GET / HTTP/3.0\r\n\r\n", b""),
            ("two lengths", b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}" % CHAT.encode(), b"400"),
            ("length and chunks", b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}", b"400"),
            ("a negative length", b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n", b"400"),
            ("a huge length", b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 99999999999\r\n\r\n" % CHAT.encode(), b"413"),
            ("long line", b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n", b"4"),
            ("long headers", b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"x" * 100_000 + b"\r\n\r\n", b"431"),
        ]:
            with self.subTest(name):
                answer = raw(self.server.port, data)
                self.assertTrue(answer.startswith(b"HTTP/1.1 " + status), answer)

    def test_routes_and_methods(self):
        for method, path, status in [("GET", "/nothing", 404), ("GET", CHAT, 405), ("PUT", CHAT, 405), ("POST", "/v1/models", 405),
                                     ("GET", "/v1/models/../../etc/passwd", 404), ("GET", "/%00", 400), ("GET", "/%zz", 400)]:
            with self.subTest(method=method, path=path):
                answer = self.server.request(method, path, b"{}" if method != "GET" else None)
                self.assert_refused(answer, status)

    def test_guards(self):
        body = json.dumps({"prompt": "x", "max_tokens": 1}).encode()
        for name, headers, status in [
            ("no type", {"Content-Type": ""}, 415), ("a form", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
            ("text", {"Content-Type": "text/plain"}, 415), ("JSON with a charset", {"Content-Type": "application/json; charset=utf-8"}, 200),
            ("foreign host", {"Host": "evil.example"}, 403), ("foreign host and port", {"Host": f"evil.example:{self.server.port}"}, 403),
            ("localhost", {"Host": "LOCALHOST:1"}, 200), ("foreign origin", {"Origin": "https://evil.example"}, 403),
            ("a file's origin", {"Origin": "null"}, 403), ("like localhost", {"Origin": "http://localhost.evil.example"}, 403),
            ("a page of this machine", {"Origin": "http://localhost:3000"}, 200),
        ]:
            with self.subTest(name):
                answer = self.server.request("POST", COMPLETIONS, body, headers)
                self.assertEqual(answer.status, status, answer)

    # Who is gone ------------------------------------------------------------------------------------------------------

    def test_disconnects(self):
        seed = random.randrange(10**6)
        print(f"seed {seed}", flush=True)
        random_ = random.Random(seed)

        def leave(delay_s, n_lines, fields):
            try:
                with Stream(self.server.port, COMPLETIONS, **fields) as stream:
                    for _ in range(n_lines):
                        stream.answer.readline()
                    time.sleep(delay_s)
            except (OSError, http.client.HTTPException):
                pass

        with ThreadPoolExecutor(16) as pool:
            for _ in range(40):
                prompt = "".join(random_.choices(["a", "b ", "the ", "\n"], k=random_.choice([1, 70, 500])))
                pool.submit(leave, random_.random() / 10, random_.choice([0, 1, 4, 20]),
                            {**LONG, "prompt": prompt, "stream": True, "n": random_.choice([1, 1, 2, 5])})
        # And some who did not wait for the first byte, or not for the request's end.
        head = f"POST {COMPLETIONS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: ".encode()
        body = json.dumps({**LONG, "stream": False}).encode()
        for data in [head + b"%d\r\n\r\n" % len(body) + body] * 10 + [head + b"1000\r\n\r\n{", head, b"P", b""]:
            with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
                connection.sendall(data)
                time.sleep(random_.random() / 20)
                if random_.random() < 0.5:  # a reset instead of an end
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    def test_a_client_that_does_not_read(self):
        """Others are not held up by it."""
        with Stream(self.server.port, COMPLETIONS, **LONG, n=2, stream=True, logprobs=20):
            self.server.complete("Hello", max_tokens=4)

    def test_hundreds_of_connections(self):
        idle = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(400)]
        try:
            prompts = [f"Number {i % 10}:" for i in range(100)]
            with ThreadPoolExecutor(100) as pool:
                texts = list(pool.map(lambda prompt: self.server.complete(prompt, max_tokens=4), prompts))
            self.assertEqual(texts, texts[:10] * 10)
        finally:
            for connection in idle:
                connection.close()

    def test_one_connection_many_requests(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE)
        texts = set()
        for i in range(20):
            body = json.dumps({"prompt": "Hi", "max_tokens": 2, "temperature": 0, **({"bad": 1} if i % 3 == 2 else {})})
            connection.request("POST", COMPLETIONS, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            self.assertEqual(answer.status, 400 if i % 3 == 2 else 200)
            if answer.status == 200:
                texts.add(json.loads(text)["choices"][0]["text"])
        connection.close()
        self.assertEqual(len(texts), 1)


@needs_model(MODEL)
class Life(TestCase):
    def stream(self, server, **fields):
        """A stream that has begun, and what reads it to its end on a thread."""
        stream = Stream(server.port, COMPLETIONS, prompt="Once upon a time", stream=True, ignore_eos=True,
                        **{"temperature": 0, **fields})
        result = {}

        def read():
            try:
                with stream:
                    events = stream.events()
                    result["events"] = [next(events)]
                    started.set()
                    result["events"] += events
            except Exception as error:  # looked at by the test
                result["error"] = error
                started.set()
        started = threading.Event()
        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        self.assertTrue(started.wait(PATIENCE))
        self.assertNotIn("error", result)
        return thread, result

    def test_overload(self):
        with Server("-np", "1", "--max-queue", "1") as server:
            with Stream(server.port, COMPLETIONS, **LONG, stream=True) as first:
                first.answer.readline()  # it runs
                with Stream(server.port, COMPLETIONS, **LONG, stream=True):
                    for stream in (False, True):
                        refused = server.post(COMPLETIONS, prompt="x", stream=stream)
                        self.assertEqual(refused.status, 429, refused)
                        self.assertEqual(refused.json()["error"]["type"], "rate_limit_error")
                        self.assertGreater(int(refused.headers["retry-after"]), 0)
                    # Of answers of one request all are taken, or none.
                    self.assertEqual(server.post(COMPLETIONS, prompt="x", n=2).status, 429)
            while (status := server.post(COMPLETIONS, prompt="x", max_tokens=2).status) == 429:
                time.sleep(0.05)  # until the server knows that both are gone
            self.assertEqual(status, 200)

    def test_first_signal_lets_answers_end(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number=number), Server("-np", "2") as server:
                alone = server.complete("Once upon a time", ignore_eos=True, max_tokens=150)
                thread, result = self.stream(server, max_tokens=150)
                server.send_signal(number)
                while (refused := self.refused_or_closed(server)) is None:
                    time.sleep(0.02)
                self.assertIn(refused, (503, "closed"))
                thread.join(PATIENCE)
                self.assertNotIn("error", result)
                self.assertEqual(joined(result["events"])[0], alone)
                self.assertEqual(server.wait(), 0 if number == signal.SIGTERM else 128 + number)

    def refused_or_closed(self, server):
        try:
            status = server.get("/v1/models").status
        except OSError:
            return "closed"
        return None if status == 200 else status

    def test_second_signal_ends_at_once(self):
        with Server("-np", "1") as server:
            thread, result = self.stream(server, max_tokens=7000)
            server.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            self.assertIsNone(server.program.poll())
            server.send_signal(signal.SIGTERM)
            self.assertEqual(server.wait(), 0)
            thread.join(PATIENCE)
            self.assertIn("error", {**result, "error": result.get("error") or result["events"][-1].get("error")})
            self.assertLess(len(result["events"]), 6000)

    def test_drain_seconds(self):
        with Server("--drain-seconds", "1") as server:
            thread, result = self.stream(server, max_tokens=7000)
            server.send_signal(signal.SIGTERM)
            self.assertEqual(server.wait(), 0)
            thread.join(PATIENCE)
            self.assertLess(len(result.get("events", [])), 6000)

    def test_keys(self):
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as file:
            file.write("\n  from-file  \r\nsecond\n\n")
            file.flush()
            with Server("--api-key", "from-flag", "--api-key-file", file.name) as server:
                self.assertEqual(server.get("/health").status, 200)
                for headers, status in [
                    ({"Authorization": "Bearer from-flag"}, 200), ({"Authorization": "bearer from-file"}, 200),
                    ({"x-api-key": "second"}, 200), ({}, 401), ({"Authorization": "Bearer wrong"}, 401),
                    ({"Authorization": "from-flag"}, 401), ({"Authorization": "Bearer "}, 401), ({"x-api-key": ""}, 401),
                    ({"Authorization": "Basic from-flag"}, 401), ({"Authorization": "Bearer from-flagx"}, 401),
                ]:
                    for method, path, body in [("GET", "/v1/models", None), ("GET", "/nothing", None), ("GET", "/metrics", None),
                                               ("GET", "/slots", None), ("GET", "/props", None),
                                               ("POST", COMPLETIONS, {"prompt": "x", "max_tokens": 1})]:
                        with self.subTest(headers=headers, path=path):
                            answer = server.request(method, path, body, headers)
                            if status == 401:
                                self.assertEqual(answer.status, 401, answer)
                                self.assertEqual(answer.json()["error"]["code"], "invalid_api_key")
                            else:
                                self.assertIn(answer.status, (200, 404), answer)
                self.assertNotIn("from-flag", "\n".join(server.log))

    def test_key_files_that_are_none(self):
        with tempfile.NamedTemporaryFile() as empty:
            for name, parts in [(empty.name, ["holds no key"]), ("/nonexistent", ["/nonexistent"])]:
                self.assert_fails(outrider("serve", "-m", MODEL, "--offline", "--port", "0", "--api-key-file", name), 1, *parts)

    def test_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.assert_fails(outrider("serve", "-m", MODEL, "--offline", "--port", str(port)), 1, str(port), "another program uses the port")

    def test_unavailable_while_loading(self):
        with Server(ready=False) as server:
            health, models = server.get("/health"), server.get("/v1/models")
            server.wait_for_line("is ready at")
            if health.status == 503:  # else it was ready before we asked
                self.assertIn("oading", health.json()["error"]["message"])
            self.assertIn(health.status, (200, 503))
            self.assertIn(models.status, (200, 503))
            if models.status == 503:
                self.assertGreater(int(models.headers["retry-after"]), 0)
            self.assertEqual(server.get("/health").status, 200)

    def test_signal_while_loading(self):
        with Server(ready=False) as server:
            server.send_signal(signal.SIGTERM)
            self.assertIn(server.wait(), (0, 128 + signal.SIGTERM))


if __name__ == "__main__":
    unittest.main()
