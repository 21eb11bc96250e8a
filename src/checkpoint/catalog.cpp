#include "checkpoint/catalog.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/input_file.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "checkpoint/hdf5.hpp"
#include "checkpoint/index.hpp"
#include "checkpoint/shard.hpp"

namespace sluice::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTrashPrefix = ".trash.";

std::string last_name(const std::string& path) {
  const std::filesystem::path p(path);
  return (p.has_filename() ? p : p.parent_path()).filename().string();
}

// The step in "step-00000050.tmp.x" or ".trash.step-00000050.x", or -1.
std::int64_t step_of_leftover(const std::string& name) {
  std::string rest = name;
  if (rest.rfind(kTrashPrefix, 0) == 0) {
    rest = rest.substr(std::string_view(kTrashPrefix).size());
  } else if (rest.find(".tmp.") == std::string::npos) {
    return -1;
  }
  return step_of_name(rest.substr(0, rest.find('.')));
}

// Elements of each plane over all shards.
std::array<std::int64_t, kPlaneCount> plane_elements(const Manifest& manifest) {
  std::array<std::int64_t, kPlaneCount> sums{};
  for (const ShardInfo& shard : manifest.shards) {
    for (const StoredPlane& plane : shard.planes) sums[static_cast<std::size_t>(plane.plane)] += plane.elements;
  }
  return sums;
}

bool contains(const std::vector<std::int64_t>& steps, std::int64_t step) {
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

void call(const Hook& hook, const char* point) {
  if (hook) hook(point);
}

}  // namespace

std::string_view name_of(State state) {
  switch (state) {
    case State::kComplete:
      return "complete";
    case State::kDamaged:
      return "damaged";
    case State::kIncomplete:
      return "incomplete";
    case State::kUnreadable:
      return "unreadable";
  }
  return "unknown";
}

Entry inspect_checkpoint(const std::string& path) {
  Entry entry;
  entry.path = path;
  entry.step = step_of_name(last_name(path));
  try {
    const Manifest manifest = read_manifest(path);
    entry.step = manifest.progress.step;
    entry.bytes = manifest.bytes();
    entry.ranks = static_cast<std::int64_t>(manifest.shards.size());
    entry.created = manifest.created;
    for (const ShardInfo& shard : manifest.shards) const ShardReader opened(path, manifest, shard);
  } catch (const FormatError& error) {
    entry.state = State::kDamaged;
    entry.reason = error.what();
  } catch (const IoError& error) {
    entry.state = State::kUnreadable;
    entry.reason = error.what();
  }
  return entry;
}

std::vector<Entry> list_checkpoints(const std::string& directory) {
  std::vector<Entry> entries;
  for (const std::string& name : names_in(directory)) {
    if (step_of_name(name) >= 0) {
      entries.push_back(inspect_checkpoint(directory + "/" + name));
      continue;
    }
    Entry entry;
    entry.path = directory + "/" + name;
    entry.step = step_of_leftover(name);
    if (entry.step < 0) continue;
    entry.state = State::kIncomplete;
    entry.reason =
        name.rfind(kTrashPrefix, 0) == 0 ? "an old checkpoint whose removal was cut off" : "a save that was cut off or is going on";
    entries.push_back(std::move(entry));
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.step < b.step; });
  return entries;
}

