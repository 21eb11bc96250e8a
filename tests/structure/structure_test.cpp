// Holds the tree of this repository against the rules, and the rules against made-up trees that break each of them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>

#include "structure/rules.hpp"

namespace sluice::structure {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::filesystem::path kRoot = SLUICE_SOURCE_DIR;

std::string read(const std::filesystem::path& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

/// Files as git knows them: tracked ones with "--cached", new ones with "--others". Empty where there is no git repository.
std::vector<std::string> git_files(const std::string& kind) {
  const std::string command =
      "git -c safe.directory='*' -C '" + kRoot.string() + "' ls-files -z --exclude-standard " + kind + " 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), [](FILE* file) { return pclose(file); });
  std::string output;
  std::array<char, 4096> buffer{};
  while (const std::size_t count = fread(buffer.data(), 1, buffer.size(), pipe.get())) output.append(buffer.data(), count);
  std::vector<std::string> paths;
  for (std::size_t begin = 0; begin < output.size();) {
    const std::size_t end = output.find('\0', begin);
    paths.push_back(output.substr(begin, end - begin));
    begin = end + 1;
  }
  return paths;
}

/// The repository's files: all tracked ones, and new ones that belong to it. A person's own files at the top level stay out.
const Tree& real_tree() {
  static const Tree kTree = [] {
    const std::set<std::string> ours{".ci", "checkpoints", "cmake",          "configs",           "include",   "launch",
                                     "src", "tests",       "CMakeLists.txt", "CMakePresets.json", "README.md", "LICENSE"};
    std::vector<std::string> paths = git_files("--cached");
    if (paths.empty()) {  // an exported tree
      for (const std::string& name : ours) {
        if (std::filesystem::is_regular_file(kRoot / name)) paths.push_back(name);
        if (!std::filesystem::is_directory(kRoot / name)) continue;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot / name)) {
          if (entry.is_regular_file()) paths.push_back(std::filesystem::relative(entry.path(), kRoot).generic_string());
        }
      }
    }
    for (const std::string& path : git_files("--others")) {
      if (ours.contains(path.substr(0, path.find('/')))) paths.push_back(path);
    }
    Tree tree;
    for (const std::string& path : paths) {
      if (std::filesystem::is_regular_file(kRoot / path)) tree[path] = read(kRoot / path);  // a tracked one may be deleted
    }
    return tree;
  }();
  return kTree;
}

std::string lines(const Violations& violations) {
  std::string text;
  for (const std::string& violation : violations) text += "\n  " + violation;
  return text;
}

TEST(Tree, IsThere) {
  EXPECT_GT(real_tree().size(), 50u);
  EXPECT_TRUE(real_tree().contains("src/base/error.hpp"));
}
TEST(Tree, IncludesFollowTheTableOfLayers) {
  const Violations violations = check_includes(real_tree());
  EXPECT_THAT(violations, IsEmpty()) << lines(violations);
}
TEST(Tree, EveryLayerHasAReadme) {
  const Violations violations = check_readmes(real_tree());
  EXPECT_THAT(violations, IsEmpty()) << lines(violations);
}
TEST(Tree, TopLevelHoldsOnlyWhatItShould) {
  const Violations violations = check_top_level(real_tree());
  EXPECT_THAT(violations, IsEmpty()) << lines(violations);
}
TEST(Tree, NamesNoMachinesPaths) {
  const Violations violations = check_machine_paths(real_tree());
  EXPECT_THAT(violations, IsEmpty()) << lines(violations);
}
TEST(Tree, HeadersAndEnvironmentAreAsAgreed) {
  const Violations violations = check_source_habits(real_tree());
  EXPECT_THAT(violations, IsEmpty()) << lines(violations);
}

/// tests/structure/CMakeLists.txt compiles one file per header; none may be left out.
TEST(Tree, EveryHeaderIsCompiledAlone) {
  std::set<std::string> compiled;
  std::ifstream list(SLUICE_HEADER_LIST);
  for (std::string path; std::getline(list, path);) compiled.insert(path);
  std::set<std::string> expected;
  for (const auto& [path, content] : real_tree()) {
    if (path.starts_with("src/") && path.ends_with(".hpp")) expected.insert(path.substr(4));
  }
  std::vector<std::string> differing;
  std::set_symmetric_difference(compiled.begin(), compiled.end(), expected.begin(), expected.end(), std::back_inserter(differing));
  EXPECT_THAT(differing, IsEmpty()) << "configure again: headers came or went since";
}

