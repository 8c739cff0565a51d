"""Writes the tensors of a PyTorch checkpoint as a safetensors file, with the same names.

convert_head.py CHECKPOINT SAFETENSORS. Runs no code of the checkpoint (weights_only). Prints a JSON object: tensors,
bytes, and the names left out because they are no tensors. A refusal is one line on standard error, and status 2.
Status 3: packages are missing, or PyTorch is older than 2.6, in which weights_only can be led to run code.
"""

import json
import os
import re
import sys

try:
    import numpy  # noqa: F401, which safetensors asks for while it writes
    import torch
    from safetensors.torch import save_file
except (ImportError, OSError) as error:
    print(error, file=sys.stderr)
    sys.exit(3)
if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 6):
    print(f"PyTorch is version {torch.__version__}, expected 2.6 or later", file=sys.stderr)
    sys.exit(3)

# What the reader of safetensors takes, and what the other types become.
READ = {torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool}
CHANGED = {torch.float64: torch.float32, torch.int16: torch.int32, torch.int8: torch.int32}
WRAPPERS = ("state_dict", "model_state_dict", "model", "module")


def refuse(problem):
    print(" ".join(problem.split()), file=sys.stderr)
    sys.exit(2)


def load(path):
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of many kinds, by what is wrong
        text = str(error)
        if forbidden := re.search(r"\bGLOBAL ([\w.]+)", text):
            name = forbidden[1].rstrip(".")
            refuse(f"holds Python objects that are no weights ({name}), which could run code and are not loaded")
        # The advice around it is to load without weights_only.
        reason = re.search(r"WeightsUnpickler error: (.*)", text)
        lines = (reason[1] if reason else text).strip().splitlines()
        refuse(f"cannot be loaded: {lines[0].split('. ')[0] if lines else 'it is damaged or none of PyTorch'}")


def tensors_of(loaded):
    """The dictionary of tensors, and the names of its entries that are none."""
    for _ in range(3):
        if not isinstance(loaded, dict):
            refuse(f"holds a {type(loaded).__name__}, expected a dictionary of tensors")
        inner = next((loaded[name] for name in WRAPPERS if isinstance(loaded.get(name), dict)), None)
        if inner is None or any(isinstance(value, torch.Tensor) for value in loaded.values()):
            break
        loaded = inner
    tensors = {name: value for name, value in loaded.items() if isinstance(value, torch.Tensor)}
    if not tensors:
        refuse("holds no tensors, expected a dictionary of tensors")
    return tensors, [str(name) for name in loaded if name not in tensors]


def plain(name, tensor):
    """A copy with memory of its own, as the format asks for."""
    if not isinstance(name, str) or not name:
        refuse(f"has a tensor called {name!r}, expected text")
    if tensor.layout != torch.strided or tensor.is_quantized:
        refuse(f"tensor {name} is {'quantized' if tensor.is_quantized else tensor.layout}, expected plain numbers")
    kind = CHANGED.get(tensor.dtype, tensor.dtype)
    if kind not in READ:
        refuse(f"tensor {name} is {str(kind).removeprefix('torch.')}, which is not read")
    return tensor.detach().to(kind).clone(memory_format=torch.contiguous_format)


def main(source, target):
    tensors, left_out = tensors_of(load(source))
    tensors = {name: plain(name, tensor) for name, tensor in tensors.items()}
    partial = target + ".partial"
    try:
        save_file(tensors, partial, metadata={"format": "pt"})
        os.replace(partial, target)
    except Exception as error:
        if os.path.exists(partial):
            os.remove(partial)
        refuse(f"{target} cannot be written: {error}")
    print(json.dumps({"tensors": len(tensors), "bytes": os.path.getsize(target), "left_out": sorted(left_out)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
