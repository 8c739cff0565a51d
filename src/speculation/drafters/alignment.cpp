#include "speculation/drafters/alignment.h"

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "base/error.h"

namespace outrider {
namespace {

constexpr int kSure = 4;  // tokens in a row that agree

// Where the answer left the prediction: that it put other tokens in the place of as many, and that
// it inserted them.
constexpr double kReplaced = 0.4, kInserted = 0.4;

}  // namespace

// It is expected to begin as the prediction does.
Alignment::Alignment(std::span<const Token> prediction)
    : prediction_(prediction.begin(), prediction.end()), states_{{.n_matched = kSure}} {}

void Alignment::append(Token token) {
  answer_.push_back(token);
  State state = states_.back();
  ++state.n_since;
  if (state.place < std::ssize(prediction_) && prediction_[state.place] == token) {
    ++state.place;
    ++state.n_matched;
  } else {
    state = found_again(state);
  }
  if (state.n_matched >= kSure) {
    state.sure = state.place;
    state.n_since = 0;
  }
  states_.push_back(state);
}

// The place before which most of the answer's last tokens stand; of several the one that is nearest
// to where replacing tokens one by one would have led.
Alignment::State Alignment::found_again(State state) const {
  const int expected = state.sure + state.n_since;
  state.n_matched = 0;
  for (int place = 1; place <= std::ssize(prediction_); ++place) {
    int n = 0;
    while (n < std::min({kSure, place, size()}) &&
           prediction_[place - 1 - n] == answer_[answer_.size() - 1 - n])
      ++n;
    if (n == 0 || n < state.n_matched) continue;
    if (n > state.n_matched || std::abs(place - expected) < std::abs(state.place - expected)) {
      state.place = place;
      state.n_matched = n;
    }
  }
  return state;
}

void Alignment::truncate(int n_tokens) {
  CHECK(n_tokens <= size());
  answer_.resize(n_tokens);
  states_.resize(n_tokens + 1);
}

double Alignment::agreement(int n_matched) {
  return 1 - 1.0 / ((1 + n_matched) * (1 + n_matched));
}

std::vector<Alignment::Place> Alignment::places() const {
  std::vector<Place> places;
  if (prediction_.empty()) return places;
  const State& state = states_.back();
  double left = 1;
  const auto add = [&](int index, int n_matched, double share) {
    if (index >= std::ssize(prediction_) ||
        std::ranges::find(places, index, &Place::index) != places.end())
      return;
    places.push_back({index, n_matched, left * share});
    left -= left * share;
  };
  if (state.n_matched > 0) add(state.place, state.n_matched, agreement(state.n_matched));
  if (state.n_matched < kSure) {
    add(state.sure + state.n_since, 0, kReplaced);
    add(state.sure, 0, kInserted);
  }
  std::ranges::stable_sort(places, std::greater<>{}, &Place::probability);
  return places;
}

}  // namespace outrider
