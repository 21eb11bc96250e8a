#pragma once
// The keys of one request as a tree: those of the file with what the command line changes, read with their types. What is wrong
// with one is noted where it is read, with its place, and reading goes on, so that all of it is told at once.

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/configuration.hpp"
#include "app/key_rules.hpp"

namespace sluice::app {

inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();
inline constexpr std::int64_t kAnyWhole = std::numeric_limits<std::int64_t>::max();

/// "a, b, c".
std::string joined(const std::vector<std::string>& words, const std::string& between = ", ");
std::string lower(std::string text);
/// With '_' for '-': the two are one in names.
std::string with_underscores(std::string name);
/// Whether `path` is `block` or lies in it.
bool is_below(const std::string& path, const std::string& block);

class KeyTree {
 public:
  /// Reads the file of the request, if any, sets what the command line says, and takes out what is to be ignored. Throws
  /// RequestError for what keeps the file from being read as JSON, EnvironmentError where it can't be opened.
  KeyTree(const ConfigurationRequest& request, Examination& result);
  ~KeyTree();
  KeyTree(const KeyTree&) = delete;
  KeyTree& operator=(const KeyTree&) = delete;

  /// Sets one key more. A value that differs from one set before is a problem; one of the file is replaced, with a note.
  void set(const Setting& setting);

  // ---- what is there

  bool has(const std::string& path) const;  // written, and not null
  bool is_auto(const std::string& path) const;
  bool is_block(const std::string& path) const;
  bool was_ignored(const std::string& path) const;
  /// The value as JSON on one line, cut where it is long; "null" where there is none.
  std::string shown(const std::string& path) const;
  /// Names directly in the block, in their order; null ones as well. "": the root.
  std::vector<std::string> names_in(const std::string& block) const;
  /// Whether the value is one of these JSON values, separated by '|'; texts in any case.
  bool is_one_of(const std::string& path, std::string_view values) const;
  /// Whether the block is empty, or the value null or false.
  bool is_nothing(const std::string& path) const;
  /// Whether the value can be read as `type`.
  bool has_type(const std::string& path, ValueType type) const;

  // ---- typed values; nothing where the key is absent or a problem was noted

  std::optional<double> number(const std::string& path, double low = 0, double high = kNoLimit);
  std::optional<std::int64_t> whole(const std::string& path, std::int64_t low, std::int64_t high = kAnyWhole);
  std::optional<std::uint64_t> seed(const std::string& path);  // any unsigned 64-bit number
  std::optional<bool> flag(const std::string& path);
  std::optional<std::string> text(const std::string& path);
  std::vector<std::string> texts(const std::string& path);  // one text is a list of one
  std::optional<std::vector<double>> numbers(const std::string& path, std::size_t count, double low, double high);
  std::optional<std::string> one_of(const std::string& path, const std::vector<std::string>& known);
  std::optional<std::int64_t> bytes(const std::string& path);
  /// As flag, whole, ... of a hint, where "auto" means nothing is said.
  std::optional<std::int64_t> hinted_whole(const std::string& path, std::int64_t low = 0, std::int64_t high = kAnyWhole);
  std::optional<bool> hinted_flag(const std::string& path);

  // ---- the Trainer's names on the command line

  const std::map<std::string, std::string>& trainer() const { return trainer_; }
  bool trainer_has(const std::string& name) const { return trainer_.contains(name); }
  std::optional<double> trainer_number(const std::string& name, double low = 0, double high = kNoLimit);
  std::optional<std::int64_t> trainer_whole(const std::string& name, std::int64_t low);
  std::optional<bool> trainer_flag(const std::string& name);
  std::optional<std::string> trainer_text(const std::string& name) const;
  std::optional<std::string> trainer_one_of(const std::string& name, const std::vector<std::string>& known);
  /// An object of numbers, as '{"min_lr": 1e-5}'.
  std::map<std::string, double> trainer_numbers(const std::string& name);
  bool trainer_is_one_of(const std::string& name, std::string_view values) const;

  /// The number that file and command line agree on. "auto" is what the flag says; else, where other Trainer names are given,
  /// the Trainer's default, announced; else it is missing (for training, where `missing` is null).
  std::optional<double> number_or_trainer(const std::string& path, const std::string& name, double low = 0, double high = kNoLimit,
                                          std::vector<std::string>* missing = nullptr);
  std::optional<std::int64_t> whole_or_trainer(const std::string& path, const std::string& name, std::int64_t low,
                                               std::vector<std::string>* missing = nullptr);

  // ---- what is found

  /// "demo.json:12: optimizer.params.lr", or the flag that gave the value, or the path.
  std::string where(const std::string& path) const;
  void problem(const std::string& path, const std::string& text);
  void trainer_problem(const std::string& name, const std::string& text);
  /// A key and a Trainer name that say different things; all of them are told together.
  void mismatch(const std::string& path, const std::string& name);
  const std::vector<std::string>& mismatches() const { return mismatches_; }
  void note(const std::string& text);
  void report(const std::string& path, KeyClass key_class, const std::string& text = {});
  void report_trainer(const std::string& name, KeyClass key_class, const std::string& text = {});
  /// What is taken where nobody says, and why. `found`: what stands there instead of a value.
  void moved_default(const std::string& path, const std::string& value, const std::string& reason, const std::string& found = "not given");
  /// "; the nearest known key is ..." or what is known beside it.
  std::string suggestion(const std::string& path) const;
  const std::vector<std::string>& ignored() const { return ignored_present_; }

 private:
  struct Tree;

  void read_ignored();
  void remove_ignored();

  const std::string file_;  // of the request
  std::unique_ptr<Tree> tree_;
  Examination& result_;
  std::map<std::string, std::string> trainer_;
  std::map<std::string, std::string> origins_;  // path -> "demo.json:12: path" or "--flag"
  std::map<std::string, bool> ignored_;         // path -> whether it was there
  std::vector<std::string> ignored_present_, mismatches_;
};

}  // namespace sluice::app
