#include "formats/safetensors_writer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.hpp"
#include "base/half.hpp"
#include "base/units.hpp"

namespace sluice::formats {
namespace {

constexpr std::int64_t kNarrowElements = 64 << 10;  // narrowed at a time

std::int64_t elements_of(const TensorPlace& tensor) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : tensor.shape) elements *= extent;
  return elements;
}

std::int64_t bytes_of(const TensorPlace& tensor) {
  return elements_of(tensor) * size_of(tensor.dtype);
}

const char* format_name(DType dtype) {
  SLUICE_CHECK(dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16, "safetensors are not written as ", name_of(dtype));
  return dtype == DType::kF32 ? "F32" : dtype == DType::kBF16 ? "BF16" : "F16";
}

}  // namespace

SafetensorsWriter SafetensorsWriter::create(const std::string& path, const std::vector<TensorPlace>& tensors,
                                            const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::map<std::string, Range, std::less<>> ranges;
  std::int64_t at = 0;
  for (const TensorPlace& tensor : tensors) {
    const std::int64_t bytes = bytes_of(tensor);
    SLUICE_CHECK(tensor.name != "__metadata__" && ranges.emplace(tensor.name, Range{at, elements_of(tensor), tensor.dtype}).second, path,
                 ": tensor \"", tensor.name, "\" can't be added (again)");
    header[tensor.name] = {{"dtype", format_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {at, at + bytes}}};
    at += bytes;
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
  const DType dtype = range->second.dtype;
  const std::int64_t begin = range->second.begin + size_of(dtype) * first;
  if (dtype == DType::kF32) return write_bytes(begin, values, 4 * count);
  std::vector<std::uint16_t> narrow(static_cast<std::size_t>(std::min(count, kNarrowElements)));
  for (std::int64_t done = 0; done < count; done += kNarrowElements) {
    const std::int64_t some = std::min(count - done, kNarrowElements);
    std::transform(values + done, values + done + some, narrow.begin(), dtype == DType::kBF16 ? bf16_from_f32 : f16_from_f32);
    write_bytes(begin + 2 * done, narrow.data(), 2 * some);
  }
}

void SafetensorsWriter::finish() {
  SLUICE_CHECK(fd_ >= 0, path_, ": finished twice");
  if (::fsync(fd_) != 0) throw IoError("syncing", path_, errno);
  if (::close(std::exchange(fd_, -1)) != 0) throw IoError("closing", path_, errno);
}

SafetensorsSetWriter::SafetensorsSetWriter(const std::string& directory, const std::vector<TensorPlace>& tensors, std::int64_t file_bytes)
    : directory_(directory) {
  std::vector<std::vector<TensorPlace>> files(1);
  std::int64_t in_file = 0;
  for (const TensorPlace& tensor : tensors) {
    const std::int64_t bytes = bytes_of(tensor);
    if (in_file > 0 && in_file + bytes > file_bytes) {
      files.emplace_back();
      in_file = 0;
    }
    file_of_[tensor.name] = files.size() - 1;
    files.back().push_back(tensor);
    in_file += bytes;
    bytes_ += bytes;
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    char name[64] = "model.safetensors";
    if (files.size() > 1) std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, files.size());
    names_.emplace_back(name);
    files_.push_back(SafetensorsWriter::create(cat(directory, "/", name), files[i]));
  }
}

void SafetensorsSetWriter::write(std::string_view tensor, std::int64_t first, std::int64_t count, const float* values) {
  const auto file = file_of_.find(tensor);
  SLUICE_CHECK(file != file_of_.end(), directory_, ": no tensor \"", tensor, "\"");
  files_[file->second].write(tensor, first, count, values);
}

void SafetensorsSetWriter::finish() {
  for (SafetensorsWriter& file : files_) file.finish();
  if (files_.size() == 1) return;
  nlohmann::ordered_json index;
  index["metadata"]["total_size"] = bytes_;
  for (const auto& [tensor, file] : file_of_) index["weight_map"][tensor] = names_[file];
  const std::string path = directory_ + "/model.safetensors.index.json";
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << index.dump(2) << '\n';
  out.close();
  if (!out) throw IoError("writing", path, errno);
}

}  // namespace sluice::formats
