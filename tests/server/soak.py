"""Many users who ask everything at once, for a while:

    soak.py [--seconds 60] [--requests N] [--seed N] [--users 12] [--model MODEL] [--layers N] [--draft-layers N]
            [--sanitized] [SERVE-FLAGS...]
    soak.py --url http://127.0.0.1:8080 …     a server that runs already

Requests are random: OpenAI's and Anthropic's routes, all sampling fields, streams, several answers, predictions, tools
where the model takes them, tokens, drafts on and off; some users leave in the middle or before their request is whole,
some send what is refused. None may hang. A sample of answers must equal the same request alone, later, without drafts.
The server's memory must stay flat once its cache has been full and some hundred requests were answered, but not that of
a sanitizer, which keeps what was freed. The prompt cache must have been used, and drafts with --budget fixed. At the
end SIGTERM comes amid an answer, and the server must end well. Ends with figures and status 0, or names what went wrong
and ends with 1."""

import argparse
import http.client
import json
import os
import random
import re
import signal
import socket
import sys
import tempfile
import threading
import time
import urllib.parse
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from serving import MODEL, PATIENCE, Server, Stream, has_model, model_path, request
from made_models import write_shallow_model

# Unless --url is given. A small cache is soon full: requests wait and give way.
SMALL = ["-np", "6", "--ctx-size", "2048", "--cache-memory", "96M"]
FLAGS = ["--budget", "fixed", "--history"]  # unless others are given
USED_AFTER = 300  # requests, by which answers were compared, prompts were found in the cache, and drafts accepted
SKIPPED = 77  # the exit status that CMakeLists.txt calls so
# Memory may grow by so many bytes per request, and in all: what was freed is not always given back at once. 19,500
# requests took 1 MB.
GROWTH_PER_REQUEST, GROWTH = 128, 2 << 20
HISTORY_BYTES = 512  # per token of an answer, with --history, which has a limit of its own; about 150 were measured
# Requests after the cache was full, by which the largest passes have come and buffers have their size; as many at least
# must follow, or nothing is judged.
WARM_UP, JUDGED = 300, 200
# glibc gives back large pieces, and keeps one heap for all threads, so that memory shows what is in use.
ALLOCATOR = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "131072"}
WORDS = ["the", "cat", "sat", "on", "1, 2, 3,", "def f(x):", "return", "\n\n", "and so", "é", "日本", "🙂", "<|im_end|>", "{", "}", "of"]
COMPLETIONS, CHAT, ANTHROPIC = "/v1/completions", "/v1/chat/completions", "/v1/messages"
WEATHER = {"name": "get_weather", "description": "Tells the weather in a city."}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = {CHAT: [{"type": "function", "function": {**WEATHER, "parameters": SCHEMA}}],
         ANTHROPIC: [{**WEATHER, "input_schema": SCHEMA}]}


def random_text(draw, words_max):
    beginnings = ["", "Once upon a time", "You are a helpful assistant. Answer briefly and only from what you know."]
    return draw.choice(beginnings) + " ".join(draw.choices(WORDS, k=draw.randint(1, words_max)))


def random_request(draw, takes_tools):
    """A path and fields that are taken."""
    path = draw.choices([COMPLETIONS, CHAT, ANTHROPIC], [4, 3, 2])[0]
    fields = {"max_tokens": draw.choice([1, 2, 8, 24, 60]), "seed": draw.randrange(2**63)}
    some = lambda share: draw.random() < share  # noqa: E731
    fields["temperature"] = draw.choice([0, 0, 0.3, 1, 2 if path != ANTHROPIC else 1])
    stop = draw.choice([["the"], ["\n", "a b"], [".", ",", " of"]])
    of_all = [
        ("top_p", .2, draw.random()), ("top_k", .2, draw.choice([-1, 0, 1, 40])),
        ("priority", .1, draw.choice([-1, 0, 5])), ("cache_salt", .1, draw.choice(["a", "b"])),
        ("metadata", .1, {"user_id": "somebody"}),
        ("speculation", .3, draw.choice([{"draft": "off"}, {"draft": "auto"}, {"rows": draw.randint(0, 16)}])),
    ]
    of_openai = [
        ("min_p", .2, draw.random()), ("typical_p", .1, draw.random()), ("presence_penalty", .1, draw.uniform(-2, 2)),
        ("frequency_penalty", .1, draw.uniform(-2, 2)), ("repetition_penalty", .1, draw.uniform(.8, 1.5)),
        ("repeat_last_n", .1, draw.choice([-1, 0, 64])), ("ignore_eos", .1, True), ("n", .15, draw.choice([1, 2, 3])),
        ("stop", .15, draw.choice([stop, stop[0]])), ("user", .1, "somebody"),
        ("logit_bias", .1, {str(draw.randrange(1000)): draw.uniform(-100, 20)}),
        ("prediction", .2, {"type": "content", "content": random_text(draw, 40)}),
    ]
    of_anthropic = [("stop_sequences", .15, stop), ("system", .3, random_text(draw, 10))]
    for name, share, value in of_all + (of_anthropic if path == ANTHROPIC else of_openai):
        if some(share):
            fields[name] = value
    words_max = draw.choice([3, 20, 100, 250])
    if path == COMPLETIONS:
        fields["prompt"] = draw.choice([
            random_text(draw, words_max), [draw.randrange(40_000) for _ in range(draw.randint(1, words_max))],
            [random_text(draw, words_max), random_text(draw, 3)]])
        if some(.2):
            fields |= {"logprobs": draw.choice([0, 3]), "echo": some(.5)}
        return path, fields
    fields["messages"] = [{"role": "user", "content": random_text(draw, words_max)}]
    if path == CHAT and some(.3):
        fields["messages"].insert(0, {"role": "system", "content": random_text(draw, 10)})
    if path == CHAT and some(.2):
        fields |= {"logprobs": True, "top_logprobs": draw.choice([0, 3])}
    if takes_tools and some(.3):
        fields["tools"] = TOOLS[path]
        if some(.7):
            fields["messages"][-1]["content"] = "What is the weather in Paris? Use the tool."
    return path, fields


