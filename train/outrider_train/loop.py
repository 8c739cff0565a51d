"""One run: plan, train, evaluate, keep, from the start or from its last checkpoint."""

import json
import math
import pathlib
import signal
import sys
import time

import torch
from safetensors import SafetensorError

from . import evaluation
from .batches import epoch_groups, make_batch
from .curves import draw
from .eagle3 import Eagle3, default_feed_forward
from .errors import InputError, Interrupted
from .export import check_out, export, write_atomically
from .features import Features
from .losses import Aim, Target, draft_loss
from .medusa import Medusa
from .optimizer import make_optimizers, rate_share

CROSS_ENTROPY_SHARE = 0.2  # of the plan, at its begin; then mostly total variation
DEEPER_SHARE = 0.5  # from here on three test steps, before two
DEPTH_WEIGHT = 0.8  # of each depth, relative to the one before
EVALUATIONS = 24  # in a run, or fewer
EVALUATION_SHARE = 0.04  # of the time, at most
PATIENCE = 6  # evaluations without a better one
CHECKPOINT_SECONDS = 180
PROGRESS_SECONDS = 5
AGREEMENT_ROWS, AGREEMENT_LEAST = 16_384, 0.98
SAMPLE_ROWS = 8192  # from which scales are taken


def say(event, **fields):
    print(json.dumps(dict(event=event, **fields)), flush=True)


def note(message):
    print(f"outrider_train: {message}", file=sys.stderr, flush=True)


def fastest_precision(device):
    """bfloat16 where the machine multiplies it clearly faster than float32."""
    if device != "cpu":
        return torch.bfloat16
    seconds = {torch.float32: math.inf, torch.bfloat16: math.inf}
    for _ in range(8):  # in turn, and the fastest counts: others may use the machine
        for kind in seconds:
            a, b = torch.ones(2048, 512, dtype=kind), torch.ones(512, 1024, dtype=kind)
            began = time.monotonic()
            a @ b
            seconds[kind] = min(seconds[kind], time.monotonic() - began)
    return torch.bfloat16 if seconds[torch.bfloat16] < 0.8 * seconds[torch.float32] else torch.float32


