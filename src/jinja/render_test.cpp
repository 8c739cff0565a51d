#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "jinja/interpreter.h"
#include "jinja/parser.h"

namespace outrider::jinja {
namespace {

using Json = nlohmann::ordered_json;

// Strings are a user's. {"integer": digits} is an integer that a reader of JSON may round.
Value value_of(Runtime& runtime, const Json& json) {
  switch (json.type()) {
    case Json::value_t::null: return Value::none();
    case Json::value_t::boolean: return Value::boolean(json);
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned: return Value::integer(json.get<std::int64_t>());
    case Json::value_t::number_float: return Value::number(json);
    case Json::value_t::string: return runtime.text(json.get_ref<const std::string&>(), true);
    case Json::value_t::array: {
      std::vector<Value> items;
      for (const Json& item : json) items.push_back(value_of(runtime, item));
      return runtime.list(std::move(items));
    }
    case Json::value_t::object: {
      if (json.contains("integer")) return runtime.integer(json["integer"].get<std::string>());
      std::vector<std::pair<Value, Value>> entries;
      for (const auto& [key, value] : json.items())
        entries.emplace_back(runtime.text(key), value_of(runtime, value));
      return runtime.mapping(entries);
    }
    default: throw std::logic_error("no such value in JSON");
  }
}

Text render_with(const Json& variables, const std::string& source,
                 const TemplateLimits& limits = {}) {
  RenderOptions options;
  options.limits = limits;
  // 2024-07-26 09:05:01, as in scripts/golden/templates.py.
  options.now.tm_year = 124;
  options.now.tm_mon = 6;
  options.now.tm_mday = 26;
  options.now.tm_hour = 9;
  options.now.tm_min = 5;
  options.now.tm_sec = 1;
  options.now.tm_wday = 5;
  return render(*parse(source, "model.gguf", limits), options, [&](Runtime& runtime) {
    Variables out;
    for (const auto& [key, value] : variables.items())
      out.emplace_back(key, value_of(runtime, value));
    return out;
  });
}

std::string error_of(const Json& variables, const std::string& source,
                     const TemplateLimits& limits = {}) {
  try {
    return "no error, but: " + render_with(variables, source, limits).bytes();
  } catch (const Error& e) {
    return e.what();
  }
}

Json golden() {
  return Json::parse(std::ifstream(OUTRIDER_GOLDEN_DIR "/templates/engine.json"));
}

TEST(Jinja, EqualsPythonsJinja2) {
  const Json file = golden();
  for (const auto& [group, cases] : file["cases"].items()) {
    for (const Json& c : cases) {
      const std::string source = c["template"];
      SCOPED_TRACE(group + ": " + source);
      if (c["output"].is_string()) {
        try {
          EXPECT_EQ(render_with(file["variables"], source).bytes(), c["output"]);
        } catch (const Error& e) {
          ADD_FAILURE() << e.what();
        }
      } else {
        const std::string error = error_of(file["variables"], source);
        EXPECT_TRUE(error.starts_with("model.gguf: chat template, line ")) << error;
        EXPECT_EQ(error.find('\n'), std::string::npos);
      }
    }
  }
}

TEST(Jinja, ErrorsSayWhereAndWhat) {
  struct Case {
    const char *source, *error;
  };
  const Case cases[] = {
      {"a\n  {{ 1 + }}", "line 2, column 10: expected an expression, found '}}'"},
      {"{% if true %}", "line 1, column 14: the template ends where 'endif' is missing"},
      {"x\n{% include 'a' %}", "line 2, column 4: the tag 'include' is not supported"},
      {"{% frob %}", "line 1, column 4: unknown tag 'frob'"},
      {"\n\n{{ name.x.y }}", "line 3, column 10: 'str object' has no attribute 'x'"},
      {"{{ tools }}\n{{ tools.x }}", "line 2, column 9: 'tools' is undefined"},
      {"{{ 'a' | frob }}", "line 1, column 10: no filter named 'frob'"},
      {"{{ 1 is frob }}", "line 1, column 9: no test named 'frob'"},
      {"{{ raise_exception('one\ntwo') }}", "line 1, column 19: one\\ntwo"},
      {"{{ 'a'.replace('b') }}", "line 1, column 15: replace() needs the argument 'new'"},
      {"{{ 'a'.strip(z=1) }}", "line 1, column 13: strip() has no argument named 'z'"},
      {"{{ '\\N{DASH}' }}", "line 1, column 5: characters by name"},
      {"{{ 0xFFFFFFFFFFFFFFFFF }}",
       "line 1, column 4: the integer FFFFFFFFFFFFFFFFF does not fit 64 bits"},
      {"{{ 99999999999999999999 + 1 }}",
       "column 25: the integer 99999999999999999999 does not fit 64 bits"},
      {"{{ 1 // 99999999999999999999 }}",
       "column 6: the integer 99999999999999999999 does not fit 64 bits"},
      {"{{ range(99999999999999999999) }}", "column 9: the integer 99999999999999999999 does not"},
      {"{{ 'a'.split('b', 99999999999999999999) }}",
       "the integer 99999999999999999999 does not fit"},
      {"{{ '%x' % 99999999999999999999 }}",
       "the integer 99999999999999999999 does not fit 64 bits"},
      {"{{ 2 ** 64 }}", "line 1, column 6: 2 ** 64 does not fit 64 bits"},
      {"{{ \x01 }}", "line 1, column 4: unexpected character '\\x01'"},
      {"{{ {} }}{{ } }}", "line 1, column 12: unexpected '}'"},
      {"{% continue %}", "line 1, column 4: 'continue' stands outside of a loop"},
      {"{% for i in [1] %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
       "'break' stands outside of a loop"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.source);
    const std::string error = error_of({{"name", "Ada"}}, c.source);
    EXPECT_NE(error.find(c.error), std::string::npos) << error;
  }
}

// What a user wrote, in brackets.
std::string marked(const Text& text) {
  std::string out;
  text.stretches([&](std::string_view bytes, bool user) {
    if (user) out += '[';
    out += bytes;
    if (user) out += ']';
  });
  return out;
}

TEST(Jinja, EveryByteKeepsItsOrigin) {
  struct Case {
    const char *source, *expected;
  };
  const Case cases[] = {
      {"<{{ u }}>", "<[user text]>"},
      {"{{ '<' + u + '>' }}{{ '<' ~ u ~ 1 }}", "<[user text]><[user text]1"},
      {"{{ u * 2 }}{{ ('a' + u) * 2 }}", "[user textuser text]a[user text]a[user text]"},
      {"{{ ('  <' ~ p ~ '>  ') | trim }}{{ p | trim }}", "<[  padded  ]>[padded]"},
      {"{{ ('ab' ~ u)[1:4] }}{{ ('ab' ~ u)[::-1] }}{{ u[0] }}{{ u[-1] }}", "b[ustxet resu]ba[ut]"},
      {"{{ u.split(' ') | join('+') }}", "[user]+[text]"},
      {"{{ ('a ' ~ u).split() }}", "['a', '[user]', '[text]']"},
      {"{{ u.replace('e', '<e>') }}", "[us]<e>[r t]<e>[xt]"},
      {"{{ 'x-y'.replace('-', u) }}{{ 'xuserx'.replace(u[:4], '!') }}", "x[user text]yx!x"},
      {"{{ ('é' ~ e) | upper }}{{ ('aé' ~ e) | title }}", "É[É]Aé[é]"},
      {"{{ [u, 'lit'] | tojson }}", "[\"[user text]\", \"lit\"]"},
      {"{{ q | tojson }}{{ [q] }}", "\"[say \\\"hi\\\"]\"['[say \"hi\"]']"},
      {"{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(u) }}", "<[user text]>"},
      {"{% set b %}({{ u }}){% endset %}{{ b | upper }}", "([USER TEXT])"},
      {"{% set ns = namespace(s='') %}{% for c in 'a' ~ e %}{% set ns.s = ns.s ~ c %}{% endfor "
       "%}{{ ns.s }}",
       "a[é]"},
      {"{{ '%s:%5s' % (u, e) }}", "[user text]:    [é]"},
      {"{{ ('a\n' ~ u) | indent(2) }}", "a\n  [user text]"},
      {"{{ u | truncate(7, true, leeway=0) }}{{ ('ab' ~ e) | center(5) }}", "[user]... ab[é] "},
      {"{{ u | default('d') }}{{ '' | default(u, true) }}", "[user textuser text]"},
      {"{{ u | length }}{{ u == 'user text' }}{{ n | int + 1 }}", "9True8"},
      {"{{ {u: 1} | items | first | first }}{{ {'k': u}.k }}", "[user textuser text]"},
      {"{{ strftime_now('%Y') }}{{ strftime_now(y) }}", "2024[2024]"},
      {"{{ u if u else 'x' }}{{ u or 'x' }}{{ '' or u }}", "[user textuser textuser text]"},
      {"{{ u | e }}{{ lt | e }}", "[user text&lt;]"},
      {"{% filter replace('s', '$') %}so {{ u }}{% endfilter %}", "$o [u]$[er text]"},
      {"{{ ['b', u] | sort | join('|') }}{{ u | reverse }}", "b|[user texttxet resu]"},
      {"{{ u.partition(' ') | join }}{{ u.rsplit('e', 1) | join('E') }}",
       "[user] [textuser t]E[xt]"},
      {"{{ (u ~ '\n' ~ u).splitlines() | join('/') }}", "[user text]/[user text]"},
      {"{{ u | string }}{{ u | safe }}{{ u | list | join }}", "[user textuser textuser text]"},
      {"{{ u.removeprefix('user') }}{{ u.strip('ut') }}", "[ textser tex]"},
  };
  const Json variables = {{"u", "user text"}, {"p", "  padded  "}, {"e", "é"}, {"q", "say \"hi\""},
                          {"n", "7"},         {"y", "%Y"},         {"lt", "<"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.source);
    try {
      EXPECT_EQ(marked(render_with(variables, c.source)), c.expected);
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

std::string repeated(const std::string& text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}

TEST(Jinja, HostileTemplatesEndInAnError) {
  TemplateLimits limits;  // a tenth, so that the test takes less than a second
  limits.steps /= 10;
  limits.value_bytes /= 10;
  limits.output_bytes /= 10;
  const std::string steps = "steps", memory = "too much memory", levels = "levels";
  struct Case {
    std::string source, error;
  };
  const Case cases[] = {
      {"{% set r = range(999) %}{% for i in r %}{% for j in r %}{% if i %}{% endif %}{% endfor "
       "%}{% endfor %}",
       steps},
      {"{{ range(1000000000) }}", "range too big"},
      {"{{ range(-9223372036854775807, 9223372036854775807) }}", "range too big"},
      {"{{ 'a' * 1000000000 }}", memory},
      {"{{ 'ab' * 9223372036854775807 }}", memory},
      {"{{ [1] * 9223372036854775807 }}", memory},
      {"{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% "
       "endfor %}",
       memory},
      {"{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% "
       "endfor %}",
       memory},
      // Small in memory, but too long to print.
      {"{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% "
       "endfor %}{{ ns.s }}",
       steps},
      {"{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = [ns.s, ns.s] %}{% "
       "endfor %}"
       "{% set nt = namespace(s=[1]) %}{% for i in range(99) %}{% set nt.s = [nt.s, nt.s] %}{% "
       "endfor %}"
       "{{ ns.s == nt.s }}",
       steps},
      {"{% set ns = namespace(s=[1]) %}{% for i in range(9999) %}{% set ns.s = [ns.s] %}{% endfor "
       "%}{{ ns.s }}",
       levels},
      {"{% set ns = namespace(s=[1]) %}{% for i in range(9999) %}{% set ns.s = [ns.s] %}{% endfor "
       "%}{{ ns.s | tojson }}",
       levels},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", levels},
      {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", levels},
      {"{{ " + repeated("(", 100'000) + "1", levels},
      {"{{ " + repeated("[", 100'000) + "1", levels},
      {"{{ " + repeated("{1:", 100'000) + "1", levels},
      {"{{ " + repeated("not ", 100'000) + "1 }}", levels},
      {"{{ " + repeated("-", 100'000) + "1 }}", levels},
      {"{{ " + repeated("1 if ", 100'000) + "1 }}", levels},
      {"{{ 1" + repeated(" if 1 else 1", 80'000) + " }}", levels},
      {"{{ 1" + repeated(" + 1", 100'000) + " }}", levels},
      {"{{ 1" + repeated(" ** 1", 100'000) + " }}", levels},
      {"{{ 1" + repeated(" and 1", 100'000) + " }}", levels},
      {"{{ a" + repeated(".a", 100'000) + " }}", levels},
      {"{{ a" + repeated("|e", 100'000) + " }}", levels},
      {"{{ a" + repeated("()", 100'000) + " }}", levels},
      {"{{ a" + repeated(" is f(a", 100'000), levels},
      {"{% set " + repeated("(", 100'000) + "a", levels},
      {repeated("{% if 1 %}", 100'000), levels},
      {repeated("{% macro m() %}", 60'000), levels},
      {"{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}", "too much"},
      {"{% set s = 'a' * 100000 %}{% for i in range(9999) %}{{ s }}{% endfor %}",
       "writes too much text"},
      {"{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{% if s | upper %}{% endif %}{% "
       "endfor %}",
       memory},
      {"{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{% if 'b' in s %}{% endif %}{% "
       "endfor %}",
       steps},
      {"{% set s = 'a' * 1000000 %}{{ (s ~ 'b') in (s ~ s) }}{{ s.rsplit('a' * 1000 ~ 'b') | "
       "length }}",
       steps},
      {"{{ 'a' | center(1000000000) }}", memory},
      {"{{ 'a' | indent(1000000000) }}", memory},
      {"{{ '%1000000000d' % 1 }}", "at most 1000"},
      {"{{ ('a' * 10000).replace('a', 'b' * 100000) }}", memory},
      {"{{ ('a' * 100000).replace('', 'b' * 100000) }}", memory},
      {"{{ ('a' * 10000).join(range(99999) | map('string')) }}", memory},
      {"{{ [1] | batch(1000000000, 'x') | list }}", "too long"},
      {"{{ [[1, [2]]] | tojson(indent=1000000000) }}", "at most 64"},
      {"{% set ns = namespace() %}{% for i in range(999) %}{% set ns.x = loop %}"
       "{% if loop.changed(ns, loop) %}{% endif %}{% set ns.m = ns %}{% endfor %}{{ ns.m.m.m.zz.y "
       "}}",
       "has no attribute 'zz'"},
      {std::string(2'000'000, 'a'), "too long for a template"},
      {"{{ dict(range(99998) | batch(2)) | length }}", steps},
      {"{{ range(99999) | map('string') | unique | list | length }}", steps},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.source.substr(0, 200));
    const std::string error = error_of({}, c.source, limits);
    EXPECT_NE(error.find(c.error), std::string::npos) << error.substr(0, 300);
  }
}

// Limits grow with the conversation: no text is too long for a plain template.
TEST(Jinja, LongInputsAreNotHostile) {
  const auto source = parse(
      "{% set ns = namespace(t='') %}{% for m in ms %}{% set ns.t = ns.t + m | trim %}{{ '<' + m + "
      "'>' }}"
      "{% endfor %}{{ ns.t | length }}",
      "model.gguf", {});
  const std::string big(4'000'000, 'x');
  RenderOptions options;
  options.input_bytes = big.size() * 3;
  const Text out = render(*source, options, [&](Runtime& runtime) -> Variables {
    const Value text = runtime.text(big, true);
    return {{"ms", runtime.list({text, text, text})}};
  });
  EXPECT_TRUE(out.bytes().ends_with(">12000000"));
}

TEST(Jinja, ATemplateRendersAgain) {
  const auto source = parse("{% set x = [1, 2] | map('string') %}{{ x | join }}", "model.gguf", {});
  const auto none = [](Runtime&) { return Variables(); };
  EXPECT_EQ(render(*source, {}, none).bytes(), "12");
  EXPECT_EQ(render(*source, {}, none).bytes(), "12");  // each rendering makes its own generators
}

}  // namespace
}  // namespace outrider::jinja
