#include "speculation/datastore.h"

#include <divsufsort.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/blocked_signals.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"

namespace outrider {
namespace {

constexpr std::string_view kMagic = "outrRest";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 8 + 4 + 4 + 8 + 32;

// The largest number of this width stands for kEnd.
std::uint32_t end_number(std::size_t width) {
  return static_cast<std::uint32_t>((std::uint64_t{1} << 8 * width) - 1);
}

std::size_t width_for(int vocabulary) {
  std::size_t width = 2;
  while (static_cast<std::uint32_t>(vocabulary) >= end_number(width)) ++width;
  return width;
}

void append(std::vector<std::uint8_t>& bytes, Token token, std::size_t width) {
  const std::uint32_t number =
      token == Datastore::kEnd ? end_number(width) : static_cast<std::uint32_t>(token);
  for (std::size_t i = width; i-- > 0;) bytes.push_back(static_cast<std::uint8_t>(number >> 8 * i));
}

// A file that disappears unless it is completed.
class NewFile {
 public:
  explicit NewFile(std::filesystem::path file) : file_(std::move(file)), partial_(file_) {
    // Of this process alone: two that build the same file do not mix.
    partial_ += ".partial-" + std::to_string(getpid());
    // A device or a pipe would be replaced by the file.
    if (std::filesystem::exists(file_) && !std::filesystem::is_regular_file(file_))
      throw Error("{}: cannot be written: is no regular file", file_.string());
    descriptor_ = open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail();
  }
  ~NewFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!is_complete_) unlink(partial_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail();
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }
  void complete() {
    if (fsync(descriptor_) != 0 || close(std::exchange(descriptor_, -1)) != 0 ||
        rename(partial_.c_str(), file_.c_str()) != 0)
      fail();
    is_complete_ = true;
  }

 private:
  [[noreturn]] void fail() const {
    throw Error("{}: cannot be written: {}", file_.string(), std::strerror(errno));
  }

  const std::filesystem::path file_;
  std::filesystem::path partial_;
  int descriptor_ = -1;
  bool is_complete_ = false;
};

}  // namespace

VocabularyFingerprint vocabulary_fingerprint(const Tokenizer& tokenizer) {
  Sha256 sha;
  for (Token token = 0; token < tokenizer.size(); ++token) {
    const std::string_view text = tokenizer.text(token);
    const std::uint64_t head[] = {static_cast<std::uint64_t>(tokenizer.kind(token)), text.size()};
    sha.update(std::as_bytes(std::span(head)));
    sha.update(std::as_bytes(std::span(text)));
  }
  const std::string hex = sha.hex();
  VocabularyFingerprint fingerprint;
  for (std::size_t i = 0; i < fingerprint.size(); ++i)
    fingerprint[i] = static_cast<std::byte>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  return fingerprint;
}

Datastore::Datastore(const std::filesystem::path& file, const VocabularyFingerprint& vocabulary,
                     int n_vocabulary) {
  MappedFile mapped(file);
  *this = Datastore(mapped.bytes(), file.string(), vocabulary, n_vocabulary);
  file_ = std::move(mapped);
}

Datastore::Datastore(std::span<const std::byte> bytes, std::string_view name,
                     const VocabularyFingerprint& vocabulary, int n_vocabulary)
    : n_vocabulary_(static_cast<std::uint32_t>(n_vocabulary)) {
  if (bytes.size() < kMagic.size() || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    throw Error("{}: is no datastore; outrider datastore build makes one", name);
  ByteReader reader(bytes.subspan(kMagic.size()), std::string(name));
  if (const auto version = reader.read<std::uint32_t>("the version"); version != kVersion)
    throw Error("{}: is a datastore of version {}; this program reads version {}", name, version,
                kVersion);
  width_ = reader.read<std::uint32_t>("the width of tokens");
  n_ = reader.read<std::uint64_t>("the number of tokens");
  const auto made_for = reader.take(vocabulary.size(), "the vocabulary");
  if (!std::ranges::equal(made_for, vocabulary))
    throw Error("{}: was built for another vocabulary; build it for this model", name);
  if (width_ < 2 || width_ > 4 || n_ > kBytesMax / width_ ||
      reader.remaining() != n_ * (width_ + sizeof(std::uint32_t)))
    throw Error("{}: is damaged: {} bytes do not hold {} tokens of {} bytes", name, bytes.size(),
                n_, width_);
  tokens_ = reader.take(n_ * width_, "tokens");
  ranks_ = reader.take(n_ * sizeof(std::uint32_t), "the suffix array");
}

std::uint64_t Datastore::place(std::uint64_t rank) const {
  std::uint32_t place;
  std::memcpy(&place, &ranks_[rank * sizeof place], sizeof place);
  return std::min<std::uint64_t>(place, n_ - 1);
}

Token Datastore::token(std::uint64_t place) const {
  if (place >= n_) return kEnd;
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < width_; ++i)
    number = number << 8 | std::to_integer<std::uint32_t>(tokens_[place * width_ + i]);
  return number < n_vocabulary_ ? static_cast<Token>(number) : kEnd;
}

