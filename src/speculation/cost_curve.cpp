#include "speculation/cost_curve.h"

#include <algorithm>
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
constexpr double kRestoredWeight = 10;     // at most
constexpr std::size_t kRestoredFirst = 3;  // passes of the median, if it stands for as many
// Until restored points are confirmed. The first one of a process tells nothing: of a 0.5B it took
// 69 ms instead of 12.
constexpr int kPassesToConfirm = 2;
constexpr double kSpeedChange = 2;  // of a machine from run to run, at most
constexpr double kOutlier = 0.5;    // largest error that counts, as a share of the estimate
constexpr std::size_t kFirst = 5;   // passes whose median counts
// Reading a text's keys and values, in rows of as many positions. Of the 1.5B on a Granite Rapids.
constexpr double kReading = 1.5;
// A thousand positions as a share of a row of the longest pass, before any pass has told. 0.36 of
// the 1.5B on a Granite Rapids.
constexpr double kAttentionAtFirst = 0.4;
// Passes that this guess stands for: few, since its error may be ten times that of a pass.
constexpr double kGuessWeight = 0.01;
constexpr double kAttentionWeightMax = 1;  // so that it goes on learning

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

double attended(const ModelSpec& spec, int length, int n_rows) {
  double sum = 0;
  int n_layers = 0;
  for (const LayerSpec& layer : spec.layers) {
    const Attention* const attention = attention_of(layer);
    if (!attention) continue;
    const double most = attention->window ? *attention->window : HUGE_VAL;
    sum +=
        n_rows * std::min(most, length + n_rows / 2.0) + kReading * std::min<double>(most, length);
    ++n_layers;
  }
  return n_layers == 0 ? 0 : sum / n_layers;
}

void CostCurve::measure(int rows, double ms) {
  const auto at = std::ranges::lower_bound(points_, rows, {}, &Point::rows);
  const Point point{.rows = rows, .ms = ms, .first = {ms}};
  if (at != points_.end() && at->rows == rows)
    *at = point;
  else
    points_.insert(at, point);
  rising_ = rising(points_);
  if (attention_weight_ > 0) return;
  attention_ms_ = kAttentionAtFirst / 1000 * points_.back().ms / points_.back().rows;
}

void CostCurve::measure_one_logit_row(int rows, double ms) {
  if (rows > 1) logits_ms_ = std::max(0.0, (CostCurve::ms(rows) - ms) / (rows - 1));
}

void CostCurve::refine(const PassWork& work, double ms) {
  const int rows = work.rows;
  if (n_until_confirmed_ == kPassesToConfirm) {
    --n_until_confirmed_;
    return;
  }
  if (empty() || rows > points_.back().rows) {
    if (2 * work.without_logits > rows) return;
    const double with_logits_ms = ms + work.without_logits * logits_ms_;
    return measure(rows, std::max(ms / 2, with_logits_ms - attention_ms_ * work.attended));
  }
  // Of the points as they are, not as rising_ has them: each learns for itself.
  const auto estimate = [&] {
    const double points_ms = CostCurve::ms(points_, rows);
    return points_ms - std::min(work.without_logits * logits_ms_, points_ms / 2) +
           attention_ms_ * work.attended;
  };
  const double expected = estimate();
  if (std::exchange(n_until_confirmed_, 0) > 0) {
    const double factor = std::clamp(ms / expected, 1 / kSpeedChange, kSpeedChange);
    return scale(factor, factor);
  }
  const double error = std::clamp(ms / expected - 1, -kOutlier, kOutlier);
  const Segment at = segment(points_, rows);
  const double weight =
      points_[at.first].weight * (1 - at.weight) + points_[at.second].weight * at.weight;
  const double speed_rate = kSpeedRate * weight / (weight + kManyPasses);
  const double cores = work_share(points_.back(), rows, CostCurve::ms(points_, rows));
  // A pass that waits for memory tells nothing of the cores. One that does not is taken for the
  // whole machine, else memory's speed would rest on the few plain passes.
  const double factor = 1 + speed_rate * error;
  scale(factor, cores < 0.5 ? 1 : factor);

  const double off_ms = error * estimate();
  const double points_ms = CostCurve::ms(points_, rows);
  const double points_error = (off_ms - learn_attention(work, off_ms, weight)) / points_ms;
  const auto move = [&](Point& point, double share) {
    if (point.first.size() < kFirst) {
      if (share < 0.5) return;
      point.first.push_back(point.ms * (1 + points_error));
      point.ms = median(point.first);
      point.weight += 1;
      return;
    }
    point.ms *= 1 + share * points_error * std::max(kRateMin, 1 / (1 + point.weight));
    point.weight += share;
  };
  move(points_[at.first], 1 - at.weight);
  move(points_[at.second], at.weight);
  rising_ = rising(points_);
}

// Points and attention share what a pass is off by how much of it each may be (a Kalman filter's
// diagonal: Kalman 1960): a time that stands for n passes is uncertain by its square over n, a pass
// by its own. Returns the part that attention took. `weight` is that of the points.
double CostCurve::learn_attention(const PassWork& work, double off_ms, double weight) {
  if (work.attended == 0) return 0;
  const double points_ms = ms(points_, work.rows);
  const double attention_ms = attention_ms_ * work.attended;
  const double all_ms = points_ms + attention_ms;
  const double own_weight = std::max(attention_weight_, kGuessWeight);
  const double own = attention_ms * attention_ms / own_weight;
  const double gain = own / (own + points_ms * points_ms / weight + all_ms * all_ms);
  attention_ms_ += std::max(gain * off_ms, -attention_ms / 2) / work.attended;
  attention_weight_ = std::min(kAttentionWeightMax, own_weight / (1 - gain));
  return gain * off_ms;
}

void CostCurve::restore(std::span<const Point> points, double logits_ms, double attention_ms) {
  points_.clear();
  attention_weight_ = 0;
  for (const Point& point : points) {
    measure(point.rows, point.ms);
    points_.back().weight = std::min(point.weight, kRestoredWeight);
    points_.back().first.assign(point.weight < kRestoredFirst ? 1 : kRestoredFirst, point.ms);
  }
  rising_ = rising(points_);
  logits_ms_ = logits_ms;
  if (attention_ms > 0) attention_ms_ = attention_ms, attention_weight_ = kAttentionWeightMax;
  n_until_confirmed_ = points.empty() ? 0 : kPassesToConfirm;
}

double CostCurve::ms(const PassWork& work) const {
  CHECK(!empty());
  // Rows without logits take some time, too.
  const double least = ms(rising_, std::max(1, work.rows - work.without_logits));
  return std::max(least, ms(rising_, work.rows) - work.without_logits * logits_ms_) +
         work.attended * attention_ms_;
}

// The arithmetic's part of the time of a pass, as if it were all of that of the most rows.
double CostCurve::work_share(const Point& most, int rows, double ms) {
  return std::min(1.0, std::pow(most.ms * rows / most.rows / ms, kOverlap));
}

void CostCurve::scale(double memory, double work) {
  logits_ms_ *= work;
  attention_ms_ *= work;
  const double memory_power = std::pow(memory, kOverlap), work_power = std::pow(work, kOverlap);
  const Point most = points_.back();
  for (Point& point : points_) {
    const double share = work_share(most, point.rows, point.ms);
    const double factor = std::pow((1 - share) * memory_power + share * work_power, 1 / kOverlap);
    point.ms *= factor;
    for (double& ms : point.first) ms *= factor;
  }
  rising_ = rising(points_);
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