def bad_request(draw):
    path, fields = random_request(draw, False)
    fields[draw.choice(["temperature", "top_p", "n", "max_tokens", "stop", "seed", "messages", "prompt", "nothing"])] = (
        draw.choice([-7, "x", [-1], {"a": []}, 1e300]))
    return path, fields


def written(document):
    """What there is to compare of an answer: text, calls and why it ended, by choice."""
    if "content" in document:
        blocks = document["content"]
        return [["".join(block.get("text", "") for block in blocks),
                 [[block["name"], block["input"]] for block in blocks if block["type"] == "tool_use"],
                 document["stop_reason"]]]
    choices = []
    for choice in document["choices"]:
        message = choice.get("message", {"content": choice.get("text")})
        calls = [[call["function"]["name"], call["function"]["arguments"]] for call in message.get("tool_calls", [])]
        choices.append([message["content"] or "", calls, choice["finish_reason"]])
    return choices


def written_in(events):
    """The same of a stream. Arguments of Anthropic's calls are texts."""
    choices = {}
    for event in events:
        if event.get("type") == "content_block_start" and event["content_block"]["type"] == "tool_use":
            choices[0][1].append([event["content_block"]["name"], ""])
        elif event.get("type") == "content_block_delta":
            choices[0][0] += event["delta"].get("text", "")
            if "partial_json" in event["delta"]:
                choices[0][1][-1][1] += event["delta"]["partial_json"]
        elif event.get("type") == "message_delta":
            choices[0][2] = event["delta"]["stop_reason"]
        elif event.get("type") == "message_start":
            choices[0] = ["", [], None]
        for choice in event.get("choices", []):
            answer = choices.setdefault(choice["index"], ["", [], None])
            delta = choice.get("delta", {"content": choice.get("text")})
            answer[0] += delta.get("content") or ""
            for call in delta.get("tool_calls", []):
                if "name" in call["function"]:
                    answer[1].append([call["function"]["name"], ""])
                answer[1][-1][1] += call["function"]["arguments"]
            answer[2] = choice["finish_reason"]
    return [choices[index] for index in sorted(choices)]


