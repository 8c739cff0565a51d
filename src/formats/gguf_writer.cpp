#include "formats/gguf_writer.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <variant>

#include "base/error.h"

namespace outrider {

GgufWriter::GgufWriter(std::uint32_t version, std::uint32_t alignment)
    : version_(version), alignment_(alignment) {
  if (alignment != 32) add("general.alignment", alignment);
}

void GgufWriter::add(std::string_view key, const MetadataValue& value) {
  std::visit([&](const auto& v) { add(key, v); }, value);
}

void GgufWriter::add_tensor(std::string_view name, TensorType type,
                            std::span<const std::int64_t> shape, std::span<const std::byte> bytes) {
  const TensorTypeTraits& t = traits(type);
  std::uint64_t elements = 1;
  for (const std::int64_t extent : shape) elements *= static_cast<std::uint64_t>(extent);
  CHECK(!shape.empty() && shape[0] % t.block_elements == 0 &&
        bytes.size() == elements / t.block_elements * t.block_bytes);
  write_text(headers_, name);
  headers_.write(static_cast<std::uint32_t>(shape.size()));
  for (const std::int64_t extent : shape) headers_.write(extent);
  headers_.write(static_cast<std::uint32_t>(type));
  headers_.write(std::uint64_t{tensors_.bytes().size()});
  tensors_.write(bytes);
  tensors_.pad(alignment_);
  ++n_tensors_;
}

std::vector<std::byte> GgufWriter::bytes() const {
  ByteWriter out;
  out.write(std::string_view("GGUF"));
  out.write(version_);
  out.write(n_tensors_);
  out.write(n_keys_);
  out.write(entries_.bytes());
  out.write(headers_.bytes());
  if (n_tensors_ > 0) out.pad(alignment_);
  out.write(tensors_.bytes());
  return out.take();
}

void GgufWriter::save(const std::filesystem::path& path) const {
  const std::vector<std::byte> all = bytes();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(all.data()), static_cast<std::streamsize>(all.size()));
  out.close();
  if (!out) throw Error("{}: cannot be written: {}", path.string(), std::strerror(errno));
}

}  // namespace outrider
