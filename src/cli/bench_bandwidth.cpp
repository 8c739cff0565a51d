#include <chrono>

#include "base/machine.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/limit_samples.h"
#include "cli/signals.h"
#include "cli/thread_count.h"

namespace outrider {
namespace {

constexpr int kRounds = 5;  // per --repeat

Json json_of(const Spread& spread) {
  return {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
}

std::string range_text(const Spread& spread, int digits) {
  return fmt::format("{:.{}f}..{:.{}f}", spread.min, digits, spread.max, digits);
}

Json json_of(const LimitSamples& all, const LimitSamples& one) {
  Json patterns = Json::array();
  for (std::size_t i = 0; i < all.patterns().size(); ++i) {
    patterns.push_back({{"pattern", all.patterns()[i].name},
                        {"gbs", json_of(all.patterns()[i].gbs)},
                        {"gbs_one_thread", json_of(one.patterns()[i].gbs)}});
  }
  return patterns;
}

// The fastest pattern of all threads is marked.
Table table_of(const std::string& title, const LimitSamples& all, const LimitSamples& one) {
  Table table({title, "GB/s", "range", "one thread", "range"}, "lrrrr");
  for (std::size_t i = 0; i < all.patterns().size(); ++i) {
    const LimitSamples::Pattern together = all.patterns()[i], alone = one.patterns()[i];
    table.add({together.name + (together.name == all.reading().name ? " *" : ""),
               fmt::format("{:.1f}", together.gbs.median), range_text(together.gbs, 1),
               fmt::format("{:.1f}", alone.gbs.median), range_text(alone.gbs, 1)});
  }
  return table;
}

int bench_bandwidth(const Machine& machine, const Settings& settings) {
  Console console(settings);
  const int n_threads = thread_count(settings, console);
  const auto meter = machine.make_limit_meter(n_threads);
  // One thread alternates with all: how much the others add shows whether each has a core of its
  // own, whatever the system reports.
  LimitSamples all, one, all_products, one_products;
  const int rounds = kRounds * settings.repetitions;
  for (int round = 0; round < rounds; ++round) {
    console.advance("measuring", static_cast<double>(round) / rounds);
    all.add(meter->measure(n_threads));
    all_products.add({.read_rates = meter->measure_products(n_threads)});
    stop_if_interrupted();
    one.add(meter->measure(1));
    one_products.add({.read_rates = meter->measure_products(1)});
    stop_if_interrupted();
  }
  console.clear();

  const LimitSamples::Pattern reading = all.reading();
  const double work_of_all = all.unit("f32_tflops").tera.max;
  const double work_of_one = one.unit("f32_tflops").tera.max;
  const double gain = work_of_one > 0 ? work_of_all / work_of_one : 0;

  if (settings.json) {
    Json document = {{"schema", 1},
                     {"threads", n_threads},
                     {"cores", std::min(n_threads, usable_cores())},
                     {"threads_gain", gain},
                     {"instruction_sets", machine.instruction_sets},
                     {"rounds", rounds},
                     {"read_gbs", reading.gbs.median},
                     {"read_pattern", reading.name}};
    for (const LimitSamples::Unit& unit : all.units()) document[unit.key] = unit.tera.max;
    Json units = Json::array();
    for (std::size_t i = 0; i < all.units().size(); ++i) {
      units.push_back({{"unit", all.units()[i].key},
                       {"tera", json_of(all.units()[i].tera)},
                       {"tera_one_thread", json_of(one.units()[i].tera)}});
    }
    document["patterns"] = json_of(all, one);
    document["product_patterns"] = json_of(all_products, one_products);
    document["units"] = units;
    write_json(document);
    return kDone;
  }

  Table works({"work on registers", "10^12/s", "range", "one thread", "range"}, "lrrrr");
  for (std::size_t i = 0; i < all.units().size(); ++i) {
    const LimitSamples::Unit together = all.units()[i], alone = one.units()[i];
    if (together.tera.max == 0) {
      works.add({together.title, "-", "-", "-", "-"});
    } else {
      works.add({together.title, fmt::format("{:.3f}", together.tera.median),
                 range_text(together.tera, 3), fmt::format("{:.3f}", alone.tera.median),
                 range_text(alone.tera, 3)});
    }
  }
  write_output(table_of("reading memory", all, one).text(output_width()));
  if (!all_products.patterns().empty()) {
    const Table products = table_of("weights for one row, read by", all_products, one_products);
    write_output(fmt::format("\n{}", products.text(output_width())));
  }
  write_output(fmt::format("\n{}", works.text(output_width())));
  std::string about = threads_text(n_threads);
  if (gain > 0 && n_threads > 1) {
    about += fmt::format("; together they compute {:.2f} times as much as one", gain);
  }
  write_output(fmt::format("\n{}\n", wrap(about, output_width())));
  return kDone;
}

}  // namespace

Command bench_bandwidth_command() {
  return {.name = "bench bandwidth",
          .summary = "measure what this machine can do at best",
          .description =
              "Measures the machine's limits, with which the cost of a pass is compared: reading "
              "memory in several patterns, and arithmetic on registers for each instruction set, "
              "with all threads and with one. Where kernels can read weights in two ways, both are "
              "measured.",
          .flags = {"--threads", "--repeat", "--json", "--log-file", "--quiet", "--verbose"},
          .run = bench_bandwidth};
}

}  // namespace outrider
