"""Starts `outrider serve` and talks to it over HTTP, plainly: http.client and sockets."""

import http.client
import json
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cli"))
from program import MODEL, OUTRIDER, TestCase, environment, has_model, model_path, needs_model, outrider  # noqa: E402, F401

TOOL_MODEL = "qwen2.5-coder:0.5b"  # its chat template takes tools
PATIENCE = 300  # seconds: whatever is not there by then hangs


class Answer(NamedTuple):
    status: int
    headers: dict  # names in lower case
    body: bytes

    def json(self):
        return json.loads(self.body)


class Server:
    """`with Server("-np", "2") as server:` is a server that answers until the block ends. `ready=False` does not wait
    for the model. Its lines on standard error are `log`. `changes` are of its environment."""

    def __init__(self, *arguments, model=MODEL, ready=True, **changes):
        self.log = []
        self._changed = threading.Condition()
        self.program = subprocess.Popen(
            [OUTRIDER, "serve", "-m", model, "--offline", "--port", "0", *arguments], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8", errors="backslashreplace",
            env=environment(**changes))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.port = int(self.wait_for_line(r"listening on http://\S+:(\d+),")[1])  # also --host 0.0.0.0
            self.url = f"http://127.0.0.1:{self.port}"
            if ready:
                self.wait_for_line(r"is ready at")
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _read(self):
        for line in self.program.stderr:
            with self._changed:
                self.log.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self.log.append(None)
            self._changed.notify_all()

    def wait_for_line(self, pattern):
        """The first line that has this; AssertionError if the program ends before."""
        def found():
            matches = [re.search(pattern, line) for line in self.log if line is not None]
            return next((match for match in matches if match), None)
        with self._changed:
            self._changed.wait_for(lambda: found() or None in self.log, PATIENCE)
            match = found()
            assert match, f"no line with {pattern!r}: {self.log}"
            return match

    def send_signal(self, number):
        self.program.send_signal(number)

    def wait(self):
        """The program's exit status once it has ended of itself."""
        status = self.program.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return status

    def close(self):
        if self.program.poll() is None:
            self.program.kill()
        self.program.wait()
        self._reader.join()
        self.program.stderr.close()

    def resident_bytes(self):
        with open(f"/proc/{self.program.pid}/status") as status:
            return 1024 * int(re.search(r"VmRSS:\s+(\d+) kB", status.read())[1])

    # Requests ---------------------------------------------------------------------------------------------------------

    def request(self, method, path, body=None, headers=None):
        return request(self.port, method, path, body, headers)

    def get(self, path, headers=None):
        return self.request("GET", path, headers=headers)

    def post(self, path, headers=None, **fields):
        return self.request("POST", path, fields, headers)

    def answer(self, path, **fields):
        """The document of an answer; AssertionError for any other status than 200."""
        answer = self.post(path, **fields)
        assert answer.status == 200, (answer.status, answer.body)
        return answer.json()

    def complete(self, prompt, **fields):
        """The text of the first choice of /v1/completions; temperature 0 unless one is given."""
        return self.answer("/v1/completions", **{"prompt": prompt, "temperature": 0, **fields})["choices"][0]["text"]

    def events(self, path, **fields):
        """The events of a stream, as JSON, as they come; checks that the stream ends as it should."""
        with Stream(self.port, path, stream=True, **fields) as stream:
            yield from stream.events()


def request(port, method, path, body=None, headers=None):
    """A body that is not bytes is sent as JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, body, {**kind, **(headers or {})})
        answer = connection.getresponse()
        return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
    finally:
        connection.close()


class Stream:
    """A request whose answer is read by and by; leaving the block closes the connection, wherever the answer is."""

    def __init__(self, port, path, **fields):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self.connection.request("POST", path, json.dumps(fields).encode(), {"Content-Type": "application/json"})
        self.answer = self.connection.getresponse()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Both, or the socket stays open.
        self.answer.close()
        self.connection.close()

    def events(self):
        assert self.answer.status == 200, (self.answer.status, self.answer.read())
        assert self.answer.getheader("content-type").startswith("text/event-stream"), self.answer.getheaders()
        last = None
        for line in self.answer:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "data":
                assert last != "[DONE]", value
                last = value
                if value != "[DONE]":
                    yield json.loads(value)
        assert last == "[DONE]" or '"message_stop"' in (last or ""), f"the stream broke off after {last}"


def raw(port, data, shutdown=False):
    """All that the server says to these bytes until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(data)
        if shutdown:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while part := connection.recv(65536):
            answer += part
        return answer


def wait_until(condition):
    """AssertionError if it does not become true."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not true within {PATIENCE} seconds"
        time.sleep(0.02)


def joined(events):
    """The text that a stream of completions or chat answers wrote, by choice."""
    texts = {}
    for event in events:
        for choice in event["choices"]:
            text = choice["text"] if "text" in choice else choice["delta"].get("content") or ""
            texts[choice["index"]] = texts.get(choice["index"], "") + text
    return texts
