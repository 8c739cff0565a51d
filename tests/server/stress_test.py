"""Clients that are careless, hostile, many, or gone: the server refuses in one document, and goes on."""

import contextlib
import http.client
import json
import os
import random
import re
import signal
import socket
import tempfile
import threading
import time
import unittest
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from serving import MODEL, PATIENCE, Server, Stream, TestCase, joined, model_path, needs_model, outrider, raw, wait_until
from made_models import write_broken_model

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
ANTHROPIC = "/v1/messages"
MESSAGES = [{"role": "user", "content": "Hi"}]
LONG = {"prompt": "Once upon a time", "max_tokens": 4000, "ignore_eos": True}

# What every field of each route is given in turn: nothing that a program should send.
VALUES = [None, True, False, -1, 0, 1, 1.5, -0.0, 1e-320, 1e308, -1e308, float("nan"), float("-inf"), 2**31, -2**31 - 1, 2**53 + 1, 2**63, 2**64, -2**63,
          10**400, "", "x", "\0", "\ud800", "é" * 3000, [], [[]], [None], [1, "x"], [[[1]]], [-1], [2**31], {}, {"": None},
          {"type": "text"}, {"x": {"y": []}}, [{}], [{"role": "user"}], [{"role": "user", "content": [{}]}],
          {"1": 1e9}, {"-1": 1}, {"x": 1}, {"99999999999": 1}, {"type": "function", "function": {"name": "x"}}]
# Requests that each route takes, of which one field is changed, and what its answer has.
SMALL = {
    COMPLETIONS: ([{"prompt": "Hi", "max_tokens": 1}], "choices"),
    # Without a system message the chat template writes a longer one.
    CHAT: ([{"messages": [{"role": "system", "content": "x"}, *MESSAGES], "max_tokens": 1}], "choices"),
    ANTHROPIC: ([{"messages": MESSAGES, "max_tokens": 1}], "content"),
    ANTHROPIC + "/count_tokens": ([{"messages": MESSAGES}], "input_tokens"),
    "/tokenize": ([{"content": "Hi"}, {"prompt": "Hi"}, {"messages": MESSAGES}], "tokens"),
    "/detokenize": ([{"tokens": [1]}], "content"),
    "/apply-template": ([{"messages": MESSAGES}], "prompt"),
}


def documented_fields():
    """By route, from docs/api.md, which a test of the program compares with what it reads."""
    page = (Path(__file__).parents[2] / "docs/api.md").read_text()
    tables = re.findall(r"^### Fields: (.*)\n\n((?:\|.*\n)+)", page, re.MULTILINE)
    names = {title: re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in table.splitlines()))
             for title, table in tables}
    fields = {title.strip("`"): own for title, own in names.items() if title.startswith("`/")}
    for path in (CHAT, COMPLETIONS, ANTHROPIC):
        fields[path] = sorted({*fields[path], *names["Known and not obeyed"]})
    return {**fields, ANTHROPIC + "/count_tokens": fields[ANTHROPIC]}


# What a field takes: a value below, the least, the most, one above.
UNIT, PENALTY, REPEAT = (-0.01, 0, 1, 1.01), (-2.01, -2, 2, 2.01), (0.009, 0.01, 1e6, 1.01e6)
COUNT, TOKENS, ALL = (0, 1, 2**31 - 1, 2**31), (-2, 0, 2**31 - 1, 2**31), (-2, -1, 2**31 - 1, 2**31)
SERVED_RANGES = {"top_p": UNIT, "top_k": ALL, "seed": (-2, -1, 2**63 - 1, 2**63),
                 "priority": (-2**31, -2**31 + 1, 2**31 - 1, 2**31)}
OPENAI_RANGES = {**SERVED_RANGES, "min_p": UNIT, "typical_p": UNIT, "presence_penalty": PENALTY,
                 "frequency_penalty": PENALTY, "repeat_penalty": REPEAT, "repetition_penalty": REPEAT,
                 "repeat_last_n": ALL, "n": (0, 1, 128, 129), "temperature": (-0.01, 0, 2, 2.01)}
