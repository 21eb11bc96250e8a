#include "structure/rules.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string_view>

namespace sluice::structure {
namespace {

bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view prefix) { return text.starts_with(prefix); });
}

/// A source file's place: src/<layer>/<folder>/<stem>.<suffix>, where folder may be empty.
struct Place {
  std::string layer;
  std::string folder;
  std::string stem;
  std::string suffix;
  bool is_header() const { return suffix == "hpp" || suffix == "cuh" || suffix == "h"; }
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

/// The place of a C++ or CUDA file of src/; nothing for any other path.
std::optional<Place> place_of(const std::string& path) {
  static const std::set<std::string> kSuffixes{"hpp", "cpp", "cu", "cuh", "h", "c", "cc"};
  const std::vector<std::string> parts = split(path, '/');
  if (parts.size() < 3 || parts[0] != "src") return std::nullopt;
  const std::string& file = parts.back();
  const std::size_t dot = file.rfind('.');
  if (dot == std::string::npos || !kSuffixes.contains(file.substr(dot + 1))) return std::nullopt;
  Place place{.layer = parts[1], .folder = "", .stem = file.substr(0, dot), .suffix = file.substr(dot + 1)};
  for (std::size_t i = 2; i + 1 < parts.size(); ++i) place.folder += (i > 2 ? "/" : "") + parts[i];
  return place;
}

/// The sub-folders that the table of layers names.
const std::map<std::string, std::set<std::string>>& folders() {
  static const std::map<std::string, std::set<std::string>> kFolders{
      {"device", {"cpu", "cuda"}}, {"memory", {"io"}}, {"comm", {"mpi", "nccl", "local"}}};
  return kFolders;
}

/// A library of other people: how its headers begin and where they may be seen (the last column of the table of layers).
struct Library {
  std::string name;
  std::vector<std::string> prefixes;
  std::string where;
  std::function<bool(const Place&)> allows;
};

const std::vector<Library>& libraries() {
  const auto in = [](std::string layer, std::string folder) {
    return [layer = std::move(layer), folder = std::move(folder)](const Place& p) { return p.layer == layer && p.folder == folder; };
  };
  const auto any_source = [](const Place& p) { return !p.is_header(); };
  const auto ops_cpu = [](const Place& p) { return p.layer == "ops" && p.stem.ends_with("_cpu"); };
  const auto ops_cuda = [](const Place& p) { return p.layer == "ops" && p.stem.ends_with("_cuda"); };
  static const std::vector<Library> kLibraries{
      {"nlohmann-json", {"nlohmann/"}, "any .cpp, no header", any_source},
      {"spdlog", {"spdlog/", "fmt/"}, "any .cpp, no header", any_source},
      {"CLI11", {"CLI/"}, "a .cpp of app/", [](const Place& p) { return p.layer == "app" && !p.is_header(); }},
      {"hwloc", {"hwloc"}, "device/cpu/", in("device", "cpu")},
      {"the CUDA runtime",
       {"cuda.h", "cuda_", "cuda/"},
       "device/cuda/ and ops/*_cuda",
       [=](const Place& p) { return in("device", "cuda")(p) || ops_cuda(p); }},
      {"cuBLAS or cuDNN", {"cublas", "cudnn"}, "ops/*_cuda", ops_cuda},
      {"libaio", {"libaio.h"}, "memory/io/", in("memory", "io")},
      {"MPI", {"mpi.h", "mpi-ext.h"}, "comm/mpi/", in("comm", "mpi")},
      {"NCCL", {"nccl"}, "comm/nccl/", in("comm", "nccl")},
      {"oneDNN", {"dnnl", "oneapi/dnnl"}, "ops/*_cpu", ops_cpu},
      {"OpenMP", {"omp.h"}, "a .cpp of ops/", [](const Place& p) { return p.layer == "ops" && !p.is_header(); }},
      {"PCRE2", {"pcre2"}, "formats/", in("formats", "")},
      {"SentencePiece", {"sentencepiece"}, "formats/", in("formats", "")},
      {"utf8proc", {"utf8proc"}, "formats/", in("formats", "")},
      {"HDF5", {"hdf5", "H5"}, "checkpoint/", in("checkpoint", "")},
  };
  return kLibraries;
}

/// Headers of the C and C++ standards, of POSIX, Linux and the compiler's intrinsics.
bool is_system_header(const std::string& header) {
  static const std::set<std::string> kKnown{
      "aio.h",     "alloca.h",   "cpuid.h",  "dirent.h", "dlfcn.h", "elf.h",       "errno.h",    "execinfo.h", "fcntl.h",     "fenv.h",
      "fnmatch.h", "ftw.h",      "getopt.h", "glob.h",   "grp.h",   "immintrin.h", "libgen.h",   "limits.h",   "link.h",      "malloc.h",
      "math.h",    "mntent.h",   "netdb.h",  "numaif.h", "poll.h",  "pthread.h",   "pwd.h",      "sched.h",    "semaphore.h", "signal.h",
      "spawn.h",   "stdbool.h",  "stddef.h", "stdint.h", "stdio.h", "stdlib.h",    "string.h",   "strings.h",  "syslog.h",    "termios.h",
      "time.h",    "ucontext.h", "unistd.h", "utime.h",  "wait.h",  "wchar.h",     "x86intrin.h"};
  const bool is_standard = header.find_first_of("/.") == std::string::npos;  // <vector>
  return is_standard || kKnown.contains(header) || starts_with_any(header, {"sys/", "linux/", "arpa/", "netinet/", "net/", "asm/"});
}

struct Include {
  int line;
  std::string header;
  bool quoted;
};

std::vector<Include> includes_of(const std::string& content) {
  static const std::regex kInclude(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
  std::vector<Include> found;
  std::istringstream stream(content);
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    if (line.find("include") == std::string::npos) continue;
    std::smatch match;
    if (std::regex_search(line, match, kInclude)) found.push_back({number, match[2], match[1] == "\""});
  }
  return found;
}

int rank_of(const std::string& layer) {
  const auto position = std::find(layers().begin(), layers().end(), layer);
  return position == layers().end() ? -1 : static_cast<int>(position - layers().begin());
}

/// What is wrong with one include of a file in src/; empty: nothing.
std::string fault_of(const Place& place, const Include& include) {
  if (include.quoted) {
    if (include.header == "sluice/sluice.h") return place.layer == "app" ? "" : "the C interface is included by app/ alone";
    const std::string target = split(include.header, '/')[0];
    if (include.header.find('/') == std::string::npos || rank_of(target) < 0) {
      return "\"" + include.header + "\" is not a path below src/ beginning with a layer, as in \"base/error.hpp\"";
    }
    if (rank_of(target) > rank_of(place.layer)) {
      return place.layer + "/ includes \"" + include.header + "\", but " + target + "/ stands below it in the table of layers";
    }
    return "";
  }
  for (const Library& library : libraries()) {
    const bool is_of_library = std::any_of(library.prefixes.begin(), library.prefixes.end(),
                                           [&](const std::string& prefix) { return include.header.starts_with(prefix); });
    if (is_of_library) {
      return library.allows(place) ? ""
                                   : "<" + include.header + "> is of " + library.name + ", which may be seen in " + library.where + " only";
    }
  }
  if (is_system_header(include.header)) return "";
  return "<" + include.header + "> is of no library that the table of layers names";
}

}  // namespace

