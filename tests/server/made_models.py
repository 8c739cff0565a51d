"""Models made of a .gguf file: one of its first layers, which answers nonsense, fast; one that cannot answer."""

import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes, by type of GGUF's metadata
UINT32, STRING, ARRAY = 4, 8, 9


class Reader:
    """GGUF as in ggml's docs/gguf.md, version 3."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def string(self):
        size = self.number("Q")
        self.at += size
        return bytes(self.data[self.at - size:self.at])

    def skip_value(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            element, n = self.number("I"), self.number("Q")
            if element in SIZES:
                self.at += n * SIZES[element]
            else:
                for _ in range(n):
                    self.skip_value(element)
        else:
            self.at += SIZES[kind]

    def tensor(self):
        """Name, sizes, type, and place in the data."""
        name = self.string()
        sizes = [self.number("Q") for _ in range(self.number("I"))]
        return name, sizes, self.number("I"), self.number("Q")


def write_shallow_model(path, shallow_path, n_layers):
    """Tensors keep their places in the data, so what is left out of the list stays in the file."""
    data = bytearray(path.read_bytes())
    reader = Reader(data)
    reader.at = 8
    n_tensors, n_values, alignment = reader.number("Q"), reader.number("Q"), 32
    for _ in range(n_values):
        name, kind = reader.string(), reader.number("I")
        if name == b"general.alignment":
            (alignment,) = struct.unpack_from("<I", data, reader.at)
        if name.endswith(b".block_count"):
            assert kind == UINT32
            struct.pack_into("<I", data, reader.at, n_layers)
        reader.skip_value(kind)
    head = data[:reader.at]
    tensors = []
    for _ in range(n_tensors):
        begin = reader.at
        name, *_ = reader.tensor()
        if not name.startswith(b"blk.") or int(name.split(b".")[1]) < n_layers:
            tensors.append(data[begin:reader.at])
    struct.pack_into("<Q", head, 8, len(tensors))
    head += b"".join(tensors)
    rest = data[-(-reader.at // alignment) * alignment:]
    shallow_path.write_bytes(head + bytes(-len(head) % alignment) + rest)


def write_broken_model(path, broken_path):
    """Loads, but its last norm is NaN, and so is every logit."""
    data = bytearray(path.read_bytes())
    reader = Reader(data)
    reader.at = 8
    n_tensors, n_values = reader.number("Q"), reader.number("Q")
    for _ in range(n_values):
        reader.string()
        reader.skip_value(reader.number("I"))
    tensors = {name: rest for name, *rest in (reader.tensor() for _ in range(n_tensors))}
    [size], kind, place = tensors[b"output_norm.weight"]
    assert kind == 0  # float
    begin = -(-reader.at // 32) * 32 + place
    data[begin:begin + 4 * size] = struct.pack("<f", float("nan")) * size
    broken_path.write_bytes(data)
