"""Many users who ask everything at once, for a while:

    soak.py [--seconds 60] [--requests 1000000] [--seed N] [--users 12] [--model MODEL] [--layers N] [--sanitized]
            [SERVE-FLAGS...]
    soak.py --url http://127.0.0.1:8080 …     a server that runs already

Requests are random: both of OpenAI's routes, all sampling fields, streams, several answers, predictions, drafts on and
off; some users leave in the middle, some send what is refused. None may hang. A sample of answers must equal the same
request alone, later, without drafts. The server's memory must stay flat once its cache has been full, but not that
of a sanitizer, which keeps what was freed. Ends with figures and status 0, or names what went wrong and ends with 1."""

import argparse
import http.client
import json
import random
import sys
import tempfile
import threading
import time
import urllib.parse
from collections import Counter
from pathlib import Path

from serving import MODEL, PATIENCE, Server, Stream, has_model, joined, model_path, request
from shallow_model import write_shallow_model

# Unless --url or other flags are given. A small cache is soon full: requests wait and give way.
FLAGS = ["-np", "6", "--ctx-size", "2048", "--cache-memory", "96M", "--budget", "fixed", "--history"]
SKIPPED = 77  # the exit status that CMakeLists.txt calls so
GROWTH = 32 << 20  # bytes: what counts as flat; allocators keep some of what was freed
WORDS = ["the", "cat", "sat", "on", "1, 2, 3,", "def f(x):", "return", "\n\n", "and so", "é", "日本", "🙂", "<|im_end|>", "{", "}", "of"]
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


def random_text(draw, words_max):
    beginnings = ["", "Once upon a time", "You are a helpful assistant. Answer briefly and only from what you know."]
    return draw.choice(beginnings) + " ".join(draw.choices(WORDS, k=draw.randint(1, words_max)))


def random_request(draw):
    """A path and fields that are taken."""
    fields = {"max_tokens": draw.choice([1, 2, 8, 24, 60]), "seed": draw.randrange(2**63)}
    some = lambda share: draw.random() < share  # noqa: E731
    fields["temperature"] = draw.choice([0, 0, 0.3, 1, 2])
    for name, share, value in [
        ("top_p", .2, draw.random()), ("top_k", .2, draw.choice([-1, 0, 1, 40])), ("min_p", .2, draw.random()),
        ("typical_p", .1, draw.random()), ("presence_penalty", .1, draw.uniform(-2, 2)),
        ("frequency_penalty", .1, draw.uniform(-2, 2)), ("repetition_penalty", .1, draw.uniform(.8, 1.5)),
        ("repeat_last_n", .1, draw.choice([-1, 0, 64])), ("ignore_eos", .1, True), ("n", .15, draw.choice([1, 2, 3])),
        ("stop", .15, draw.choice(["the", ["\n", "a b"], [".", ",", " of"]])), ("priority", .1, draw.choice([-1, 0, 5])),
        ("cache_salt", .1, draw.choice(["a", "b"])), ("user", .1, "somebody"),
        ("logit_bias", .1, {str(draw.randrange(1000)): draw.uniform(-100, 20)}),
        ("speculation", .3, draw.choice([{"draft": "off"}, {"draft": "auto"}, {"rows": draw.randint(0, 16)}])),
        ("prediction", .2, {"type": "content", "content": random_text(draw, 40)}),
    ]:
        if some(share):
            fields[name] = value
    words_max = draw.choice([3, 20, 100, 250])
    if some(.5):
        fields["messages"] = [{"role": "user", "content": random_text(draw, words_max)}]
        if some(.3):
            fields["messages"].insert(0, {"role": "system", "content": random_text(draw, 10)})
        if some(.2):
            fields |= {"logprobs": True, "top_logprobs": draw.choice([0, 3])}
        return CHAT, fields
    fields["prompt"] = draw.choice([
        random_text(draw, words_max), [draw.randrange(40_000) for _ in range(draw.randint(1, words_max))],
        [random_text(draw, words_max), random_text(draw, 3)]])
    if some(.2):
        fields |= {"logprobs": draw.choice([0, 3]), "echo": some(.5)}
    return COMPLETIONS, fields


def bad_request(draw):
    path, fields = random_request(draw)
    fields[draw.choice(["temperature", "top_p", "n", "max_tokens", "stop", "seed", "messages", "prompt", "nothing"])] = (
        draw.choice([-7, "x", [-1], {"a": []}, 1e300]))
    return path, fields


def texts_of(document):
    return [(choice["index"], choice.get("text", choice.get("message", {}).get("content")), choice["finish_reason"])
            for choice in document["choices"]]


