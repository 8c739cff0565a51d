#include "speculation/datastore.h"

#include <divsufsort.h>

#include <algorithm>
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
#include "base/new_file.h"

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

}  // namespace

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
