"""What a run does when: which losses, which tokens count, evaluations, early stop, hours, and how it goes on. Runs are
in this process, where a test can set the clock."""

import contextlib
import io
import json
import pathlib
import signal
import sys
import types

import pytest
import safetensors.torch
import torch

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[1])]

import toy_features
from outrider_train import evaluation, loop
from outrider_train.__main__ import main, parse

SMALL = dict(vocabulary=64, width=32, heads=2, kv_heads=1, length=(8, 24))


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return toy_features.make(tmp_path_factory.mktemp("toy") / "features", texts=120, **SMALL)


@pytest.fixture(autouse=True)
def no_curves(monkeypatch):
    monkeypatch.setattr(loop, "draw", lambda *_: True)  # takes longer than such a run


def arguments_for(features, out):
    return ["eagle3", "--features", features, "--out", out, "--batch-rows", 256, "--draft-rows", 60, "--rate", 0.02,
            "--precision", "f32"]


def run_here(*arguments, status=0):
    """Returns events and messages."""
    out, err = io.StringIO(), io.StringIO()
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            found = main([*map(str, arguments), "--threads", "1"])
    finally:
        for each in before:
            signal.signal(*each)
    assert found == status, err.getvalue()
    return [json.loads(line) for line in out.getvalue().splitlines()], err.getvalue()


def named(events, name):
    return [event for event in events if event["event"] == name]


def test_losses_and_test_steps_follow_the_share_done(toy, tmp_path, monkeypatch):
    asked, step, draft_loss = [], loop.Run._step, loop.draft_loss

    def watched_step(run, texts):
        asked.append([])
        return step(run, texts)

    def watched_loss(states, rows, aim, weight, cross_entropy, variation, *more):
        loss, parts = draft_loss(states, rows, aim, weight, cross_entropy, variation, *more)
        asked[-1].append((cross_entropy, variation, loss.item()))
        return loss, parts

    monkeypatch.setattr(loop.Run, "_step", watched_step)
    monkeypatch.setattr(loop, "draft_loss", watched_loss)
    monkeypatch.setattr(loop, "PROGRESS_SECONDS", 0)
    events, err = run_here(*arguments_for(toy, tmp_path), "--steps", 10)
    assert not err
    progress = named(events, "progress")
    assert [event["step"] for event in progress] == list(range(1, 11))
    assert [event["depths"] for event in progress] == 5 * [2] + 5 * [3]
    assert [event["variation"] is None for event in progress] == 2 * [True] + 8 * [False]
    assert len(asked) == len(progress)
    for event, parts in zip(progress, asked):
        cross_entropy, variation = (1.0, 0.0) if event["step"] <= 2 else (0.1, 0.9)
        assert [part[:2] for part in parts] == event["depths"] * [(cross_entropy, variation)]
        first = cross_entropy * event["cross_entropy"] + variation * (event["variation"] or 0)
        assert first == pytest.approx(parts[0][2], abs=2e-4)
        assert event["loss"] == pytest.approx(sum(0.8**depth * part[2] for depth, part in enumerate(parts)), abs=2e-4)


def test_only_tokens_of_answers_count(tmp_path):
    """What the target says of a token changes the loss where the token is an answer's. The first that a draft can guess
    is token 3, because position 0 has no features."""
    toy = toy_features.make(tmp_path / "features", texts=40, prompt=(1, 8), **SMALL)
    run = loop.Run(parse([*map(str, arguments_for(toy, tmp_path / "head")), "--steps", "10"]))
    run.settings["rate"] = 0.0  # the head stays as it is
    texts = run.training[:12]
    assert {text.prompt_length < 3 for text in texts} == {True, False}
    for text in texts:
        before, counted = run._step([text])[0], []
        for token in range(2, text.n_tokens):
            state = run.features.rows(text, "final", token - 1, token - 1)
            kept = state.clone()
            state.neg_()  # in memory alone
            if run._step([text])[0] != before:
                counted.append(token)
            state.copy_(kept)
        assert counted == list(range(max(3, text.prompt_length), text.n_tokens))
        assert run._step([text])[0] == before


def test_agreement_needs_greedy_answers(tmp_path):
    toy = toy_features.make(tmp_path / "features", texts=40, **SMALL)
    for shard in toy.glob("shard-*"):
        tensors = safetensors.torch.load_file(shard)
        tensors["temperatures"].fill_(1.0)
        safetensors.torch.save_file(tensors, shard, {"format": "1"})
    events, err = run_here(*arguments_for(toy, tmp_path / "head"), "--steps", 1)
    assert events[0] == dict(event="agreement", share=None, positions=0)
    assert len(err.splitlines()) == 1 and "no answers at temperature 0" in err


