#include "formats/safetensors_writer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.hpp"
#include "base/units.hpp"
#include "formats/safetensors.hpp"

namespace sluice::formats {

SafetensorsWriter SafetensorsWriter::create(const std::string& path, const std::vector<TensorPlace>& tensors,
                                            const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::map<std::string, Range, std::less<>> ranges;
  std::int64_t at = 0;
  for (const TensorPlace& tensor : tensors) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : tensor.shape) elements *= extent;
    SLUICE_CHECK(tensor.name != "__metadata__" && ranges.emplace(tensor.name, Range{at, elements}).second, path, ": tensor \"", tensor.name,
                 "\" can't be added (again)");
    header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {at, at + 4 * elements}}};
    at += 4 * elements;
  }
  std::string text = header.dump();
  text.resize(static_cast<std::size_t>(round_up(static_cast<std::int64_t>(text.size()), 8)),
              ' ');  // aligns the buffer, as the format's own writer
  const std::int64_t buffer = 8 + static_cast<std::int64_t>(text.size());
  for (auto& [name, range] : ranges) range.begin += buffer;

  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) throw IoError("creating", path, errno);
  SafetensorsWriter writer(path, fd);
  writer.ranges_ = std::move(ranges);
  const int error = ::posix_fallocate(fd, 0, buffer + at);  // returns the error, leaves errno alone
  if (error != 0) throw IoError(cat("reserving ", format_bytes(buffer + at), " for"), path, error);
  const std::uint64_t length = text.size();
  writer.write_bytes(0, &length, 8);
  writer.write_bytes(8, text.data(), static_cast<std::int64_t>(text.size()));
  return writer;
}

SafetensorsWriter SafetensorsWriter::attach(const std::string& path) {
  const Safetensors existing = Safetensors::open(path);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) throw IoError("opening for writing", path, errno);
  SafetensorsWriter writer(path, fd);
  for (const TensorInfo& tensor : existing.tensors()) {
    if (tensor.dtype != "F32") throw FormatError(path, cat("tensor \"", tensor.name, "\": found dtype ", tensor.dtype, ", expected F32"));
    writer.ranges_[tensor.name] = {tensor.begin, tensor.elements()};
  }
  return writer;
}

SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), ranges_(std::move(other.ranges_)) {}

SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    path_ = std::move(other.path_);
    fd_ = std::exchange(other.fd_, -1);
    ranges_ = std::move(other.ranges_);
  }
  return *this;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ >= 0) ::close(fd_);
}

void SafetensorsWriter::write_bytes(std::int64_t offset, const void* from, std::int64_t bytes) {
  SLUICE_CHECK(fd_ >= 0, path_, ": written to after finish()");
  const char* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t put = ::pwrite(fd_, at, static_cast<std::size_t>(bytes), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) throw IoError("writing", path_, put < 0 ? errno : 0, offset);
    at += put;
    offset += put;
    bytes -= put;
  }
}

void SafetensorsWriter::write(std::string_view tensor, std::int64_t first, std::int64_t count, const float* values) {
  const auto range = ranges_.find(tensor);
  SLUICE_CHECK(range != ranges_.end(), path_, ": no tensor \"", tensor, "\"");
  SLUICE_CHECK(first >= 0 && count >= 0 && first <= range->second.elements - count, path_, ": tensor \"", tensor, "\": elements [", first,
               ", ", first + count, ") of ", range->second.elements);
  write_bytes(range->second.begin + 4 * first, values, 4 * count);
}

void SafetensorsWriter::finish() {
  SLUICE_CHECK(fd_ >= 0, path_, ": finished twice");
  if (::fsync(fd_) != 0) throw IoError("syncing", path_, errno);
  if (::close(std::exchange(fd_, -1)) != 0) throw IoError("closing", path_, errno);
}

}  // namespace sluice::formats