Datastore::Range Datastore::find(std::span<const Token> tokens) const {
  std::vector<std::uint8_t> wanted;
  for (const Token token : tokens) append(wanted, token, width_);
  // How the beginning of a suffix compares with what is wanted.
  const auto order = [&](std::uint64_t rank) {
    const auto suffix = tokens_.subspan(place(rank) * width_);
    const std::size_t n = std::min(suffix.size(), wanted.size());
    const int order = std::memcmp(suffix.data(), wanted.data(), n);
    return order != 0 || n == wanted.size() ? order : -1;
  };
  const auto first_where = [&](std::uint64_t from, auto holds) {
    std::uint64_t first = from, end = n_;
    while (first < end) {
      const std::uint64_t middle = first + (end - first) / 2;
      if (holds(middle))
        end = middle;
      else
        first = middle + 1;
    }
    return first;
  };
  const std::uint64_t first = first_where(0, [&](std::uint64_t rank) { return order(rank) >= 0; });
  return {first, first_where(first, [&](std::uint64_t rank) { return order(rank) > 0; })};
}

DatastoreBuilder::DatastoreBuilder(const Tokenizer& tokenizer)
    : vocabulary_(vocabulary_fingerprint(tokenizer)), width_(width_for(tokenizer.size())) {}

void DatastoreBuilder::add(std::span<const Token> document) {
  if (bytes_.size() + (document.size() + 1) * width_ > Datastore::kBytesMax)
    throw Error("a datastore holds at most {} tokens of this vocabulary; build several",
                Datastore::kBytesMax / width_);
  for (const Token token : document) append(bytes_, token, width_);
  append(bytes_, Datastore::kEnd, width_);
}

void DatastoreBuilder::write(const std::filesystem::path& file, const Progress& progress) {
  if (bytes_.empty()) throw Error("{}: there is no text to build it from", file.string());
  NewFile output(file);  // a folder that cannot be written is noticed before the sort
  // The sort cannot be interrupted: it may outlive this call, and has what it needs.
  struct Sort {
    std::vector<std::uint8_t> bytes;
    std::vector<std::int32_t> order;
  };
  const auto sort = std::make_shared<Sort>();
  sort->bytes = std::move(bytes_);
  sort->order.resize(sort->bytes.size());
  std::packaged_task<int()> task([sort] {
    return divsufsort(sort->bytes.data(), sort->order.data(),
                      static_cast<std::int32_t>(sort->bytes.size()));
  });
  std::future<int> sorted = task.get_future();
  {
    const BlockedSignals blocked;
    std::thread(std::move(task)).detach();
  }
  while (sorted.wait_for(std::chrono::milliseconds(100)) != std::future_status::ready) {
    if (progress.interrupted && progress.interrupted()) throw Error("interrupted");
    if (progress.advance) progress.advance("sorting", 0, 0);
  }
  if (sorted.get() != 0) throw Error("{}: out of memory while sorting", file.string());

  ByteWriter header;
  header.write(kMagic);
  header.write(kVersion);
  header.write(static_cast<std::uint32_t>(width_));
  header.write(static_cast<std::uint64_t>(sort->bytes.size() / width_));
  header.write(std::span<const std::byte>(vocabulary_));
  CHECK(header.bytes().size() == kHeaderBytes);
  output.write(header.bytes());
  output.write(std::as_bytes(std::span(sort->bytes)));
  // Of all byte suffixes those that begin with a token.
  std::vector<std::uint32_t> places;
  constexpr std::size_t kAtOnce = 1 << 20;
  std::size_t n_done = 0;
  for (const std::int32_t byte : sort->order) {
    ++n_done;
    if (byte % static_cast<std::int32_t>(width_) == 0)
      places.push_back(static_cast<std::uint32_t>(byte) / static_cast<std::uint32_t>(width_));
    if (places.size() < kAtOnce && n_done < sort->order.size()) continue;
    if (progress.interrupted && progress.interrupted()) throw Error("interrupted");
    if (progress.advance) progress.advance("writing", n_done, sort->order.size());
    output.write(std::as_bytes(std::span(places)));
    places.clear();
  }
  output.complete();
}

}  // namespace outrider