const std::vector<std::string>& layers() {
  static const std::vector<std::string> kLayers{"base",    "spec",    "device",     "memory", "comm",   "ops",
                                                "model",   "formats", "parallel",   "optim",  "chunks", "schedule",
                                                "profile", "plan",    "checkpoint", "data",   "train",  "app"};
  return kLayers;
}

Violations check_includes(const Tree& tree) {
  Violations violations;
  std::set<std::string> strange;  // reported once per folder, not per file
  for (const auto& [path, content] : tree) {
    if (path.starts_with("include/")) {
      for (const Include& include : includes_of(content)) {
        static const std::set<std::string> kPublic{"stddef.h", "stdint.h", "stdbool.h"};
        if (include.quoted || !kPublic.contains(include.header)) {
          violations.push_back(path + ":" + std::to_string(include.line) + ": a public header includes " + include.header +
                               "; expected stddef.h, stdint.h or stdbool.h");
        }
      }
      continue;
    }
    const std::optional<Place> place = place_of(path);
    if (!place) {
      if (path.starts_with("src/") && split(path, '/').size() == 2 && path != "src/CMakeLists.txt") {
        violations.push_back(path + ": a file directly in src/; expected in the folder of a layer");
      }
      continue;
    }
    if (rank_of(place->layer) < 0) {
      if (strange.insert(place->layer).second) violations.push_back("src/" + place->layer + ": not a layer; see the table of layers");
      continue;
    }
    const auto known = folders().find(place->layer);
    if (!place->folder.empty() && (known == folders().end() || !known->second.contains(place->folder))) {
      const std::string folder = place->layer + "/" + place->folder;
      if (strange.insert(folder).second) violations.push_back("src/" + folder + ": a sub-folder that the table of layers does not name");
    }
    for (const Include& include : includes_of(content)) {
      const std::string fault = fault_of(*place, include);
      if (!fault.empty()) violations.push_back(path + ":" + std::to_string(include.line) + ": " + fault);
    }
  }
  return violations;
}