class Run:
    # What a checkpoint has beside settings, shards, tensors and time.
    SAVED = ("log_whole", "agreement", "step", "epoch", "in_epoch", "tokens", "best", "best_head", "since_best",
             "evaluations", "is_evaluation_due", "progress", "is_finished")

    def __init__(self, options):
        self.began = time.monotonic()
        self.options, self.device = options, options.device
        self.out = pathlib.Path(options.out)
        self.checkpoint_path = self.out / "checkpoint" / "state.pt"
        self.stop_signal = None
        saved = self._load()
        if not saved:
            check_out(self.out)
        self.features = Features(options.features, saved["shards"] if saved else None)
        self.settings = self._settings()
        if saved:
            self._check_same(saved["settings"])
            self.settings["precision"] = saved["settings"]["precision"]
        else:
            choice = dict(bf16=torch.bfloat16, f32=torch.float32).get(options.precision)
            precision = choice or fastest_precision(self.device)
            self.settings["precision"] = "bf16" if precision == torch.bfloat16 else "f32"
        self.precision = torch.bfloat16 if self.settings["precision"] == "bf16" else torch.float32
        self.step = self.epoch = self.in_epoch = self.tokens = 0
        self.elapsed_before = 0.0
        self.best, self.best_head, self.since_best = None, None, 0
        self.evaluations, self.progress, self.is_finished = [], [], False
        self.is_evaluation_due = True  # before the first step; later where one was interrupted
        self._build(saved)

    # --- settings and checkpoints

    def _settings(self):
        o = self.options
        settings = dict(kind=o.kind, features=self.features.fingerprint(), draft_rows=o.draft_rows, seed=o.seed,
                        optimizer=o.optimizer, rate=o.rate, batch_rows=o.batch_rows)
        if o.kind == "eagle3":
            settings["feed_forward"] = o.feed_forward or default_feed_forward(self.features.model)
        settings.update(dict(steps=o.steps) if o.steps else dict(hours=o.hours))
        return settings

    def _check_same(self, saved):
        """The hours may change: all that depends on them follows the share that is done."""
        keys = (set(self.settings) | set(saved)) - {"precision", "hours"}
        for key in sorted(keys, key=lambda key: (key != "kind", key)):
            if self.settings.get(key) != saved.get(key):
                what = f"{key} {saved.get(key)}, not {self.settings.get(key)}"
                what = "other features" if key == "features" else what
                raise InputError(f"{self.checkpoint_path}: was made with {what}: give the same settings to go on, or "
                                 "another folder to begin anew")

    def _load(self):
        if not self.checkpoint_path.exists():
            return None
        try:
            saved = torch.load(self.checkpoint_path, map_location="cpu", weights_only=True)
            return saved if saved["format"] == 1 else None
        except Exception as error:  # PyTorch has no type of its own for these
            reason = str(error).split("\n")[0]
            raise InputError(f"{self.checkpoint_path}: is no checkpoint of this program: {reason}") from None

    def save(self):
        """False, with a message, if it could not be written; the last one is still there then."""
        state = dict(
            {name: getattr(self, name) for name in self.SAVED}, format=1, settings=self.settings,
            shards=self.features.shards, head=self.head.state_dict(), draft_tokens=self.draft_tokens,
            optimizers=[optimizer.state_dict() for optimizer in self.optimizers], elapsed=self.elapsed())
        try:
            self.checkpoint_path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.checkpoint_path, lambda path: torch.save(state, path))
            return True
        except (OSError, RuntimeError) as error:
            stays = ", the one before stays" if self.checkpoint_path.exists() else ""
            note(f"{self.checkpoint_path}: cannot be written{stays}: {str(error).splitlines()[0]}")
            return False

    def _build(self, saved):
        o, features = self.options, self.features
        self.training, held_out = features.training_texts(), features.held_out_texts()
        if not self.training or not held_out:
            raise InputError(f"{features.folder}: {len(self.training)} texts to train on and {len(held_out)} held out "
                             "(prompts 19, 39, ...): expected some of both")
        self.draft_tokens = saved["draft_tokens"] if saved else features.draft_tokens(o.draft_rows)
        self.target = Target(features, self.draft_tokens, self.precision, self.device)
        torch.manual_seed(o.seed)
        if o.kind == "eagle3":
            embedding = features.embedding.to(self.device)
            self.head = Eagle3(features.model, len(features.taps), self.settings["feed_forward"], embedding,
                               self.precision)
            self.scale, self.cap = 1.0, 0.0
        else:
            self.head = Medusa(features.model, self.precision)
            self.scale, self.cap = self.target.scale, self.target.cap
        if saved:
            self.head.load_state_dict(saved["head"])
        elif o.kind == "eagle3":
            self._begin_head()
        self.head.to(self.device)
        self.optimizers = make_optimizers(self.head, self.settings, self.precision)
        self.log_whole = torch.full((features.n_rows,), math.nan)
        self.agreement = None
        if saved:
            for optimizer, state in zip(self.optimizers, saved["optimizers"]):
                optimizer.load_state_dict(state)
            for key in self.SAVED:
                setattr(self, key, saved.get(key, getattr(self, key)))  # a former version's lacks some
            self.elapsed_before = saved["elapsed"]
        needs_taps = self.head.needs_taps
        generator = torch.Generator().manual_seed(7)
        quick, rows = [], 0
        for i in torch.randperm(len(held_out), generator=generator).tolist():
            if rows < evaluation.QUICK_ROWS:
                quick.append(held_out[i])
                rows += held_out[i].n_starts
        self.all_held_out = held_out
        self.quick = evaluation.HeldOut(features, quick, self.target, needs_taps, o.batch_rows, self.device)

    def _begin_head(self):
        """Scales from a sample of the features."""
        squares, final, rows, generator = 0, 0, 0, torch.Generator().manual_seed(1)
        for i in torch.randperm(len(self.training), generator=generator).tolist():
            batch = make_batch(self.features, [self.training[i]])
            taps, states = batch.taps[batch.starts].float(), batch.final.float()
            squares, final = squares + taps.square().sum(0), final + states.square().sum(0)
            rows += len(states)
            if rows >= SAMPLE_ROWS:
                break
        self.head.begin((squares / rows).sqrt(), (final / rows).sqrt() * self.target.scale)

    # --- time

    def elapsed(self):
        return self.elapsed_before + (0 if self.is_finished else time.monotonic() - self.began)

    def done(self):
        if self.options.steps:
            return min(1.0, self.step / self.options.steps)
        seconds = self.options.hours * 3600
        return min(1.0, self.elapsed() / max(1.0, seconds - min(90, 0.03 * seconds)))

    def check_signal(self):
        if self.stop_signal:
            raise Interrupted

    # --- the run

    def run(self):
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, lambda number, frame: setattr(self, "stop_signal", number))
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.out}: cannot be made: {error.strerror}") from None
        if self.is_finished:
            note(f"{self.out}: this run is finished; give another folder to begin anew")
            self._say_done(resumed=True)
            return
        try:
            self._prepare()
            self._train()
            self._finish()
        except Interrupted:
            if self.save():
                note(f"stopped; the same command goes on from {self.checkpoint_path}")
            elif self.checkpoint_path.exists():
                note(f"stopped; the same command goes on from the checkpoint before, {self.checkpoint_path}")
            else:
                note("stopped without a checkpoint; the same command begins anew")
            raise

    def _prepare(self):
        if self.agreement is None:
            share, rows = evaluation.agreement(self.features, self.features.texts, self.target, AGREEMENT_ROWS,
                                               self.device, self.check_signal)
            self.agreement = dict(share=share and round(share, 5), positions=rows)
        share = self.agreement["share"]
        say("agreement", **self.agreement)
        if share is None:
            note("no answers at temperature 0: agreement of recomputed logits with the model's choices is not measured")
        elif share < AGREEMENT_LEAST:
            note(f"recomputed logits choose the token of the text in {share:.2%} of cases, expected "
                 f"{AGREEMENT_LEAST:.0%} and more: are these features of another model file?")
        n_answers = sum(text.n_starts for text in self.training)
        say("plan", kind=self.options.kind, texts=len(self.training), answer_tokens=n_answers,
            held_out_texts=len(self.all_held_out), draft_rows=len(self.draft_tokens),
            parameters=sum(p.numel() for p in self.head.parameters()), precision=self.settings["precision"],
            optimizer=self.settings["optimizer"], threads=torch.get_num_threads(), device=self.device,
            hours=None if self.options.steps else self.options.hours, steps=self.options.steps, resumed_at=self.step)
        if self.is_evaluation_due:
            self._evaluate()

    def _groups(self):
        while True:
            groups = epoch_groups(self.training, self.options.batch_rows, self.options.seed, self.epoch)
            while self.in_epoch < len(groups):
                self.in_epoch += 1
                yield groups[self.in_epoch - 1]
            self.epoch, self.in_epoch = self.epoch + 1, 0

    def _is_over(self):
        if self.since_best >= PATIENCE:
            note(f"no better evaluation for {PATIENCE} times: stopped early")
            return True
        return self.step > 0 and self.done() >= 1

    def _train(self):
        if self._is_over():
            return
        said = saved = time.monotonic()
        next_evaluation = (math.floor(self.done() * EVALUATIONS) + 1) / EVALUATIONS
        flops = tokens = 0
        for texts in self._groups():
            losses, batch, depths = self._step(texts)
            self.step += 1
            self.tokens += batch.n_starts
            flops += self.head.flops(batch, depths, len(self.draft_tokens)) + self.extra_flops
            tokens += batch.n_starts
            now, done = time.monotonic(), self.done()
            if now - said >= PROGRESS_SECONDS or done >= 1:
                event = dict(done=round(done, 4), step=self.step, epoch=self.epoch, tokens=self.tokens, depths=depths,
                             **losses, tokens_per_second=round(tokens / (now - said)),
                             gflops=round(flops / (now - said) / 1e9, 1), seconds=round(self.elapsed(), 1))
                say("progress", **event)
                self.progress.append(event)
                flops, tokens, said = 0, 0, now
            if self.stop_signal:
                raise Interrupted
            if done >= 1:
                return
            if done >= next_evaluation:
                before = time.monotonic()
                self._evaluate()
                next_evaluation = max((math.floor(done * EVALUATIONS) + 1) / EVALUATIONS, done + self._pause())
                said += time.monotonic() - before
                if self._is_over():
                    return
            if time.monotonic() - saved >= CHECKPOINT_SECONDS:
                before = time.monotonic()
                self.save()
                saved = time.monotonic()
                said += saved - before

    def _pause(self):
        """Until the next evaluation, as a share of the run, so that they take little of its time."""
        seconds = 0 if self.options.steps else self.options.hours * 3600
        return self.evaluations[-1]["took"] / EVALUATION_SHARE / seconds if seconds else 0

    def _step(self, texts):
        done = self.done()
        uses_variation = done >= CROSS_ENTROPY_SHARE
        depths = self.head.heads if self.options.kind == "medusa" else 2 if done < DEEPER_SHARE else 3
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.settings["rate"] * rate_share(done)
        batch = make_batch(self.features, texts, self.head.needs_taps)
        log_whole = self._log_whole(batch).to(self.device) if uses_variation else None
        batch = batch.to(self.device)
        with torch.no_grad():
            aim = Aim.of(self.target, batch.final, log_whole)
        loss, first = 0, None
        for depth, states in enumerate(self.head.states(batch, depths)):
            is_valid = batch.number_in_text >= self.head.first_number + depth
            weight = is_valid.float() / is_valid.sum().clamp_min(1)
            ce, tv = (0.1, 0.9) if uses_variation else (1.0, 0.0)
            part, parts = draft_loss(states, self.target.rows, aim, weight, ce, tv, self.scale, self.cap)
            loss = loss + DEPTH_WEIGHT**depth * part
            first = parts.tolist() if first is None else first
        if not math.isfinite(loss.item()):
            raise InputError(f"step {self.step}: the loss is no number; a smaller --rate may help")
        loss.backward()
        if self.settings["optimizer"] == "adamw":
            torch.nn.utils.clip_grad_norm_(self.head.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        losses = dict(loss=round(loss.item(), 4), cross_entropy=round(first[0], 4),
                      variation=round(first[1], 4) if uses_variation else None)
        return losses, batch, depths

    extra_flops = 0

    def _log_whole(self, batch):
        """Of all logits of the target, computed where an earlier epoch did not."""
        known = self.log_whole[batch.row_numbers]
        missing = known.isnan()
        self.extra_flops = 0
        if missing.any():
            with torch.no_grad():
                known[missing] = self.target.log_sum_exp(batch.final[missing].to(self.device)).cpu()
            self.log_whole[batch.row_numbers] = known
            self.extra_flops = 2 * int(missing.sum()) * self.target.whole.numel()
        return known

    def _evaluate(self):
        began, self.is_evaluation_due = time.monotonic(), True
        found = self.quick.evaluate(self.head, self.scale, self.cap, self.check_signal)
        self.is_evaluation_due = False
        is_better = self.best is None or found["length"] > self.best["length"]
        event = dict(done=round(self.done(), 4), step=self.step, tokens=self.tokens, **found, best=is_better,
                     seconds=round(self.elapsed(), 1), took=round(time.monotonic() - began, 1))
        say("evaluation", **event)
        self.evaluations.append(event)
        self.since_best = 0 if is_better else self.since_best + 1
        if is_better:
            self.best = dict(found, step=self.step)
            self.best_head = {name: tensor.detach().cpu().clone() for name, tensor in self.head.state_dict().items()}
            self._export(self.best, must=self.step == 0)
        self._draw()

    def _recipe(self):
        return dict({key: value for key, value in self.settings.items() if key != "features"}, step=self.step,
                    tokens=self.tokens, seconds=round(self.elapsed()), agreement=self.agreement)

    def _export(self, acceptance, must):
        try:
            export(self.out, self.options.kind, self.features, self.head, self.draft_tokens, acceptance, self._recipe())
        except (OSError, SafetensorError) as error:
            message = f"{self.out}: the head cannot be written: {getattr(error, 'strerror', None) or error}"
            if must:
                raise InputError(message) from None
            note(f"{message}; the one before stays")

    def _draw(self):
        try:
            if not draw(self.out, self.progress, self.evaluations) and self.step == 0:
                note("matplotlib is not there: no curves are drawn")
        except OSError as error:
            note(f"{self.out}: curves cannot be written: {error.strerror or error}")

    def _say_done(self, **more):
        say("done", done=1.0, step=self.step, tokens=self.tokens, seconds=round(self.elapsed(), 1),
            acceptance=self.best, agreement=self.agreement, **more)

    def _finish(self):
        if self.evaluations[-1]["step"] != self.step:
            self._evaluate()
        self.head.load_state_dict(self.best_head)
        every = evaluation.HeldOut(self.features, self.all_held_out, self.target, self.head.needs_taps,
                                   self.options.batch_rows, self.device)
        found = every.evaluate(self.head, self.scale, self.cap, self.check_signal)
        self.best = dict(found, step=self.best["step"])
        self._export(self.best, must=True)
        self.elapsed_before, self.is_finished = self.elapsed(), True
        self.save()
        self._say_done()