std::vector<std::int64_t> committed_steps(const std::string& directory) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_in(directory)) {
    if (step_of_name(name) >= 0) steps.push_back(step_of_name(name));
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Manifest read_manifest(const std::string& path) {
  const std::string file = path + "/" + kManifestName;
  std::string text;
  try {
    text = read_text(file);
  } catch (const IoError& error) {
    if (error.error_number == ENOENT || error.error_number == ENOTDIR)
      throw FormatError(file, "is missing, so this is no committed checkpoint");
    if (error.error_number == EIO) throw FormatError(file, cat("can't be read: ", error.what()));
    throw;
  } catch (const RequestError& error) {  // a directory or the like
    throw FormatError(file, cat("can't be read: ", error.what()));
  }
  Manifest manifest = manifest_from_json(text, file);
  const std::int64_t step = step_of_name(last_name(path));
  if (step >= 0 && step != manifest.progress.step) {
    throw FormatError(file, cat("is of step ", manifest.progress.step, ", expected step ", step, " as its directory is named"));
  }
  return manifest;
}

Verification verify_checkpoint(const std::string& path, bool deep) {
  Verification result;
  result.path = path;
  result.deep = deep;
  const std::int64_t begin = now_ns();
  try {
    const Manifest manifest = read_manifest(path);
    result.step = manifest.progress.step;
    for (const ShardInfo& shard : manifest.shards) {
      try {
        ShardReader reader(path, manifest, shard);
        if (deep) reader.check_all();
        result.bytes_read += reader.bytes_read();
      } catch (const FormatError& error) {
        result.faults.emplace_back(error.what());
      }
    }
    if (deep) {
      const std::string fault = index_fault(path, manifest);
      if (!fault.empty()) result.notes.push_back(fault + "; loading does not need it");
    }
    std::set<std::string> known = {kManifestName, kIndexName};
    for (const ShardInfo& shard : manifest.shards) known.insert(shard.file);
    for (const std::string& name : names_in(path)) {
      if (known.count(name) == 0) result.notes.push_back(name + " does not belong to the checkpoint");
    }
  } catch (const FormatError& error) {
    result.faults.emplace_back(error.what());
  }
  result.seconds = static_cast<double>(now_ns() - begin) * 1e-9;
  return result;
}

Location locate_checkpoints(const std::string& path) {
  if (!is_directory(path))
    throw RequestError(cat(path, ": no such directory; give a run directory, its checkpoints directory or one checkpoint"));
  const std::filesystem::path given = std::filesystem::path(path).lexically_normal();
  const std::filesystem::path clean = given.has_filename() ? given : given.parent_path();
  if (exists(path + "/" + kManifestName) || step_of_name(clean.filename().string()) >= 0) {
    const std::string parent = clean.parent_path().string();
    return {parent.empty() ? "." : parent, clean.string()};
  }
  if (is_directory(path + "/checkpoints")) return {(clean / "checkpoints").string(), std::nullopt};
  return {clean.string(), std::nullopt};
}

void remove_checkpoint(const std::string& path, const Hook& hook) {
  const std::filesystem::path p(path);
  const std::string trash = (p.parent_path() / cat(kTrashPrefix, p.filename().string(), ".", ::getpid())).string();
  call(hook, "before_delete");
  rename_path(path, trash);
  if (::unlink((trash + "/" + kManifestName).c_str()) != 0 && errno != ENOENT)
    throw IoError("removing", trash + "/" + kManifestName, errno);
  call(hook, "during_delete");
  remove_tree(trash, kManifestName);
  call(hook, "after_delete");
}

Removal sweep_leftovers(const std::string& directory) {
  Removal result;
  for (const std::string& name : names_in(directory)) {
    if (step_of_name(name) >= 0 || step_of_leftover(name) < 0) continue;
    const std::string path = directory + "/" + name;
    try {
      remove_tree(path, kManifestName);
      result.removed.push_back(path);
    } catch (const IoError& error) {
      result.warnings.push_back(cat("could not remove what is left of a cut-off save: ", error.what()));
    }
  }
  return result;
}

Removal retain_newest(const std::string& directory, int keep, const std::vector<std::int64_t>& kept_steps,
                      const std::vector<std::int64_t>& damaged_steps, const Hook& hook) {
  Removal result;
  if (keep <= 0) return result;
  struct Old {
    Entry entry;
    bool is_damaged;
  };
  std::vector<Old> old;  // by decreasing step
  std::vector<Entry> entries = list_checkpoints(directory);
  int whole = 0;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (entry->state != State::kComplete && entry->state != State::kDamaged) continue;
    const bool is_damaged = entry->state == State::kDamaged || contains(damaged_steps, entry->step);
    if (whole < keep) {
      if (!is_damaged) ++whole;
    } else if (!contains(kept_steps, entry->step)) {
      old.push_back({std::move(*entry), is_damaged});
    }
  }
  for (auto each = old.rbegin(); each != old.rend(); ++each) {
    const Entry& entry = each->entry;
    try {
      remove_checkpoint(entry.path, hook);
      result.removed.push_back(entry.path);
      if (each->is_damaged)
        result.warnings.push_back(cat("the damaged checkpoint of step ", entry.step, " is removed, since ", keep,
                                      keep == 1 ? " newer whole one stands" : " newer whole ones stand"));
    } catch (const IoError& error) {
      result.warnings.push_back(cat("could not remove the old checkpoint of step ", entry.step, ": ", error.what()));
    }
  }
  return result;
}

