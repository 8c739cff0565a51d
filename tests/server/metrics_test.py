"""Rules and dashboard in deploy/ on Debian's Prometheus, which scrapes a server that answers with drafts.

OUTRIDER_PROMETHEUS is the folder that scripts/unpack-package made; without it the tests skip. OUTRIDER_METRICS_URL is
another server to scrape, as in http://127.0.0.1:8080, which has to answer requests meanwhile.
"""

import contextlib
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

from serving import MODEL, Server, needs_model, request

ROOT = pathlib.Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROMETHEUS = os.environ.get("OUTRIDER_PROMETHEUS")
METRIC = re.compile(r"\b(?:outrider_|vllm:)\w+")


def program(name):
    return f"{PROMETHEUS}/usr/bin/{name}"


def dashboard_queries():
    """Of each panel, with values for Grafana's variables, and of those variables."""
    dashboard = json.loads((DEPLOY / "grafana.json").read_text())
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()
            yield f'{metric}{{{label}!=""}}'
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"].replace("$__rate_interval", "30s").replace("$instance", ".*")


@contextlib.contextmanager
def server():
    """Where a server listens that is asked all the while, as "127.0.0.1:8080"."""
    if url := os.environ.get("OUTRIDER_METRICS_URL"):
        yield urllib.parse.urlsplit(url).netloc
        return
    with Server("-np", "4", "--draft", "lookup", "--budget", "fixed") as running:
        has_ended = threading.Event()

        def ask_on():
            while not has_ended.is_set():
                request(running.port, "POST", "/v1/completions", {"prompt": "1, 2, 3, 1, 2, 3, 1,", "max_tokens": 24})

        users = [threading.Thread(target=ask_on) for _ in range(2)]
        for user in users:
            user.start()
        try:
            yield f"127.0.0.1:{running.port}"
        finally:
            has_ended.set()
            for user in users:
                user.join()


@contextlib.contextmanager
def prometheus(target):
    """Runs Prometheus with the files of deploy/, but for the server and how often it asks; yields its URL."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(DEPLOY / "outrider.rules.yml", folder)
        config = (DEPLOY / "prometheus.yml").read_text()
        config = config.replace("127.0.0.1:8080", target).replace("15s", "1s")
        pathlib.Path(folder, "prometheus.yml").write_text(config)
        running = subprocess.Popen(
            [program("prometheus"), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/series",
             "--web.listen-address=127.0.0.1:0", "--log.format=json"],
            stderr=subprocess.PIPE, text=True)
        try:
            said, port, is_ready = [], None, False  # it says these in any order
            for line in running.stderr:
                said.append(line)
                if match := re.search(r'"address":"127\.0\.0\.1:([1-9]\d*)"', line):
                    port = match[1]
                is_ready = is_ready or "Server is ready" in line
                if port and is_ready:
                    break
            else:
                raise AssertionError("Prometheus has ended:\n" + "".join(said))
            threading.Thread(target=running.stderr.read, daemon=True).start()  # it must not wait for us
            yield f"http://127.0.0.1:{port}"
        finally:
            running.terminate()
            running.wait()


def ask(url, path, **parameters):
    """What Prometheus's API answers."""
    try:
        with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}") as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{parameters}: {error.read().decode()}") from None


def has_result(url, query):
    values = [float(series["value"][1]) for series in ask(url, "query", query=query)["result"]]
    return any(math.isfinite(value) for value in values)


@unittest.skipUnless(PROMETHEUS, "OUTRIDER_PROMETHEUS is not set")
class Metrics(unittest.TestCase):
    def run_promtool(self, *arguments):
        result = subprocess.run([program("promtool"), *arguments], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_files_are_right(self):
        self.run_promtool("check", "config", DEPLOY / "prometheus.yml")
        self.run_promtool("check", "rules", DEPLOY / "outrider.rules.yml")

    def test_alerts(self):
        with tempfile.TemporaryDirectory() as folder:  # the test names the rules' file beside it
            shutil.copy(DEPLOY / "outrider.rules.yml", folder)
            shutil.copy(ROOT / "tests/server/rules_test.yml", folder)
            self.run_promtool("test", "rules", f"{folder}/rules_test.yml")

    @needs_model(MODEL)
    def test_exposition_is_well_formed(self):
        with server() as target, urllib.request.urlopen(f"http://{target}/metrics") as answer:
            result = subprocess.run([program("promtool"), "check", "metrics"], input=answer.read(),
                                    capture_output=True)
        # It also has opinions, one of them on vLLM's names.
        said = (result.stdout + result.stderr).decode().splitlines()
        wrong = [line for line in said if not line.endswith("metric names should not contain ':'")]
        self.assertEqual(wrong, [])

    @needs_model(MODEL)
    def test_every_query_has_a_result(self):
        queries = list(dashboard_queries())
        rules = (DEPLOY / "outrider.rules.yml").read_text()
        queries += sorted(set(METRIC.findall(rules)) | {"outrider:acceptance:ratio_rate10m"})
        self.assertGreater(len(queries), 20)
        with server() as target, prometheus(target) as url:
            missing = queries
            for _ in range(60):  # rates need two scrapes and quantiles some answers
                missing = [query for query in missing if not has_result(url, query)]
                if not missing:
                    break
                time.sleep(1)
            self.assertEqual(missing, [])
            for group in ask(url, "rules")["groups"]:
                for rule in group["rules"]:
                    self.assertEqual(rule["health"], "ok", rule)


if __name__ == "__main__":
    unittest.main()
