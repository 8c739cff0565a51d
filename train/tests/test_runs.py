"""Whole runs of the command: heads learn a toy target, runs go on after a kill, bad input is a line."""

import contextlib
import io
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import time

import pytest
import safetensors.torch
import torch

TRAIN = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(TRAIN)]

import toy_features
from outrider_train.__main__ import main
from outrider_train.features import Features

ENVIRONMENT = dict(os.environ, PYTHONPATH=str(TRAIN))


def start(*arguments):
    command = [sys.executable, "-m", "outrider_train", *map(str, arguments), "--threads", "1"]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def train(*arguments, status=0):
    process = start(*arguments)
    out, err = process.communicate(timeout=600)
    assert process.returncode == status, err
    return [json.loads(line) for line in out.splitlines()], err


def refused(*arguments):
    """In this process: starting PyTorch takes seconds."""
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        assert main([*map(str, arguments), "--threads", "1"]) == 2
    lines = err.getvalue().splitlines()
    assert len(lines) == 1 and lines[0].startswith("outrider_train: "), err.getvalue()
    return lines[0]


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return toy_features.make(tmp_path_factory.mktemp("toy") / "features", vocabulary=64, width=32, heads=2, kv_heads=1,
                             texts=600)


EAGLE = ("--batch-rows", 512, "--rate", 0.02, "--draft-rows", 60)


def test_eagle3_learns(toy, tmp_path):
    """A draft's first token is a function of what the head reads, and so are later ones."""
    events, _ = train("eagle3", "--features", toy, "--out", tmp_path, "--steps", 400, *EAGLE)
    assert [event["event"] for event in events[:2]] == ["agreement", "plan"]
    assert events[0]["share"] == 1
    done = events[-1]
    assert done["event"] == "done"
    print(done)
    greedy, sampled = done["acceptance"]["greedy"], done["acceptance"]["sampled"]
    assert min(greedy[:3]) > 0.6 and min(sampled[:3]) > 0.55
    for name in ("model.safetensors", "config.json", "curves.png", "curves.svg", "checkpoint/state.pt"):
        assert (tmp_path / name).stat().st_size > 0
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["outrider"]["target"]["file"] == "f" * 64 and config["outrider"]["acceptance"]["greedy"] == greedy
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [0, 2, 4]
    tensors = safetensors.torch.load_file(tmp_path / "model.safetensors")
    target = safetensors.torch.load_file(toy / "target.safetensors")
    tokens = tensors["d2t"] + torch.arange(60)
    assert 63 in tokens.tolist()  # the end token
    assert torch.equal(tensors["lm_head.weight"], target["output"][tokens])
    assert torch.equal(tensors["t2d"].nonzero()[:, 0], tokens)


def test_medusa_learns(toy, tmp_path):
    """Its first head knows two of the three tokens that its guess is a function of, so it cannot be right always."""
    events, _ = train("medusa", "--features", toy, "--out", tmp_path, "--steps", 300, "--batch-rows", 512,
                      "--rate", 0.05, "--draft-rows", 60)
    begin = next(event for event in events if event["event"] == "evaluation")
    done = events[-1]["acceptance"]
    print(begin, done)
    assert done["sampled"][0] > begin["sampled"][0] + 0.1
    assert len(done["greedy"]) == 3
    tensors = safetensors.torch.load_file(tmp_path / "medusa_lm_head.safetensors")
    assert sorted(tensors) == sorted(f"{h}.0.linear.{x}" for h in range(3) for x in ("weight", "bias"))


def final_state(folder):
    state = torch.load(folder / "checkpoint" / "state.pt", weights_only=True)
    assert state["is_finished"]
    return state


