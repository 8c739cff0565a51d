// T(n): what one pass over n rows costs, measured on this machine with this model.

#pragma once

#include <cstddef>
#include <vector>

namespace outrider {

// Milliseconds of one target pass over n rows, all with logits, their choices among it. Linear
// between measured points, constant before the first; beyond the last it goes on as steeply as
// between the last two, or in proportion to the rows if there is one only.
class CostCurve {
 public:
  // A measurement with nothing else going on: the least of several at the same `rows` stands.
  void measure(int rows, double ms);
  // A pass in the course of work: moves the measured points around `rows` a little towards it. One
  // outlier, however far out, counts as half as slow again.
  void refine(int rows, double ms);

  bool empty() const { return points_.empty(); }
  double ms(int rows) const;  // not empty; rows >= 1

 private:
  struct Point {
    int rows;
    double ms;
  };
  // The points on both sides of `rows` and the weight of the second, which lies outside 0 to 1 only
  // where the curve is extended. Both are the same where there is but one.
  struct Between {
    std::size_t first, second;
    double weight;
  };
  Between between(int rows) const;

  std::vector<Point> points_;  // rows ascending
};

}  // namespace outrider
