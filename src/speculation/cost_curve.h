// T(n): the time of one pass over n rows, measured on this machine with this model.

#pragma once

#include <cstddef>
#include <vector>

namespace outrider {

// Milliseconds of one target pass over n rows that all have logits, choices included. Linear
// between measured points and constant below the first. Beyond the last point the curve goes on
// with the slope between the last two; if there is only one point, in proportion to the rows.
class CostCurve {
 public:
  // Adds a measurement made while nothing else ran. Of several at the same `rows` the least counts.
  void measure(int rows, double ms);
  // Takes the time of a pass in normal work: moves the measured points next to `rows` a little
  // towards it, and an outlier no further than a pass that was half as slow again. Beyond the last
  // point it is added as a measurement.
  void refine(int rows, double ms);

  bool empty() const { return points_.empty(); }
  double ms(int rows) const;  // not empty; rows >= 1

 private:
  struct Point {
    int rows;
    double ms;
  };
  // The points on both sides of `rows`, by index, and the weight of the second, which is above 1
  // beyond the last point. Both are the first point where `rows` is not above it.
  struct Segment {
    std::size_t first, second;
    double weight;
  };
  Segment segment(int rows) const;

  std::vector<Point> points_;  // rows ascending
};

}  // namespace outrider
