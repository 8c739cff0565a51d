// T(n): the time of one pass over n rows, measured on this machine with this model.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace outrider {

// Milliseconds of one pass over n rows, choices included, after texts of some length. All have
// logits; those of rows without take as much less as was measured once. Linear between measured
// points and constant below the first. Beyond the last point the curve goes on with the slope
// between the last two; if there is only one point, in proportion to the rows.
//
// Long texts take attention more time, so each power of two of the length, from 1024 tokens on, has
// points of its own. They begin as copies of the next shorter ones.
class CostCurve {
 public:
  struct Point {
    int rows;
    double ms;
    std::vector<double> first = {};  // times of the first few measurements and passes
    double weight = 1;               // how many it stands for
  };

  // Adds a measurement made while nothing else ran and texts were short, in place of what is known
  // of as many rows.
  void measure(int rows, double ms);

  // Adds a measurement of a pass over `rows` rows of which the last alone has logits, after one of
  // as many rows that all have.
  void measure_one_logit_row(int rows, double ms);

  // Takes the time of a pass in normal work over `rows` rows, for texts of `length` tokens
  // together. What it differs from the estimate is first taken as a change of the machine's speed:
  // of its memory's, which moves points by the share of their time that waits for memory, and if
  // this pass hardly waits for it, of the cores', too. Beyond that it moves the points next to
  // `rows`, the less the more passes they stand for. The first few passes make a point their
  // median. An outlier counts no more than a pass that was half as slow again. Beyond the last
  // point it is added as a measurement.
  void refine(int rows, double ms, long length = 0);

  // Begins with points() of an earlier time. Their ratios are believed; how fast the machine is
  // now, the first pass tells.
  void restore(std::span<const Point> points, double logits_ms = 0);

  bool empty() const { return by_length_.empty(); }
  // Not empty; rows >= 1, of which n_without have no logits.
  double ms(int rows, long length = 0, int n_without = 0) const;

  // The points for short texts; rows ascending.
  std::vector<Point> points() const { return empty() ? std::vector<Point>{} : by_length_[0]; }
  double logits_ms() const { return logits_ms_; }  // of one row

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

  std::size_t range_of(long length) const;
  static double work_share(const Point& most, int rows, double ms);
  void scale(double memory, double work);

  std::vector<Points> by_length_;  // [ranges of lengths]
  std::vector<Points> rising_;     // rising() of each
  double logits_ms_ = 0;
  bool speed_is_old_ = false;  // restored, and no pass seen since
};

}  // namespace outrider
