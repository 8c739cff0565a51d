"""Makes a small features folder of a target that a head can learn: its final state at p is a function of tokens p and
p - 1, and its taps are others of these."""

import json
import pathlib

import safetensors.torch
import torch


def write_shard(path, texts, taps_of, final_of):
    """texts: (tokens, prompt_length, temperature, prompt)."""
    rows = [(taps_of(tokens)[1:-1], final_of(tokens)[1:-1]) for tokens, *_ in texts]
    safetensors.torch.save_file({
        "tokens": torch.cat([tokens for tokens, *_ in texts]).int(),
        "lengths": torch.tensor([len(tokens) for tokens, *_ in texts], dtype=torch.int32),
        "prompt_lengths": torch.tensor([text[1] for text in texts], dtype=torch.int32),
        "temperatures": torch.tensor([text[2] for text in texts], dtype=torch.float32),
        "prompts": torch.tensor([text[3] for text in texts], dtype=torch.int32),
        "features": torch.cat([taps for taps, _ in rows]), "final": torch.cat([final for _, final in rows]),
    }, path, {"format": "1"})


def make(folder, width=64, vocabulary=256, heads=4, kv_heads=2, head_dim=16, texts=240, shards=2, length=(12, 60),
         sharpness=14.0, seed=0, prompt=(3, 12)):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(seed)

    def randn(*shape):
        return torch.randn(*shape, generator=generator)

    embedding = randn(vocabulary, width).bfloat16()
    output = (randn(vocabulary, width) * sharpness / width).bfloat16()
    mix_now, mix_before = randn(width, width) / width**0.5, randn(width, width) / width**0.5
    tap_mixes = randn(3, 2, width, width) / width**0.5
    sizes = torch.tensor([0.1, 1.0, 20.0])  # taps differ in scale, as real ones do

    def pair(tokens):
        now = embedding[tokens].float()
        return now, torch.cat((torch.zeros_like(now[:1]), now[:-1]))

    def final_of(tokens):
        now, before = pair(tokens)
        state = torch.tanh(now @ mix_now + 0.7 * before @ mix_before)
        return (state * state.square().mean(-1, keepdim=True).rsqrt()).bfloat16()

    def taps_of(tokens):
        now, before = pair(tokens)
        return torch.cat([size * (now @ a + before @ b) for size, (a, b) in zip(sizes, tap_mixes)], -1).bfloat16()

    def text(number):
        n = int(torch.randint(length[0], length[1], (1,), generator=generator))
        n_prompt = min(n - 2, int(torch.randint(prompt[0], prompt[1], (1,), generator=generator)))
        tokens = torch.randint(vocabulary, (n_prompt,), generator=generator).tolist()
        temperature = 0.0 if number % 3 == 0 else 1.0
        while len(tokens) < n:
            logits = output.float() @ final_of(torch.tensor(tokens[-2:]))[-1].float()
            if temperature:
                tokens.append(int(torch.multinomial(logits.softmax(-1), 1, generator=generator)))
            else:
                tokens.append(int(logits.argmax()))
        return torch.tensor(tokens), n_prompt, temperature, number

    every = [text(number) for number in range(texts)]
    for shard in range(shards):
        write_shard(folder / f"shard-{shard:05}.safetensors", every[shard::shards], taps_of, final_of)
    safetensors.torch.save_file({"embedding": embedding, "output": output}, folder / "target.safetensors")
    model = dict(name="toy", file="f" * 64, vocabulary="a" * 64, family="llama", layers=6, embedding=width,
                 vocabulary_size=vocabulary, heads=heads, kv_heads=kv_heads, head_dim=head_dim, feed_forward=2 * width,
                 rms_epsilon=1e-5, rope_theta=10000.0, context=512, bos=None, eos=[vocabulary - 1], embedding_scale=1.0,
                 logit_scale=1.0, logit_softcap=0)
    (folder / "features.json").write_text(json.dumps(dict(format=1, model=model, taps=[0, 2, 4], seed=seed)))
    return folder
