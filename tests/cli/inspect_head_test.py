"""Draft heads on the smallest real model: what inspect says of one, and how what does not go together is refused."""

import array
import json
import os
import shutil
import struct
import tempfile
import unittest

from program import MODEL, TestCase, needs_model, outrider

WIDTH, VOCABULARY, LAYERS = 576, 49152, 30  # the model's
HEADS, KV_HEADS, HEAD_DIM, FFN, ROWS = 9, 3, 64, 96, 1000


def write_safetensors(path, tensors):
    """tensors: by name the type, the shape and the bytes; None stands for zeros."""
    header, place = {}, 0
    for name, (kind, shape, content) in tensors.items():
        size = {"F16": 2, "I64": 8}[kind]
        for extent in shape:
            size *= extent
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [place, place + size]}
        place += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for (_, _, content), entry in zip(tensors.values(), header.values()):
            begin, end = entry["data_offsets"]
            file.write(bytes(end - begin) if content is None else content)


def head_tensors(width=WIDTH, rows=ROWS, n_taps=3):
    def zeros(*shape):
        return "F16", list(shape), None
    tensors = {
        "fc.weight": zeros(width, n_taps * width),
        "norm.weight": zeros(width),
        "midlayer.hidden_norm.weight": zeros(width),
        "midlayer.input_layernorm.weight": zeros(width),
        "midlayer.post_attention_layernorm.weight": zeros(width),
        "midlayer.self_attn.q_proj.weight": zeros(HEADS * HEAD_DIM, 2 * width),
        "midlayer.self_attn.k_proj.weight": zeros(KV_HEADS * HEAD_DIM, 2 * width),
        "midlayer.self_attn.v_proj.weight": zeros(KV_HEADS * HEAD_DIM, 2 * width),
        "midlayer.self_attn.o_proj.weight": zeros(width, HEADS * HEAD_DIM),
        "midlayer.mlp.gate_proj.weight": zeros(FFN, width),
        "midlayer.mlp.up_proj.weight": zeros(FFN, width),
        "midlayer.mlp.down_proj.weight": zeros(width, FFN),
    }
    if rows:
        tensors["lm_head.weight"] = zeros(rows, width)
        tensors["d2t"] = "I64", [rows], array.array("q", range(rows)).tobytes()  # every other token
    return tensors


