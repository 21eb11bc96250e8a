#include "base/log.hpp"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cerrno>
#include <cstdio>

#include "base/error.hpp"
#include "base/text.hpp"

namespace sluice {

struct Log::Impl {
  Options options;
  std::shared_ptr<spdlog::logger> out;
  std::shared_ptr<spdlog::logger> err;
  std::shared_ptr<spdlog::logger> file;
  std::string pending_file;  // ranks other than 0 open theirs when they have something to say

  void to_file(spdlog::level::level_enum level, std::string_view message) {
    if (!file && !pending_file.empty()) open(pending_file);
    if (file) file->log(level, message);
  }
  void open(const std::string& path) {
    try {
      auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
      file = std::make_shared<spdlog::logger>("file", sink);
      file->set_pattern("%Y-%m-%d %H:%M:%S.%e %L %v");
      file->flush_on(spdlog::level::info);
      pending_file.clear();
    } catch (const spdlog::spdlog_ex&) {
      throw IoError("opening the log", path, errno);
    }
  }
};

Log::Log(const Options& options) : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  impl_->out = std::make_shared<spdlog::logger>("out", std::make_shared<spdlog::sinks::stdout_sink_mt>());
  impl_->err = std::make_shared<spdlog::logger>("err", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  impl_->out->set_pattern("%v");
  impl_->err->set_pattern("%v");
  impl_->out->flush_on(spdlog::level::info);
  impl_->err->flush_on(spdlog::level::info);
  if (!options.file.empty()) open_file(options.file);
}

Log::~Log() = default;

void Log::open_file(const std::string& path) {
  if (impl_->options.rank == 0) {
    impl_->open(path);
  } else {
    impl_->pending_file = path;
  }
}

void Log::note(std::string_view message) {
  if (impl_->options.rank != 0) return;
  if (!impl_->options.quiet) (impl_->options.aside ? impl_->err : impl_->out)->info("{}", message);
  impl_->to_file(spdlog::level::info, message);
}

void Log::record(std::string_view message) {
  if (impl_->options.rank == 0) impl_->to_file(spdlog::level::info, message);
}

void Log::warn(std::string_view message) {
  const std::string text = impl_->options.rank == 0 ? cat("warning: ", message) : cat("rank ", impl_->options.rank, ": warning: ", message);
  impl_->err->info("{}{}{}", impl_->options.colour ? "\033[33m" : "", text, impl_->options.colour ? "\033[0m" : "");
  impl_->to_file(spdlog::level::warn, message);
}

void Log::error(std::string_view message) {
  const std::string text = impl_->options.rank == 0 ? cat("error: ", message) : cat("rank ", impl_->options.rank, ": error: ", message);
  impl_->err->info("{}{}{}", impl_->options.colour ? "\033[31m" : "", text, impl_->options.colour ? "\033[0m" : "");
  impl_->to_file(spdlog::level::err, message);
}

void Log::flush() {
  impl_->out->flush();
  impl_->err->flush();
  if (impl_->file) impl_->file->flush();
}

}  // namespace sluice
