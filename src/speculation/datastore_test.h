// A datastore for tests.

#pragma once

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "speculation/datastore.h"

namespace outrider {

// Of one document.
inline std::shared_ptr<const Datastore> datastore_of(std::span<const Token> document,
                                                     const Tokenizer& tokenizer) {
  const auto file =
      std::filesystem::temp_directory_path() / ("datastore-" + std::to_string(getpid()) + ".rest");
  DatastoreBuilder builder(tokenizer);
  builder.add(document);
  builder.write(file, {});
  auto datastore =
      std::make_shared<const Datastore>(file, vocabulary_fingerprint(tokenizer), tokenizer.size());
  std::filesystem::remove(file);  // it stays mapped
  return datastore;
}

}  // namespace outrider
