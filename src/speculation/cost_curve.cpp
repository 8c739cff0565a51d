#include "speculation/cost_curve.h"

#include <algorithm>

#include "base/error.h"

namespace outrider {
namespace {

constexpr double kRate = 0.1;     // weight of one pass in the points next to it
constexpr double kOutlier = 0.5;  // largest error that counts, as a share of the estimate

}  // namespace

void CostCurve::measure(int rows, double ms) {
  const auto at = std::ranges::lower_bound(points_, rows, {}, &Point::rows);
  if (at != points_.end() && at->rows == rows)
    at->ms = std::min(at->ms, ms);
  else
    points_.insert(at, {rows, ms});
}

void CostCurve::refine(int rows, double ms) {
  if (empty() || rows > points_.back().rows) return measure(rows, ms);
  const double estimate = this->ms(rows);
  const double error = std::clamp(ms - estimate, -kOutlier * estimate, kOutlier * estimate);
  const Segment at = segment(rows);
  points_[at.first].ms += kRate * error * (1 - at.weight);
  points_[at.second].ms += kRate * error * at.weight;
}

double CostCurve::ms(int rows) const {
  CHECK(!empty());
  if (points_.size() == 1) {
    const Point& only = points_[0];
    return only.ms * std::max(1.0, static_cast<double>(rows) / only.rows);
  }
  const Segment at = segment(rows);
  const double first = points_[at.first].ms, second = points_[at.second].ms;
  if (at.weight > 1) return second + std::max(0.0, second - first) * (at.weight - 1);
  return first + (second - first) * at.weight;
}

CostCurve::Segment CostCurve::segment(int rows) const {
  const std::size_t last = points_.size() - 1;
  if (last == 0 || rows <= points_[0].rows) return {0, 0, 0};
  std::size_t second = 1;
  while (second < last && points_[second].rows < rows) ++second;
  const double step = points_[second].rows - points_[second - 1].rows;
  return {second - 1, second, (rows - points_[second - 1].rows) / step};
}

}  // namespace outrider
