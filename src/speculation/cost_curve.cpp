#include "speculation/cost_curve.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace outrider {
namespace {

// The memory's and the arithmetic's time of a pass hide each other nearly completely:
// T^p = memory^p + work^p. Of the 1.5B on a Zen 4, when memory became faster: T(1) 31.4 to 19.2 ms,
// T(4) 33.1 to 22.4, T(6) 33.0 to 28.7, T(8) 39.9 to 37.7.
constexpr double kOverlap = 8;  // p
// Of an error at a point that stands for many passes, taken as a change of the machine's speed.
constexpr double kSpeedRate = 0.09;
constexpr double kManyPasses = 8;
constexpr double kRateMin = 0.02;  // of an error, that moves a point that stands for many passes
constexpr double kRestoredWeight = 10;
constexpr double kOutlier = 0.5;   // largest error that counts, as a share of the estimate
constexpr std::size_t kFirst = 5;  // passes whose median counts

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::size_t length_range(long length) {
  return std::bit_width(static_cast<unsigned long>(std::max(length, 0L)) / 1024);
}

}  // namespace

void CostCurve::measure(int rows, double ms) {
  if (empty()) by_length_.emplace_back();
  for (Points& points : by_length_) {
    const auto at = std::ranges::lower_bound(points, rows, {}, &Point::rows);
    if (at != points.end() && at->rows == rows)
      *at = {.rows = rows, .ms = ms, .first = {ms}};
    else
      points.insert(at, {.rows = rows, .ms = ms, .first = {ms}});
  }
  rising_.assign(by_length_.size(), {});
  std::ranges::transform(by_length_, rising_.begin(), rising);
}

void CostCurve::measure_one_logit_row(int rows, double ms) {
  if (rows > 1) logits_ms_ = std::max(0.0, (CostCurve::ms(rows) - ms) / (rows - 1));
}

void CostCurve::refine(int rows, double ms, long length) {
  if (empty() || rows > by_length_[0].back().rows) return measure(rows, ms);
  while (by_length_.size() <= length_range(length)) {
    by_length_.push_back(by_length_.back());
    for (Point& point : by_length_.back()) point.first = {point.ms}, point.weight = 1;
  }
  Points& points = by_length_[length_range(length)];
  const double estimate = CostCurve::ms(points, rows);
  if (std::exchange(speed_is_old_, false)) return scale(ms / estimate, ms / estimate);
  const double error = std::clamp(ms / estimate - 1, -kOutlier, kOutlier);
  const Segment at = segment(points, rows);
  const double weight =
      points[at.first].weight * (1 - at.weight) + points[at.second].weight * at.weight;
  const double speed_rate = kSpeedRate * weight / (weight + kManyPasses);
  const double work = work_share(points.back(), rows, estimate);
  // A pass that waits for memory tells nothing of the cores. One that does not is taken for the
  // whole machine, else memory's speed would rest on the few plain passes.
  const double factor = 1 + speed_rate * error;
  scale(factor, work < 0.5 ? 1 : factor);
  const auto move = [&](Point& point, double share) {
    if (point.first.size() < kFirst) {
      if (share < 0.5) return;
      point.first.push_back(point.ms * (1 + error));
      point.ms = median(point.first);
      point.weight += 1;
      return;
    }
    point.ms *= 1 + share * error * std::max(kRateMin, 1 / (1 + point.weight));
    point.weight += share;
  };
  move(points[at.first], 1 - at.weight);
  move(points[at.second], at.weight);
  rising_.resize(by_length_.size());
  std::ranges::transform(by_length_, rising_.begin(), rising);
}

void CostCurve::restore(std::span<const Point> points, double logits_ms) {
  logits_ms_ = logits_ms;
  by_length_ = {{}};
  for (const Point& point : points)
    by_length_[0].push_back({.rows = point.rows,
                             .ms = point.ms,
                             .first = {point.ms, point.ms, point.ms},
                             .weight = kRestoredWeight});
  if (points.empty()) by_length_.clear();
  rising_.assign(by_length_.size(), {});
  std::ranges::transform(by_length_, rising_.begin(), rising);
  speed_is_old_ = !points.empty();
}

double CostCurve::ms(int rows, long length, int n_without) const {
  CHECK(!empty());
  const Points& points = rising_[range_of(length)];
  return std::max(ms(points, 1), ms(points, rows) - n_without * logits_ms_);
}

std::size_t CostCurve::range_of(long length) const {
  return std::min(length_range(length), by_length_.size() - 1);
}

// The arithmetic's part of the time of a pass, as if it were all of that of the most rows.
double CostCurve::work_share(const Point& most, int rows, double ms) {
  return std::min(1.0, std::pow(most.ms * rows / most.rows / ms, kOverlap));
}

void CostCurve::scale(double memory, double work) {
  logits_ms_ *= work;
  const double memory_power = std::pow(memory, kOverlap), work_power = std::pow(work, kOverlap);
  for (Points& points : by_length_) {
    const Point most = points.back();
    for (Point& point : points) {
      const double share = work_share(most, point.rows, point.ms);
      const double factor = std::pow((1 - share) * memory_power + share * work_power, 1 / kOverlap);
      point.ms *= factor;
      for (double& ms : point.first) ms *= factor;
    }
  }
  rising_.resize(by_length_.size());
  std::ranges::transform(by_length_, rising_.begin(), rising);
}

// The nearest points that nowhere fall with the rows: where some do, they take their mean (pool
// adjacent violators, Ayer et al. 1955).
CostCurve::Points CostCurve::rising(const Points& points) {
  struct Pool {
    double ms, weight;
    std::size_t n;
  };
  std::vector<Pool> pools;
  for (const Point& point : points) {
    pools.push_back({point.ms, point.weight, 1});
    while (pools.size() > 1 && pools[pools.size() - 2].ms > pools.back().ms) {
      const Pool last = pools.back();
      pools.pop_back();
      Pool& pool = pools.back();
      pool.ms = (pool.ms * pool.weight + last.ms * last.weight) / (pool.weight + last.weight);
      pool.weight += last.weight;
      pool.n += last.n;
    }
  }
  Points rising = points;
  std::size_t next = 0;
  for (const Pool& pool : pools)
    for (std::size_t i = 0; i < pool.n; ++i) rising[next++].ms = pool.ms;
  return rising;
}

double CostCurve::ms(const Points& points, int rows) {
  if (points.size() == 1) {
    const Point& only = points[0];
    return only.ms * std::max(1.0, static_cast<double>(rows) / only.rows);
  }
  const Segment at = segment(points, rows);
  const double first = points[at.first].ms, second = points[at.second].ms;
  if (at.weight > 1) return second + std::max(0.0, second - first) * (at.weight - 1);
  return first + (second - first) * at.weight;
}

CostCurve::Segment CostCurve::segment(const Points& points, int rows) {
  const std::size_t last = points.size() - 1;
  if (last == 0 || rows <= points[0].rows) return {0, 0, 0};
  std::size_t second = 1;
  while (second < last && points[second].rows < rows) ++second;
  const double step = points[second].rows - points[second - 1].rows;
  return {second - 1, second, (rows - points[second - 1].rows) / step};
}

}  // namespace outrider
