#include "formats/npy.h"

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"

namespace outrider {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::size_t kAlignment = 64;

std::string header_of(std::size_t rows, std::size_t columns) {
  std::string description =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, columns);
  const std::size_t before = kNpyMagic.size() + 4;  // and the version and this length
  const std::size_t whole =
      (before + description.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  description.resize(whole - before - 1, ' ');
  description += '\n';
  const auto length = static_cast<std::uint16_t>(description.size());
  std::string header(kNpyMagic);
  header += {'\x01', '\x00', static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
  return header + description;
}

// The text of a key's value in the header's dictionary: up to the next key. Empty: no such key.
std::string_view value_of(std::string_view description, std::string_view key) {
  const std::size_t at = description.find(fmt::format("'{}':", key));
  if (at == description.npos) return {};
  std::string_view value = description.substr(at + key.size() + 3);
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  return value;
}

// "(12, 34)" as numbers; nothing if it is no matrix.
std::optional<std::pair<std::uint64_t, std::uint64_t>> shape_of(std::string_view text) {
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto skip = [&](char c) {
    while (at != end && *at == ' ') ++at;
    return at != end && *at++ == c;
  };
  const auto number = [&](std::uint64_t& value) {
    while (at != end && *at == ' ') ++at;
    const auto [next, error] = std::from_chars(at, end, value);
    at = next;
    return error == std::errc();
  };
  std::uint64_t rows = 0, columns = 0;
  if (!skip('(') || !number(rows) || !skip(',') || !number(columns) || !skip(')')) return {};
  return {{rows, columns}};
}

}  // namespace

struct NpyWriter::File {
  std::filesystem::path path;
  std::FILE* stream;
  std::size_t rows_left, columns;

  [[noreturn]] void fail() const {
    throw Error("{}: cannot be written: {}", path.string(), std::strerror(errno));
  }
};

NpyWriter::NpyWriter(const std::filesystem::path& path, std::size_t rows, std::size_t columns)
    : file_(std::make_unique<File>(File{path, std::fopen(path.c_str(), "wb"), rows, columns})) {
  if (file_->stream == nullptr) file_->fail();
  const std::string header = header_of(rows, columns);
  if (std::fwrite(header.data(), 1, header.size(), file_->stream) != header.size()) file_->fail();
}

NpyWriter::~NpyWriter() {
  if (file_->stream == nullptr) return;
  std::fclose(file_->stream);
  std::error_code ignored;
  if (std::filesystem::is_regular_file(file_->path, ignored))
    std::filesystem::remove(file_->path, ignored);
}

void NpyWriter::append(std::span<const float> row) {
  CHECK(row.size() == file_->columns && file_->rows_left > 0);
  --file_->rows_left;
  if (std::fwrite(row.data(), sizeof(float), row.size(), file_->stream) != row.size())
    file_->fail();
}

void NpyWriter::finish() {
  CHECK(file_->rows_left == 0);
  if (std::fflush(file_->stream) != 0) file_->fail();
  std::fclose(std::exchange(file_->stream, nullptr));
}

NpyMatrix::NpyMatrix(const std::filesystem::path& path) : file_(path) {
  const NpyMatrix read(file_.bytes(), path.string());
  values_ = read.values_;
  rows_ = read.rows_;
  columns_ = read.columns_;
}

NpyMatrix::NpyMatrix(std::span<const std::byte> bytes, const std::string& origin) {
  const auto refuse = [&](std::string_view found) {
    throw Error("{}: {}, expected a matrix of float32 in NumPy's format (.npy)", origin, found);
  };
  ByteReader reader(bytes, origin);
  const auto text = [&](std::uint64_t n, std::string_view what) {
    const std::span<const std::byte> part = reader.take(n, what);
    return std::string_view(reinterpret_cast<const char*>(part.data()), part.size());
  };
  if (reader.remaining() < kNpyMagic.size() || text(kNpyMagic.size(), "magic") != kNpyMagic)
    refuse("does not begin like such a file");
  const auto version = reader.read<std::uint8_t>("version");
  reader.read<std::uint8_t>("version");
  if (version < 1 || version > 3) refuse(fmt::format("is version {} of the format", version));
  const std::uint64_t length = version == 1 ? reader.read<std::uint16_t>("header length")
                                            : reader.read<std::uint32_t>("header length");
  const std::string_view description = text(length, "header");
  if (!value_of(description, "descr").starts_with("'<f4'"))
    refuse(fmt::format("holds {}", printable(value_of(description, "descr"), 8)));
  if (!value_of(description, "fortran_order").starts_with("False"))
    refuse("holds columns one after another");
  const auto shape = shape_of(value_of(description, "shape"));
  if (!shape) refuse("holds no matrix");
  const auto elements = checked_multiply(shape->first, shape->second);
  const auto n_bytes = elements ? checked_multiply(*elements, sizeof(float)) : std::nullopt;
  if (!n_bytes || *n_bytes != reader.remaining() || *n_bytes == 0) {
    refuse(fmt::format("is [{}, {}] with {} bytes of values", shape->first, shape->second,
                       reader.remaining()));
  }
  rows_ = shape->first;
  columns_ = shape->second;
  values_ = reader.take(*n_bytes, "values");
}

std::vector<float> NpyMatrix::row(std::size_t index) const {
  CHECK(index < rows_);
  std::vector<float> values(columns_);
  std::memcpy(values.data(), values_.data() + index * columns_ * sizeof(float),
              columns_ * sizeof(float));
  return values;
}

}  // namespace outrider