RANGES = {
    COMPLETIONS: {**OPENAI_RANGES, "max_tokens": TOKENS, "logprobs": (-1, 0, 20, 21)},
    CHAT: {**OPENAI_RANGES, "max_tokens": COUNT, "max_completion_tokens": COUNT, "top_logprobs": (-1, 0, 20, 21)},
    ANTHROPIC: {**SERVED_RANGES, "temperature": UNIT, "max_tokens": (-1, *TOKENS[1:])},
}

ACCESS = re.compile(r"(?P<method>[!-~]*) (?P<path>[!-~]*) (?P<status>\d+) \d+ bytes \d+\.\d ms")  # a line of the log


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
        wait_until(lambda: not any(slot["is_processing"] for slot in self.server.get("/slots").json()))

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
        """A share of all cases, as all take minutes; OUTRIDER_EVERY_CASE=1 tries all."""
        def ask(case):
            path, base, field, value = case
            return case, self.server.post(path, **{**base, field: value})
        fields = documented_fields()
        self.assertEqual(set(fields), set(SMALL))
        cases = [(path, base, field, value) for path, (bases, _) in SMALL.items() for base in bases
                 for field in [*fields[path], "no_such_field", ""] for value in VALUES]
        seed = random.randrange(10**6)
        print(f"seed {seed}", flush=True)
        if not os.environ.get("OUTRIDER_EVERY_CASE"):
            cases = random.Random(seed).sample(cases, 800)
        with ThreadPoolExecutor(8) as pool:
            for (path, base, field, value), answer in pool.map(ask, cases):
                with self.subTest(path=path, base=base, field=field, value=str(value)[:40]):
                    self.assertIn(answer.status, (200, 400, 404), answer.body[:300])
                    if answer.status == 404:
                        self.assertEqual(field, "model")
                    if answer.status != 200:
                        self.assert_refused(answer, answer.status)
                    elif answer.headers["content-type"].startswith("text/event-stream"):
                        self.assertRegex(answer.body.split(b"\n\n")[-2], rb"^data: \[DONE\]$|^event: message_stop\n")
                    else:
                        self.assertIn(SMALL[path][1], answer.json())

    def test_ranges(self):
        """What is out of range is refused by the field's name; both ends are taken."""
        with Server("-c", "64") as server:  # answers without a limit are short
            for path, ranges in RANGES.items():
                for field, (below, least, most, above) in ranges.items():
                    base = dict(SMALL[path][0][0])
                    if field == "max_completion_tokens":
                        del base["max_tokens"]
                    if field == "top_logprobs":
                        base["logprobs"] = True
                    for value in (least, most):
                        with self.subTest(path=path, field=field, value=value):
                            answer = server.post(path, **{**base, field: value})
                            self.assertEqual(answer.status, 200, answer)
                    for value in (below, above, str(least), True):
                        with self.subTest(path=path, field=field, value=value):
                            answer = server.post(path, **{**base, field: value})
                            self.assert_refused(answer)
                            error = answer.json()["error"]
                            self.assertTrue(error["message"].startswith(f"{field}: found "), error)
                            if path != ANTHROPIC:
                                self.assertEqual(error["param"], field)

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
            ("another version", b"GET / HTTP/3.0\r\n\r\n", b"505"),
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
            body = json.dumps({"prompt": "Hi", "max_tokens": 2, "temperature": "bad" if i % 3 == 2 else 0})
            connection.request("POST", COMPLETIONS, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            self.assertEqual(answer.status, 400 if i % 3 == 2 else 200)
            if answer.status == 200:
                texts.add(json.loads(text)["choices"][0]["text"])
        connection.close()
        self.assertEqual(len(texts), 1)


def metric(server, series):
    """What /metrics says now."""
    return float(re.search(rf"^{re.escape(series)} (\S+)$", server.get("/metrics").body.decode(), re.MULTILINE)[1])


@needs_model(MODEL)
class Life(TestCase):
    def stream(self, server, **fields):
        """A stream that has begun, and what reads it to its end on a thread."""
        stream = Stream(server.port, COMPLETIONS, prompt="Once upon a time", stream=True, ignore_eos=True,
                        **{"temperature": 0, **fields})
        result = {"events": []}

        def read():
            try:
                with stream:
                    for event in stream.events():
                        result["events"].append(event)
                        started.set()
            except Exception as error:  # looked at by the test
                result["error"] = error
                started.set()
        started = threading.Event()
        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        self.assertTrue(started.wait(PATIENCE))
        self.assertNotIn("error", result)
        return thread, result

    n_asked = 8000  # tokens; even a fast machine takes a while for them

    def long_stream(self, server):
        """Of n_asked tokens, which the events tell."""
        return self.stream(server, max_tokens=self.n_asked, logprobs=0, speculation={"draft": "off"})

    def assert_cut(self, result):
        """A long stream did not come to its end: its last event is an error, or the connection broke."""
        events = list(result["events"])
        if "error" in result:
            self.assertIsInstance(result["error"], (OSError, http.client.HTTPException, AssertionError))
        else:
            self.assertIn("error", events.pop())
        choices = [choice for event in events for choice in event["choices"]]
        self.assertEqual({choice["finish_reason"] for choice in choices}, {None})
        n_tokens = sum(len(choice["logprobs"]["tokens"]) for choice in choices)
        self.assertTrue(0 < n_tokens < self.n_asked, n_tokens)

    def assert_overloaded(self, server, **fields):
        """Refused by all routes, as each API has it."""
        refused = server.post(COMPLETIONS, prompt="x", **fields)
        self.assertEqual(refused.status, 429, refused)
        self.assertEqual(refused.json()["error"]["type"], "rate_limit_error")
        self.assertGreater(int(refused.headers["retry-after"]), 0)
        refused = server.post(ANTHROPIC, messages=MESSAGES, max_tokens=1, **fields)
        self.assertEqual(refused.status, 429, refused)
        self.assertEqual(refused.json()["type"], "error")
        self.assertEqual(refused.json()["error"]["type"], "rate_limit_error")
        self.assertGreater(int(refused.headers["retry-after"]), 0)

    def test_overload(self):
        with Server("-np", "1", "--max-queue", "1") as server:
            with Stream(server.port, COMPLETIONS, **LONG, stream=True) as first:
                first.answer.readline()  # it runs
                with Stream(server.port, COMPLETIONS, **LONG, stream=True) as second:
                    self.assertEqual(second.answer.status, 200)
                    for stream in (False, True):
                        self.assert_overloaded(server, stream=stream)
            # Until the server knows that both are gone.
            wait_until(lambda: server.post(COMPLETIONS, prompt="x", max_tokens=2).status != 429)
            self.assertEqual(server.post(COMPLETIONS, prompt="x", max_tokens=2).status, 200)

    def test_all_answers_of_a_request_or_none(self):
        with Server("-np", "1", "--max-queue", "1") as server, contextlib.ExitStack() as streams:
            def begins():
                return streams.enter_context(Stream(server.port, COMPLETIONS, **LONG, stream=True)).answer.status == 200
            self.assertTrue(begins())
            wait_until(lambda: metric(server, "outrider_answers_running") == 1)
            # One place is free, for one of two.
            for stream in (False, True):
                self.assertEqual(server.post(COMPLETIONS, **LONG, n=2, stream=stream).status, 429)
            wait_until(begins)  # it is still free, though the first one goes on
            self.assertEqual(metric(server, "outrider_answers_running"), 1)
            self.assertEqual([metric(server, f'outrider_answers_ended_total{{finished_reason="{reason}"}}')
                              for reason in ("stop", "length", "error")], [0, 0, 0])

    def test_more_answers_than_are_ever_taken(self):
        """To come again later would not help."""
        with Server("-np", "1", "--max-queue", "1") as server:
            for fields in ({"prompt": "x", "n": 3}, {"prompt": ["x"] * 3}):
                for stream in (False, True):
                    with self.subTest(fields, stream=stream):
                        refused = server.post(COMPLETIONS, **fields, max_tokens=1, stream=stream)
                        self.assertEqual(refused.status, 400, refused)
                        self.assertEqual(refused.json()["error"]["type"], "invalid_request_error")
            self.assertEqual(server.post(CHAT, messages=MESSAGES, n=3, max_tokens=1).status, 400)
            self.assertEqual(server.post(COMPLETIONS, prompt="x", n=2, max_tokens=1).status, 200)

    def test_first_signal_lets_answers_end(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number=number), Server("-np", "2") as server:
                alone = server.complete("Once upon a time", ignore_eos=True, max_tokens=150)
                thread, result = self.stream(server, max_tokens=150)
                server.send_signal(number)
                wait_until(lambda: self.refused_or_closed(server))
                self.assertIn(self.refused_or_closed(server), (503, "closed"))
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
        with Server("-np", "1", "-c", "8192", "--drain-seconds", "86400") as server:
            thread, result = self.long_stream(server)
            server.send_signal(signal.SIGTERM)
            wait_until(lambda: self.refused_or_closed(server) == 503)
            n_events = len(result["events"])
            wait_until(lambda: len(result["events"]) > n_events)  # the answer goes on
            self.assertIsNone(server.program.poll())
            server.send_signal(signal.SIGTERM)
            self.assertEqual(server.wait(), 0)
            thread.join(PATIENCE)
            self.assert_cut(result)
            self.assertIn("answers in progress were ended", server.log)

    def test_drain_seconds(self):
        for seconds in (0, 1):
            with self.subTest(seconds=seconds), Server("-c", "8192", "--drain-seconds", str(seconds)) as server:
                thread, result = self.long_stream(server)
                start = time.monotonic()
                server.send_signal(signal.SIGTERM)
                self.assertEqual(server.wait(), 0)
                self.assertLess(time.monotonic() - start, 25)  # 30 seconds are the default
                thread.join(PATIENCE)
                self.assert_cut(result)
                self.assertIn("answers in progress were ended", server.log)

    def test_warning(self):
        """Of an address that others reach, without keys."""
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("a-key\n")
            file.flush()
            for arguments, warns in [(["--host", "0.0.0.0"], True), (["--host", "0.0.0.0", "--api-key", "a-key"], False),
                                     (["--host", "0.0.0.0", "--api-key-file", file.name], False), ([], False)]:
                with self.subTest(arguments), Server(*arguments) as server:
                    self.assertEqual(server.get("/health").status, 200)  # asked over 127.0.0.1
                    warnings = [line for line in server.log if "anyone who reaches this address" in line]
                    self.assertEqual(len(warnings), warns, server.log)

    def test_cors_origin(self):
        headers = {"Origin": "https://chat.example", "Access-Control-Request-Method": "POST"}
        with Server("--cors-origin", "https://chat.example") as server:
            allowed = server.request("OPTIONS", CHAT, headers=headers)
            self.assertEqual((allowed.status, allowed.headers["access-control-allow-origin"]),
                             (204, "https://chat.example"), allowed)
            foreign = server.request("OPTIONS", CHAT, headers={**headers, "Origin": "https://evil.example"})
            self.assertEqual(foreign.status, 403, foreign)

    def test_threads_http(self):
        def n_threads(*arguments):
            with Server(*arguments) as server:
                return len(os.listdir(f"/proc/{server.program.pid}/task"))

        self.assertEqual(n_threads("--threads-http", "7") - n_threads("--threads-http", "3"), 4)

    def test_profile_of_its_own(self):
        # `run` without drafts learns of a row alone; what prompts may take beside answers needs more.
        with tempfile.TemporaryDirectory() as cache:
            model = model_path(MODEL)
            ran = outrider("run", "-m", model, "--draft", "off", "-n", "8", "-p", "Hi", OUTRIDER_CACHE=cache)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            for _ in range(2):  # the second one begins with what the first one learned
                with Server("--draft", "off", model=model, OUTRIDER_CACHE=cache) as server:
                    server.send_signal(signal.SIGTERM)
                    self.assertEqual(server.wait(), 0)
                shown = json.loads(outrider("profile", "show", "--json", OUTRIDER_CACHE=cache).stdout)
                rows = sorted([point[0] for point in profile["document"]["passes"]] for profile in shown)
                self.assertEqual(len(rows), 2, shown)
                self.assertEqual(rows[0], [1])
                self.assertGreaterEqual(rows[1][-1], 32)

    def test_max_pause_ms(self):
        """The smaller the pause, the more steps read a prompt beside an answer."""
        def n_steps(pause):
            with Server("--max-pause-ms", pause, "--draft", "off") as server:
                with Stream(server.port, COMPLETIONS, **LONG, stream=True) as other:
                    other.answer.readline()  # it runs
                    before = steps(server)
                    server.answer(COMPLETIONS, prompt="one two " * 150, max_tokens=1)
                    return steps(server) - before

        def steps(server):
            return int(re.search(r"^outrider_steps_total\S* (\d+)$", server.get("/metrics").body.decode(), re.MULTILINE)[1])

        self.assertGreater(n_steps("1"), 4 * n_steps("10000"))

    # The log ----------------------------------------------------------------------------------------------------------

    def test_logs(self):
        """There is one line per request, whatever it holds, and nothing secret in it."""
        secret = "hush"  # of which every secret is made
        prompt = {"prompt": f"{secret}, {secret}, {secret},", "echo": True, "max_tokens": 8, "user": secret,
                  "cache_salt": secret}
        chat = {"messages": [{"role": "user", "content": secret}], "max_tokens": 8}
        bearer, x_key = f"Authorization: Bearer {secret}-flag", f"x-api-key: {secret}-file"
        forged = "%20200%201%20bytes%201.0%20ms"
        cases = [  # method, target, headers, body; as it is logged, with the status
            ("POST", COMPLETIONS, [bearer], prompt, f"POST {COMPLETIONS} 200"),
            ("POST", COMPLETIONS, [f"AUTHORIZATION: bearer {secret}-file"], {**prompt, "stream": True},
             f"POST {COMPLETIONS} 200"),
            ("POST", f"{CHAT}?q={secret}", [x_key], chat, f"POST {CHAT} 200"),
            ("POST", f"{ANTHROPIC}?beta={secret}", [x_key], {**chat, "metadata": {"user_id": secret}},
             f"POST {ANTHROPIC} 200"),
            ("POST", "/tokenize", [x_key], {"content": secret}, "POST /tokenize 200"),
            ("GET", f"/v1/models?key={secret}", [bearer, x_key], None, "GET /v1/models 200"),
            ("GET", f"http://{secret}:x@localhost/v1/models?key={secret}", [bearer], None, "GET /v1/models 400"),
            ("GET", "/health", [f"Cookie: {secret}", f"Referer: {secret}"], None, "GET /health 200"),
            # Refused.
            ("POST", COMPLETIONS, [f"Authorization: Bearer {secret}-wrong"], prompt, f"POST {COMPLETIONS} 401"),
            ("POST", COMPLETIONS, [f"Authorization: Basic {secret}-flag"], prompt, f"POST {COMPLETIONS} 401"),
            ("POST", COMPLETIONS, [f"x-api-key: {secret}-wrong"], prompt, f"POST {COMPLETIONS} 401"),
            ("GET", f"/v1/models?api_key={secret}-flag", [], None, "GET /v1/models 401"),
            ("POST", COMPLETIONS, [bearer], {**prompt, "model": secret}, f"POST {COMPLETIONS} 404"),
            ("POST", COMPLETIONS, [bearer], {**prompt, "mirostat": secret}, f"POST {COMPLETIONS} 400"),
            # The log tells names of unknown fields.
            ("POST", COMPLETIONS, [bearer], {**prompt, "GET /x 200 1 bytes 1.0 ms\n\u2028\x85é\"": secret, "y" * 1000: 1},
             f"POST {COMPLETIONS} 200"),
            ("POST", COMPLETIONS, [bearer], {"prompt": "x", "temperature": secret}, f"POST {COMPLETIONS} 400"),
            ("POST", CHAT, [bearer], {"messages": [{"role": secret, "content": "x"}]}, f"POST {CHAT} 400"),
            # Odd targets and methods.
            ("GET", f"/%0AGET%20/{forged}", [bearer], None, "GET  400"),
            ("GET", f"/%0D%0AGET%20/{forged}", [bearer], None, "GET  400"),
            ("GET", f"/v1/models{forged}", [bearer], None, f"GET /v1/models{forged} 404"),
            ("GET", "/\xff\xfe\x80", [bearer], None, "GET  400"),
            ("GET", "/%FF%fe%C2%85%E2%80%A8", [bearer], None, "GET /%FF%FE%C2%85%E2%80%A8 404"),
            ("GET", "/%1B[2J%07", [bearer], None, "GET  400"),
            ("GET", "/%22\"%5C\\%25", [bearer], None, "GET /%22%22%5C%5C%25 404"),
            ("GET", "/" + "x" * 1000, [bearer], None, "GET /" + "x" * 255 + "... 404"),
            ("BREW", "/coffee", [bearer], None, "BREW /coffee 404"),
            ("BREW", "/v1/models", [bearer], None, "BREW /v1/models 405"),
            ("%0AGET", "/x", [bearer], None, "%250AGET /x 404"),
            ("G\xffT", "/x", [bearer], None, " /x 400"),
        ]
        with tempfile.TemporaryDirectory() as folder:
            keys, log = Path(folder, "keys"), Path(folder, "log")
            keys.write_text(f"{secret}-file\n")
            with Server("-v", "--log-file", str(log), "--api-key", f"{secret}-flag", "--api-key-file",
                        str(keys)) as server:
                for method, target, headers, body, shown in cases:
                    text = "" if body is None else json.dumps(body)
                    if body is not None:
                        headers = [*headers, "content-type: application/json", f"content-length: {len(text)}"]
                    head = [f"{method} {target} HTTP/1.1", "host: localhost", "connection: close", *headers]
                    answer = raw(server.port, ("\r\n".join(head) + "\r\n\r\n" + text).encode("latin-1"))
                    self.assertEqual(answer.split()[1].decode(), shown[-3:], (method, target, answer))
                server.send_signal(signal.SIGTERM)
                self.assertEqual(server.wait(), 0)
            logs = {"standard error": server.log[:-1], "the file": log.read_bytes().decode("ascii").split("\n")}
        self.assertEqual(logs["the file"].pop(), "")
        times = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ")
        for line in logs["the file"]:
            self.assertRegex(line, times)
        logs["the file"] = [times.sub("", line, 1) for line in logs["the file"]]
        self.assertEqual(Counter(logs["the file"]), Counter(logs["standard error"]))
        for name, lines in logs.items():
            with self.subTest(name):
                self.assertNotIn(secret, "\n".join(lines))
                matches = [ACCESS.fullmatch(line) for line in lines]
                requests = ["{method} {path} {status}".format(**match.groupdict()) for match in matches if match]
                self.assertEqual(Counter(requests), Counter(shown for *_, shown in cases))
                # And what else is there does not look like one.
                others = [line for line, match in zip(lines, matches) if not match]
                self.assertEqual([line for line in others if line.endswith(" ms")], [])

    def test_failed_answers(self):
        """The client hears why, and the log says it without being asked for more lines."""
        with tempfile.TemporaryDirectory() as folder:
            broken = Path(folder, "broken.gguf")
            write_broken_model(Path(model_path(MODEL)), broken)
            with Server("-a", "broken", model=str(broken)) as server:
                for path, (bases, _) in list(SMALL.items())[:3]:
                    answer = server.post(path, **bases[0])
                    self.assertEqual(answer.status, 500)
                    self.assertIn(b"no usable logits", answer.body)
                scored = server.post(COMPLETIONS, prompt="One, two,", max_tokens=0, echo=True, logprobs=1)
                self.assertEqual(scored.status, 500)
                server.wait_for_line("answers? failed: the model gave no usable logits")
                self.assertEqual(server.get("/health").status, 200)
                server.send_signal(signal.SIGTERM)
                self.assertEqual(server.wait(), 0)
                failed = [re.match(r"(an|\d+) answers? failed: ", line) for line in server.log if line]
                self.assertEqual(sum(1 if match[1] == "an" else int(match[1]) for match in failed if match), 4)

    def test_log_file_that_cannot_be_written(self):
        """Any more: the server says so once, and goes on."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "log")
            with Server("-v", "--log-file", str(path)) as server:
                path.unlink()
                path.mkdir()
                texts = [server.complete("One, two,", max_tokens=8) for _ in range(3)]
                with Stream(server.port, COMPLETIONS, **LONG, stream=True) as left:
                    left.answer.readline()
                wait_until(lambda: metric(server, "outrider_answers_running") == 0)
                self.assertEqual(server.post(COMPLETIONS, prompt="").status, 400)
                self.assertEqual([server.complete("One, two,", max_tokens=8), *texts], 4 * texts[:1])
                server.send_signal(signal.SIGTERM)
                self.assertEqual(server.wait(), 0)
                self.assertEqual(len([line for line in server.log if line and "--log-file" in line]), 1, server.log)
                self.assertEqual(len([line for line in server.log if line and f"POST {COMPLETIONS} 200" in line]), 5)

    # Who may ask, and when --------------------------------------------------------------------------------------------

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
