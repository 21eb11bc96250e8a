#pragma once
// What this rank says to people. Passed by reference, made once in `app/`; knows its rank so that lower layers needn't.

#include <memory>
#include <string>
#include <string_view>

namespace sluice {

class Log {
 public:
  /// Rank 0 writes notes and warnings to standard output or error and, with a path, to that file as well; other ranks write
  /// only warnings and errors. `colour`: whether the terminal takes ANSI colours.
  struct Options {
    int rank = 0;
    bool quiet = false;
    bool aside = false;  // notes go to standard error, since standard output holds a result for programs
    bool colour = false;
    std::string file;  // empty: none
  };
  explicit Log(const Options& options);
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  ~Log();

  void note(std::string_view message);    // rank 0 only
  void record(std::string_view message);  // rank 0's file only: what a terminal shows otherwise
  void warn(std::string_view message);    // any rank, prefixed with the rank unless 0
  void error(std::string_view message);   // any rank
  /// From now on also append to `path` (rank 0: everything; others: on their first warning or error). Throws IoError.
  void open_file(const std::string& path);
  void flush();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
