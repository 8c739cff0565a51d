// T(n): the time of one pass over n rows, measured on this machine with this model.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "model/spec.h"

namespace outrider {

// What a pass has to do.
struct PassWork {
  int rows = 1;
  int without_logits = 0;  // of these
  double attended = 0;     // positions, of all sequences: sum of attended()
};

// What n_rows rows behind the first `length` tokens of a sequence add to PassWork::attended: for
// each row the positions before it, and once 1.5 * length, since loading keys and values from
// memory takes about as long as one and a half rows' work on them. Windows limit both; mean of the
// layers.
double attended(const ModelSpec& spec, int length, int n_rows);

// Milliseconds of one pass, choices included: a curve over its rows, as if all had logits and
// sequences were short; less logits_ms() for each row without logits; plus attention_ms() for each
// attended position. The curve is linear between measured points and constant before the first;
// beyond the last it goes on with the slope between the last two, or, of only one, in proportion to
// the rows.
class CostCurve {
 public:
  struct Point {
    int rows;
    double ms;
    std::vector<double> first = {};  // times of the first few measurements and passes
    double weight = 1;               // how many it stands for
  };

  // Adds a measurement made while nothing else ran and sequences were short, in place of what is
  // known of as many rows.
  void measure(int rows, double ms);

  // Takes logits_ms() from a pass over `rows` rows of which only the last has logits. Comes after
  // measure() of as many rows.
  void measure_one_logit_row(int rows, double ms);

  // Learns from the time of a pass in normal work. Its difference from the estimate is first taken
  // as a change of the machine's speed: of memory's, which moves points by the share of their time
  // that waits for memory, and, if this pass hardly waits for memory, of the cores', too. The rest
  // moves the points next to its rows, the less the more passes they stand for, and attention_ms(),
  // the more the larger attention's part in this pass is. A point with few passes is their median.
  // A difference counts up to half of the estimate. Beyond the last point a pass is added as a
  // measurement if half of its rows have logits, else ignored.
  void refine(const PassWork& work, double ms);

  // Begins with points() of an earlier run. Their ratios count the more, the more passes they stand
  // for. The first pass is not learned from, since it may be several times as slow, as the first to
  // touch some memory; the second tells the machine's speed now, from half to twice what it was.
  // attention_ms 0: not known.
  void restore(std::span<const Point> points, double logits_ms = 0, double attention_ms = 0);

  // Restored, and no pass has confirmed it yet.
  bool is_old() const { return n_until_confirmed_ > 0; }
  bool empty() const { return points_.empty(); }
  // Not empty; work.rows >= 1.
  double ms(const PassWork& work) const;
  double ms(int rows) const { return ms({.rows = rows}); }

  const std::vector<Point>& points() const { return points_; }  // rows ascending
  double logits_ms() const { return logits_ms_; }               // of one row
  double attention_ms() const { return attention_ms_; }         // of one position

 private:
  using Points = std::vector<Point>;  // rows ascending
  // The points on both sides of `rows`, by index, and the weight of the second, which is above 1
  // beyond the last point. Both are the first point where `rows` is not above it.
  struct Segment {
    std::size_t first, second;
    double weight;
  };
  static Segment segment(const Points& points, int rows);
  static Points rising(const Points& points);
  static double ms(const Points& points, int rows);

  static double work_share(const Point& most, int rows, double ms);
  void scale(double memory, double work);
  double learn_attention(const PassWork& work, double off_ms, double weight);

  Points points_, rising_;  // rising() of them
  double logits_ms_ = 0;
  double attention_ms_ = 0;
  double attention_weight_ = 0;  // passes that it stands for
  int n_until_confirmed_ = 0;    // passes
};

}  // namespace outrider
