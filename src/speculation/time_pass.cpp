#include "speculation/time_pass.h"

#include <algorithm>

#include "base/stopwatch.h"

namespace outrider {

double time_pass(Backend& backend, SequenceId sequence, int n_rows, int n_logits,
                 const ForwardOptions& options, const StateBefore& before) {
  const int first = backend.committed(sequence);
  std::vector<Row> rows;
  std::vector<ChoiceRequest> requests;
  for (int i = 0; i < n_rows; ++i) {
    const bool wants_logits = i >= n_rows - n_logits;
    rows.push_back({.sequence = sequence,
                    .token = i % backend.spec().vocabulary,
                    .position = first + i,
                    .parent = i == 0 ? Parent{CommittedEnd{}} : Parent{EarlierRow{i - 1}},
                    .wants_logits = wants_logits,
                    .before = before});
    if (wants_logits) requests.push_back({.row = i});
  }
  const struct Discard {
    Backend& backend;
    SequenceId sequence;
    ~Discard() { backend.discard(sequence); }
  } discard{backend, sequence};
  const Stopwatch watch;
  backend.choose(backend.forward(rows, options), requests);
  return watch.ms();
}

std::vector<int> timed_rows(int rows_max) {
  std::vector<int> numbers;
  for (const int rows : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96}) {
    numbers.push_back(std::min(rows, rows_max));
    if (rows >= rows_max) break;
  }
  for (const int rows : {17, 33})
    if (rows < rows_max) numbers.push_back(rows);
  return numbers;
}

}  // namespace outrider