class Soak:
    def __init__(self, port, seed, sample_share):
        self.port, self.seed, self.sample_share = port, seed, sample_share
        self.lock = threading.Lock()  # of what follows
        self.counts, self.seconds, self.problems, self.samples = Counter(), [], [], []
        with_tools = {"messages": [{"role": "user", "content": "x"}], "tools": TOOLS[CHAT], "max_tokens": 1}
        self.takes_tools = request(port, "POST", CHAT, with_tools).status == 200

    def user(self, number, until, n_requests):
        draw = random.Random(f"{self.seed} {number}")
        for _ in range(n_requests):
            if time.monotonic() >= until or self.problems:
                return
            kind = draw.choices(["whole", "streamed", "left", "bad", "tokens", "unfinished"], [5, 5, 3, 1, 1, 1])[0]
            path, fields = bad_request(draw) if kind == "bad" else random_request(draw, self.takes_tools)
            start = time.monotonic()
            try:
                answers = getattr(self, kind)(draw, path, fields)
                problem = None
            except Exception as error:
                problem = f"{kind} {path} {json.dumps(fields)}: {type(error).__name__}: {error}"
            with self.lock:
                self.counts[kind] += 1
                self.counts["with calls"] += any(calls for _, calls, _ in answers or []) if not problem else 0
                self.seconds.append(time.monotonic() - start)
                if problem:
                    self.problems.append(problem)
                elif answers and draw.random() < self.sample_share:
                    self.samples.append((kind, path, fields, answers))

    def answer(self, path, **fields):
        answer = request(self.port, "POST", path, fields)
        assert answer.status == 200, answer
        return answer.json()

    def whole(self, draw, path, fields):
        return written(self.answer(path, **fields))

    def streamed(self, draw, path, fields):
        if path != ANTHROPIC:
            fields = {**fields, "stream_options": {"include_usage": draw.random() < .5}}
        with Stream(self.port, path, stream=True, **fields) as stream:
            return written_in(stream.events())

    def left(self, draw, path, fields):
        fields = {**fields, "max_tokens": 500, **({"ignore_eos": True} if path != ANTHROPIC else {})}
        try:
            with Stream(self.port, path, stream=True, **fields) as stream:
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

    def tokens(self, draw, path, fields):
        text = random_text(draw, 100)
        tokens = self.answer("/tokenize", content=text)["tokens"]
        assert self.answer("/detokenize", tokens=tokens)["content"] == text, text
        messages = [{"role": "user", "content": text}]
        assert text in self.answer("/apply-template", messages=messages)["prompt"], text
        n_tokens = self.answer("/tokenize", messages=messages)["count"]
        assert self.answer(ANTHROPIC + "/count_tokens", messages=messages)["input_tokens"] == n_tokens, text

    def unfinished(self, draw, path, fields):
        """Leaves before the request's head is complete, or else its body."""
        body = json.dumps(fields).encode()
        head = (f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\n\r\n").encode()
        n_bytes = draw.randrange(len(head)) if draw.random() < .7 else len(head) + draw.randrange(len(body))
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as connection:
            connection.sendall((head + body)[:n_bytes])
            time.sleep(draw.random() / 20)
            if draw.random() < .5:  # a reset instead of an end
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    def compare_samples(self):
        """Each alone, without drafts."""
        for kind, path, fields, answers in self.samples:
            # A stream has begun a call before it is known whether its arguments come to their end.
            ask = self.streamed if kind == "streamed" and "tools" in fields else self.whole
            alone = ask(random.Random(0), path, {**fields, "speculation": {"draft": "off"}})
            if alone != answers:
                self.problems.append(f"{path} {json.dumps(fields)}: among others {answers}, alone {alone}")


class Memory(NamedTuple):
    n_requests: int
    resident: int  # bytes
    is_full: bool  # the cache
    n_tokens: int  # of answers
    n_cached: int  # tokens of prompts
    n_accepted: int  # tokens of drafts
    n_preempted: int


def memory_now(server, n_requests):
    metrics = server.get("/metrics").body.decode()

    def number(name):
        return float(re.search(rf"^{name} (\S+)$", metrics, re.MULTILINE)[1])
    # Some pages hold neither a text nor a running answer's, as only whole ones are kept.
    is_full = number("outrider_pages_free") - number("outrider_pages_cached") <= number("outrider_pages") / 8
    return Memory(n_requests, server.resident_bytes(), is_full, *(int(number(f"outrider_{name}_total")) for name in (
        "generated_tokens", "prompt_tokens_cached", "accepted_tokens", "preemptions")))


def memory_problem(course, has_history, is_complete):
    """Whether it grew, by a line through its course. is_complete: all requests that were wanted have come."""
    n_full = next((now.n_requests for now in course if now.is_full), course[-1].n_requests)
    judged = [now for now in course if now.n_requests >= n_full + WARM_UP]
    n_requests = judged[-1].n_requests - judged[0].n_requests if judged else 0
    print(f"resident {course[0].resident / 1e6:.1f} MB at first, {course[-1].resident / 1e6:.1f} MB at the end", end="")
    if n_requests < JUDGED:
        print(f"; not judged: only {n_requests} requests came {WARM_UP} after the cache was full")
        return "memory was not judged" if is_complete else None
    middle = sum(now.n_requests for now in judged) / len(judged)
    slope = (sum((now.n_requests - middle) * now.resident for now in judged)
             / sum((now.n_requests - middle) ** 2 for now in judged))  # bytes per request
    growth, allowed = slope * n_requests, GROWTH + GROWTH_PER_REQUEST * n_requests
    if has_history:
        allowed += HISTORY_BYTES * (judged[-1].n_tokens - judged[0].n_tokens)
    first, half, last = judged[0], judged[len(judged) // 2], judged[-1]
    print(f"; {growth / 1e6:.2f} MB more in the last {n_requests} requests, at most {allowed / 1e6:.2f} MB allowed; "
          f"{(half.resident - first.resident) / 1e6:.2f} MB in the first {half.n_requests - first.n_requests} of them, "
          f"{(last.resident - half.resident) / 1e6:.2f} MB after")
    return f"memory grew by {growth / 1e6:.1f} MB in {n_requests} requests" if growth > allowed else None


def soak(port, arguments, server=None, flags=()):
    """What went wrong."""
    test = Soak(port, arguments.seed, arguments.sample)
    start = time.monotonic()
    until = start + arguments.seconds
    users = [threading.Thread(target=test.user, args=(i, until, -(-arguments.requests // arguments.users)))
             for i in range(arguments.users)]
    for user in users:
        user.start()
    memory = []
    while any(user.is_alive() for user in users) and time.monotonic() < until + PATIENCE:
        if server and server.program.poll() is None:
            memory.append(memory_now(server, len(test.seconds)))
        time.sleep(0.2)
    seconds = time.monotonic() - start
    if any(user.is_alive() for user in users):
        test.problems.append(f"users hang {PATIENCE} seconds after the end")
    else:
        test.compare_samples()

    times = sorted(test.seconds) or [0]
    print(f"{len(test.seconds)} requests in {seconds:.1f} s: {dict(test.counts)}; "
          f"median {times[len(times) // 2]:.2f} s, longest {times[-1]:.2f} s")
    print(f"{len(test.samples)} answers compared with the same request alone")
    if memory:
        last = memory[-1]
        print(f"cached tokens of prompts {last.n_cached}, accepted of drafts {last.n_accepted}, "
              f"answers preempted {last.n_preempted}")
        has_used = test.samples and last.n_cached and (last.n_accepted or "fixed" not in flags)
        if last.n_requests >= USED_AFTER and not has_used:
            test.problems.append("no answer was compared, or the prompt cache or drafts were not used")
    if memory and not arguments.sanitized:
        problem = memory_problem(memory, "--history" in flags, len(test.seconds) >= arguments.requests)
        test.problems += [problem] if problem else []
    return test.problems


def stop(server):
    """What went wrong when SIGTERM came amid an answer."""
    if server.program.poll() is not None:
        return [f"the server ended: {server.log[-3:]}"]
    problems = []
    try:
        fields = {"prompt": "Once upon a time", "max_tokens": 24, "ignore_eos": True, "stream": True}
        with Stream(server.port, COMPLETIONS, **fields) as stream:
            events = stream.events()
            next(events)
            server.send_signal(signal.SIGTERM)
            *_, last = events
        if last["choices"][0]["finish_reason"] != "length":
            problems.append(f"the last answer did not end: {last}")
        if status := server.wait():
            problems.append(f"status {status} after SIGTERM: {server.log[-5:]}")
    except Exception as error:
        problems.append(f"SIGTERM: {type(error).__name__}: {error}")
    # The thread sanitizer reports and goes on; that of leaks reports at the end.
    wrong = [line for line in server.log if line and ("Sanitizer" in line or line.startswith("outrider: "))]
    if wrong:
        problems.append(f"{len(wrong)} lines of errors, the first: {wrong[0]}")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--requests", type=int, default=10**6, help="at most so many")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--users", type=int, default=12)
    parser.add_argument("--sample", type=float, default=0.1, help="share of answers that are compared")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--layers", type=int, help="of the model only the first: nonsense, and many requests in little time")
    parser.add_argument("--draft-layers", type=int, help="a draft model of so many layers of the model")
    parser.add_argument("--sanitized", action="store_true", help="the program is: OUTRIDER names it")
    parser.add_argument("--url")
    arguments, flags = parser.parse_known_args()
    if not arguments.url and not has_model(arguments.model):
        print(f"skipped: {arguments.model} is not in OUTRIDER_CACHE")
        return SKIPPED
    flags = SMALL + (flags or FLAGS)
    print(f"seed {arguments.seed}", flush=True)
    if arguments.url:
        problems = soak(urllib.parse.urlsplit(arguments.url).port, arguments)
    else:
        with tempfile.TemporaryDirectory() as folder:
            model = arguments.model
            if arguments.layers:
                model = f"{folder}/shallow.gguf"
                write_shallow_model(Path(model_path(arguments.model)), Path(model), arguments.layers)
            if arguments.draft_layers:
                write_shallow_model(Path(model_path(arguments.model)), Path(f"{folder}/draft.gguf"), arguments.draft_layers)
                flags += ["-md", f"{folder}/draft.gguf"]
            print(f"flags {flags}", flush=True)
            os.environ.update(ALLOCATOR)
            with Server(*flags, model=model) as server:
                problems = soak(server.port, arguments, server, flags)
                problems += stop(server)
    for problem in problems[:20]:
        print(f"failed: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