class Soak:
    def __init__(self, port, seed, sample_share):
        self.port, self.seed, self.sample_share = port, seed, sample_share
        self.lock = threading.Lock()  # of what follows
        self.counts, self.seconds, self.problems, self.samples = Counter(), [], [], []

    def user(self, number, until, n_requests):
        draw = random.Random(f"{self.seed} {number}")
        for _ in range(n_requests):
            if time.monotonic() >= until or self.problems:
                return
            kind = draw.choices(["whole", "streamed", "left", "bad"], [5, 5, 3, 1])[0]
            path, fields = bad_request(draw) if kind == "bad" else random_request(draw)
            start = time.monotonic()
            try:
                sample = getattr(self, kind)(draw, path, fields)
                problem = None
            except Exception as error:
                problem = f"{kind} {path} {json.dumps(fields)}: {type(error).__name__}: {error}"
            with self.lock:
                self.counts[kind] += 1
                self.seconds.append(time.monotonic() - start)
                if problem:
                    self.problems.append(problem)
                elif sample and draw.random() < self.sample_share:
                    self.samples.append((path, fields, sample))

    def whole(self, draw, path, fields):
        answer = request(self.port, "POST", path, fields)
        assert answer.status == 200, answer
        return texts_of(answer.json())

    def streamed(self, draw, path, fields):
        with Stream(self.port, path, stream=True, stream_options={"include_usage": draw.random() < .5}, **fields) as stream:
            events = list(stream.events())
        texts = joined(events)
        reasons = {choice["index"]: choice["finish_reason"] for event in events for choice in event["choices"]}
        return [(i, texts[i], reasons[i]) for i in sorted(texts)]

    def left(self, draw, path, fields):
        try:
            with Stream(self.port, path, stream=True, **{**fields, "max_tokens": 500, "ignore_eos": True}) as stream:
                for _ in range(draw.choice([0, 1, 5, 30])):
                    stream.answer.readline()
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, TimeoutError):
                raise

    def bad(self, draw, path, fields):
        answer = request(self.port, "POST", path, fields)
        assert answer.status in (200, 400), answer
        if answer.status == 400:
            assert answer.json()["error"]["message"], answer
        else:  # what was drawn is taken on this route
            self.counts["taken though drawn as bad"] += 1

    def compare_samples(self):
        """Each alone, without drafts."""
        for path, fields, texts in self.samples:
            answer = request(self.port, "POST", path, {**fields, "speculation": {"draft": "off"}})
            assert answer.status == 200, answer
            alone = texts_of(answer.json())
            if alone != texts:
                self.problems.append(f"{path} {json.dumps(fields)}: among others {texts}, alone {alone}")


def soak(port, arguments, server=None):
    """What went wrong."""
    test = Soak(port, arguments.seed, arguments.sample)
    start = time.monotonic()
    until = start + arguments.seconds
    users = [threading.Thread(target=test.user, args=(i, until, -(-arguments.requests // arguments.users)))
             for i in range(arguments.users)]
    for user in users:
        user.start()
    resident = []
    while any(user.is_alive() for user in users) and time.monotonic() < until + PATIENCE:
        if server:
            resident.append(server.resident_bytes())
        time.sleep(0.1)
    seconds = time.monotonic() - start
    if any(user.is_alive() for user in users):
        test.problems.append(f"users hang {PATIENCE} seconds after the end")
    else:
        test.compare_samples()

    times = sorted(test.seconds) or [0]
    print(f"{len(test.seconds)} requests in {seconds:.1f} s: {dict(test.counts)}; "
          f"median {times[len(times) // 2]:.2f} s, longest {times[-1]:.2f} s")
    print(f"{len(test.samples)} answers compared with the same request alone")
    if resident:
        middle, last = max(resident[len(resident) // 3:2 * len(resident) // 3] or [0]), max(resident[2 * len(resident) // 3:])
        print(f"resident {resident[0] / 1e6:.1f} MB at first, {middle / 1e6:.1f} MB in the middle third, "
              f"{last / 1e6:.1f} MB in the last")
        # Before that the cache is filled for the first time.
        if seconds >= 60 and last > middle + GROWTH and not arguments.sanitized:
            test.problems.append(f"memory grew by {(last - middle) / 1e6:.1f} MB in the last third")
    if server and server.program.poll() is not None:
        test.problems.append(f"the server ended: {server.log[-3:]}")
    # The thread sanitizer reports and goes on.
    reported = [line for line in server.log if line and "Sanitizer" in line] if server else []
    if reported:
        test.problems.append(f"{len(reported)} reports of a sanitizer, the first: {reported[0]}")
    return test.problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--requests", type=int, default=10**6, help="at most so many")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--users", type=int, default=12)
    parser.add_argument("--sample", type=float, default=0.1, help="share of answers that are compared")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--layers", type=int, help="of the model only the first: nonsense, and many requests in little time")
    parser.add_argument("--sanitized", action="store_true", help="the program is: OUTRIDER names it")
    parser.add_argument("--url")
    arguments, flags = parser.parse_known_args()
    if not arguments.url and not has_model(arguments.model):
        print(f"skipped: {arguments.model} is not in OUTRIDER_CACHE")
        return SKIPPED
    print(f"seed {arguments.seed}, flags {flags or FLAGS}", flush=True)
    if arguments.url:
        problems = soak(urllib.parse.urlsplit(arguments.url).port, arguments)
    else:
        with tempfile.TemporaryDirectory() as folder:
            model = arguments.model
            if arguments.layers:
                model = f"{folder}/shallow.gguf"
                write_shallow_model(Path(model_path(arguments.model)), Path(model), arguments.layers)
            with Server(*(flags or FLAGS), model=model) as server:
                problems = soak(server.port, arguments, server)
    for problem in problems[:20]:
        print(f"failed: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
