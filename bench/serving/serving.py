"""Answers whose pieces carry the time at which they came, and passes without a server."""
import bisect
import itertools
import json
import select
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench/peers"))
from peers import Outrider, Program, Server, cores, install, say, tokens_of  # noqa: E402, F401


class Passes(Program):
    """outrider's passes without a server."""

    def __init__(self, options):
        super().__init__("outrider-batch-passes", "outrider-batch-passes", options)

    def ms(self, what, n, length):
        """What the program's source says of `texts` and `prompt`."""
        return float(self.ask(what, n, length)[0])


def read_prompts(options):
    """Those of the file as tokens, one of each group in turn."""
    groups = {}
    for prompt in [json.loads(line) for line in options.prompts.read_text().splitlines()]:
        groups.setdefault(prompt.get("group"), []).append(prompt)
    mixed = [prompt for place in range(max(map(len, groups.values())))
             for group in groups.values() for prompt in group[place:place + 1]]
    return [tokens_of(options.build / "outrider", options.model, prompt["prompt"]) for prompt in mixed]


def together(tasks):
    """Calls all at once and returns when all have returned, with their errors."""
    errors = []

    def call(task):
        try:
            task()
        except Exception as error:  # of a thread: it would be lost
            errors.append(error)

    threads = [threading.Thread(target=call, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


class Receiver(threading.Thread):
    """Reads for all answers in progress: the pieces of a step wake one thread, once."""

    def __init__(self):
        super().__init__(daemon=True)
        self.ready = select.epoll()
        self.answers = {}
        self.start()

    def run(self):
        while True:
            for number, _ in self.ready.poll():
                connection, pieces, has_ended = self.answers[number]
                try:
                    data = connection.recv(65536)
                except ConnectionError:  # what is missing is found later
                    data = b""
                pieces.append((time.perf_counter(), data))
                if not data:
                    self.ready.unregister(number)
                    has_ended.set()

    def receive(self, connection):
        """All that comes until the other side closes the connection, [(seconds, bytes)]."""
        pieces, has_ended = [], threading.Event()
        self.answers[connection.fileno()] = connection, pieces, has_ended
        self.ready.register(connection, select.EPOLLIN)
        has_ended.wait()
        return pieces


RECEIVER = Receiver()


def stream(server, path, body):
    """The lines of an answer and when each was there, [(seconds, line)].

    What comes is put aside and understood when all is there: a client's work is no part of a server's time, though
    both have the same cores.
    """
    connection = server.connect()  # each its own: llama.cpp's server closes them after a stream
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", "Connection": "close"})
    times, received = zip(*RECEIVER.receive(connection.sock))
    connection.close()
    ends = list(itertools.accumulate(map(len, received)))
    received = b"".join(received)
    head, _, _ = received.partition(b"\r\n\r\n")
    if head.split()[1:2] != [b"200"]:
        raise RuntimeError(f"{server.name} says {received[:400]}")
    if b"transfer-encoding: chunked" not in head.lower():
        raise RuntimeError(f"{server.name} streams without chunks")
    if not received.endswith(b"\r\n0\r\n\r\n"):
        raise RuntimeError(f"{server.name} ended its stream early")
    lines, begun, place = [], b"", len(head) + 4
    while True:
        data = received.index(b"\r\n", place) + 2
        place = data + int(received[place:data], 16) + 2
        if place == data + 2:
            return lines
        at = times[bisect.bisect_left(ends, place - 2)]
        *whole, begun = (begun + received[data:place - 2]).split(b"\n")
        lines += [(at, line) for line in whole]


class Streamed:
    """An answer: when it was asked and when its pieces came, in seconds of one clock."""

    def __init__(self, server, prompt, n, salt, **fields):
        # llama.cpp's server must not reuse a prompt's beginning, outrider shares none with other salts.
        body = {"prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": True, "stream": True,
                "stream_options": {"include_usage": True}}
        body |= {"cache_salt": salt} if server.name.startswith("outrider") else {"cache_prompt": False}
        body |= fields
        self.asked = time.perf_counter()
        lines = [(at, line) for at, line in stream(server, "/v1/completions", body) if line.startswith(b"data: {")]
        pieces = [(at, json.loads(line.removeprefix(b"data: "))) for at, line in lines]
        self.n_tokens = next(piece["usage"]["completion_tokens"] for _, piece in reversed(pieces) if piece.get("usage"))
        texts = [(at, piece["choices"][0]) for at, piece in pieces if piece["choices"]]
        self.text = "".join(choice["text"] for _, choice in texts)
        texts = [(at, choice) for at, choice in texts if choice["text"]]
        # A piece may have several tokens: as many as have logprobs, else its share by its length.
        self.pieces = [(at, len(choice["logprobs"]["tokens"]) if choice.get("logprobs") else
                        self.n_tokens * len(choice["text"]) / len(self.text)) for at, choice in texts]
        self.first = self.pieces[0][0]
        self.last = pieces[-1][0]