Violations check_readmes(const Tree& tree) {
  Violations violations;
  std::set<std::string> used;
  for (const auto& [path, content] : tree) {
    if (const std::optional<Place> place = place_of(path)) used.insert(place->layer);
  }
  for (const std::string& layer : used) {
    const std::string path = "src/" + layer + "/README.md";
    const auto readme = tree.find(path);
    if (readme == tree.end()) {
      violations.push_back(path + ": missing; expected the folder's job, main types, one invariant and where its tests are");
    } else if (const auto lines = std::count(readme->second.begin(), readme->second.end(), '\n'); lines < 5) {
      violations.push_back(path + ": " + std::to_string(lines) + " lines; expected at least 5");
    }
  }
  return violations;
}

Violations check_top_level(const Tree& tree) {
  static const std::set<std::string> kExpected{"src",    "include", "launch",         "configs",           "checkpoints",
                                               "tests",  "cmake",   "CMakeLists.txt", "CMakePresets.json", "README.md",
                                               "LICENSE"};
  static const std::set<std::string> kNeeded{"src",       "tests",  "launch", "configs", "CMakeLists.txt", "CMakePresets.json",
                                             "README.md", "LICENSE"};
  std::set<std::string> found;
  for (const auto& [path, content] : tree) found.insert(path.substr(0, path.find('/')));
  Violations violations;
  for (const std::string& name : found) {
    if (!kExpected.contains(name) && !name.starts_with(".")) violations.push_back(name + ": does not belong at the top level");
  }
  for (const std::string& name : kNeeded) {
    if (!found.contains(name)) violations.push_back(name + ": missing at the top level");
  }
  return violations;
}

Violations check_machine_paths(const Tree& tree) {
  // In pieces, so that this file does not name them itself.
  static const std::array<std::string, 4> kPlaces{std::string("/wo") + "rk/", std::string("/ro") + "ot/", std::string("/ho") + "me/",
                                                  std::string("/Us") + "ers/"};
  Violations violations;
  for (const auto& [path, content] : tree) {
    if (content.find('\0') != std::string::npos) continue;  // not a text
    for (const std::string& place : kPlaces) {
      for (std::size_t at = content.find(place); at != std::string::npos; at = content.find(place, at + 1)) {
        // Part of a longer path, as in build/work/x, a URL or $DIR/work/x.
        const char before = at == 0 ? '\n' : content[at - 1];
        if (std::isalnum(static_cast<unsigned char>(before)) != 0 || std::string_view("_./-~})*").find(before) != std::string_view::npos)
          continue;
        const auto line = 1 + std::count(content.begin(), content.begin() + static_cast<std::ptrdiff_t>(at), '\n');
        violations.push_back(path + ":" + std::to_string(line) + ": names a path of one machine (" + place +
                             "...); expected a relative one");
      }
    }
  }
  return violations;
}

Violations check_source_habits(const Tree& tree) {
  Violations violations;
  for (const auto& [path, content] : tree) {
    const std::optional<Place> place = place_of(path);
    if (!place) continue;
    if (place->is_header() && !content.starts_with("#pragma once"))
      violations.push_back(path + ": expected #pragma once as its first line");
    if (place->layer != "app" && content.find(std::string("get") + "env(") != std::string::npos) {
      violations.push_back(path + ": reads the environment; only app/ may");
    }
  }
  return violations;
}

}  // namespace sluice::structure