TEST(IncludeRule, AcceptsWhatTheTableAllows) {
  EXPECT_THAT(check_includes(
                  {{"src/base/log.cpp", "#include \"base/log.hpp\"\n#include <spdlog/spdlog.h>\n#include <vector>\n"},
                   {"src/comm/mpi/mpi.hpp", "#pragma once\n#include <mpi.h>\n"},
                   {"src/ops/gelu_cpu.cpp", "#include <dnnl.hpp>\n#include <omp.h>\n#include <immintrin.h>\n#include \"base/check.hpp\"\n"},
                   {"src/checkpoint/hdf5.hpp", "#include <hdf5.h>\n"},
                   {"src/memory/io/aio.cpp", "#include <libaio.h>\n#include <sys/mman.h>\n"},
                   {"src/app/cli.cpp", "#include <CLI/CLI.hpp>\n#include \"train/loop.hpp\"\n#include \"sluice/sluice.h\"\n"},
                   {"src/ops/gelu_cuda.cu", "#include <cublas_v2.h>\n#include <cuda_runtime.h>\n"},
                   {"src/spec/plan.cpp", "#include <nlohmann/json.hpp>\n"},
                   {"include/sluice/sluice.h", "#include <stdint.h>\n"},
                   {"src/CMakeLists.txt", ""},
                   {"src/base/README.md", "#include <mpi.h>\n"}}),
              IsEmpty());
}

TEST(IncludeRule, FindsAnArrowThatPointsDown) {
  EXPECT_THAT(check_includes({{"src/base/log.cpp", "// a comment\n#include \"spec/plan.hpp\"\n"}}),
              ElementsAre(testing::AllOf(HasSubstr("src/base/log.cpp:2: "), HasSubstr("spec/plan.hpp"))));
  EXPECT_THAT(check_includes({{"src/plan/search.hpp", "#include \"train/loop.hpp\"\n"}}), ElementsAre(HasSubstr("train/ stands below")));
  EXPECT_THAT(check_includes({{"src/plan/search.hpp", "  #  include   \"train/loop.hpp\"\n"}}), ElementsAre(HasSubstr("train/loop.hpp")));
}

TEST(IncludeRule, KeepsTheOrderOfTheTable) {
  // Each layer may include the one before it, and not the one after.
  for (std::size_t i = 0; i + 1 < layers().size(); ++i) {
    const std::string low = layers()[i], high = layers()[i + 1];
    EXPECT_THAT(check_includes({{"src/" + high + "/x.cpp", "#include \"" + low + "/y.hpp\"\n"}}), IsEmpty());
    EXPECT_THAT(check_includes({{"src/" + low + "/x.cpp", "#include \"" + high + "/y.hpp\"\n"}}), testing::SizeIs(1)) << low << ' ' << high;
  }
  EXPECT_EQ(layers().size(), 18u);
}

TEST(IncludeRule, FindsPathsThatDoNotBeginWithALayer) {
  EXPECT_THAT(check_includes({{"src/spec/plan.cpp", "#include \"plan.hpp\"\n"}}), ElementsAre(HasSubstr("\"plan.hpp\" is not a path")));
  EXPECT_THAT(check_includes({{"src/spec/plan.cpp", "#include \"../base/log.hpp\"\n"}}), ElementsAre(HasSubstr("is not a path")));
}

TEST(IncludeRule, KeepsLibrariesInTheirPlaces) {
  const std::vector<std::pair<std::string, std::string>> forbidden{{"src/spec/plan.hpp", "nlohmann/json.hpp"},
                                                                   {"src/base/log.hpp", "spdlog/spdlog.h"},
                                                                   {"src/train/loop.cpp", "CLI/CLI.hpp"},
                                                                   {"src/app/cli.hpp", "CLI/CLI.hpp"},
                                                                   {"src/train/loop.cpp", "mpi.h"},
                                                                   {"src/comm/local/local.cpp", "mpi.h"},
                                                                   {"src/comm/communicator.hpp", "mpi.h"},
                                                                   {"src/ops/gelu.cpp", "dnnl.hpp"},
                                                                   {"src/ops/gelu.hpp", "oneapi/dnnl/dnnl.hpp"},
                                                                   {"src/ops/gelu.hpp", "omp.h"},
                                                                   {"src/train/loop.cpp", "hdf5.h"},
                                                                   {"src/formats/safetensors.cpp", "H5Cpp.h"},
                                                                   {"src/memory/arena.cpp", "libaio.h"},
                                                                   {"src/device/device.hpp", "hwloc.h"},
                                                                   {"src/memory/arena.cpp", "cuda_runtime.h"},
                                                                   {"src/ops/gelu_cpu.cpp", "cublas_v2.h"},
                                                                   {"src/comm/mpi/mpi.cpp", "nccl.h"},
                                                                   {"src/data/corpus.cpp", "pcre2.h"},
                                                                   {"src/data/corpus.cpp", "sentencepiece_processor.h"},
                                                                   {"src/data/corpus.cpp", "utf8proc.h"}};
  for (const auto& [path, header] : forbidden) {
    EXPECT_THAT(check_includes({{path, "#include <" + header + ">\n"}}),
                ElementsAre(testing::AllOf(HasSubstr(path + ":1: "), HasSubstr(header))));
  }
}

