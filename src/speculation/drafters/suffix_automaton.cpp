#include "speculation/drafters/suffix_automaton.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace outrider {

SuffixAutomaton::SuffixAutomaton() : slots_(64, kNone) {
  states_.push_back({0, kNone, 0, kNone});
}

// The text's ends, the longest first.
template <typename F>
void SuffixAutomaton::for_counted(const F& f) {
  int n = 0;
  for (State state = last_; state != kEmpty && n < kCounted; state = states_[state].shorter, ++n)
    f(states_[state].count);
}

void SuffixAutomaton::append(Token token) {
  steps_.push_back({last_, static_cast<std::int32_t>(states_.size()),
                    static_cast<std::int32_t>(edges_.size()),
                    static_cast<std::int32_t>(redirected_.size()), kNone, kNone});
  const State whole = add_state(states_[last_].length + 1);
  State state = last_;
  for (; state != kNone && edge(state, token) == kNone; state = states_[state].shorter)
    add_edge(state, token, whole);
  if (state != kNone) {
    const State seen = edges_[edge(state, token)].to;
    const int length = states_[state].length + 1;
    if (states_[seen].length == length) {
      states_[whole].shorter = seen;
    } else {
      const State shorter = divide(seen, length);
      states_[whole].shorter = shorter;
      for (; state != kNone; state = states_[state].shorter) {
        const std::int32_t i = edge(state, token);
        if (edges_[i].to != seen) break;
        redirected_.push_back({i, seen});
        edges_[i].to = shorter;
      }
    }
  }
  last_ = whole;
  for_counted([](std::int32_t& count) { ++count; });
}

// A state for the strings of `state` up to this length, which from now on end at more places than
// its longer ones.
SuffixAutomaton::State SuffixAutomaton::divide(State state, int length) {
  const State shorter = add_state(length);
  states_[shorter].shorter = states_[state].shorter;
  states_[shorter].count = states_[state].count;
  std::vector<std::int32_t> edges;
  for (std::int32_t i = states_[state].first; i != kNone; i = edges_[i].next) edges.push_back(i);
  for (auto i = edges.rbegin(); i != edges.rend(); ++i)
    add_edge(shorter, edges_[*i].token, edges_[*i].to);
  steps_.back().divided = state;
  steps_.back().shorter = states_[state].shorter;
  states_[state].shorter = shorter;
  return shorter;
}

void SuffixAutomaton::remove_last() {
  CHECK(!steps_.empty());
  const Step& step = steps_.back();
  for_counted([](std::int32_t& count) { --count; });
  for (; std::ssize(redirected_) > step.n_redirected; redirected_.pop_back())
    edges_[redirected_.back().edge].to = redirected_.back().before;
  if (step.divided != kNone) states_[step.divided].shorter = step.shorter;
  // In reverse order, so that no slot is freed that another edge was put behind.
  for (; std::ssize(edges_) > step.n_edges; edges_.pop_back()) {
    const Edge& last = edges_.back();
    slots_[slot(last.from, last.token)] = kNone;
    states_[last.from].first = last.next;
  }
  states_.resize(step.n_states, Node{});
  last_ = step.last;
  steps_.pop_back();
}

SuffixAutomaton::Match SuffixAutomaton::end_before() const {
  return last_ == kEmpty ? Match{} : shorter(last_);
}

SuffixAutomaton::Match SuffixAutomaton::shorter(State state) const {
  const State to = states_[state].shorter;
  CHECK(to != kNone);
  return {to, states_[to].length};
}

SuffixAutomaton::Match SuffixAutomaton::after(Match match, Token token) const {
  for (;;) {
    if (const std::int32_t i = edge(match.state, token); i != kNone)
      return {edges_[i].to, match.length + 1};
    if (match.state == kEmpty) return {};
    match = shorter(match.state);
  }
}

std::optional<SuffixAutomaton::State> SuffixAutomaton::next(State state, Token token) const {
  const std::int32_t i = edge(state, token);
  if (i == kNone) return std::nullopt;
  return edges_[i].to;
}

std::vector<SuffixAutomaton::Transition> SuffixAutomaton::followers(State state,
                                                                    std::size_t n_max) const {
  std::vector<Transition> followers;
  for (std::int32_t i = states_[state].first; i != kNone && followers.size() < n_max;
       i = edges_[i].next)
    followers.push_back({edges_[i].token, edges_[i].to});
  return followers;
}

// Lists grow to twice their size. Two states, three edges with at most four slots each, a state
// redirected at each of two edges.
const std::size_t SuffixAutomaton::kBytesPerToken =
    2 * (2 * sizeof(Node) + 3 * sizeof(Edge) + sizeof(Step) + 2 * sizeof(Redirected)) +
    3 * 4 * sizeof(std::int32_t);

SuffixAutomaton::State SuffixAutomaton::add_state(int length) {
  states_.push_back({length, kEmpty, 0, kNone});
  return static_cast<State>(states_.size() - 1);
}

// At most half of the slots are taken.
void SuffixAutomaton::add_edge(State from, Token token, State to) {
  const auto index = static_cast<std::int32_t>(edges_.size());
  edges_.push_back({from, to, token, states_[from].first});
  states_[from].first = index;
  if (2 * edges_.size() <= slots_.size()) {
    slots_[slot(from, token)] = index;
    return;
  }
  slots_.assign(2 * slots_.size(), kNone);
  for (std::size_t i = 0; i < edges_.size(); ++i)
    slots_[slot(edges_[i].from, edges_[i].token)] = static_cast<std::int32_t>(i);
}

std::int32_t SuffixAutomaton::edge(State from, Token token) const {
  return slots_[slot(from, token)];
}

// Where the edge is, or belongs.
std::size_t SuffixAutomaton::slot(State from, Token token) const {
  const std::uint64_t key =
      std::uint64_t{static_cast<std::uint32_t>(from)} << 32 | static_cast<std::uint32_t>(token);
  const std::uint64_t hash = (key ^ key >> 29) * 0x9e3779b97f4a7c15u;
  std::size_t at = hash >> (64 - std::countr_zero(slots_.size()));
  while (slots_[at] != kNone &&
         (edges_[slots_[at]].from != from || edges_[slots_[at]].token != token))
    at = (at + 1) % slots_.size();
  return at;
}

}  // namespace outrider
