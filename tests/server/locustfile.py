"""Users of locust: see soak_clients_test.py."""

import json

from locust import HttpUser, constant, task


class User(HttpUser):
    wait_time = constant(0)

    @task
    def chat(self):
        body = {"messages": [{"role": "user", "content": "Count to five."}], "max_tokens": 8, "temperature": 0}
        with self.client.post("/v1/chat/completions", json=body, catch_response=True) as answer:
            self.check(answer, lambda: answer.json()["choices"][0]["message"]["content"])

    @task
    def stream(self):
        body = {"prompt": "One, two,", "max_tokens": 8, "temperature": 0, "stream": True}
        with self.client.post("/v1/completions", json=body, stream=True, catch_response=True) as answer:
            self.check(answer, lambda: self.read(answer))

    def read(self, answer):
        lines = [line for line in answer.iter_lines() if line]
        if lines[-1] != b"data: [DONE]":
            raise ValueError("the stream broke off")
        return "".join(json.loads(line[6:])["choices"][0]["text"] for line in lines[:-1])

    texts = {}

    def check(self, answer, read):
        """The same text every time."""
        try:
            answer.raise_for_status()
            text = read()
        except Exception as error:
            return answer.failure(error)
        expected = self.texts.setdefault(answer.request.path_url, text)
        return answer.success() if text == expected else answer.failure(f"{text!r} instead of {expected!r}")