def test_resuming_changes_nothing(toy, tmp_path):
    arguments = ["eagle3", "--features", toy, "--steps", 60, "--precision", "f32", *EAGLE]
    train(*arguments, "--out", tmp_path / "whole")
    expected = final_state(tmp_path / "whole")
    for number, name in ((signal.SIGTERM, "ended"), (signal.SIGINT, "interrupted")):
        out = tmp_path / name
        process = start(*arguments, "--out", out)
        seen = 0
        while seen < 4:  # the first is of no step
            line = process.stdout.readline()
            assert line, process.stderr.read()
            seen += '"evaluation"' in line
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130 and "goes on from" in err
        stopped = torch.load(out / "checkpoint" / "state.pt", weights_only=True)
        assert 0 < stopped["step"] < 60 and not stopped["is_finished"]
        assert "fc.weight" in safetensors.torch.load_file(out / "model.safetensors")  # the best so far is usable
        events, _ = train(*arguments, "--out", out)
        assert events[1]["resumed_at"] == stopped["step"]
        state = final_state(out)
        assert state["step"] == expected["step"] and state["tokens"] == expected["tokens"]
        for name, tensor in expected["head"].items():
            assert torch.equal(state["head"][name], tensor), name
    events, err = train(*arguments, "--out", tmp_path / "whole")
    assert [event["event"] for event in events] == ["done"] and "finished" in err


def test_another_run_is_refused(toy, tmp_path):
    arguments = ["eagle3", "--features", toy, "--out", tmp_path / "head", *EAGLE]
    train(*arguments, "--steps", 3)
    assert "steps 3, not 4" in refused(*arguments, "--steps", 4)
    assert "seed 1, not 2" in refused(*arguments, "--steps", 3, "--seed", 2)
    assert "kind eagle3, not medusa" in refused("medusa", *arguments[1:], "--steps", 3)
    (tmp_path / "head" / "checkpoint" / "state.pt").write_bytes(b"nothing")
    assert "is no checkpoint" in refused(*arguments, "--steps", 3)


def test_a_full_disk_keeps_the_last_checkpoint(toy, tmp_path, monkeypatch):
    from outrider_train import __main__, loop

    arguments = ["eagle3", "--features", str(toy), "--out", str(tmp_path), "--steps", "4", *map(str, EAGLE)]
    run = loop.Run(__main__.parse(arguments))
    assert run.save()
    before = (tmp_path / "checkpoint" / "state.pt").read_bytes()

    def full(state, path):
        pathlib.Path(path).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(loop.torch, "save", full)
    assert not run.save()
    assert (tmp_path / "checkpoint" / "state.pt").read_bytes() == before
    assert [p.name for p in (tmp_path / "checkpoint").iterdir()] == ["state.pt"]


# Bad input


@pytest.fixture
def small(tmp_path):
    return toy_features.make(tmp_path / "features", texts=40, length=(8, 16))


def change(path, edit):
    tensors = safetensors.torch.load_file(path)
    edit(tensors)
    safetensors.torch.save_file(tensors, path, {"format": "1"})


def run_on(folder):
    return refused("eagle3", "--features", folder, "--out", folder / "head", "--steps", 2)


def test_a_cut_shard(small):
    path = small / "shard-00001.safetensors"
    whole = path.read_bytes()
    for size in (len(whole) - 1, len(whole) // 2, 100, 4, 0):
        path.write_bytes(whole[:size])
        assert "shard-00001.safetensors: ends after" in run_on(small)
    path.write_bytes(struct.pack("<Q", 4) + b"{]}}" + whole[12:])
    assert "shard-00001.safetensors: has no header" in run_on(small)


@pytest.mark.parametrize("edit", [
    lambda h: h.update(final=3), lambda h: h["final"].pop("data_offsets"), lambda h: h["final"].update(dtype=None),
    lambda h: h["final"].update(data_offsets=[0]), lambda h: h["final"].update(data_offsets=["a", "b"]),
    lambda h: h["final"].update(shape=None), lambda h: h["final"].update(shape=[2, -1]),
])
def test_a_damaged_header(small, edit):
    path = small / "shard-00000.safetensors"
    whole = path.read_bytes()
    end = 8 + struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8:end])
    edit(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + whole[end:])
    assert "shard-00000.safetensors: its header is damaged: tensor final is" in run_on(small)


