"""Heavier clients, which `make soak` tries: litellm, lm-eval, locust. None of them may ask the network."""

import contextlib
import functools
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
               "HF_UPDATE_DOWNLOAD_COUNTS": "0", "TQDM_DISABLE": "1"}

import litellm  # noqa: E402
import lm_eval  # noqa: E402
from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.models.openai_completions import LocalCompletionsAPI  # noqa: E402

from serving import MODEL, Server, needs_model, outrider  # noqa: E402

QUESTIONS = [
    {"question": "The capital of France is", "answers": [" Paris", " a car", " seven"], "right": 0},
    {"question": "Two plus two is", "answers": [" purple", " four", " Berlin"], "right": 1},
    {"question": "The opposite of hot is", "answers": [" table", " of", " cold"], "right": 2},
    {"question": "The sun rises in the", "answers": [" east", " spoon", " z"], "right": 0},
]
MESSAGES = [{"role": "user", "content": "Name the three primary colours."}]


class Tokenizer:
    """What lm-eval needs of one: the program's own."""

    @staticmethod
    @functools.cache
    def encode(text):
        printed = outrider("tokenize", "-m", MODEL, "--offline", "--raw", "--no-special", "--json", input=text)
        return json.loads(printed.stdout)["tokens"]


def language_model(server, **options):
    model = LocalCompletionsAPI(base_url=server.url + "/v1/completions", model=MODEL, tokenizer_backend="outrider",
                                max_retries=1, **options)
    model.tokenizer = Tokenizer()
    return model


@needs_model(MODEL)
class SoakClients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())

    def test_litellm(self):
        ask = functools.partial(litellm.completion, model="openai/" + MODEL, messages=MESSAGES, temperature=0, max_tokens=16,
                                api_base=self.server.url + "/v1", api_key="none")
        text = ask().choices[0].message.content
        self.assertEqual(text, self.server.answer("/v1/chat/completions", messages=MESSAGES, temperature=0,
                                                  max_tokens=16)["choices"][0]["message"]["content"])
        self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in ask(stream=True)), text)
        self.assertEqual(len(ask(n=2).choices), 2)
        with self.assertRaises(litellm.ContextWindowExceededError):
            ask(messages=[{"role": "user", "content": "word " * 9000}])
        completed = litellm.text_completion(model="text-completion-openai/" + MODEL, prompt="One, two,", max_tokens=8,
                                            temperature=0, api_base=self.server.url + "/v1", api_key="none")
        self.assertEqual(completed.choices[0].text, self.server.complete("One, two,", max_tokens=8))

    def test_litellm_by_messages(self):
        answer = litellm.completion(model="anthropic/" + MODEL, messages=MESSAGES, temperature=0, max_tokens=16,
                                    api_base=self.server.url, api_key="none")
        self.assertEqual(answer.choices[0].message.content,
                         self.server.answer("/v1/chat/completions", messages=MESSAGES, temperature=0,
                                            max_tokens=16)["choices"][0]["message"]["content"])

    def test_lm_eval_likelihoods(self):
        """Alone, in batches and at once: the same figures."""
        requests = [Instance("loglikelihood", {}, (row["question"], answer), i)
                    for row in QUESTIONS for i, answer in enumerate(row["answers"])]
        alone = language_model(self.server).loglikelihood(requests)
        self.assertEqual(len(alone), 12)
        self.assertTrue(all(logprob < 0 for logprob, _ in alone))
        for options in ({"batch_size": 4}, {"num_concurrent": 6}, {"batch_size": 2, "num_concurrent": 3}):
            with self.subTest(**options):
                self.assertEqual(language_model(self.server, **options).loglikelihood(requests), alone)

    def test_lm_eval_task(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file, tempfile.TemporaryDirectory() as folder:
            file.write("".join(json.dumps(row) + "\n" for row in QUESTIONS))
            file.flush()
            task = {"task": "tiny", "dataset_path": "json", "test_split": "test", "output_type": "multiple_choice",
                    "dataset_kwargs": {"data_files": {"test": file.name}, "cache_dir": folder},
                    "doc_to_text": "{{question}}", "doc_to_choice": "{{answers}}", "doc_to_target": "{{right}}",
                    "target_delimiter": "", "metric_list": [{"metric": "acc"}]}
            with contextlib.redirect_stderr(io.StringIO()):
                results = lm_eval.simple_evaluate(model=language_model(self.server, num_concurrent=4), tasks=[task],
                                                  bootstrap_iters=0)
            self.assertGreaterEqual(results["results"]["tiny"]["acc,none"], 0.75)

    def test_locust(self):
        result = subprocess.run(
            [sys.executable, "-m", "locust", "-f", str(Path(__file__).with_name("locustfile.py")), "--headless", "--users",
             "12", "--spawn-rate", "12", "--run-time", "20s", "--stop-timeout", "120", "--only-summary", "--host",
             self.server.url], capture_output=True, text=True)
        print(result.stdout)
        self.assertEqual(result.returncode, 0, result.stderr)
        n_requests, n_failed = re.search(r"^\s*Aggregated\s+(\d+)\s+(\d+)\(", result.stdout + result.stderr, re.M).groups()
        self.assertGreater(int(n_requests), 12)
        self.assertEqual(n_failed, "0")


if __name__ == "__main__":
    unittest.main()