std::string describe(const std::vector<Entry>& entries) {
  std::ostringstream out;
  if (entries.empty()) out << "no checkpoints\n";
  for (const Entry& entry : entries) {
    out << "step " << std::setw(8) << entry.step << "  " << std::left << std::setw(10) << name_of(entry.state) << std::right;
    if (entry.ranks > 0)
      out << "  " << std::setw(9) << format_bytes(entry.bytes) << "  " << counted(entry.ranks, "shard") << "  "
          << local_time(entry.created);
    out << "  " << entry.path << "\n";
    if (!entry.reason.empty()) out << "               " << entry.reason << "\n";
  }
  if (std::any_of(entries.begin(), entries.end(), [](const Entry& entry) { return entry.state == State::kComplete; }))
    out << "complete: all files are there with the right sizes and structure; sluice checkpoint verify reads every byte\n";
  return out.str();
}

std::string describe(const Manifest& manifest) {
  std::ostringstream out;
  const Progress& progress = manifest.progress;
  const auto sums = plane_elements(manifest);
  out << "step " << progress.step << ", sample " << progress.samples << ", " << progress.adam_count << " updates, global batch "
      << progress.global_batch << ", epoch " << progress.epoch << ", seed " << progress.seed << ", attempt " << progress.attempt << "\n";
  if (progress.best) out << "best so far: step " << progress.best->step << ", validation loss " << progress.best->loss << "\n";
  out << manifest.params.size() << " parameters, " << format_count(sums[0]) << " numbers; moments of " << format_count(sums[1]) << "\n";
  out << counted(static_cast<std::int64_t>(manifest.shards.size()), "shard") << ", " << format_bytes(manifest.bytes()) << ", saved "
      << local_time(manifest.created) << " by " << manifest.writer << ", format version " << manifest.version << "\n";
  if (!manifest.documents.signature.empty()) out << "signature " << manifest.documents.signature << "\n";
  return out.str();
}

std::string describe(const Verification& verification) {
  std::ostringstream out;
  out << verification.path << ": "
      << (!verification.whole() ? "DAMAGED"
          : verification.deep   ? "whole (every byte checked)"
                                : "whole (manifest, sizes and structure checked)");
  if (verification.deep) {
    out << ", " << format_bytes(verification.bytes_read) << " in " << format_seconds(verification.seconds);
  }
  out << "\n";
  for (const std::string& fault : verification.faults) out << "  fault: " << fault << "\n";
  for (const std::string& note : verification.notes) out << "  note: " << note << "\n";
  return out.str();
}

std::string to_json(const std::vector<Entry>& entries) {
  Json list = Json::array();
  for (const Entry& entry : entries) {
    list.push_back({{"step", entry.step},
                    {"path", entry.path},
                    {"state", name_of(entry.state)},
                    {"reason", entry.reason},
                    {"bytes", entry.bytes},
                    {"ranks", entry.ranks},
                    {"created", entry.created}});
  }
  return list.dump(2) + "\n";
}

std::string summary_json(const Manifest& manifest) {
  // The manifest's own text with the position on top, without what only a reader of shards needs.
  Json value = Json::parse(to_json(manifest));
  const Json progress = value.at("progress");
  value.update(progress);
  for (const char* key : {"progress", "manifest_xxh64", "format", "block_bytes", "index"}) value.erase(key);
  for (Json& shard : value.at("shards")) shard = {{"file", shard.at("file")}, {"bytes", shard.at("bytes")}};
  value["bytes"] = manifest.bytes();
  const auto sums = plane_elements(manifest);
  for (int i = 0; i < kPlaneCount; ++i) value["elements"][std::string(kPlaneNames[i])] = sums[static_cast<std::size_t>(i)];
  return value.dump(2) + "\n";
}

std::string to_json(const Verification& verification) {
  const Json value = {{"path", verification.path},
                      {"step", verification.step},
                      {"whole", verification.whole()},
                      {"deep", verification.deep},
                      {"faults", verification.faults},
                      {"notes", verification.notes},
                      {"bytes_read", verification.bytes_read},
                      {"seconds", verification.seconds}};
  return value.dump(2) + "\n";
}

std::string hdf5_library_version() {
  unsigned major = 0, minor = 0, release = 0;
  check_hdf5(H5get_libversion(&major, &minor, &release), "H5get_libversion");
  return cat(major, ".", minor, ".", release);
}

}  // namespace sluice::checkpoint
