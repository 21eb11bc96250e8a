#include "support/program.hpp"
#include "support/sanitized.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace sluice::testing {
namespace {

constexpr const char* kMark = "SLUICE_TEST_PROGRAM";
constexpr double kSlower = kIsSanitized ? 4 : 1;
constexpr double kOutliveSeconds = 5;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void pause_shortly() {
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

/// The value of a variable in a process's environment as it was started; empty where it isn't there or may not be read.
std::string variable_of(pid_t process, const std::string& name) {
  const std::string text = '\0' + read_all("/proc/" + std::to_string(process) + "/environ");
  const std::size_t at = text.find('\0' + name + '=');
  if (at == std::string::npos) return {};
  const std::size_t begin = at + name.size() + 2;
  return text.substr(begin, text.find('\0', begin) - begin);
}

}  // namespace

std::vector<std::string> ProgramOutcome::error_lines() const {
  std::vector<std::string> lines;
  const std::string text = all();
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    std::string rest = line;
    if (rest.starts_with("rank ") && rest.find(": ") != std::string::npos) rest = rest.substr(rest.find(": ") + 2);
    if (rest.starts_with("error: ") || rest.starts_with("sluice: ") || rest.starts_with("terminate called")) lines.push_back(line);
    begin = end + 1;
  }
  return lines;
}

Program::Program(const ProgramCommand& command) : command_(command) {
  static std::atomic<int> count{0};
  mark_ = std::to_string(::getpid()) + "-" + std::to_string(++count);
  std::string pattern = (std::filesystem::temp_directory_path() / "sluice-program-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::system_error(errno, std::generic_category(), pattern);
  folder_ = pattern;

  // All memory is taken before fork(): other threads may hold the allocator's lock.
  std::vector<char*> words;
  for (std::string& word : command_.words) words.push_back(word.data());
  words.push_back(nullptr);
  std::vector<std::string> texts;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    if (name != kMark && !command_.environment.contains(name)) texts.push_back(text);
  }
  for (const auto& [name, value] : command_.environment) texts.push_back(std::string(name).append("=").append(value));
  texts.push_back(std::string(kMark) + "=" + mark_);
  std::vector<char*> variables;
  for (std::string& text : texts) variables.push_back(text.data());
  variables.push_back(nullptr);
  const std::string out = folder_ + "/out", err = folder_ + "/err";

  begin_ = now();
  pid_ = ::fork();
  if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (pid_ == 0) {
    ::setsid();
    const int in = ::open("/dev/null", O_RDONLY), to_out = ::open(out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
    const int to_err = ::open(err.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (in < 0 || to_out < 0 || to_err < 0 || ::dup2(in, 0) < 0 || ::dup2(to_out, 1) < 0 || ::dup2(to_err, 2) < 0) ::_exit(126);
    if (command_.prepare) {
      if (const int result = command_.prepare(); result != 0) ::_exit(result);
    }
    ::execvpe(words[0], words.data(), variables.data());
    ::_exit(127);
  }
}

Program::~Program() {
  if (!ended_) {
    kill_all();
    ::waitpid(pid_, nullptr, 0);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

bool Program::is_running() {
  if (ended_) return false;
  int status = 0;
  struct rusage usage {};
  if (::wait4(pid_, &status, WNOHANG, &usage) != pid_) return true;
  collect(status, usage.ru_maxrss);
  return false;
}

bool Program::wait_until(const std::function<bool()>& condition, double seconds) {
  const double end = now() + seconds * kSlower;
  while (now() < end) {
    if (condition()) return true;
    if (!is_running()) return condition();
    pause_shortly();
  }
  return false;
}

std::vector<pid_t> Program::processes() const {
  std::vector<pid_t> found;
  DIR* folder = ::opendir("/proc");
  if (folder == nullptr) return found;
  while (const dirent* entry = ::readdir(folder)) {
    const auto process = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (process > 0 && process != ::getpid() && variable_of(process, kMark) == mark_) found.push_back(process);
  }
  ::closedir(folder);
  return found;
}

pid_t Program::rank(int number) const {
  const std::string wanted = std::to_string(number);
  for (const pid_t process : processes()) {
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
      if (variable_of(process, name) == wanted) return process;
    }
  }
  return 0;
}

void Program::kill_all() {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    std::vector<pid_t> found = processes();
    if (!ended_) found.push_back(pid_);
    for (const pid_t process : found) {
      if (process != pid_) ::kill(process, SIGKILL);
    }
    if (!ended_) ::kill(pid_, SIGKILL);
    if (!is_running() && processes().empty()) return;
    pause_shortly();
  }
}

void Program::collect(int status, long peak_kib) {
  ended_ = true;
  outcome_.seconds = now() - begin_;
  outcome_.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome_.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  outcome_.peak_kib = peak_kib;
}

ProgramOutcome Program::wait() {
  const double end = begin_ + command_.limit_seconds * kSlower;
  while (is_running() && now() < end) pause_shortly();
  if (is_running()) {
    outcome_.timed_out = true;
    kill_all();
  }
  const double grace = now() + kOutliveSeconds;
  while (!processes().empty() && now() < grace) pause_shortly();
  outcome_.left = processes();
  if (!outcome_.left.empty()) kill_all();
  outcome_.output = read_all(folder_ + "/out");
  outcome_.errors = read_all(folder_ + "/err");
  if (outcome_.timed_out) outcome_.errors += "\n[ended by the test after its time limit]\n";
  return outcome_;
}

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

int become_ordinary() {
  if (::getuid() != 0) return 0;
  for (const int power : {CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_IPC_LOCK}) {
    if (::prctl(PR_CAPBSET_DROP, power) != 0) return kNotAllowed;
  }
  return 0;
}

ProgramOutcome run_program(const ProgramCommand& command) {
  Program program(command);
  return program.wait();
}

}  // namespace sluice::testing