def test_a_run_that_gets_no_better_stops_early(toy, tmp_path, monkeypatch):
    evaluate, heads = evaluation.HeldOut.evaluate, []

    def third_is_best(held_out, head, *more):
        heads.append(head.q.detach().clone())
        return dict(evaluate(held_out, head, *more), length=3.0 if len(heads) == 3 else 2.0 - len(heads) / 100)

    monkeypatch.setattr(evaluation.HeldOut, "evaluate", third_is_best)
    events, err = run_here(*arguments_for(toy, tmp_path), "--steps", 48)
    evaluations, done = named(events, "evaluation"), events[-1]
    assert [event["best"] for event in evaluations] == [True, False, True] + 6 * [False]
    assert err.count("stopped early") == 1
    assert done["step"] == evaluations[-1]["step"] < 48
    assert done["acceptance"]["step"] == evaluations[2]["step"]
    written = safetensors.torch.load_file(tmp_path / "model.safetensors")["midlayer.self_attn.q_proj.weight"]
    assert torch.equal(written, heads[2].bfloat16()) and not torch.equal(written, heads[8].bfloat16())


def test_an_interrupted_evaluation_is_made_on_resuming(toy, tmp_path, monkeypatch):
    """Evaluations 1 to 7 are of steps 0 to 6, the eighth is of all held-out texts at the end."""
    evaluate, calls, stop_at = evaluation.HeldOut.evaluate, 0, None

    def interrupted(*arguments):
        nonlocal calls
        calls += 1
        if calls == stop_at:
            signal.raise_signal(signal.SIGTERM)
        return evaluate(*arguments)

    def of_evaluations(events):
        return [{key: event[key] for key in ("step", "tokens", "greedy", "sampled", "best")}
                for event in named(events, "evaluation")]

    monkeypatch.setattr(loop, "PATIENCE", 1000)
    monkeypatch.setattr(evaluation.HeldOut, "evaluate", interrupted)
    whole, _ = run_here(*arguments_for(toy, tmp_path / "whole"), "--steps", 6)
    assert calls == 8
    for stop_at in (1, 4, 7, 8):
        calls, out = 0, tmp_path / f"stopped {stop_at}"
        first, _ = run_here(*arguments_for(toy, out), "--steps", 6, status=130)
        assert len(of_evaluations(first)) == stop_at - 1
        rest, _ = run_here(*arguments_for(toy, out), "--steps", 6)
        assert of_evaluations(first) + of_evaluations(rest) == of_evaluations(whole)
        assert rest[-1]["acceptance"] == whole[-1]["acceptance"]
        assert (out / "model.safetensors").read_bytes() == (tmp_path / "whole" / "model.safetensors").read_bytes()


@pytest.fixture
def clock(monkeypatch):
    """A step takes ten seconds, all else no time. stop_at: the step after which the run is stopped, once."""
    clock, step = types.SimpleNamespace(now=5000.0, stop_at=None), loop.Run._step
    clock.monotonic = lambda: clock.now

    def slow(run, texts):
        clock.now += 10
        if run.step + 1 == clock.stop_at:
            clock.stop_at = None
            signal.raise_signal(signal.SIGTERM)
        return step(run, texts)

    monkeypatch.setattr(loop, "time", clock)
    monkeypatch.setattr(loop.Run, "_step", slow)
    monkeypatch.setattr(loop, "PATIENCE", 1000)
    return clock


@pytest.mark.parametrize("hours, steps", [(0.1, 35), (0.2, 70), (0.05, 18), (0.02, 10)])
def test_a_stopped_run_goes_on_with_other_hours(toy, tmp_path, clock, hours, steps):
    """Training ends when 97 % of the hours are over, without the time between the runs. The last are over already."""
    clock.stop_at = 10
    events, _ = run_here(*arguments_for(toy, tmp_path), "--hours", 0.1, status=130)
    assert [event["depths"] for event in named(events, "progress")] == 10 * [2]
    clock.now += 10_000
    events, _ = run_here(*arguments_for(toy, tmp_path), "--hours", hours)
    done = events[-1]
    assert events[1]["hours"] == hours and events[1]["resumed_at"] == 10
    assert done["step"] == steps and done["seconds"] == 10 * steps and done["tokens"] > 0
    assert json.loads((tmp_path / "config.json").read_text())["outrider"]["recipe"]["hours"] == hours
    clock.now += 10_000
    again, err = run_here(*arguments_for(toy, tmp_path), "--hours", hours)
    assert again == [dict(done, resumed=True)] and "this run is finished" in err


def test_a_stopped_run_says_what_is_kept(toy, tmp_path, clock, monkeypatch):
    def full(state, path):
        raise OSError(28, "No space left on device")

    def stop(at):
        clock.stop_at = at
        return run_here(*arguments_for(toy, tmp_path), "--hours", 0.1, status=130)[1].splitlines()

    with monkeypatch.context() as patch:
        patch.setattr(loop.torch, "save", full)
        failed, stopped = stop(3)
        assert "cannot be written: " in failed and stopped.endswith("the same command begins anew")
    (stopped,) = stop(4)  # from the first step on, in a folder with a head of ours
    assert stopped.endswith(f"the same command goes on from {tmp_path / 'checkpoint' / 'state.pt'}")
    with monkeypatch.context() as patch:
        patch.setattr(loop.torch, "save", full)
        failed, stopped = stop(6)
        assert "the one before stays" in failed and "goes on from the checkpoint before" in stopped
    events, _ = run_here(*arguments_for(toy, tmp_path), "--hours", 0.1)
    assert events[1]["resumed_at"] == 4
