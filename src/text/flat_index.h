// A hash table of indices into an array that it does not own: one flat block of integers, open
// addressing.

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace outrider {

class FlatIndex {
 public:
  explicit FlatIndex(std::size_t n_places_max)
      : slots_(std::bit_ceil(2 * n_places_max + 1), kFree), mask_(slots_.size() - 1) {}

  // The place whose key has this hash and satisfies `equal(place)`.
  template <typename Equal>
  std::optional<std::int32_t> find(std::uint64_t hash, Equal equal) const {
    const std::int32_t place = slots_[slot_of(hash, equal)];
    return place == kFree ? std::nullopt : std::optional(place);
  }

  // Inserts `place` unless an equal key is there already; returns the place that is there now.
  template <typename Equal>
  std::int32_t find_or_insert(std::uint64_t hash, std::int32_t place, Equal equal) {
    std::int32_t& slot = slots_[slot_of(hash, equal)];
    if (slot == kFree) slot = place;
    return slot;
  }

 private:
  static constexpr std::int32_t kFree = -1;

  template <typename Equal>
  std::size_t slot_of(std::uint64_t hash, Equal equal) const {
    std::size_t slot = mix(hash) & mask_;
    while (slots_[slot] != kFree && !equal(slots_[slot])) slot = (slot + 1) & mask_;
    return slot;
  }

  // The finalizer of MurmurHash3, so that keys which are plain numbers spread as well.
  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDu;
    x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53u;
    return x ^ (x >> 33);
  }

  std::vector<std::int32_t> slots_;  // never more than half full
  std::size_t mask_;
};

}  // namespace outrider