TEST(IncludeRule, FindsStrangeLibraries) {
  EXPECT_THAT(check_includes({{"src/data/corpus.cpp", "#include <boost/any.hpp>\n"}}), ElementsAre(HasSubstr("no library")));
  EXPECT_THAT(check_includes({{"src/data/corpus.cpp", "#include <zlib.h>\n"}}), ElementsAre(HasSubstr("no library")));
}

TEST(IncludeRule, FindsStrangeFolders) {
  EXPECT_THAT(check_includes({{"src/utils/x.cpp", ""}}), ElementsAre(HasSubstr("src/utils: not a layer")));
  EXPECT_THAT(check_includes({{"src/ops/detail/x.cpp", ""}}), ElementsAre(HasSubstr("src/ops/detail: a sub-folder")));
  EXPECT_THAT(check_includes({{"src/comm/mpi/detail/x.cpp", ""}}), ElementsAre(HasSubstr("src/comm/mpi/detail: a sub-folder")));
  EXPECT_THAT(check_includes({{"src/x.cpp", ""}}), ElementsAre(HasSubstr("directly in src/")));
}

TEST(IncludeRule, KeepsThePublicInterfaceBare) {
  EXPECT_THAT(check_includes({{"include/sluice/sluice.h", "#include <mpi.h>\n"}}), ElementsAre(HasSubstr("a public header")));
  EXPECT_THAT(check_includes({{"src/train/loop.cpp", "#include \"sluice/sluice.h\"\n"}}), ElementsAre(HasSubstr("app/ alone")));
}

TEST(ReadmeRule, FindsMissingAndShortOnes) {
  EXPECT_THAT(check_readmes({{"src/ops/gelu.cpp", ""}}), ElementsAre(HasSubstr("src/ops/README.md: missing")));
  EXPECT_THAT(check_readmes({{"src/ops/gelu.cpp", ""}, {"src/ops/README.md", "# ops\n\nBodies.\n"}}), ElementsAre(HasSubstr("3 lines")));
  EXPECT_THAT(check_readmes({{"src/ops/gelu.cpp", ""}, {"src/ops/README.md", "# ops\n\na\n\nb\n"}}), IsEmpty());
}

TEST(TopLevelRule, FindsWhatDoesNotBelongAndWhatIsMissing) {
  Tree tree;
  for (const char* path : {"src/x", "tests/x", "launch/x", "configs/x", "cmake/x", "CMakeLists.txt", "CMakePresets.json", "README.md",
                           "LICENSE", ".gitignore"}) {
    tree[path] = "";
  }
  EXPECT_THAT(check_top_level(tree), IsEmpty());
  tree["NOTES.md"] = "";
  tree["scripts/run.sh"] = "";
  EXPECT_THAT(check_top_level(tree), ElementsAre(HasSubstr("NOTES.md: does not belong"), HasSubstr("scripts: does not belong")));
  EXPECT_THAT(check_top_level({{"src/x", ""}}), testing::Contains(HasSubstr("README.md: missing")));
}

TEST(MachinePathRule, FindsAbsolutePathsOfPeople) {
  const std::string work = std::string("/wo") + "rk/main/x", home = std::string("/ho") + "me/anna/x";
  EXPECT_THAT(check_machine_paths({{"launch/run", "first\ncd " + work + "\n"}}), ElementsAre(HasSubstr("launch/run:2: ")));
  EXPECT_THAT(check_machine_paths({{"a.md", home}}), testing::SizeIs(1));
  EXPECT_THAT(check_machine_paths({{"a.md", "\"" + work + "\" and (" + home + ")"}}), testing::SizeIs(2));
  EXPECT_THAT(check_machine_paths({{"a.md", "build" + work + " https://example.org" + work + " ../.." + work + " ${DIR}" + work}}),
              IsEmpty());
  EXPECT_THAT(check_machine_paths({{"a.bin", std::string("\0", 1) + work}}), IsEmpty());
}

TEST(SourceHabits, FindsMissingGuardsAndReadersOfTheEnvironment) {
  const std::string reads = std::string("auto x = std::get") + "env(\"HOME\");\n";
  EXPECT_THAT(check_source_habits({{"src/base/a.hpp", "#include <vector>\n"}}), ElementsAre(HasSubstr("#pragma once")));
  EXPECT_THAT(check_source_habits({{"src/comm/a.cpp", reads}}), ElementsAre(HasSubstr("only app/ may")));
  EXPECT_THAT(check_source_habits({{"src/app/a.cpp", reads}, {"src/base/b.hpp", "#pragma once\n"}}), IsEmpty());
}

}  // namespace
}  // namespace sluice::structure
