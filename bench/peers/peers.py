"""The engines that outrider is measured beside: how they are built, and what measuring them shares."""
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent

# The Python package pins the engine's sources; llama.cpp 0c1e57098 in this one.
PEERS = {
    "llama.cpp": {
        "package": "llama-cpp-python", "version": "0.3.36", "sources": "vendor/llama.cpp",
        # Its kernels for AMX end in a segmentation fault while weights are repacked, on the machine where that was tried.
        "cmake": ["-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_UI=OFF",
                  *(f"-DCMAKE_{language}_FLAGS=-mno-amx-tile -mno-amx-int8 -mno-amx-bf16" for language in ("C", "CXX"))],
        "define": [],
    },
    # The wheel of the index is for AVX2 only; kernels for other types of cache take minutes to build and are not used.
    "ik_llama.cpp": {
        "package": "ik-llama-cpp-python", "version": "0.1.5", "sources": "vendor/ik_llama.cpp",
        "cmake": ["-DLLAMA_CURL=OFF", "-DGGML_IQK_FA_ALL_QUANTS=OFF"],
        "define": ["-DIK_LLAMA"],
    },
}
BUILD_INFO = """set(BUILD_NUMBER 0)
set(BUILD_COMMIT "package")
set(BUILD_COMPILER gcc)
set(BUILD_TARGET ${CMAKE_SYSTEM_PROCESSOR})
configure_file(${CMAKE_CURRENT_LIST_DIR}/../build-info.cpp.in ${CMAKE_CURRENT_LIST_DIR}/../build-info.cpp)
"""
# Huge pages for weights that live in malloc's memory: some 8 % of decoding.
ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
STARTING_S = 120
ANSWERING_S = 1800


def say(text):
    print(text, file=sys.stderr, flush=True)


def call(*command, **options):
    subprocess.run([str(word) for word in command], check=True, stdout=sys.stderr, **options)


def install(name, folder, jobs, server=False):
    """Builds a peer in `folder`, if that was not done before, and returns its program: for passes, or its server."""
    peer = PEERS[name]
    place = folder / f"{peer['package']}-{peer['version']}"
    program = place / ("build/bin/llama-server" if server else "passes")
    if not program.exists():
        say(f"building {name}")
        place.mkdir(parents=True, exist_ok=True)
        environment = folder / "env"
        if not (environment / "bin/ninja").exists():
            call(sys.executable, "-m", "venv", environment)
            # scikit-build-core: pip runs the packages' own build to read their metadata.
            call(environment / "bin/pip", "install", "-q", "scikit-build-core", "cmake", "ninja")
        path = {**os.environ, "PATH": f"{environment / 'bin'}:{os.environ['PATH']}"}
        if not list(place.glob("*.tar.gz")):
            call(environment / "bin/pip", "download", "-q", "--no-deps", "--no-binary", ":all:",
                 "--no-build-isolation", "-d", place, f"{peer['package']}=={peer['version']}", env=path)
        (archive,) = place.glob("*.tar.gz")
        call("tar", "xzf", archive, "-C", place)
        sources = place / archive.name.removesuffix(".tar.gz") / peer["sources"]
        # ik_llama.cpp's package lacks this file of its server's build.
        info = sources / "common/cmake/build-info-gen-cpp.cmake"
        if not info.exists():
            info.parent.mkdir(exist_ok=True)
            info.write_text(BUILD_INFO)
        build = place / "build"
        call("cmake", "-S", sources, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON",
             "-DBUILD_SHARED_LIBS=ON", "-DLLAMA_BUILD_TESTS=OFF", *peer["cmake"], env=path)
        if server:
            call("ninja", "-C", build, f"-j{jobs}", "llama-server", env=path)
            return program
        call("ninja", "-C", build, f"-j{jobs}", "llama", "ggml", env=path)
        folders = {library.parent for library in build.rglob("lib*.so")}
        call("g++", "-O2", "-std=c++17", *peer["define"], HERE / "llama_passes.cpp", "-I", sources / "include",
             "-I", sources / "ggml/include", *(f"-L{f}" for f in folders), *(f"-Wl,-rpath,{f}" for f in folders),
             "-Wl,--allow-shlib-undefined", "-lllama", "-lggml", *base_library(folders), "-o", program)
    return program


def base_library(folders):
    """llama.cpp keeps a part of ggml in a library of its own."""
    return ["-lggml-base"] if any((folder / "libggml-base.so").exists() for folder in folders) else []


def cores():
    """Physical cores that this process may use."""
    siblings = set()
    for cpu in os.sched_getaffinity(0):
        try:
            siblings.add(Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text())
        except OSError:
            siblings.add(str(cpu))
    return len(siblings)


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


class Process:
    """Loaded, and stopped whenever it is not its turn."""

    def __init__(self, name, command, **options):
        self.name = name
        self.process = subprocess.Popen([str(word) for word in command], env={**os.environ, **ENVIRONMENT}, **options)

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def end(self):
        self.process.kill()
        self.process.wait()

    def fail(self, what):
        self.end()
        sys.exit(f"{self.name} {what}")


class Program(Process):
    """One of outrider's programs in bench/, which answers a line with a line once it is ready."""

    def __init__(self, name, program, options, *arguments):
        super().__init__(name, [options.build / "bench" / program, options.model, options.threads, *arguments],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            self.fail(f"cannot load {options.model}")

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split() or self.fail("ended")


class Outrider(Program):
    """outrider without a server: bench/outrider-answers, with further arguments."""

    def __init__(self, name, options, *arguments):
        super().__init__(name, "outrider-answers", options, *arguments)

    def answer(self, prompt, n):
        """(tokens, tokens that came with the first, ms to the first, ms of all)"""
        start = time.perf_counter()
        words = self.ask(n, *prompt)
        whole = 1000 * (time.perf_counter() - start)
        return len(words) - 2, int(words[1]), float(words[0]), whole


class Server(Process):
    """A server of any engine: the command without host and port."""

    def __init__(self, name, command):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        super().__init__(name, [*command, "--host", "127.0.0.1", "--port", self.port], stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
        for _ in range(10 * STARTING_S):
            if self.process.poll() is not None:
                self.fail("ended while it loaded its model")
            try:
                if self.request("GET", "/health").status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        self.fail("did not start")

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWERING_S)

    def request(self, method, path, body=None):
        connection = self.connect()
        connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
        return connection.getresponse()


def tokens_of(program, model, prompt):
    conversation = json.dumps([{"role": "user", "content": prompt}])
    result = subprocess.run([program, "tokenize", "-m", model, "--chat", "-", "--json"], input=conversation, text=True,
                            capture_output=True, check=True)
    return json.loads(result.stdout)["tokens"]
