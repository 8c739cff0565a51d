"""Models made of a .gguf file: one of its first layers, which answers nonsense, fast; one that cannot answer; ones with
other metadata."""

import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes, by type of GGUF's metadata
STRING, ARRAY = 8, 9


class Model:
    """GGUF as in ggml's docs/gguf.md, version 3."""

    def __init__(self, path):
        self.data, self.at = bytearray(path.read_bytes()), 8
        n_tensors, n_values = self.number("Q"), self.number("Q")
        self.values = {}  # where each one's number stands, by name; for lists and strings, where they begin
        self.entries = {}  # all bytes of each, by name
        for _ in range(n_values):
            begin = self.at
            name, kind = self.string(), self.number("I")
            self.values[name] = self.at
            self.skip_value(kind)
            self.entries[name] = bytes(self.data[begin:self.at])
        self.list_begin = self.at
        self.tensors = {}  # by name: sizes, type, place in the weights, and what the list says of it
        for _ in range(n_tensors):
            begin, name = self.at, self.string()
            sizes = [self.number("Q") for _ in range(self.number("I"))]
            self.tensors[name] = sizes, self.number("I"), self.number("Q"), self.data[begin:self.at]
        self.weights_begin = -(-self.at // self.alignment) * self.alignment

    @property
    def alignment(self):
        at = self.values.get(b"general.alignment")
        return 32 if at is None else struct.unpack_from("<I", self.data, at)[0]

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
    """Tensors keep their places in the weights, so what is left out of the list stays in the file."""
    model = Model(path)
    for name, at in model.values.items():
        if name.endswith(b".block_count"):
            struct.pack_into("<I", model.data, at, n_layers)
    kept = [in_list for name, (*_, in_list) in model.tensors.items()
            if not name.startswith(b"blk.") or int(name.split(b".")[1]) < n_layers]
    head = model.data[:model.list_begin]
    struct.pack_into("<Q", head, 8, len(kept))
    head += b"".join(kept)
    shallow_path.write_bytes(head + bytes(-len(head) % model.alignment) + model.data[model.weights_begin:])


def write_model_with_prediction(path, whole_path, layer_path):
    """The last layer of text predicts a further token instead, as llama.cpp writes such models: in the first file
    behind the other layers, in the second alone. It was not trained for that."""
    model = Model(path)
    [family] = [name.split(b".")[0] for name in model.values if name.endswith(b".embedding_length")]

    def number(key):
        return struct.unpack_from("<I", model.data, model.values[family + b"." + key])[0]

    def tensor(name, kind, sizes, values):
        nonlocal weights
        weights += bytes(-len(weights) % model.alignment)
        begin, weights = len(weights), weights + values
        packed = struct.pack("<Q", len(name)) + name + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
        return packed + struct.pack("<IQ", kind, begin)

    width, block = number(b"embedding_length"), b"blk.%d." % (number(b"block_count") - 1)
    weights, ones = bytes(model.data[model.weights_begin:]), struct.pack("<f", 1) * width
    half = struct.pack("<e", 0.5)  # of each channel of the token, and of the state
    sums = b"".join(2 * (bytes(2 * i) + half + bytes(2 * (width - 1 - i))) for i in range(width))
    added = [tensor(block + b"nextn.enorm.weight", 0, [width], ones),
             tensor(block + b"nextn.hnorm.weight", 0, [width], ones),
             tensor(block + b"nextn.eh_proj.weight", 1, [2 * width, width], sums)]
    values = {**model.entries, b"nextn": entry(f"{family.decode()}.nextn_predict_layers", 1)}
    for file, kept in ((whole_path, lambda name: True), (layer_path, lambda name: name.startswith(block))):
        tensors = [in_list for name, (*_, in_list) in model.tensors.items() if kept(name)] + added
        head = model.data[:8] + struct.pack("<QQ", len(tensors), len(values))
        head += b"".join(values.values()) + b"".join(tensors)
        file.write_bytes(head + bytes(-len(head) % model.alignment) + weights)


def write_broken_model(path, broken_path):
    """Loads, but its last norm is NaN, and so is every logit."""
    model = Model(path)
    [size], kind, place, _ = model.tensors[b"output_norm.weight"]
    assert kind == 0  # float
    begin = model.weights_begin + place
    model.data[begin:begin + 4 * size] = struct.pack("<f", float("nan")) * size
    broken_path.write_bytes(model.data)


def entry(name, value):
    """One value of the metadata: a text, a bool, a list of texts or ints, an int (32 bits, unsigned) or a float."""
    def text(x):
        return struct.pack("<Q", len(x.encode())) + x.encode()
    if isinstance(value, str):
        packed = struct.pack("<I", STRING) + text(value)
    elif isinstance(value, bool):
        packed = struct.pack("<I?", 7, value)
    elif isinstance(value, float):
        packed = struct.pack("<If", 6, value)
    elif isinstance(value, int):
        packed = struct.pack("<II", 4, value)
    elif value and isinstance(value[0], str):
        packed = struct.pack("<IIQ", ARRAY, STRING, len(value)) + b"".join(map(text, value))
    else:
        packed = struct.pack("<IIQ", ARRAY, 4, len(value)) + struct.pack(f"<{len(value)}I", *value)
    return text(name) + packed


def write_changed_model(path, changed_path, changes):
    """With other metadata: values by name, None for a key that is left out."""
    model = Model(path)
    entries = {name.decode(): packed for name, packed in model.entries.items()}
    for name, value in changes.items():
        entries.pop(name, None)
        if value is not None:
            entries[name] = entry(name, value)
    head = model.data[:24] + b"".join(entries.values()) + b"".join(in_list for *_, in_list in model.tensors.values())
    struct.pack_into("<Q", head, 16, len(entries))
    changed_path.write_bytes(head + bytes(-len(head) % model.alignment) + model.data[model.weights_begin:])
