"""Answers whose pieces carry the time at which they came, and passes without a server."""
import json
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


class Streamed:
    """An answer: when it was asked and when its pieces came, in seconds of one clock."""

    def __init__(self, server, prompt, n, salt, **fields):
        # llama.cpp's server must not reuse a prompt's beginning, outrider shares none with other salts.
        body = {"prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": True, "stream": True,
                "stream_options": {"include_usage": True}}
        body |= {"cache_salt": salt} if server.name.startswith("outrider") else {"cache_prompt": False}
        body |= fields
        self.asked = time.perf_counter()
        connection = server.connect()  # each its own: llama.cpp's server closes them after a stream
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"{server.name} says {response.status}: {response.read()[:300]}")
        lines = []
        for line in response:  # parsed afterwards: a client's work is no part of a server's time
            if line.startswith(b"data: {"):
                lines.append((time.perf_counter(), line))
        connection.close()
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
