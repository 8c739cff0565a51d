"""A model that answers nonsense, fast: the first layers of a .gguf file. For tests of many requests."""

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
        begin, name = reader.at, reader.string()
        n_sizes = reader.number("I")
        reader.at += 8 * n_sizes + 4 + 8  # sizes, type, place
        if not name.startswith(b"blk.") or int(name.split(b".")[1]) < n_layers:
            tensors.append(data[begin:reader.at])
    struct.pack_into("<Q", head, 8, len(tensors))
    head += b"".join(tensors)
    rest = data[-(-reader.at // alignment) * alignment:]
    shallow_path.write_bytes(head + bytes(-len(head) % alignment) + rest)