@pytest.mark.parametrize("text", [b"[]", b"3", 50_000 * b"["])
def test_a_header_that_is_none(small, text):
    (small / "shard-00000.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    assert "shard-00000.safetensors: has no header" in run_on(small)


@pytest.mark.parametrize("config", ['{"architectures": ["LlamaForCausalLM"]}', '{"outrider": true}', "[]", "{"])
def test_the_head_of_another_program_is_left_alone(small, tmp_path, config):
    out = tmp_path / "head"
    out.mkdir()
    (out / "config.json").write_text(config)
    (out / "model.safetensors").write_bytes(b"theirs")
    assert "config.json: is of another program" in refused("eagle3", "--features", small, "--out", out, "--steps", 2)
    assert (out / "config.json").read_text() == config and (out / "model.safetensors").read_bytes() == b"theirs"
    assert len(list(out.iterdir())) == 2


def test_no_folder_for_the_head(small, tmp_path):
    (tmp_path / "file").write_text("")
    assert "file: cannot be made: File exists" in refused("eagle3", "--features", small, "--out", tmp_path / "file")


def test_missing_files(small, tmp_path):
    assert "features.json: cannot be read: No such file" in run_on(tmp_path / "nowhere")
    for shard in small.glob("shard-*"):
        shard.rename(shard.with_suffix(".part"))
    assert "has no shard-00000.safetensors" in run_on(small)
    (small / "target.safetensors").unlink()
    assert "target.safetensors: cannot be read" in run_on(small)


def test_features_that_are_no_numbers(small):
    for name in ("features", "final"):
        toy_features.make(small, texts=40, length=(8, 16))

        def spoil(tensors):
            tensors[name][:, 3] = float("nan")

        for shard in small.glob("shard-*"):
            change(shard, spoil)
        assert f": {name} of text" in run_on(small)


@pytest.mark.parametrize("name, edit, found", [
    ("rows", lambda t: t.update(final=t["final"][1:].clone()), "tensor final has"),
    ("width", lambda t: t.update(features=t["features"][:, 1:].clone()), "tensor features is BF16"),
    ("type", lambda t: t.update(tokens=t["tokens"].long()), "tensor tokens is I64"),
    ("absent", lambda t: t.pop("prompts"), "tensor prompts is missing"),
    ("token", lambda t: t["tokens"].fill_(256), "but the vocabulary has 256"),
    ("lengths", lambda t: t["lengths"].add_(1), "its 20 texts need"),
    ("prompt", lambda t: t["prompt_lengths"].fill_(-1), "tokens, -1 of them its prompt's"),
])
def test_wrong_shards(small, name, edit, found):
    change(small / "shard-00000.safetensors", edit)
    assert found in run_on(small)


@pytest.mark.parametrize("key, value, found", [
    ("format", 2, "format is 2, expected 1"), ("taps", [], "taps is []"), ("model", None, "format is 1"),
    ("model.heads", 3, "expected a multiple"), ("model.embedding", "64", "model.embedding is 64"),
    ("model.vocabulary_size", 100, "tensor embedding is BF16"),
])
def test_wrong_description(small, key, value, found):
    path = small / "features.json"
    description = json.loads(path.read_text())
    *outer, last = key.split(".")
    (description["model"] if outer else description)[last] = value
    path.write_text(json.dumps(description))
    assert found in run_on(small)


def test_draft_tokens_are_the_frequent_ones(small):
    features = Features(small)
    counts = torch.zeros(256)
    for text in features.training_texts():
        counts += torch.bincount(features.tokens(text)[text.prompt_length :].long(), minlength=256)
    for n in (1, 20, 256, 999):
        tokens = features.draft_tokens(n).tolist()
        assert len(tokens) == min(n, 256) and tokens == sorted(set(tokens)) and 255 in tokens
        outside = [counts[i] for i in range(256) if i not in tokens]
        assert not outside or max(outside) <= min([counts[i] for i in tokens if i != 255], default=1e9)