def head_config(width=WIDTH, **changes):
    return {"hidden_size": width, "intermediate_size": FFN, "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, **changes}


@needs_model(MODEL)
class Heads(TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def head(self, tensors=None, config=None, name="head"):
        path = os.path.join(self.folder, name)
        shutil.rmtree(path, ignore_errors=True)
        os.mkdir(path)
        write_safetensors(os.path.join(path, "model.safetensors"), tensors or head_tensors())
        with open(os.path.join(path, "config.json"), "w") as file:
            json.dump(config or head_config(), file)
        return path

    def report(self, head, *arguments):
        result = outrider("inspect", "-m", MODEL, "-md", head, "--json", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)["draft"]

    def test_inspect(self):
        head = self.head()
        draft = self.report(head, "--draft-quantize", "off", "-c", "1024")
        said = {key: draft[key] for key in ("head", "kind", "producer", "layers", "reads", "tokens", "fits")}
        self.assertEqual(said,
                         {"head": head, "kind": "EAGLE-3", "producer": "SafeAILab", "layers": 1, "reads": [1, 14, 26],
                          "tokens": ROWS, "fits": True})
        memory = draft["memory"]
        self.assertEqual(memory["bytes"], memory["weights"] + memory["cache"] + memory["working"])
        layer = 2 * WIDTH * (HEADS + 2 * KV_HEADS) * HEAD_DIM + WIDTH * HEADS * HEAD_DIM + 3 * WIDTH * FFN
        rows = ROWS + 8  # whole panels
        weights = 2 * (layer + rows * WIDTH + 3 * WIDTH * WIDTH)
        self.assertAlmostEqual(memory["weights"] / weights, 1, delta=0.02)
        # Keys and values in f16, and in each page of 64 positions the features of one.
        cache = 1024 * 2 * 2 * KV_HEADS * HEAD_DIM + 1024 // 64 * 3 * WIDTH * 4
        self.assertTrue(cache <= memory["cache"] < 2 * cache, (cache, memory))
        model = json.loads(outrider("inspect", "-m", MODEL, "--json").stdout)["memory"]["weights"]
        self.assertAlmostEqual(draft["cost_ratio"], 2 * (layer + rows * WIDTH) / model, delta=0.001)
        smaller = self.report(head, "-c", "1024")  # in four bits
        self.assertLess(smaller["memory"]["weights"], 0.4 * memory["weights"])
        self.assertLess(smaller["cost_ratio"], 0.4 * draft["cost_ratio"])
        self.assertGreater(self.report(head, "-c", "8192")["memory"]["cache"], 5 * memory["cache"])

        text = outrider("inspect", "-m", MODEL, "-md", head, "-c", "1024").stdout
        self.assertRegex(text, f"\n{head} as a draft head\n"
                               r"  EAGLE-3 of SafeAILab: 1 layer, reads the outputs of layers 1, 14, 26 \(of 30\)\n"
                               r"  can propose 1000 of 49152 tokens; a level of drafts costs about 0\.0\d\d of the "
                               r"model's pass\n"
                               r"  \S+ MB more for a context of 1024: weights \S+ MB, cache \S+ [kM]B, working \S+ MB\n"
                               r"  with the model \S+ [MG]B: fits" "\n$")

    def test_a_head_without_tokens_of_its_own(self):
        head = self.head(head_tensors(rows=0, n_taps=1),
                         head_config(eagle_config={"eagle_aux_hidden_state_layer_ids": [LAYERS]}))
        draft = self.report(head)
        self.assertEqual((draft["tokens"], draft["reads"], draft["producer"]), (16384, [30], "SpecForge"))
        self.assertEqual(self.report(head, "--draft-vocab", "4096")["tokens"], 4096)
        self.assertEqual(self.report(head, "--draft-vocab", "all")["tokens"], VOCABULARY)
        text = outrider("inspect", MODEL, "-md", head, "--draft-vocab", "all").stdout
        self.assertIn("reads the outputs of the last norm (of 30)\n  can propose all 49152 tokens; ", text)

    def test_a_head_of_another_model_is_refused(self):
        beyond = head_tensors()
        beyond["d2t"] = "I64", [ROWS], array.array("q", [0] * (ROWS - 1) + [VOCABULARY]).tobytes()
        cases = [
            (head_tensors(width=896), head_config(width=896),
             "model.safetensors: has no embedding of its own, and its width is 896, but that of ",
             " is 576; the head is for another model"),
            (beyond, None,
             f"model.safetensors: d2t names token {VOCABULARY + ROWS - 1} for row 999, but the vocabulary of ",
             "has 49152; the head is for another model"),
            (None, head_config(target_hidden_size=2048),
             "config.json: target_hidden_size is 2048, but the width of ", " is 576"),
            (None, head_config(draft_vocab_size=32000),
             "config.json: draft_vocab_size is 32000, but d2t names 1000 tokens"),
            (None, head_config(eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 17, 33]}),
             "config.json: eagle_config.eagle_aux_hidden_state_layer_ids lists 33, but ", " has 30 layers"),
        ]
        for tensors, config, *parts in cases:
            head = self.head(tensors, config)
            for command in (["inspect"], ["inspect", "--json"], ["run", "-p", "x", "-n", "1"]):
                with self.subTest(parts[0], command=command):
                    self.assert_fails(outrider(*command, "-m", MODEL, "-md", head), 1, f"outrider: {head}/", *parts)

    def test_a_head_in_the_place_of_a_model(self):
        head = self.head()
        advice = "; give the model that it was trained for, and the head as its draft model (-md)"
        for path in (head, os.path.join(head, "model.safetensors")):
            for command in (["inspect", path], ["run", "-m", path, "-p", "x"],
                            ["run", "-m", path, "-md", path, "-p", "x"]):
                with self.subTest(command):
                    self.assert_fails(outrider(*command), 1, f"outrider: {path}: is a draft head, no model{advice}")
        gguf = os.path.join(self.folder, "head.gguf")
        with open(gguf, "wb") as file:
            key, value = b"general.architecture", b"eagle3"
            file.write(b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, len(key)) + key)
            file.write(struct.pack("<IQ", 8, len(value)) + value)
        said = f"{gguf}: is a draft head (EAGLE-3), no model{advice}"
        self.assert_fails(outrider("run", "-m", gguf, "-p", "x"), 1, said)
        self.assertIn(f"\ncannot be run: {said}", outrider("inspect", gguf).stdout)
        self.assert_fails(outrider("inspect", "-m", MODEL, "-md", gguf), 1, f"{gguf}: tensor fc.weight is missing")

    def test_what_is_no_head(self):
        model = self.head({"model.layers.0.self_attn.q_proj.weight": ("F16", [4, 4], None),
                           "model.norm.weight": ("F16", [4], None)}, {"model_type": "llama"})
        cases = [
            (model, f"{model}/model.safetensors: is a whole model, no head; ", "convert_hf_to_gguf.py"),
            (self.folder, f"{self.folder}: is a folder, expected a .safetensors file in it"),
        ]
        bare = self.head(name="bare")
        os.unlink(os.path.join(bare, "config.json"))
        cases.append((bare, f"{bare}/model.safetensors: there is no config.json beside the head"))
        for path, *parts in cases:
            for command in (["inspect"], ["run", "-p", "x", "-n", "1"]):
                with self.subTest(path, command=command):
                    self.assert_fails(outrider(*command, "-m", MODEL, "-md", path), 1, *parts)

    def test_a_head_changes_no_answer(self):
        head = self.head()
        def tokens(*arguments):
            result = outrider("run", "-m", MODEL, "-p", "Say the word river four times.", "-n", "12", "--json",
                              "-c", "512", "--seed", "5", *arguments)
            self.assertEqual(result.returncode, 0, result.stderr)
            return json.loads(result.stdout)["tokens"]
        self.assertEqual(tokens("--draft", "eagle", "-md", head, "--budget", "fixed"), tokens("--draft", "off"))


if __name__ == "__main__":
    unittest.main()
