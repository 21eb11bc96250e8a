#pragma once
// A reader of safetensors files for tests, apart from the one in formats/ so that neither can hide the other's mistake.
// Format: u64 header length, a JSON object name -> {dtype, shape, data_offsets}, the data. f32 only.

#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace sluice::test {

struct Tensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(path + ": can't be opened");
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline std::map<std::string, Tensor> read_safetensors(const std::string& path) {
  const std::string bytes = read_file(path);
  std::uint64_t header = 0;
  if (bytes.size() < sizeof header) throw std::runtime_error(path + ": shorter than a header");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header > bytes.size() - sizeof header) throw std::runtime_error(path + ": header past the end");
  const auto json = nlohmann::json::parse(bytes.substr(sizeof header, header));
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") continue;
    if (entry.at("dtype") != "F32") throw std::runtime_error(path + ": " + name + " isn't F32");
    const auto offsets = entry.at("data_offsets").get<std::vector<std::uint64_t>>();
    Tensor tensor{.shape = entry.at("shape").get<std::vector<std::int64_t>>(), .values = {}};
    if (offsets.at(1) > bytes.size() - sizeof header - header) throw std::runtime_error(path + ": " + name + " ends past the end");
    tensor.values.resize((offsets.at(1) - offsets.at(0)) / sizeof(float));
    std::memcpy(tensor.values.data(), bytes.data() + sizeof header + header + offsets.at(0), tensor.values.size() * sizeof(float));
    tensors[name] = std::move(tensor);
  }
  return tensors;
}

}  // namespace sluice::test
