"""Learned heads with the smallest real model: the text is the same, and what is no such head is refused."""

import hashlib
import json
import os
import signal
import subprocess
import tempfile
import unittest
import zipfile
from pathlib import Path

from made_head import write_head, write_medusa_heads, write_random_head
from made_models import write_model_with_prediction
from program import MODEL, OUTRIDER, TestCase, environment, model_path, needs_model, outrider
from terminal import Terminal

PROMPT = "one two three one two three one two three one two three one"
GREEDY, SAMPLED = ["--temp", "0"], ["--temp", "0.8", "--seed", "11"]
# Drafts in every step.
ALWAYS = ["--budget", "fixed", "--draft-rows", "7", "--draft-depth", "4", "--draft-width", "3"]


class HeadTestCase(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.head = write_head(model_path(MODEL), cls.folder / "head")
        cls.named = write_head(model_path(MODEL), cls.folder / "named", n_outputs=512)  # it has a d2t
        cls.medusa = write_medusa_heads(model_path(MODEL), cls.folder / "medusa")

    def run_json(self, *arguments, prompt=PROMPT, n=48, **changes):
        result = outrider("run", "--json", "-p", prompt, "-n", str(n), "--ignore-eos", *arguments, **changes)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)


@needs_model(MODEL)
class Text(HeadTestCase):
    def test_the_same_text_with_and_without(self):
        for flags in (GREEDY, [*SAMPLED, "--repeat-penalty", "1.1"]):
            plain = self.run_json("--draft", "off", *flags)
            for how in (["-md", self.head], ["-md", self.head, *ALWAYS], ["--draft", f"eagle={self.head}", *ALWAYS],
                        ["-md", self.head, "--draft", "eagle", *ALWAYS],
                        ["--draft", f"lookup+eagle={self.head}", *ALWAYS],
                        ["--draft", f"eagle={self.named}", *ALWAYS],
                        ["-md", self.medusa], ["--draft", f"lookup+medusa={self.medusa}", *ALWAYS],
                        ["--draft", f"eagle={self.head}", "--draft-quantize", "off", "--draft-vocab", "all", *ALWAYS],
                        ["--draft", f"eagle={self.head}", "-t", "1", "-b", "7", *ALWAYS],
                        ["--draft", f"eagle={self.head}", "--cache-type", "q8_0", *ALWAYS]):
                if "q8_0" in how:
                    plain = self.run_json("--draft", "off", "--cache-type", "q8_0", *flags)
                with self.subTest(flags=flags, how=how):
                    answer = self.run_json(*how, *flags)
                    self.assertEqual(answer["tokens"], plain["tokens"])
                    if "--budget" in how:
                        kind = "medusa" if "medusa" in how[1] else "eagle"
                        self.assertGreater(answer["draft"][kind]["proposed"], 40)

    def test_the_same_text_with_heads_of_every_kind(self):
        """Heads that know nothing: what they propose is refused, and the text stays."""
        plain = {flags[1]: self.run_json("--draft", "off", *flags)["tokens"] for flags in (GREEDY, SAMPLED)}
        for drafter in ("eagle", "mtp", "dflash", "dspark"):
            head = write_random_head(model_path(MODEL), self.folder / drafter, drafter)
            for flags in (GREEDY, SAMPLED):
                for how in (["-md", head], ["--draft", f"lookup+{drafter}={head}", *ALWAYS]):
                    with self.subTest(drafter=drafter, flags=flags, how=how):
                        answer = self.run_json(*how, *flags)
                        self.assertEqual(answer["tokens"], plain[flags[1]])
                        if "--budget" in how:
                            self.assertGreater(answer["draft"][drafter]["proposed"], 40)
            other = "dspark" if drafter == "dflash" else "dflash"
            self.assert_fails(outrider("run", "-p", "x", "-n", "1", "--draft", f"{other}={head}"), 2,
                              f"{other}: {head} is a learned head that another drafter runs; write {drafter}={head}")

    def test_a_block_larger_than_passes(self):
        """With fewer rows than the block has, given by -b, it is measured and drafts."""
        head = write_random_head(model_path(MODEL), self.folder / "large", "dflash", changes={"block_size": 16})
        with tempfile.TemporaryDirectory() as cache:
            os.symlink(Path(model_path(MODEL)).parent, os.path.join(cache, "models"))
            result = outrider("run", "--json", "-p", PROMPT, "-n", "24", "--ignore-eos", "-md", head, "--draft",
                              "dflash", "-b", "8", *ALWAYS, *GREEDY, OUTRIDER_CACHE=cache)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, r"right at \d+% of [1-9]\d{2} places")
        answer = json.loads(result.stdout)
        self.assertGreater(answer["draft"]["dflash"]["proposed"], 40)
        self.assertEqual(answer["tokens"], self.run_json("--draft", "off", *GREEDY, n=24)["tokens"])

    def test_some_drafts_are_accepted(self):
        answer = self.run_json("--draft", f"eagle={self.head}", *ALWAYS, *GREEDY)
        self.assertGreater(answer["draft"]["eagle"]["accepted"], 10, answer["draft"])

    def test_beside_a_draft_model(self):
        plain = self.run_json("--draft", "off", *GREEDY)
        both = self.run_json("--draft", f"lookup+model={MODEL}+eagle={self.head}", *ALWAYS, *GREEDY)
        self.assertEqual(both["tokens"], plain["tokens"])
        self.assertEqual(set(both["draft"]), {"lookup", "model", "eagle"})

    def test_auto_has_the_head_of_md(self):
        for head, kind in ((self.head, "eagle"), (self.medusa, "medusa")):
            self.assertEqual(set(self.run_json("-md", head, *GREEDY)["draft"]), {"lookup", "prediction", kind})

    def test_a_prompt_over_several_pages_and_the_context_s_end(self):
        prompt = "one two three four five six seven eight nine ten " * 15  # more than two pages
        for context in (255, 256, 257):
            flags = [*GREEDY, "-c", str(context), "--raw"]
            plain = self.run_json("--draft", "off", *flags, prompt=prompt, n=4000)
            headed = self.run_json("--draft", f"eagle={self.head}", *ALWAYS, *flags, prompt=prompt, n=4000)
            self.assertEqual(headed["tokens"], plain["tokens"])
            self.assertEqual(headed["finish_reason"], "length")
            usage = headed["usage"]
            self.assertIn(usage["prompt_tokens"] + usage["completion_tokens"], (context, context + 1))

    def test_prove(self):
        for flags in (GREEDY, SAMPLED):
            for draft in (f"eagle={self.head}", f"lookup+eagle={self.named}", f"medusa={self.medusa}"):
                with self.subTest(flags=flags, draft=draft):
                    result = outrider("prove", "-p", PROMPT, "-n", "32", "--draft", "off", "--draft", draft, *ALWAYS,
                                      *flags, "--json")
                    self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                    report = json.loads(result.stdout)
                    self.assertTrue(report["identical"])
                    self.assertEqual([setting["draft"] for setting in report["settings"]], ["off", draft])

    def test_rejection(self):
        drafts = ["--draft", f"lookup+eagle={self.head}", "--draft-quantize", "off", *ALWAYS, "--verify", "rejection"]
        plain = self.run_json("--draft", "off", *GREEDY)
        self.assertEqual(self.run_json(*drafts, *GREEDY)["tokens"], plain["tokens"])
        answers = [self.run_json(*drafts, *SAMPLED) for _ in range(2)]
        self.assertEqual(answers[0]["tokens"], answers[1]["tokens"])
        self.assertGreater(answers[0]["draft"]["eagle"]["proposed"], 40)

    def test_bench_generate(self):
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in (PROMPT, "Count to five.")))
        for drafts in (["--draft", "off", "--draft", f"eagle={self.head}"], ["--draft", "all", "-md", self.head]):
            result = outrider("bench", "generate", "--prompts", str(prompts), *drafts, "-n", "16", *GREEDY, "--json")
            self.assertEqual(result.returncode, 0, result.stderr)
            report = json.loads(result.stdout)
            self.assertTrue(report["identical"])
            names = [group["draft"] for group in report["groups"] if group["group"] == "all"]
            self.assertIn("eagle" if "all" in drafts else f"eagle={self.head}", names)
            self.assertNotIn("model", names)

    def test_a_chat(self):
        """Turns that share a beginning, a turn that is stopped, a beginning that is forgotten."""
        said = "Say hello.\nSay it again.\n/reset\nSay hello.\n"
        flags = ["run", "-n", "24", *GREEDY]
        plain = outrider(*flags, "--draft", "off", input=said)
        headed = outrider(*flags, "--draft", f"eagle={self.head}", *ALWAYS, input=said)
        self.assertEqual(headed.returncode, 0, headed.stderr)
        self.assertEqual(headed.stdout, plain.stdout)

    def test_a_head_is_loaded_with_its_model(self):
        said = f"Say hello.\n/draft eagle={self.head}\nSay it again.\n"
        answer = outrider("run", "-n", "8", *GREEDY, input=said)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertIn(f"start with --draft eagle={self.head}", answer.stderr)
        changed = f"Say hello.\n/draft off\nSay it again.\n/draft lookup+eagle={self.head}\nSay hello.\n"
        headed = outrider("run", "-n", "8", *GREEDY, "--draft", f"eagle={self.head}", *ALWAYS, input=changed)
        self.assertEqual(headed.returncode, 0, headed.stderr)

    def test_a_head_that_is_seldom_right(self):
        """It is measured at its first start, with a warning, and the outcome is kept."""
        with tempfile.TemporaryDirectory() as cache:
            os.symlink(Path(model_path(MODEL)).parent, os.path.join(cache, "models"))
            runs = [outrider("run", "-p", "x", "-n", "1", "-md", self.head, OUTRIDER_CACHE=cache) for _ in range(2)]
            shown = outrider("profile", "show", OUTRIDER_CACHE=cache).stdout
        self.assertEqual([run.returncode for run in runs], [0, 0], runs[0].stderr)
        self.assertIn("was it made for this model?", runs[0].stderr)
        self.assertNotIn("places of a sample text", runs[1].stderr)
        self.assertRegex(shown, r"head right at \d+% of \d+ places")

    def test_ctrl_c_ends_an_answer_of_a_chat_and_no_more(self):
        terminal = Terminal("run", *GREEDY, "--ignore-eos", "-n", "1000", "--draft", f"eagle={self.head}", *ALWAYS)
        terminal.wait_for("> ")
        for _ in range(2):
            terminal.type("Tell me a long story.\r")
            terminal.wait_for(r"(\w+\W+){8}")
            terminal.press("\x03")
            terminal.wait_for("> ")
        terminal.type("/exit\r")
        self.assertEqual(terminal.end(), 0)

    def test_signals(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            process = subprocess.Popen([OUTRIDER, "run", "-p", PROMPT, "--ignore-eos", "-n", "4000", "-md", self.head],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
            process.stdout.read(1)
            process.send_signal(number)
            _, error = process.communicate()
            self.assertEqual(process.returncode, status)
            self.assertNotIn(b"outrider:", error)


@needs_model(MODEL)
class Inspect(HeadTestCase):
    """What a user wants to know of a head, in the text and in JSON."""

    def inspect(self, head):
        text, said = (outrider("inspect", "-m", MODEL, "-md", head, *flags) for flags in ([], ["--json"]))
        self.assertEqual((text.returncode, said.returncode), (0, 0), text.stderr)
        return text.stdout.split(f"\n{head} as a draft head\n")[1], json.loads(said.stdout)["draft"]

    def test_every_kind(self):
        random = {kind: write_random_head(model_path(MODEL), self.folder / f"seen-{kind}", kind)
                  for kind in ("eagle", "mtp", "dflash", "dspark")}
        layers, heads = "1 layer, reads the outputs of ", "3 heads, reads the outputs of "
        level, block, rows = "a level of drafts", "a block", dict(rows=5, mask=0, windows=[None])
        plain = dict(markov_rank=0, markov_memory=False, confidence=False)
        for head, kind, producer, reads, tokens, unit, of_block, shown in (
                (self.head, "EAGLE-3", "SpecForge", layers + "the embedding, layers 15, 28 (of 30)", 16384, level, None,
                 None),
                (self.named, "EAGLE-3", "SpecForge", layers + "the embedding, layers 15, 28 (of 30)", 512, level, None,
                 None),
                (random["eagle"], "EAGLE", "SafeAILab", layers + "the last norm (of 30)", 16384, level, None, None),
                (random["mtp"], "MTP", "DeepSeek", layers + "the last norm (of 30)", 16384, level, None, None),
                (random["dflash"], "DFlash", "z-lab", layers + "layers 1, 15 (of 30)", 16384, block,
                 {**rows, "guesses": 4, **plain}, "a block of 5 rows guesses 4 tokens; the mask is token 0"),
                (random["dspark"], "DSpark", "DeepSpec", layers + "layers 1, 15 (of 30)", 16384, block,
                 {**rows, "guesses": 5, **plain, "markov_rank": 16, "confidence": True},
                 "a block of 5 rows guesses 5 tokens; the mask is token 0; Markov head of rank 16; states its "
                 "confidence"),
                (self.medusa, "Medusa", "TGI", heads + "the last norm (of 30)", 16384, "a draft", None, None)):
            with self.subTest(head):
                text, said = self.inspect(head)
                self.assertEqual((said["kind"], said["producer"], said["tokens"], said.get("block")),
                                 (kind, producer, tokens, of_block))
                lines = text.splitlines()
                self.assertEqual(lines[0], f"  {kind} of {producer}: {reads}")
                if shown:
                    self.assertEqual(lines.pop(1), "  " + shown)
                self.assertRegex(lines[1], rf"^  can propose {tokens} of 49152 tokens; {unit} costs about "
                                 r"0\.\d{3} of the model's pass$")
                self.assertRegex(lines[2], r"^  \S+ [kM]B more for a context of \d+: weights ")

    def test_windows(self):
        windows = {"layer_types": ["sliding_attention"], "sliding_window": 32}
        head = write_random_head(model_path(MODEL), self.folder / "windows", "dflash", changes=windows)
        text, said = self.inspect(head)
        self.assertEqual(said["block"]["windows"], [32])
        self.assertIn("; the mask is token 0; 1 of 1 layers has a window of 32\n", text)


@needs_model(MODEL)
class OwnLayer(HeadTestCase):
    """A layer for prediction in the model's own file."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.whole, cls.layer = cls.folder / "whole.gguf", cls.folder / "layer.gguf"
        write_model_with_prediction(Path(model_path(MODEL)), cls.whole, cls.layer)

    def test_the_same_text_with_and_without(self):
        whole, layer = self.whole, self.layer
        for flags in (GREEDY, SAMPLED):
            plain = self.run_json("-m", str(whole), "--draft", "off", *flags)
            for how in (["--draft", "mtp", *ALWAYS], ["--draft", "lookup+mtp"],
                        ["--draft", f"lookup+mtp={layer}", *ALWAYS],
                        ["-md", str(layer)], ["-md", str(layer), "--draft", "mtp", *ALWAYS]):
                with self.subTest(flags=flags, how=how):
                    answer = self.run_json("-m", str(whole), *how, *flags)
                    self.assertEqual(answer["tokens"], plain["tokens"])
                    self.assertIn("mtp", answer["draft"])
                    if "--budget" in how:
                        self.assertGreater(answer["draft"]["mtp"]["proposed"], 40)
        left_out = "without its parts for prediction of further tokens (12 tensors)"
        for draft, says in (("off", True), ("auto", True), ("mtp", False), (f"mtp={layer}", True)):
            with self.subTest(draft=draft):
                result = outrider("run", "-m", str(whole), "-p", "x", "-n", "1024", "-c", "64", "--draft", draft)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(left_out in result.stderr, says, result.stderr)
                self.assertEqual("may be faster with its own layer for prediction" in result.stderr, draft == "auto")
        result = outrider("prove", "-m", str(whole), "-p", PROMPT, "-n", "24", "--draft", "off", "--draft", "lookup+mtp",
                          *ALWAYS, *SAMPLED)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assert_fails(outrider("run", "-m", str(whole), "-p", "x", "--draft", "mtp", "-md", MODEL), 2,
                          "--model-draft: no --draft asks for a model")
        self.assert_fails(outrider("prove", "-m", str(whole), "-p", "x", "--draft", "mtp", "--draft", f"mtp={layer}"),
                          1, f"{whole} and {layer} are two heads")

    def test_inspect_shows_it(self):
        whole, layer = self.whole, self.layer
        said = outrider("inspect", "-m", str(whole)).stdout
        self.assertIn("its layer for prediction as a draft head (--draft mtp)\n  MTP of llama.cpp: 1 layer, reads", said)
        self.assertNotIn("not used: prediction", said)
        document = json.loads(outrider("inspect", "-m", str(whole), "--json").stdout)
        self.assertEqual((document["draft"]["kind"], document["left_out"]), ("MTP", []))
        self.assertIn("  MTP of llama.cpp: 1 layer", outrider("inspect", "-m", str(whole), "-md", str(layer)).stdout)
        broken = self.folder / "broken.gguf"
        broken.write_bytes(whole.read_bytes().replace(b".nextn.hnorm", b".nextn.hxxxx"))
        said = outrider("inspect", "-m", str(broken))
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn("its layer for prediction cannot draft: ", said.stdout)
        self.assertIn(".nextn.hnorm.weight is missing", said.stdout)
        self.assertIn("not used: prediction of further tokens (12 tensors)", said.stdout)

    def test_where_it_is_not(self):
        layer = self.layer
        self.assert_fails(outrider("run", "-m", str(layer), "-p", "x"), 1, "is no complete language model")
        self.assert_fails(outrider("run", "-p", "x", "--draft", "mtp"), 1,
                          f"mtp: {MODEL} has no layer for prediction; write mtp=HEAD")
        self.assert_fails(outrider("run", "-p", "x", "--draft", f"mtp={layer}"), 1,
                          "its layer for prediction follows another number of layers than the 30 of")


@needs_model(MODEL)
class MadeFor(HeadTestCase):
    """Heads that say which file they were made for, and how often they were right with it."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        vocabulary = json.loads(outrider("inspect", MODEL, "--json").stdout)["vocabulary"]
        cls.target = {"name": "the-135m", "file": hashlib.sha256(Path(model_path(MODEL)).read_bytes()).hexdigest(),
                      "vocabulary": vocabulary, "embedding": 576, "layers": 30, "vocabulary_size": 49152}

    def setUp(self):
        self.cache = self.enterContext(tempfile.TemporaryDirectory())
        os.symlink(Path(model_path(MODEL)).parent, os.path.join(self.cache, "models"))

    def made(self, right=900, medusa=False, as_type=None, **target):
        agreement = {"right": right, "places": 1000, **({"type": as_type} if as_type else {})}
        named = {"target": {**self.target, **target}, "agreement": agreement}
        if not medusa:
            return write_head(model_path(MODEL), self.folder / "made", changes={"outrider": named})
        path = write_medusa_heads(model_path(MODEL), self.folder / "made-medusa")
        config = Path(path, "config.json")
        config.write_text(json.dumps({**json.loads(config.read_text()), "outrider": named}))
        return path

    def start(self, head, *flags):
        result = outrider("run", "-p", "x", "-n", "1", "-md", head, "--verbose", *flags, OUTRIDER_CACHE=self.cache)
        self.assertEqual(result.returncode, 0, result.stderr)
        warnings = [line for line in result.stderr.splitlines() if "made for" in line]
        return warnings, "weights in" in result.stderr, result.stderr

    def profiles(self):
        return outrider("profile", "show", OUTRIDER_CACHE=self.cache).stdout

    def test_with_that_file_nothing_is_measured_or_said(self):
        for _ in range(2):
            warnings, is_measured, error = self.start(self.made())
            self.assertEqual((warnings, is_measured), ([], False), error)
        self.assertIn("file " + self.target["file"][:12], self.profiles())
        self.assertNotIn("head right at", self.profiles())

    def test_with_another_file_it_is_measured_once_and_a_loss_is_told_at_each_start(self):
        for medusa, kind in ((False, "eagle3"), (True, "medusa")):
            head = self.made(file="0" * 64, medusa=medusa)
            with self.subTest(kind):
                for is_first in (True, False):
                    warnings, is_measured, error = self.start(head)
                    self.assertEqual(is_measured, is_first, error)
                    [warning] = warnings
                    self.assertRegex(warning, r"made for another file \(the-135m\): right at \d+% of \d{3,} places of "
                                     r"a sample text, with that file at 90% of 1000; train one for this file: "
                                     rf"outrider train {kind} -m {MODEL}$")

    def test_a_head_that_loses_nothing_gets_no_warning(self):
        head = self.made(file="0" * 64, right=1)
        for is_first in (True, False):
            warnings, is_measured, error = self.start(head)
            self.assertEqual((warnings, is_measured), ([], is_first), error)
        # Shares of other weights are not compared.
        warnings, is_measured, error = self.start(self.made(file="0" * 64), "--draft-quantize", "q8_0")
        self.assertEqual((warnings, is_measured), ([], True), error)

    def test_inspect(self):
        for file, is_this, as_type in ((self.target["file"], True, "Q8_0"), ("0" * 64, False, None)):
            head = self.made(file=file, as_type=as_type)
            report = json.loads(outrider("inspect", "-m", MODEL, "-md", head, "--json").stdout)["draft"]["made_for"]
            self.assertEqual(report, {**self.target, "file": file, "is_this_file": is_this,
                                      "agreement": {"right": 900, "places": 1000,
                                                    **({"type": as_type} if as_type else {})}})
            self.assertIn("\n  made for the-135m, " + (
                "this very file; right at 90% of 1000 places of a sample text as Q8_0\n" if is_this else
                "another file of this shape and vocabulary; right at 90% of 1000 places of a sample text with that "
                "file\n"), outrider("inspect", "-m", MODEL, "-md", head).stdout)

    def test_refused(self):
        for medusa in (False, True):
            for target, *parts in [
                ({"vocabulary": "0" * 64}, "made for the-135m with the vocabulary 000000000000...",
                 f"that of {MODEL} is {self.target['vocabulary'][:12]}...: its tokens mean something else"),
                ({"layers": 24}, "config.json: the head was made for the-135m, which has 24 layers of width 576 and "
                                 "49152 tokens, but ", " has 30 of 576 and 49152 tokens"),
                ({"file": "x"}, 'config.json: outrider.target.file is "x", expected 64 hexadecimal digits'),
            ]:
                head = self.made(medusa=medusa, **target)
                for command in (["inspect"], ["run", "-p", "x", "-n", "1"]):
                    with self.subTest(target, medusa=medusa, command=command):
                        self.assert_fails(outrider(*command, "-m", MODEL, "-md", head), 1, head, *parts)


@needs_model(MODEL)
class Refused(HeadTestCase):
    def refused(self, draft, *parts, status=1, flags=()):
        with self.subTest(draft=draft, flags=flags):
            self.assert_fails(outrider("run", "-p", "x", "-n", "1", "--draft", draft, *flags), status, *parts)

    def test_flags(self):
        self.refused("eagle", "eagle: names no model; write eagle=HEAD", status=2)
        self.refused("eagle=", "write eagle=HEAD", status=2)
        missing = str(self.folder / "missing")
        self.refused(f"eagle={missing}", missing, "No such file")
        for head, wrong, right in ((self.medusa, "eagle", "medusa"), (self.head, "medusa", "eagle")):
            self.refused(f"{wrong}={head}", f"another drafter runs; write {right}={head}", status=2)
        self.assert_fails(outrider("run", "-p", "x", "-md", missing), 1, "missing")
        self.refused(f"eagle={self.head}+eagle={self.named}", "eagle is named twice", status=2)
        self.assert_fails(outrider("prove", "-p", "x", "-n", "1", "--draft", f"eagle={self.head}", "--draft",
                                   f"eagle={self.named}"), 1, self.head, self.named, "a model can have one at a time")

    def test_a_head_where_a_model_belongs_and_a_model_where_a_head_belongs(self):
        self.refused(f"model={self.head}", self.head, "is a learned head", "write eagle=", status=2)
        self.refused("model", self.head, "is a learned head", "write eagle=", status=2, flags=["-md", self.head])
        self.refused(f"eagle={model_path(MODEL)}", model_path(MODEL), "no learned head", "model=")
        self.assert_fails(outrider("run", "-p", "x", "-m", self.head), 1, self.head)

    def test_files(self):
        n = 0

        def made(**how):
            nonlocal n
            n += 1
            return write_head(model_path(MODEL), self.folder / f"bad{n}", **how)

        empty = self.folder / "empty"
        empty.mkdir()
        self.refused(f"eagle={empty}", str(empty))
        no_config = made()
        os.unlink(os.path.join(no_config, "config.json"))
        self.refused(f"eagle={no_config}", "config.json")
        cut = Path(made(), "model.safetensors")
        cut.write_bytes(cut.read_bytes()[:-7])
        self.refused(f"eagle={cut.parent}", str(cut))
        pytorch = self.folder / "pytorch" / "pytorch_model.bin"
        pytorch.parent.mkdir()
        with zipfile.ZipFile(pytorch, "w") as archive:
            archive.writestr("archive/data.pkl", b"\x80\2}q\0.")
        for name in (pytorch, pytorch.parent):
            self.refused(f"eagle={name}", f"outrider convert-head {pytorch}")
            self.assert_fails(outrider("run", "-p", "x", "-md", name), 1, f"outrider convert-head {pytorch}")
        for how, *says in [
            (dict(without=["midlayer.mlp.up_proj.weight"]), "tensor midlayer.mlp.up_proj.weight is missing"),
            (dict(without=["fc.weight"]), "fc.weight is missing"),
            (dict(changes={"intermediate_size": 65}), "midlayer.mlp.gate_proj.weight is [576, 64], expected [576, 65]"),
            (dict(changes={"target_hidden_size": 2048}), "target_hidden_size is 2048"),
            (dict(changes={"hidden_act": "gelu"}), 'hidden_act is "gelu"'),
            (dict(changes={"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 99]}}),
             "eagle_aux_hidden_state_layer_ids"),
            (dict(n_outputs=64, changes={"draft_vocab_size": 65}), "draft_vocab_size is 65, but d2t names 64"),
        ]:
            self.refused(f"eagle={made(**how)}", *says)


if __name__ == "__main__":
    unittest.main()
