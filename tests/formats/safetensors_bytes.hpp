#pragma once
// A safetensors file's bytes from its header and buffer, so that tests can break each of them.

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace sluice::formats {

inline std::string safetensors_bytes(const std::string& header, const std::string& buffer) {
  std::string bytes(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + buffer;
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace sluice::formats
