#include "comm/communicator.hpp"

#include <algorithm>
#include <charconv>
#include <new>

#include "base/error.hpp"
#include "base/text.hpp"

namespace sluice::comm {
namespace {

struct Failure {
  int code = 0;
  std::string message;  // empty: none
};

std::string encode(const std::string& failure, int code) {
  return failure.empty() ? std::string() : cat(code, '\n', failure);
}

Failure decode(const std::string& text) {
  Failure failure;
  if (text.empty()) return failure;
  const std::size_t end = text.find('\n');
  std::from_chars(text.data(), text.data() + end, failure.code);
  failure.message = text.substr(end + 1);
  return failure;
}

/// "rank 3", "ranks 0-2, 5".
std::string name_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += cat(i == 0 ? "" : ", ", ranks[i]);
    if (last > i) text += cat("-", ranks[last]);
    i = last + 1;
  }
  return text;
}

[[noreturn]] void throw_with_code(int code, const std::string& message) {
  switch (static_cast<ExitCode>(code)) {
    case ExitCode::kRequest:
      throw_on_all_ranks(RequestError(message));
    case ExitCode::kEnvironment:
      throw_on_all_ranks(EnvironmentError(message));
    case ExitCode::kFormat:
      throw_on_all_ranks(Error(ExitCode::kFormat, message));
    case ExitCode::kDiverged:
      throw_on_all_ranks(DivergedError(message));
    case ExitCode::kResumable:
      throw_on_all_ranks(ResumableStop(message));
    case ExitCode::kFinished:
    case ExitCode::kDefect:
      break;
  }
  throw_on_all_ranks(LogicError(message));
}

}  // namespace

bool Communicator::all_agree(bool ok) {
  const std::vector<std::string> votes = all_gather(ok ? "y" : "n");
  return std::all_of(votes.begin(), votes.end(), [](const std::string& vote) { return vote == "y"; });
}

void agree_or_throw(Communicator& world, const std::string& failure, int code) {
  const std::vector<std::string> reports = world.all_gather(encode(failure, code));
  const auto first = std::find_if(reports.begin(), reports.end(), [](const std::string& report) { return !report.empty(); });
  if (first == reports.end()) return;
  const Failure told = decode(*first);
  std::vector<int> sharing;
  std::vector<int> others;
  for (std::size_t r = 0; r < reports.size(); ++r) {
    if (reports[r].empty()) continue;
    (decode(reports[r]).message == told.message ? sharing : others).push_back(static_cast<int>(r));
  }
  std::string message = told.message;
  if (sharing.size() != reports.size()) message = cat(name_ranks(sharing), ": ", message);
  if (!others.empty()) message += cat(" (and another failure on ", name_ranks(others), ")");
  throw_with_code(told.code, message);
}

void all_or_none(Communicator& world, const std::function<void()>& part) {
  std::string failure;
  int code = 0;
  try {
    part();
  } catch (const Error& error) {
    failure = error.what();
    code = static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    failure = "the machine's memory is used up; give smaller budgets (--device-memory, --host-memory)";
    code = static_cast<int>(ExitCode::kEnvironment);
  } catch (const std::exception& error) {
    failure = error.what();
    code = static_cast<int>(ExitCode::kDefect);
  }
  if (code != 0 && failure.empty()) failure = "unknown failure";
  agree_or_throw(world, failure, code);
}

}  // namespace sluice::comm
