#include <algorithm>
#include <climits>
#include <filesystem>
#include <set>

#include "base/mapped_file.h"
#include "base/plain_text.h"
#include "base/stopwatch.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"
#include "cli/model_name.h"
#include "cli/signals.h"
#include "formats/parse_json.h"
#include "runtime/history_store.h"
#include "runtime/opened_model.h"
#include "speculation/datastore.h"

namespace outrider {
namespace {

namespace fs = std::filesystem;

// Where the text of a line of JSON is; the first of them that it has.
constexpr const char* kTextFields[] = {"text", "content", "completion", "answer"};

// Files, and what lies in folders, in the order of names; nothing is followed that is a link.
std::vector<fs::path> files_of(const std::vector<std::string>& names) {
  std::vector<fs::path> files;
  for (const std::string& name : names) {
    std::error_code error;
    if (!fs::exists(name, error)) throw Error("{}: No such file or directory", name);
    if (!fs::is_directory(name)) {
      files.emplace_back(name);
      continue;
    }
    std::vector<fs::path> inside;
    for (fs::recursive_directory_iterator
             entry(name, fs::directory_options::skip_permission_denied, error),
         end;
         !error && entry != end; entry.increment(error))
      if (!entry->is_symlink() && entry->is_regular_file()) inside.push_back(entry->path());
    if (error) throw Error("{}: cannot be read: {}", name, error.message());
    std::ranges::sort(inside);
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

// The documents of a file: the lines of *.jsonl, else its text. None if it is no text.
std::vector<std::string> documents_of(const fs::path& file) {
  if (fs::is_empty(file)) return {};
  const MappedFile mapped(file);
  const std::string_view bytes(reinterpret_cast<const char*>(mapped.bytes().data()),
                               mapped.bytes().size());
  if (bytes.find('\0') != bytes.npos) return {};
  std::string text = plain_text(bytes, file.string());
  if (file.extension() != ".jsonl") return {std::move(text)};
  std::vector<std::string> documents;
  int number = 0;
  for (std::size_t begin = 0; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const std::string where = fmt::format("{}: line {}", file.string(), number + 1);
    const auto json = parse_json(line, where);
    const auto field = std::ranges::find_if(kTextFields, [&](const char* name) {
      return json.is_object() && json.contains(name) && json[name].is_string();
    });
    if (field == std::end(kTextFields))
      throw Error("{}: has no text; expected an object with {}", where,
                  fmt::join(kTextFields, ", "));
    documents.push_back(json[*field].template get<std::string>());
  }
  return documents;
}

int datastore_build(const Machine&, const Settings& settings) {
  if (!settings.out) throw UsageError("datastore build: needs --out FILE");
  Console console(settings);
  const Stopwatch watch;
  const auto checkpoint =
      open_checkpoint(checked_model_name(settings.model), pull_options(settings, console));
  console.clear();
  const std::unique_ptr<Tokenizer> tokenizer =
      make_tokenizer(checkpoint->metadata, settings.tokenizer_pre);
  if (!fs::exists(fs::absolute(*settings.out).parent_path()))
    throw Error("{}: cannot be written: there is no such folder", *settings.out);
  if (fs::exists(*settings.out) && !fs::is_regular_file(*settings.out))
    throw Error("{}: cannot be written: is no regular file", *settings.out);
  DatastoreBuilder builder(*tokenizer);
  const std::vector<fs::path> files = files_of(settings.arguments);
  std::uint64_t n_bytes = 0, n_skipped = 0, n_documents = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    stop_if_interrupted();
    const std::vector<std::string> documents = documents_of(files[i]);
    if (documents.empty()) ++n_skipped;
    for (const std::string& document : documents) {
      stop_if_interrupted();
      builder.add(tokenizer->encode(document));
      n_bytes += document.size();
      ++n_documents;
    }
    console.advance("tokenizing", static_cast<double>(i + 1) / static_cast<double>(files.size()),
                    human_bytes(n_bytes));
  }
  if (n_documents == 0)
    throw Error("{}: {} files, none of them text", fmt::join(settings.arguments, ", "),
                files.size());
  const std::uint64_t n_tokens = builder.n_tokens();
  Progress progress = console.progress();
  progress.advance = [&](std::string_view activity, std::uint64_t done, std::uint64_t total) {
    console.advance(activity,
                    total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0);
  };
  builder.write(*settings.out, progress);
  console.clear();
  const double seconds = watch.ms() / 1000;
  const std::uint64_t size = fs::file_size(*settings.out);
  if (settings.json) {
    write_json({{"file", *settings.out},
                {"documents", n_documents},
                {"skipped", n_skipped},
                {"text_bytes", n_bytes},
                {"tokens", n_tokens},
                {"bytes", size},
                {"seconds", seconds}});
  } else {
    write_output(fmt::format(
        "{}: {} tokens of {} documents ({} of text), {}, in {:.1f} s{}\n", *settings.out, n_tokens,
        n_documents, human_bytes(n_bytes), human_bytes(size), seconds,
        n_skipped > 0 ? fmt::format("; {} files are no text", n_skipped) : ""));
  }
  return kDone;
}

}  // namespace

Command datastore_build_command() {
  return {
      .name = "datastore build",
      .arguments = "FILES…",
      .arguments_min = 1,
      .arguments_max = INT_MAX,
      .summary = "make a datastore of documents to draft from",
      .description =
          "Tokenizes text files, folders of them and lines of JSON (*.jsonl, with text, content, "
          "completion or answer) and sorts all their suffixes: what --draft rest=FILE drafts "
          "from. It belongs to models of this vocabulary. Sorting takes memory of some five "
          "times the tokens' bytes, and a datastore some two times the text's.",
      .flags = {"--model", "--offline", "--tokenizer-pre", "--out", "--json", "--quiet"},
      .run = datastore_build};
}

}  // namespace outrider
