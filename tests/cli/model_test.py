"""Commands on the smallest real model."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest

from program import MODEL, OUTRIDER, TestCase, environment, has_model, model_path, needs_model, outrider

PROMPT = "Say the word river four times."


@needs_model(MODEL)
class Model(TestCase):
    def run_json(self, *arguments, **changes):
        result = outrider("run", "--json", "-p", PROMPT, "-n", "12", *arguments, **changes)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def test_json_shape(self):
        answer = self.run_json("--seed", "7")
        self.assertEqual(list(answer), ["schema", "version", "model", "text", "tokens", "finish_reason", "seed",
                                        "verify", "usage", "timings", "draft", "reliability"])
        self.assertEqual((answer["schema"], answer["model"], answer["seed"]), (1, MODEL, 7))
        self.assertEqual(answer["usage"]["completion_tokens"], len(answer["tokens"]))
        self.assertIn(answer["finish_reason"], ("stop", "length"))
        self.assertEqual(set(answer["draft"]), {"lookup", "prediction"})
        self.assertEqual(set(answer["draft"]["lookup"]), {"proposed", "accepted"})

    def test_the_same_text_however_it_is_drafted(self):
        for flags in (["--temp", "0"], ["--temp", "0.8", "--seed", "11", "--repeat-penalty", "1.1"]):
            plain = self.run_json("--draft", "off", *flags)
            self.assertEqual(plain["draft"], {})
            for how in (["--draft", "lookup"], ["--draft", f"model={MODEL}", "--draft-width", "2"],
                        ["-md", MODEL, "--budget", "fixed"],
                        ["-md", MODEL, "--draft-quantize", "off", "--draft-vocab", f"999={__file__}"],
                        ["-md", MODEL, "--draft-quantize", "q5_0", "--draft-vocab", "all"],
                        ["--draft", "off", "-t", "1", "-b", "7"]):
                with self.subTest(flags=flags, how=how):
                    self.assertEqual(self.run_json(*how, *flags)["tokens"], plain["tokens"])

    def test_verifiers(self):
        sampled, greedy = ["--temp", "0.8", "--seed", "11"], ["--temp", "0"]
        plain = [self.run_json("--draft", "off", *flags)["tokens"] for flags in (sampled, greedy)]
        drafts = ["--draft", f"lookup+model={MODEL}", "--draft-quantize", "off", "--budget", "fixed"]
        for how in ("rejection", "typical"):
            with self.subTest(how=how):
                for flags, expected in zip((sampled, greedy), plain):
                    self.assertEqual(self.run_json("--draft", "off", "--verify", how, *flags)["tokens"], expected)
                self.assertEqual(self.run_json(*drafts, "--verify", how, *greedy)["tokens"], plain[1])
                answers = [self.run_json(*drafts, "--draft-width", "1", "--verify", how, *sampled) for _ in range(2)]
                self.assertEqual(answers[0]["tokens"], answers[1]["tokens"])
                self.assertEqual(answers[0]["verify"], how)
                self.assertEqual("lossy" in answers[0], how == "typical")
                # The target drafts for itself, so it accepts all that it draws.
                self.assertGreaterEqual(answers[0]["draft"]["model"]["accepted"], 6)
                said = outrider("run", "-p", PROMPT, "-n", "1", "--temp", "0.8", "--verify", how).stderr
                self.assertEqual("--verify typical is lossy" in said, how == "typical", said)
        self.assert_fails(outrider("run", "-p", PROMPT, "--verify", "exact"), 2, "--verify", "coupled or rejection or typical")
        self.assert_fails(outrider("prove", "-p", PROMPT, "--verify", "typical"), 2, "--verify typical", "prove it without a prompt")

    def test_certificate(self):
        result = outrider("prove", "--json", "--draft", "lookup", "-c", "512")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual((report["verify"], report["passed"]), ("coupled", True))
        checks = {check["check"]: check for check in report["checks"]}
        sets = re.search("instruction sets: (.*)", outrider("--version").stdout).group(1)
        for what in ("--draft lookup", "trees of 64 nodes, 16 levels, 8 wide", "six answers at once", "1 thread",
                     "preempted every eight tokens", "prompts found in the cache", "instructions of reference"):
            self.assertIn(what, checks)
        self.assertEqual([name for name in checks if name.startswith("instructions of ")],
                         ["instructions of " + name for name in re.findall(r"\w+", sets.split(";")[0])], sets)
        self.assertGreater(checks["--draft lookup"]["accepted"], 5)
        self.assertEqual(checks["--draft lookup"]["tokens"], 6 * 32)
        typical = outrider("prove", "--verify", "typical")
        self.assertEqual(typical.returncode, 0)
        self.assertIn("lossy", typical.stdout)

    def test_all_drafters_are_compared(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as prompts:
            prompts.write(json.dumps({"prompt": PROMPT}) + "\n")
            prompts.flush()
            report = json.loads(outrider("bench", "generate", "--prompts", prompts.name, "--draft", "all", "-md", MODEL,
                                         "-n", "8", "--temp", "0", "--json").stdout)
        self.assertEqual([group["draft"] for group in report["groups"] if group["group"] == "all"],
                         ["off", "lookup", "prediction", "lookahead", "self", "model", "auto"])
        self.assertTrue(report["identical"])

    def test_datastore(self):
        plain = self.run_json("--draft", "off", "--temp", "0", "--ignore-eos")
        with tempfile.TemporaryDirectory() as folder:
            texts, store = os.path.join(folder, "texts"), os.path.join(folder, "store")
            os.mkdir(texts)
            files = {"a.txt": "A short text.\n", "b.bin": "no\0text", "empty": "",
                     "c.jsonl": "".join(json.dumps({field: PROMPT + "\n" + plain["text"]}) + "\n"
                                        for field in ("text", "answer"))}
            for name, text in files.items():
                with open(os.path.join(texts, name), "w") as file:
                    file.write(text)

            def build(*arguments):
                return outrider("datastore", "build", "-m", MODEL, *arguments)
            built = build("--out", store, "--json", texts)
            self.assertEqual(built.returncode, 0, built.stderr)
            report = json.loads(built.stdout)
            self.assertEqual((report["documents"], report["skipped"], report["bytes"]), (3, 2, os.path.getsize(store)))
            drafted = self.run_json("--draft", f"rest={store}", "--budget", "fixed", "--temp", "0", "--ignore-eos")
            self.assertEqual(drafted["tokens"], plain["tokens"])
            self.assertGreaterEqual(drafted["draft"]["rest"]["accepted"], 6)

            self.assert_fails(build(texts), 2, "needs --out FILE")
            self.assert_fails(build("--out", store + "2", os.path.join(texts, "b.bin")), 1, "none of them text")
            self.assert_fails(build("--out", store + "2", os.path.join(folder, "missing")), 1, "missing", "No such file")
            self.assert_fails(build("--out", os.path.join(folder, "no", "store"), texts), 1, "cannot be written")
            pipe = os.path.join(folder, "pipe")
            os.mkfifo(pipe)
            for place in (pipe, texts):
                self.assert_fails(build("--out", place, texts), 1, "cannot be written: is no regular file")
            os.unlink(pipe)
            with open(os.path.join(texts, "d.jsonl"), "w") as file:
                file.write('{"prompt": "x"}\n')
            self.assert_fails(build("--out", store + "2", texts), 1, "d.jsonl: line 1", "has no text")
            self.assertEqual(sorted(os.listdir(folder)), ["store", "texts"])
            with open(store, "rb") as file:
                whole = file.read()
            for name, content, says in (("cut", whole[:-1], "is damaged"), ("text", b"text", "is no datastore"),
                                        ("empty", b"", "is no datastore"),
                                        ("other", whole[:30] + b"x" + whole[31:], "another vocabulary")):
                with open(os.path.join(folder, name), "wb") as file:
                    file.write(content)
                self.assert_fails(outrider("run", "-p", PROMPT, "--draft", f"rest={os.path.join(folder, name)}"), 1,
                                  name, says)
            self.assert_fails(outrider("run", "-p", PROMPT, "--draft", "rest"), 2, "write rest=FILE")

    def test_prediction(self):
        plain = self.run_json("--draft", "off", "--temp", "0", "--ignore-eos")
        lines = [{"prompt": PROMPT, "prediction": plain["text"]}, {"prompt": PROMPT}]
        with tempfile.TemporaryDirectory() as folder:
            file, prompts = os.path.join(folder, "answer"), os.path.join(folder, "prompts")
            with open(file, "w") as answer:
                answer.write(plain["text"])
            with open(prompts, "w") as answer:
                answer.write("\n".join(json.dumps(line) for line in lines))
            for prediction in (f"prediction={file}", f"lookup+prediction={file}+model={MODEL}"):
                drafted = self.run_json("--draft", prediction, "--budget", "fixed", "--temp", "0", "--ignore-eos")
                self.assertEqual(drafted["tokens"], plain["tokens"])
                self.assertGreaterEqual(drafted["draft"]["prediction"]["accepted"], 10)
            report = json.loads(outrider("prove", "--prompts", prompts, "--draft", "off", "--draft", "prediction",
                                         "--budget", "fixed", "-n", "12", "--temp", "0", "--ignore-eos", "--json").stdout)
            self.assertTrue(report["identical"])
            self.assertGreaterEqual(report["settings"][1]["accepted"], 10)
            # Only the first prompt has a prediction.
            report = json.loads(outrider("bench", "generate", "--prompts", prompts, "--draft", "off", "--draft", "prediction",
                                         "--budget", "fixed", "-n", "12", "--temp", "0", "--ignore-eos", "--json").stdout)
            accepted = [a["accepted"] for a in report["answers"] if a["draft"] == "prediction"]
            self.assertGreaterEqual(accepted[0], 10)
            self.assertEqual(accepted[1], 0)

    def test_trace_and_log(self):
        with tempfile.TemporaryDirectory() as folder:
            trace, log = os.path.join(folder, "trace"), os.path.join(folder, "log")
            answer = self.run_json("--temp", "0", "--trace", trace, "--log-file", log)
            with open(trace) as lines:
                steps = [json.loads(line)["sequences"][0] for line in lines]
            self.assertEqual([token for step in steps for token in step["taken"]], answer["tokens"])
            with open(log) as lines:
                self.assertIn(MODEL, lines.read())
            nowhere = outrider("run", "-p", PROMPT, "--trace", os.path.join(folder, "no", "trace"))
            self.assertEqual(nowhere.returncode, 1)
            self.assertIn("--trace", nowhere.stderr)

    def test_text_goes_to_standard_output_and_nothing_else_does(self):
        result = outrider("run", "-p", PROMPT, "-n", "12", "--temp", "0")
        answer = self.run_json("--temp", "0")
        self.assertEqual(result.stdout, answer["text"].removesuffix("\n") + "\n")
        self.assertIn("tokens", result.stderr)
        self.assertNotIn("seed", result.stderr)
        self.assertNotIn("\x1b", result.stdout + result.stderr)
        quiet = outrider("run", "-p", PROMPT, "-n", "12", "--temp", "0", "--quiet")
        self.assertEqual((quiet.stdout, quiet.stderr), (result.stdout, ""))

    def test_a_random_seed_is_printed_and_repeats_the_text(self):
        first = outrider("run", "-p", PROMPT, "-n", "12")
        seed = next(line.split()[1] for line in first.stderr.splitlines() if line.startswith("seed "))
        self.assertEqual(outrider("run", "-p", PROMPT, "-n", "12", "-s", seed).stdout, first.stdout)

    def test_another_seed_gives_another_text(self):
        # Two random seeds give the same short text now and then, so that the seeds are given here.
        self.assertNotEqual(*(self.run_json("-s", seed)["text"] for seed in ("1", "2")))

    def test_prompts_from_file_and_input_are_the_same(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(PROMPT + "\n")
            file.flush()
            texts = {outrider("run", *source, "-n", "8", "--temp", "0", input=PROMPT + "\n").stdout
                     for source in (["-p", PROMPT], ["-f", file.name], ["-f", "-"], ["-p", "-"])}
        self.assertEqual(len(texts), 1)

    def test_colour_marks_drafts_and_changes_no_text(self):
        flags = ["run", "-p", "Repeat: one two three one two three one two three one two three", "-n", "24",
                 "--temp", "0", "--draft", "lookup", "--budget", "fixed"]
        plain = outrider(*flags, "--color", "never").stdout
        self.assertNotIn("\x1b", plain)
        self.assertEqual(outrider(*flags).stdout, plain)
        for changes in ({}, {"NO_COLOR": "1"}):
            colored = outrider(*flags, "--color", "always", **changes).stdout
            self.assertIn("\x1b[32m", colored)
            self.assertEqual(colored.replace("\x1b[32m", "").replace("\x1b[0m", ""), plain)

    def test_stop_text_and_limits(self):
        text = self.run_json("--temp", "0")["text"]
        word = text.split()[2]
        stopped = self.run_json("--temp", "0", "--stop", word)
        self.assertEqual(stopped["text"], text[:text.index(word)])
        self.assertEqual(stopped["finish_reason"], "stop")
        self.assertEqual(self.run_json("--temp", "0", "-n", "3")["finish_reason"], "length")

    def test_stop_texts_are_whole_characters(self):
        result = outrider("run", "-p", "x", "--stop", b"caf\xc3")
        self.assert_fails(result, 1, "stop string", "not UTF-8")

    def test_prompts_as_long_as_the_context(self):
        prompt = "One two three four five"
        n = len(json.loads(outrider("tokenize", "--json", prompt).stdout)["tokens"])

        def run(context, n_predict):
            return outrider("run", "--raw", "-p", prompt, "-c", str(context), "-n", str(n_predict), "--ignore-eos", "--json")
        for context, n_predict, n_said in ((n + 2, -1, 2), (n + 1, -1, 1), (n + 1, 1, 1), (n + 1, 0, 0), (n, 0, 0)):
            with self.subTest(context=context - n, n_predict=n_predict):
                answer = json.loads(run(context, n_predict).stdout)
                self.assertEqual((len(answer["tokens"]), answer["finish_reason"]), (n_said, "length"))
        self.assert_fails(run(n, 1), 1, f"the prompt has {n} tokens", f"room for {n - 1} and an answer", "--ctx-size")
        self.assert_fails(run(n, -1), 1, f"room for {n - 1} and an answer")
        self.assert_fails(run(n - 1, 0), 1, f"room for {n - 1};")
        for n_predict in (0, 1, 5):
            proof = outrider("prove", "--raw", "-p", prompt, "-c", str(n + 1), "-n", str(n_predict), "--ignore-eos", "--json")
            self.assertEqual(proof.returncode, 0, proof.stderr)
            self.assertEqual(json.loads(proof.stdout)["settings"][0]["tokens"], min(n_predict, 1))

    def test_raw_goes_on_from_the_text(self):
        raw = outrider("run", "--raw", "-p", "The capital of France is", "-n", "2", "--temp", "0")
        self.assertIn("Paris", raw.stdout)

    def test_more_threads_than_cores_are_named(self):
        def said(n_threads):
            return outrider("run", "-p", PROMPT, "-n", "1", "-t", str(n_threads)).stderr
        n_cores = len(os.sched_getaffinity(0))  # at least as many as this process may use
        self.assertRegex(said(n_cores + 1), rf"(?m)^--threads {n_cores + 1}: more than the \d+ cores? that ")
        self.assertNotIn("--threads", said(1))

    def test_steps_can_be_watched(self):
        with tempfile.NamedTemporaryFile("r") as trace:
            result = outrider("run", "-p", PROMPT, "-n", "12", "--temp", "0", "--steps", "--trace", trace.name)
            self.assertEqual(result.stderr.count("step "), len(trace.readlines()), result.stderr)
        self.assertRegex(result.stderr, r"step 1: auto, position 0, \d+ rows, \d+ of \d+ drafts accepted, ")

    def test_how_weights_are_read(self):
        shown = outrider("run", "-p", PROMPT, "-n", "1", "--verbose").stderr
        has_choice = re.search("in use: (avx512|amx)", outrider("--version").stdout) is not None
        self.assertEqual("prefetch=" in shown, has_choice, shown)
        plain = self.run_json("--temp", "0", "--draft", "off")
        for way in ("processor", "near", "far"):
            forced = self.run_json("--temp", "0", "--draft", "off", OUTRIDER_PREFETCH=way)
            self.assertEqual(forced["tokens"], plain["tokens"])
        self.assert_fails(outrider("run", "-p", PROMPT, OUTRIDER_PREFETCH="cache"), 1, "OUTRIDER_PREFETCH=cache",
                          "processor, near or far")

    def test_bad_requests(self):
        self.assert_fails(outrider("run", "-p", ""), 1, "the prompt is empty")
        self.assert_fails(outrider("run", "-p", "a b c d", "-c", "8"), 1, "context of 8")
        self.assert_fails(outrider("run", "-p", "x", "--raw", "--system-prompt", "y"), 1, "--system-prompt")
        for prompt in (["-p", "x"], []):  # a chat says it before its first message
            self.assert_fails(outrider("run", *prompt, "--seed", "1", "--logit-bias", "999999+1"), 2, "999999")

    @unittest.skipIf(os.environ.get("OUTRIDER_SANITIZE"), "sanitizers need addresses of their own")
    def test_little_memory_gives_a_short_context_or_one_line(self):
        def limited(kib, *arguments):
            return subprocess.run(["sh", "-c", f'ulimit -v {kib}; exec "$@"', "sh", OUTRIDER, *arguments],
                                  capture_output=True, text=True, env=environment())
        for kib in range(200_000, 1_000_000, 100_000):
            result = limited(kib, "run", "-p", "Hello", "-n", "2", "--temp", "0")
            with self.subTest(kib=kib):
                if result.returncode:
                    self.assert_fails(result, 1, "memory")
                else:
                    self.assertTrue(result.stdout)
        # An explicit context is taken or refused, never shortened.
        self.assert_fails(limited(600_000, "run", "-p", "x", "-c", "1000000"), 1, "a context of 1000000 does not fit", "largest")

    def test_closed_pipe_ends_quietly(self):
        process = subprocess.Popen([OUTRIDER, "run", "-p", PROMPT, "--ignore-eos", "-n", "4000", "--quiet"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        process.stdout.read(1)
        process.stdout.close()
        self.assertEqual((process.stderr.read(), process.wait()), (b"", 0))
        process.stderr.close()

    def test_signals(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            process = subprocess.Popen([OUTRIDER, "run", "-p", PROMPT, "--ignore-eos", "-n", "4000"],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
            process.stdout.read(1)
            process.send_signal(number)
            _, error = process.communicate()
            self.assertEqual(process.returncode, status)
            self.assertNotIn(b"outrider:", error)

    def test_prove(self):
        flags = ["prove", "-p", PROMPT, "-n", "16", "--temp", "0", "--draft", "off", "--draft", "lookup"]
        result = outrider(*flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"draft +tokens +tokens/s +speed +whole +accepted +tokens/pass +tokens are\n"
                                        r"off +\d+ .* the reference\nlookup +\d+ .* identical\n")
        report = json.loads(outrider(*flags, "--json").stdout)
        self.assertTrue(report["identical"])
        self.assertEqual([s["draft"] for s in report["settings"]], ["off", "lookup"])
        whole = [setting["whole_ms"] for setting in report["settings"]]
        self.assertAlmostEqual(report["settings"][1]["whole_ratio"], whole[0] / whole[1])
        sampled = outrider("prove", "-p", PROMPT, "-p", "Count to five.", "-n", "12", "--json", "--draft", "off",
                           "--draft", f"lookup+model={MODEL}", "--draft-width", "3")
        self.assertTrue(json.loads(sampled.stdout)["identical"])
        self.assertEqual(json.loads(sampled.stdout)["prompts"], 2)

    def test_bench_curve(self):
        curve = json.loads(outrider("bench", "curve", "--json", "--profile", "--depth", "70").stdout)
        self.assertEqual(curve["rows"], list(range(1, 33)))
        self.assertGreaterEqual(curve["rounds"], 5)
        self.assertEqual(curve["depth"], 70)
        for least, median, most in zip(curve["ms_min"], curve["ms"], curve["ms_max"], strict=True):
            self.assertTrue(0 < least <= median <= most)
        for n, limit in enumerate(curve["limit_ms"], 1):
            reading = curve["bytes_per_token"] / curve["read_gbs"] * 1e-6
            self.assertGreaterEqual(limit, reading * 0.999, n)
        self.assertEqual(curve["prefill"]["rows"], 512)
        self.assertEqual(list(curve["one_row_over"]), ["2", "3", "4"])
        for key in ("weights_per_token", "cores", "load_seconds", "prompt_ms"):
            self.assertGreater(curve[key], 0)
        for key in ("int8_tops", "avx2_tops", "amx_tops", "f32_tflops"):
            self.assertGreaterEqual(curve[key], 0)
        self.assertGreater(curve["memory"]["resident"], curve["memory"]["weights"])
        self.assertEqual([profile["rows"] for profile in curve["profile"]], [1, 4, 8, 16])

    def test_bench_curve_shows_tables(self):
        shown = outrider("bench", "curve", "--profile").stdout
        self.assertRegex(shown, r"rows +ms +range +T\(n\)/T\(1\) +limit ms +reading +work\n")
        self.assertRegex(shown, r"\n +32 .*\n *512\* ")
        self.assertNotRegex(shown, r"\n +31 ")
        self.assertRegex(shown, r"milliseconds +T\(1\) +lim. +T\(4\) +lim. +T\(8\) +lim. +T\(16\) +lim.\n")

    def test_bench_bandwidth(self):
        limits = json.loads(outrider("bench", "bandwidth", "--json").stdout)
        self.assertEqual(limits["read_gbs"], max(p["gbs"]["median"] for p in limits["patterns"]))
        for key in ("int8_tops", "avx2_tops", "amx_tops", "f32_tflops"):
            self.assertGreaterEqual(limits[key], 0)
        ways = [p["pattern"] for p in limits["product_patterns"]]
        self.assertIn(ways, ([], ["processor", "near", "far"]))
        self.assertIn("threads on", outrider("bench", "bandwidth", "-t", "2").stdout)

    def test_bench_generate(self):
        lines = [{"prompt": PROMPT, "group": "words"},
                 {"question_id": 4, "category": "turns", "turns": ["Say hello.", "Say it again."]}]
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("\n".join(json.dumps(line) for line in lines))
            file.flush()
            flags = ["bench", "generate", "--prompts", file.name, "-n", "8", "--temp", "0"]
            report = json.loads(outrider(*flags, "--json").stdout)
            table = outrider(*flags)
        self.assertTrue(report["identical"])
        self.assertEqual([(g["group"], g["draft"]) for g in report["groups"]],
                         [(g, d) for g in ("words", "turns", "together") for d in ("off", "auto")])
        self.assertEqual([p["id"] for p in report["answers"]], ["1", "1", "4", "4"])
        plain = report["passes"][0]["ms"]
        self.assertEqual(report["ceiling"]["ratio"], max(p["rows"] * plain / p["ms"] for p in report["passes"]))
        self.assertEqual(report["passes"][-1]["rows"], 17)
        self.assertEqual(table.returncode, 0)
        self.assertRegex(table.stdout, r"group +draft +tokens/s +speed +95% +whole +95% +identical\n(.*\n){6}\n"
                                       r"group +draft +passes +rows +tokens/pass +accepted +length +drafting\n(.*\n){6}\n"
                                       r"T\(1\) .* ms; at most .*x, if all drafts were right and free: ")

    # Next is always the one whose text is shortest.
    def test_bench_generate_takes_turns(self):
        with tempfile.NamedTemporaryFile("w") as file, tempfile.NamedTemporaryFile("r") as trace:
            file.write(json.dumps({"prompt": "Repeat after me: one two three one two three one two three"}))
            file.flush()
            result = outrider("bench", "generate", "--prompts", file.name, "-n", "24", "--temp", "0", "--ignore-eos",
                              "--draft", "off", "--draft", "lookup", "--budget", "fixed", "--trace", trace.name)
            self.assertEqual(result.returncode, 0, result.stderr)
            steps = [json.loads(line) for line in trace]
        reached = {"off": 0, "lookup": 0}
        for step in steps:
            [sequence] = step["sequences"]
            draft = step["draft"]
            self.assertEqual(sequence["position"], reached[draft])
            self.assertEqual(reached[draft], min(reached.values()), step)
            reached[draft] += sequence["text_rows"] + sum(node["accepted"] for node in sequence["nodes"])
            if sequence["finish"]:
                reached[draft] = float("inf")
        self.assertLess(sum(step["draft"] == "lookup" for step in steps), len(steps) / 2)

    # Every answer begins with drafters that know nothing of the others. The draft model begins with some outputs and
    # adds those of its texts.
    def test_bench_generate_forgets(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(json.dumps({"prompt": PROMPT}))
            file.flush()
            flags = ["bench", "generate", "--prompts", file.name, "-n", "24", "--temp", "0", "--budget", "fixed", "--csv",
                     "--repeat", "2", "--draft", "off", "--draft", f"model={MODEL}", "--draft-vocab", "1000"]
            def counts(*more):
                result = outrider(*flags, *more)
                self.assertEqual(result.returncode, 0, result.stderr)
                rows = list(csv.DictReader(io.StringIO(result.stdout)))
                return [tuple(row[key] for key in ("target_passes", "rows", "drafted", "accepted", "draft_passes"))
                        for row in rows if row["draft"] != "off"]
            first, second = counts()
            self.assertEqual(first, second)
            self.assertGreater(int(first[-1]), 0)
            first_kept, second_kept = counts("--keep-learned")
            self.assertEqual(first_kept, first)
            self.assertNotEqual(second_kept, second)

    # Earlier answers are drafted from only where that is asked for, and say nothing of the text.
    def test_history(self):
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(os.path.join(os.environ["OUTRIDER_CACHE"], "models"), os.path.join(folder, "models"))
            flags = ["--temp", "0", "--budget", "fixed", "--ignore-eos"]

            def answer_with(*more):
                return self.run_json(*flags, *more, OUTRIDER_CACHE=folder)

            def answer_from_history(*more):
                """The index of earlier answers is made on another thread, which is late on a busy machine."""
                for _ in range(5):
                    answer = answer_with("--history", *more)
                    if answer["draft"]["lookup"]["accepted"] >= 8:
                        break
                return answer

            first, again, without, other_name = (
                answer_with("--history"), answer_from_history(), answer_with(), answer_from_history("--draft", "suffix"))
            for answer in (again, without, other_name):
                self.assertEqual(answer["tokens"], first["tokens"])
            for answer in (again, other_name):
                self.assertGreaterEqual(answer["draft"]["lookup"]["accepted"], 8)
            for answer in (first, without):
                self.assertLess(answer["draft"]["lookup"]["accepted"], 8)
            self.assertEqual(set(other_name["draft"]), {"lookup"})
            self.assertEqual(os.stat(os.path.join(folder, "history.db")).st_mode & 0o777, 0o600)
            def history(*words):
                result = outrider("history", *words, OUTRIDER_CACHE=folder)
                self.assertEqual(result.returncode, 0, result.stderr)
                return result.stdout
            self.assertRegex(history("show"), rf"model +answers +tokens +last used\n{MODEL} +1 +12 +\d+-")
            shown = json.loads(history("show", "--json"))
            self.assertEqual([(one["model"], one["answers"], one["tokens"]) for one in shown], [(MODEL, 1, 12)])
            self.assertEqual(history("clear"), "1 answer removed\n")
            self.assertEqual(history("show"), "no answers\n")
            # Commands that measure leave it alone.
            prompts = os.path.join(folder, "prompts")
            with open(prompts, "w") as file:
                file.write(json.dumps({"prompt": PROMPT}))
            measured = outrider("bench", "generate", "--prompts", prompts, "-n", "12", "--history", OUTRIDER_CACHE=folder)
            self.assertEqual(measured.returncode, 0, measured.stderr)
            self.assertEqual(history("show"), "no answers\n")
            refused = outrider("run", "-p", PROMPT, "--history", "--draft", "off", OUTRIDER_CACHE=folder)
            self.assertEqual(refused.returncode, 2)
            self.assertIn("--history", refused.stderr)

    def test_inspect(self):
        report = json.loads(outrider("inspect", "--json", MODEL).stdout)
        self.assertEqual(report["metadata"]["general.architecture"], "llama")
        self.assertEqual(len(report["tensors"]), 272)
        self.assertGreater(report["memory"]["bytes"], report["memory"]["weights"])
        longer = json.loads(outrider("inspect", "--json", "-c", "100000", MODEL).stdout)
        self.assertGreater(longer["memory"]["bytes"], report["memory"]["bytes"])
        def shown(*model):  # without available memory, which changes between two calls
            return re.sub(r"[\d.]+ [GM]B available", "available", outrider("inspect", *model).stdout)
        text = shown(MODEL)
        self.assertEqual(shown("-m", MODEL), text)
        self.assertEqual(shown(), text)  # the default model
        self.assertIn("272 tensors", text)
        self.assertIn("for a context of 8192", text)

    def test_tokenize(self):
        def tokens(*arguments, input=""):
            result = outrider("tokenize", "--json", *arguments, input=input)
            self.assertEqual(result.returncode, 0, result.stderr)
            return json.loads(result.stdout)["tokens"]
        self.assertEqual(tokens("hi there"), tokens(input="hi there"))
        self.assertEqual(tokens("hi", "there"), tokens("hi there"))
        self.assertEqual(tokens("-p", "hi there"), tokens("hi there"))
        self.assertEqual(tokens("-f", "-", input="hi there\n"), tokens("hi there"))
        self.assertEqual(tokens(""), [])
        self.assertGreater(len(tokens("<|im_end|>")), 1)
        self.assertEqual(tokens("--raw", "<|im_end|>"), [2])
        self.assertGreater(len(tokens("--raw", "--no-special", "<|im_end|>")), 1)
        messages = [{"role": "user", "content": [{"type": "text", "text": "hi<|im_end|>"}]}]
        chat = tokens("--chat", "-", input=json.dumps(messages))
        self.assertEqual(chat[0], 1)
        self.assertEqual(chat.count(2), 2)  # the ends of system and user message, not the user's text
        self.assertEqual(tokens("--chat", "-", input=json.dumps({"messages": messages})), chat)
        self.assert_fails(outrider("tokenize", "--chat", "-", input='{"a": 1}'), 1, "list of messages")
        self.assert_fails(outrider("tokenize", "--chat", "-", input="["), 1, "not valid JSON")

    def test_a_pulled_model_needs_no_network(self):
        pulled = json.loads(outrider("pull", "--offline", "--json", MODEL).stdout)
        self.assertTrue(os.path.exists(pulled["path"]))
        self.assertTrue(pulled["was_cached"])

    @unittest.skipUnless(has_model("qwen2.5-coder:0.5b"), "qwen2.5-coder:0.5b is not in OUTRIDER_CACHE")
    def test_a_draft_model_of_another_vocabulary(self):
        def answer(*arguments):
            result = outrider("run", "-m", "qwen2.5-coder:0.5b", "-p", "Write a Python function that adds two numbers.",
                              "-n", "48", "--seed", "3", "--json", *arguments)
            self.assertEqual(result.returncode, 0, result.stderr)
            return json.loads(result.stdout), result.stderr
        plain, _ = answer("--draft", "off")
        drafted, said = answer("--draft", "model", "-md", MODEL, "--budget", "fixed")
        self.assertEqual(drafted["tokens"], plain["tokens"])
        self.assertGreater(drafted["draft"]["model"]["accepted"], 5)
        self.assertRegex(said, r"draft model smollm2:135m: of another vocabulary, it proposes the \d+ tokens")

    def test_own_layers(self):
        def answer(*arguments):
            return json.loads(outrider("run", "-p", PROMPT, "-n", "24", "--seed", "3", "--budget", "fixed", "--json",
                                       *arguments).stdout)
        plain = answer("--draft", "off")["tokens"]
        for draft in ("self", "self=3,5-7", "self=20-29", "lookahead"):
            self.assertEqual(answer("--draft", draft)["tokens"], plain, draft)
        self.assertGreater(answer("--draft", "self=3,5")["draft"]["self"]["accepted"], 5)
        self.assert_fails(outrider("run", "-p", "x", "--draft", "self=30"), 1, "self=30: layer 30 cannot be left out: the model's layers are 0 to 29")
        self.assert_fails(outrider("run", "-p", "x", "--draft", "self=0-29"), 1, "self=0-29: all 30 layers are left out")
        self.assert_fails(outrider("run", "-p", "x", "--draft", "self=x"), 1, "self=x: expected numbers of layers")
        self.assert_fails(outrider("run", "-p", "x", "--draft", "self=q4_128"), 1, "a copy in four bits takes", "8 or 16 bits")
        self.assert_fails(outrider("run", "-p", "x", "--draft", "parallel=" + MODEL), 1, "names no mask token", "--draft-mask")

    def test_layers_are_tuned(self):
        with tempfile.TemporaryDirectory() as cache:
            os.symlink(os.path.join(os.environ["OUTRIDER_CACHE"], "models"), os.path.join(cache, "models"))
            prompts = os.path.join(cache, "prompts.jsonl")
            with open(prompts, "w") as file:
                file.write(json.dumps({"prompt": PROMPT}) + "\n")
            tuned = outrider("tune", "self", "--prompts", prompts, "--json", OUTRIDER_CACHE=cache)
            self.assertEqual(tuned.returncode, 0, tuned.stderr)
            report = json.loads(tuned.stdout)
            self.assertTrue(report["kept"])
            self.assertTrue(0 < len(report["left_out"]) < report["layers"] == 30, report)
            self.assertGreater(report["sets_tried"], 20)
            self.assertTrue(0 < report["acceptance"] <= 1, report)
            self.assertIn("tuned self: without ", outrider("profile", "show", OUTRIDER_CACHE=cache).stdout)

            def answer(draft):
                return json.loads(outrider("run", "-p", PROMPT, "-n", "24", "--seed", "3", "--budget", "fixed", "--json",
                                           "--draft", draft, OUTRIDER_CACHE=cache).stdout)
            named = answer("self=" + ",".join(map(str, report["left_out"])))
            self.assertEqual(answer("self")["draft"], named["draft"])
            self.assertEqual(answer("self")["tokens"], answer("off")["tokens"])

    @needs_model("gemma3:270m")
    def test_without_a_template(self):
        result = outrider("run", "-m", "gemma3:270m", "-p", "The capital of France is", "-n", "3", "--temp", "0")
        self.assertEqual(result.returncode, 0)
        self.assertIn("no chat template", result.stderr)
        self.assert_fails(outrider("run", "-m", "gemma3:270m"), 1, "cannot chat")

@needs_model(MODEL)
class DraftPairs(TestCase):
    def pair(self, target, draft):
        shown = outrider("inspect", target, "-md", draft, "--json")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        return json.loads(shown.stdout)["draft"], outrider("inspect", target, "-md", draft).stdout

    @needs_model("qwen2.5-coder:0.5b")
    @needs_model("qwen2.5-coder:1.5b")
    def test_a_pair_that_suits(self):
        pair, text = self.pair("qwen2.5-coder:1.5b", "qwen2.5-coder:0.5b")
        self.assertTrue(pair["can_draft"], pair)
        self.assertTrue(0.1 < pair["cost_ratio"] < 0.4, pair)
        self.assertRegex(text, r"\n  can draft: the same vocabulary; a pass costs about 0\.[123]\d of the model's\n")
        self.assertTrue(pair["known_pair"])
        self.assertIn("\n  a known pair of models\n", text)
        self.assertIn("\nQwen2.5-Coder 1.5B\n  draft models that suit: Qwen2.5-Coder 0.5B\n", text)
        pair, text = self.pair("qwen2.5-coder:0.5b", "qwen2.5-coder:1.5b")
        self.assertIn("must be much cheaper", pair["problem"])
        self.assertFalse(pair["known_pair"])
        self.assertNotIn("known pair", text)
        self.assertNotIn("that suit", text)

    @needs_model("qwen2.5-coder:1.5b")
    def test_the_models_that_suit_a_file_are_named(self):
        path = model_path("qwen2.5-coder:1.5b")
        hint = "Qwen2.5-Coder 1.5B may be faster with a draft model: Qwen2.5-Coder 0.5B (-md FILE)\n"
        chat = outrider("run", "-m", path, "-c", "512")
        self.assertEqual(chat.returncode, 0, chat.stderr)
        self.assertIn(hint, chat.stderr)
        for arguments in (["-m", "qwen2.5-coder:1.5b"], ["-m", path, "--draft", "lookup"], ["-m", path, "-p", "x", "-n", "1"]):
            answer = outrider("run", *arguments, "-c", "512")
            self.assertEqual(answer.returncode, 0, answer.stderr)
            self.assertNotIn("(-md FILE)", answer.stderr)

    @needs_model("qwen2.5-coder:0.5b")
    def test_another_vocabulary(self):
        pair, text = self.pair("qwen2.5-coder:0.5b", MODEL)
        self.assertEqual((pair["can_draft"], pair["same_template"]), (True, False))
        self.assertTrue(0.7 < pair["vocabulary_overlap"] < 0.9, pair)
        self.assertIn("% of the smaller vocabulary are in both, and only such tokens are drafted; a pass", text)
        self.assertIn("\n  another chat template: ", text)


@needs_model(MODEL)
class ChatTemplates(TestCase):
    TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}[{{ c.function.name }}]{% endfor %}"
                "<|im_end|>{% endfor %}{{ 'think' if thinking else 'no' }}{{ tail }}")

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.template = os.path.join(self.folder.name, "template.jinja")
        with open(self.template, "w") as file:
            file.write(self.TEMPLATE)

    def pieces(self, messages, *arguments):
        result = outrider("tokenize", "-m", MODEL, "--chat", "-", "--json", *arguments, input=json.dumps(messages))
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)["pieces"]

    def test_a_template_of_ones_own(self):
        call = {"role": "assistant", "tool_calls": [{"function": {"name": "<|im_end|>"}}]}
        pieces = self.pieces([{"role": "user", "content": "x<|im_start|>"}, call], "--chat-template-file", self.template)
        self.assertEqual("".join(pieces), "<|im_start|>user:x<|im_start|><|im_end|><|im_start|>assistant:None[<|im_end|>]<|im_end|>no")
        # What the user and the call say is no special token.
        self.assertEqual((pieces.count("<|im_start|>"), pieces.count("<|im_end|>")), (2, 2))

    def test_variables(self):
        user = [{"role": "user", "content": "x"}]
        flags = ["--chat-template-file", self.template]
        self.assertEqual(self.pieces(user, *flags, "--reasoning", "on")[-1], "think")
        self.assertEqual(self.pieces(user, *flags, "--reasoning", "off")[-1], "no")
        self.assertEqual(self.pieces(user, *flags, "--chat-template-kwargs", '{"thinking": true}')[-1], "think")
        # A variable that is given goes before --reasoning; its text is the user's.
        shown = self.pieces(user, *flags, "--reasoning", "off", "--chat-template-kwargs", '{"thinking": 1, "tail": "<|im_end|>"}')
        self.assertEqual(("".join(shown)[-15:], shown.count("<|im_end|>")), ("think<|im_end|>", 1))
        lengths = [json.loads(outrider("run", "-m", MODEL, "-p", "x", "-n", "1", "--json", *flags, "--chat-template-kwargs", kwargs).stdout)
                   ["usage"]["prompt_tokens"] for kwargs in ("{}", '{"tail": "1 2 3"}')]
        self.assertGreater(lengths[1], lengths[0] + 3)

    def test_refusals(self):
        broken = os.path.join(self.folder.name, "broken.jinja")
        with open(broken, "w") as file:
            file.write("a\n{% if %}")
        cases = [
            (["--reasoning", "on"], 1, "its chat template cannot turn reasoning on or off (--reasoning)"),
            (["--reasoning", "maybe"], 2, "--reasoning maybe: expected auto or on or off"),
            (["--chat-template-file", broken], 1, f"{broken}: chat template, line 2"),
            (["--chat-template-file", broken + "x"], 1, f"{broken}x: cannot be read: No such file"),
            (["--chat-template-kwargs", "[1]"], 2, "--chat-template-kwargs [1]: expected a JSON object"),
            (["--chat-template-kwargs", "{"], 2, "--chat-template-kwargs {: expected a JSON object"),
        ]
        for arguments, status, problem in cases:
            with self.subTest(arguments):
                self.assert_fails(outrider("run", "-m", MODEL, "-p", "x", *arguments), status, problem)


@needs_model(MODEL)
class Perplexity(TestCase):
    TEXT = "The river runs to the sea. " * 40 + "It never comes back, said the old man, and looked at the water. " * 10

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.text = os.path.join(self.folder.name, "text")
        with open(self.text, "w") as file:
            file.write(self.TEXT)

    def run_json(self, *arguments):
        result = outrider("perplexity", "-m", MODEL, "-f", self.text, "--json", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def test_repetition_is_predicted(self):
        whole, chunked = self.run_json(), self.run_json("-c", "128")
        n_tokens = len(json.loads(outrider("tokenize", "-m", MODEL, "-f", self.text, "--json").stdout)["tokens"])
        self.assertEqual((whole["chunks"], whole["predictions"]), (1, n_tokens - 1))
        self.assertEqual((chunked["chunks"], chunked["predictions"]), (n_tokens // 128, n_tokens // 128 * 63))
        self.assertLess(whole["perplexity"]["mean"], 2)  # most of it was said before
        self.assertEqual(self.run_json("-c", "128", "--chunks", "2")["predictions"], 2 * 63)

    def test_stored_logits(self):
        stored = os.path.join(self.folder.name, "logits.npy")
        first = self.run_json("-c", "256", "--chunks", "1", "--logits-out", stored)
        with open(stored, "rb") as file:
            self.assertEqual(file.read(8), b"\x93NUMPY\x01\x00")
            self.assertIn(b"'shape': (127, 49152)", file.read(120))
        same = self.run_json("-c", "256", "--chunks", "1", "--kl-divergence-base", stored, "-t", "1")["stored"]
        self.assertLess(abs(same["kl_divergence"]["mean"]), 1e-12)
        self.assertEqual(same["same_best_token"]["mean"], 1)
        self.assertEqual(same["perplexity"], first["perplexity"])
        other = self.run_json("-c", "256", "--chunks", "1", "--kl-divergence-base", stored, "--cache-type", "q8_0")["stored"]
        self.assertGreater(other["kl_divergence"]["mean"], 1e-6)
        self.assertLess(other["kl_divergence"]["quantiles"]["1"], 1)
        shown = outrider("perplexity", "-m", MODEL, "-f", self.text, "-c", "256", "--chunks", "1", "--kl-divergence-base", stored)
        self.assertRegex(shown.stdout, r"^perplexity  [\d.]+ ± [\d.]+  \(127 predictions in 1 chunk\)\n.*ratio 1.000000"
                                       r"(.*\n)+same best token  100.000 ± 0.000 %\n$")

    def test_refusals(self):
        logits = os.path.join(self.folder.name, "logits.npy")
        self.run_json("-c", "128", "--chunks", "1", "--logits-out", logits)
        cases = [
            (["-f", self.text, "-c", "128", "--kl-divergence-base", self.text], 1, f"{self.text}: does not begin like such a file"),
            (["-f", self.text, "-c", "64", "--chunks", "1", "--kl-divergence-base", logits], 1, "is [63, 49152], but this text and model give [31"),
            (["-f", self.text, "-c", "128", "--chunks", "1", "--logits-out", "/dev/full"], 1, "/dev/full: cannot be written: No space left"),
            (["-f", self.text, "-c", "100000"], 1, "tokens, expected at least 100000"),
            (["-p", "x"], 1, "the text has 1 tokens, expected at least 2"),
            ([], 2, "no text: --file FILE or --prompt TEXT"),
            (["-f", self.text, "--chunks", "2"], 2, "--chunks 2: needs --ctx-size"),
            (["-f", self.text, "-c", "3"], 2, "--ctx-size 3: at least 4"),
        ]
        for arguments, status, problem in cases:
            with self.subTest(arguments):
                self.assert_fails(outrider("perplexity", "-m", MODEL, *arguments), status, problem)


if __name__ == "__main__":
    unittest.main()
