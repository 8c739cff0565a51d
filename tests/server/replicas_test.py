"""deploy/nginx.conf on Debian's nginx, with two servers behind it: TLS, streams as they are made, and no request that
fails while one server is replaced.

OUTRIDER_NGINX is the folder that scripts/unpack-package made; without it the tests skip.
"""

import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import unittest
from collections import Counter

from serving import MODEL, PATIENCE, Server, needs_model, wait_until

CONFIGURATION = pathlib.Path(__file__).parents[2] / "deploy/nginx.conf"
NGINX = os.environ.get("OUTRIDER_NGINX")
KEY = "a-key"
QUESTION = {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0, "ignore_eos": True}
SERVER_FLAGS = ("-np", "4", "--api-key", KEY)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Proxy:
    """nginx with the project's configuration, of which ports and paths are changed."""

    def __init__(self, folder, servers):
        self.folder, self.port = pathlib.Path(folder), free_port()
        certificate, key = self.folder / "certificate.pem", self.folder / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-addext",
                        "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate], check=True,
                       capture_output=True)
        self.tls = ssl.create_default_context(cafile=certificate)
        changes = {"127.0.0.1:8081": f"127.0.0.1:{servers[0]}", "127.0.0.1:8082": f"127.0.0.1:{servers[1]}",
                   "listen 443 ssl": f"listen 127.0.0.1:{self.port} ssl", "chat.example": "localhost",
                   "/etc/ssl/outrider/fullchain.pem": str(certificate), "/etc/ssl/outrider/privkey.pem": str(key),
                   # Where Debian's nginx has them belongs to its service.
                   "http {": "http {\n  access_log off;\n" + "".join(
                       f"  {kind}_temp_path {self.folder}/{kind};\n"
                       for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))}
        text = CONFIGURATION.read_text()
        for old, new in changes.items():
            assert old in text, old
            text = text.replace(old, new)
        (self.folder / "nginx.conf").write_text(text)
        directives = f"daemon off; pid {self.folder}/pid; error_log {self.folder}/errors;"
        with (self.folder / "said").open("w") as said:
            self.program = subprocess.Popen(
                [f"{NGINX}/usr/sbin/nginx", "-p", folder, "-e", self.folder / "errors", "-c", self.folder / "nginx.conf",
                 "-g", directives], stdout=said, stderr=subprocess.STDOUT)

    def __enter__(self):
        wait_until(lambda: self.program.poll() is not None or self.listens())
        assert self.program.poll() is None, self.words()
        return self

    def __exit__(self, *_):
        self.program.send_signal(signal.SIGTERM)
        self.program.wait(PATIENCE)

    def words(self):
        return "".join((self.folder / name).read_text() for name in ("said", "errors") if (self.folder / name).exists())

    def listens(self):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    def request(self, method, path, fields=None):
        """A connection, to be closed by who asked, and its answer."""
        connection = http.client.HTTPSConnection("localhost", self.port, timeout=PATIENCE, context=self.tls)
        connection.request(method, path, fields and json.dumps(fields),
                           {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"})
        return connection, connection.getresponse()

    def answer(self, **fields):
        """The text of a completion; AssertionError for any other status than 200."""
        connection, answer = self.request("POST", "/v1/completions", {**QUESTION, **fields})
        with contextlib.closing(connection):
            body = answer.read()
            assert answer.status == 200, (answer.status, body, self.words())
            return json.loads(body)["choices"][0]["text"]


def n_answers(server):
    page = server.get("/metrics", {"Authorization": f"Bearer {KEY}"}).body.decode()
    return sum(int(n) for n in re.findall(r"^outrider_answers_ended_total\{.*\} (\d+)$", page, re.MULTILINE))


def is_busy(server):
    slots = server.get("/slots", {"Authorization": f"Bearer {KEY}"}).json()
    return any(slot["is_processing"] for slot in slots)


@unittest.skipUnless(NGINX, "OUTRIDER_NGINX is not set")
@needs_model(MODEL)
class Replicas(unittest.TestCase):
    def setUp(self):
        self.servers = [self.enterContext(Server(*SERVER_FLAGS)) for _ in range(2)]
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.proxy = self.enterContext(Proxy(folder, [server.port for server in self.servers]))

    def test_streams_come_as_they_are_made(self):
        # Drafts would make these tokens in a second, before anybody has looked.
        connection, answer = self.proxy.request(
            "POST", "/v1/completions", {**QUESTION, "max_tokens": 2000, "stream": True, "speculation": {"draft": "off"}})
        with contextlib.closing(connection):
            self.assertEqual(answer.status, 200)
            self.assertTrue(answer.readline().startswith(b"data: {"))
            # The first piece is here and the answer still goes on, as the server says after the step that made the
            # piece; who goes away ends it there, too.
            wait_until(lambda: any(map(is_busy, self.servers)))
            server, = filter(is_busy, self.servers)
        wait_until(lambda: n_answers(server) == 1)

    def test_what_belongs_to_one_server(self):
        for path, status in (("/metrics", 404), ("/slots", 404), ("/props", 404), ("/v1/models", 200), ("/health", 200)):
            with self.subTest(path):
                connection, answer = self.proxy.request("GET", path)
                self.assertEqual(answer.status, status)
                connection.close()

    def test_no_request_fails_while_a_server_is_replaced(self):
        expected = self.proxy.answer()
        said, stop = Counter(), threading.Event()

        def ask_on():
            while not stop.is_set():
                try:
                    said[self.proxy.answer()] += 1
                except Exception as error:
                    said[repr(error)] += 1

        users = [threading.Thread(target=ask_on) for _ in range(4)]
        for user in users:
            user.start()
        try:
            wait_until(lambda: all(n_answers(server) > 2 for server in self.servers))
            first, second = self.servers
            first.send_signal(signal.SIGTERM)
            self.assertEqual(first.wait(), 0)
            n_before = n_answers(second)
            wait_until(lambda: n_answers(second) > n_before + 8)
            with Server(*SERVER_FLAGS, "--port", str(first.port)) as again:
                wait_until(lambda: n_answers(again) > 2)
                stop.set()
                for user in users:
                    user.join(PATIENCE)
        finally:
            stop.set()
            for user in users:
                user.join(PATIENCE)
        self.assertEqual(set(said), {expected})


if __name__ == "__main__":
    unittest.main()
