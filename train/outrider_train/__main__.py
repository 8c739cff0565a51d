"""python -m outrider_train eagle3|medusa --features FOLDER --out HEAD

Trains a draft head from what `outrider features` wrote, and writes it into HEAD, from where `outrider -md HEAD` runs
it. The same command again goes on where an interrupted one ended. Events go to standard output, one JSON object per
line, messages to standard error. Exit status: 0 done, 2 an error of input, 130 interrupted.
"""

import argparse
import os
import sys

# Batches differ in size, so PyTorch's products on CPUs would keep compiled code for a thousand shapes, gigabytes of it.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "256")

import torch

from .errors import InputError, Interrupted
from .loop import Run


def positive(kind):
    def parse(text):
        value = kind(text)
        if not 0 < value < 1e9:
            raise ValueError
        return value

    parse.__name__ = f"positive {kind.__name__}"
    return parse


def parse(arguments):
    parser = argparse.ArgumentParser("outrider_train", description=__doc__.split("\n\n")[1])
    parser.add_argument("kind", choices=("eagle3", "medusa"))
    parser.add_argument("--features", required=True, metavar="FOLDER", help="what `outrider features` wrote")
    parser.add_argument("--out", required=True, metavar="HEAD", help="folder for the head, its curves and checkpoint")
    parser.add_argument("--hours", type=positive(float), default=1.0, help="of the whole run (default: 1)")
    parser.add_argument("--steps", type=positive(int), help="so many steps instead of hours")
    parser.add_argument("--draft-rows", type=positive(int), default=4096, metavar="N",
                        help="tokens that the head can guess (default: 4096)")
    parser.add_argument("--feed-forward", type=positive(int), metavar="F",
                        help="width of EAGLE-3's MLP (default: 2.7 times the model's width, or the model's)")
    parser.add_argument("--optimizer", choices=("muon", "adamw"), default="muon")
    parser.add_argument("--rate", type=positive(float), default=None, help="learning rate")
    parser.add_argument("--batch-rows", type=positive(int), default=2048, metavar="N",
                        help="tokens of answers per step (default: 2048)")
    parser.add_argument("--precision", choices=("auto", "bf16", "f32"), default="auto",
                        help="of matrix products (default: what is faster here)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=positive(int), metavar="N")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto",
                        help="auto: a GPU if PyTorch finds one")
    options = parser.parse_args(arguments)
    if options.device == "auto":
        options.device = "cuda" if torch.cuda.is_available() else "cpu"
    if options.rate is None:
        options.rate = dict(muon=2e-3, adamw=1e-3)[options.optimizer]
    return options


def main(arguments=None):
    options = parse(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    try:
        if options.device == "cuda" and not torch.cuda.is_available():
            raise InputError("--device cuda: PyTorch finds no GPU that it can use")
        Run(options).run()
    except InputError as error:
        print(f"outrider_train: {error}", file=sys.stderr)
        return 2
    except Interrupted:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
