#include "formats/safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/check.hpp"
#include "base/half.hpp"
#include "spec/json_text.hpp"

namespace sluice::formats {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors files are little endian; a big-endian host must swap bytes");

constexpr std::array<std::pair<const char*, int>, 17> kDtypes{{{"F64", 8},
                                                               {"F32", 4},
                                                               {"F16", 2},
                                                               {"BF16", 2},
                                                               {"I64", 8},
                                                               {"I32", 4},
                                                               {"I16", 2},
                                                               {"I8", 1},
                                                               {"U64", 8},
                                                               {"U32", 4},
                                                               {"U16", 2},
                                                               {"U8", 1},
                                                               {"F8_E4M3", 1},
                                                               {"F8_E5M2", 1},
                                                               {"F8_E8M0", 1},
                                                               {"BOOL", 1},
                                                               {"C64", 8}}};

/// 0 for a dtype we don't know.
int size_of_dtype(const std::string& dtype) {
  for (const auto& [name, size] : kDtypes) {
    if (dtype == name) return size;
  }
  return 0;
}

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

/// elements * unit, or -1 when it leaves int64.
std::int64_t bytes_of(const std::vector<std::int64_t>& shape, std::int64_t unit) {
  std::int64_t product = unit;
  for (const std::int64_t extent : shape) {
    if (extent != 0 && product > std::numeric_limits<std::int64_t>::max() / extent) return -1;
    product *= extent;
  }
  return product;
}

bool is_size(const json& value) {
  return value.is_number_unsigned() && std::in_range<std::int64_t>(value.get<std::uint64_t>());
}

/// One entry of the header. `buffer`: where the byte buffer begins in the file.
TensorInfo parse_tensor(const std::string& path, const std::string& name, const json& entry, std::int64_t buffer, std::int64_t file_size) {
  const auto refuse = [&](const std::string& detail) { throw FormatError(path, cat("tensor \"", name, "\": ", detail)); };
  if (!entry.is_object()) refuse(cat("found ", shown(entry), ", expected an object with dtype, shape and data_offsets"));
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!entry.contains(key)) refuse(cat("key \"", key, "\" is missing"));
  }
  for (const auto& [key, value] : entry.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets")
      refuse(cat("key \"", key, "\" is unknown; known: dtype, shape, data_offsets"));
  }
  TensorInfo tensor;
  tensor.name = name;
  const json& dtype = entry["dtype"];
  const int unit = dtype.is_string() ? size_of_dtype(dtype.get<std::string>()) : 0;
  if (unit == 0)
    refuse(
        cat("dtype: found ", shown(dtype), ", expected one of F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL, C64, F8_*"));
  tensor.dtype = dtype.get<std::string>();

  const json& shape = entry["shape"];
  if (!shape.is_array() || !std::all_of(shape.begin(), shape.end(), is_size)) {
    refuse(cat("shape: found ", shown(shape), ", expected a list of whole numbers, 0 or more"));
  }
  tensor.shape = shape.get<std::vector<std::int64_t>>();

  const json& offsets = entry["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !is_size(offsets[0]) || !is_size(offsets[1]) ||
      offsets[0].get<std::int64_t>() > offsets[1].get<std::int64_t>()) {
    refuse(cat("data_offsets: found ", shown(offsets), ", expected two whole numbers, the first not beyond the second"));
  }
  const auto begin = offsets[0].get<std::int64_t>();
  const auto end = offsets[1].get<std::int64_t>();
  if (end > file_size - buffer) {
    refuse(cat("data_offsets: found an end of ", end, " bytes, expected at most ", file_size - buffer,
               ", which the file has after its header; it is ", "cut short or damaged"));
  }
  const std::int64_t wanted = bytes_of(tensor.shape, unit);
  if (wanted != end - begin) {
    refuse(cat("data_offsets: found ", end - begin, " bytes, expected ", wanted < 0 ? std::string("more than 2^63") : cat(wanted), " for ",
               tensor.dtype, " ", shape_text(tensor.shape)));
  }
  tensor.begin = buffer + begin;
  tensor.end = buffer + end;
  return tensor;
}

std::map<std::string, std::string> parse_metadata(const std::string& path, const json& entry) {
  std::map<std::string, std::string> metadata;
  if (!entry.is_object()) throw FormatError(path, cat("\"__metadata__\": found ", shown(entry), ", expected an object of texts"));
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) throw FormatError(path, cat("\"__metadata__\": \"", key, "\": found ", shown(value), ", expected a text"));
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

/// The tensors must cover [buffer, file_size) once each.
void check_coverage(const std::string& path, std::vector<const TensorInfo*> tensors, std::int64_t buffer, std::int64_t file_size) {
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return std::pair(a->begin, a->end) < std::pair(b->begin, b->end); });
  std::int64_t at = buffer;
  const TensorInfo* last = nullptr;
  for (const TensorInfo* tensor : tensors) {
    if (tensor->begin < at) {
      throw FormatError(path, cat("tensors \"", last->name, "\" and \"", tensor->name, "\" overlap: found a begin at ",
                                  tensor->begin - buffer, ", expected ", at - buffer));
    }
    if (tensor->begin > at) {
      throw FormatError(path, cat("tensor \"", tensor->name, "\": found a begin at ", tensor->begin - buffer, ", expected ", at - buffer,
                                  "; ", tensor->begin - at, " bytes before it belong to no tensor"));
    }
    at = tensor->end;
    last = tensor;
  }
  if (at != file_size) {
    throw FormatError(path, cat("found ", file_size - at, " bytes after the last tensor, expected none"));
  }
}

std::string parse_file_name(const std::string& index, const std::string& tensor, const json& value) {
  std::string name = value.is_string() ? value.get<std::string>() : std::string();
  if (name.empty() || name.find('/') != std::string::npos || name == "..") {
    throw FormatError(index, cat("tensor \"", tensor, "\": found ", shown(value), ", expected the name of a file beside the index"));
  }
  return name;
}

/// Tensor name -> file name of an index.
std::map<std::string, std::string> read_index(const std::string& path) {
  const std::string text = read_text(path, kSafetensorsHeaderLimit);
  const std::string problem = spec::json_problem(text);
  if (!problem.empty()) throw FormatError(path, problem);
  const json index = json::parse(text);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object() || index["weight_map"].empty()) {
    throw FormatError(path, "key \"weight_map\": expected an object from tensor names to file names");
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : index["weight_map"].items()) files[tensor] = parse_file_name(path, tensor, file);
  return files;
}

}  // namespace

std::int64_t TensorInfo::elements() const {
  return bytes_of(shape, 1);
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += cat(i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

void Safetensors::add_file(const std::string& path) {
  InputFile file(path);
  const auto refuse = [&](const std::string& detail) { throw FormatError(path, detail); };
  if (file.size() < 8) refuse(cat("found ", file.size(), " bytes, expected at least 8 of a safetensors header"));
  std::uint64_t length = 0;
  file.read(0, &length, 8);
  if (length > static_cast<std::uint64_t>(kSafetensorsHeaderLimit)) {
    refuse(cat("header length: found ", length, ", expected at most ", kSafetensorsHeaderLimit, "; this is no safetensors file"));
  }
  const auto header_bytes = static_cast<std::int64_t>(length);
  if (header_bytes > file.size() - 8) {
    refuse(
        cat("header length: found ", length, ", expected at most ", file.size() - 8, ", which the file has; it is cut short or damaged"));
  }
  std::string text(static_cast<std::size_t>(header_bytes), '\0');
  file.read(8, text.data(), header_bytes);
  if (text.empty() || text[0] != '{') refuse("header: expected it to begin with \"{\"; this is no safetensors file");
  const std::string problem = spec::json_problem(text);
  if (!problem.empty()) refuse(cat("header: ", problem));

  const std::int64_t buffer = 8 + header_bytes;
  const std::size_t first = tensors_.size();
  const json header = json::parse(text);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      std::map<std::string, std::string> metadata = parse_metadata(path, entry);
      if (files_.empty()) metadata_ = std::move(metadata);
      continue;
    }
    TensorInfo tensor = parse_tensor(path, name, entry, buffer, file.size());
    tensor.file = static_cast<int>(files_.size());
    tensors_.push_back(std::move(tensor));
  }
  std::vector<const TensorInfo*> mine;
  for (std::size_t i = first; i < tensors_.size(); ++i) mine.push_back(&tensors_[i]);
  check_coverage(path, mine, buffer, file.size());
  files_.push_back(std::move(file));
}

Safetensors Safetensors::open(const std::string& path) {
  std::filesystem::path at(path);
  if (std::filesystem::is_directory(at)) {
    const std::filesystem::path single = at / "model.safetensors";
    const std::filesystem::path index = at / "model.safetensors.index.json";
    const bool has_index = std::filesystem::exists(index);
    if (!has_index && !std::filesystem::exists(single)) {
      for (const char* pickled : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
        if (!std::filesystem::exists(at / pickled)) continue;
        throw RequestError(
            cat(path, ": found the weights in ", pickled,
                " alone, a pickle, whose reading runs the code in it; expected safetensors. If you trust its origin, convert "
                "it: python3 -c \"from transformers import AutoModelForCausalLM as M; d = '",
                path, "'; M.from_pretrained(d).save_pretrained(d)\""));
      }
      throw EnvironmentError(cat(path, ": expected model.safetensors or model.safetensors.index.json in it, found neither"));
    }
    at = std::filesystem::exists(single) ? single : index;  // transformers' order
  }
  Safetensors all;
  if (at.extension() != ".json") {
    all.add_file(at.string());
  } else {
    const std::map<std::string, std::string> place = read_index(at.string());
    std::set<std::string> names;
    for (const auto& [tensor, file] : place) names.insert(file);
    const std::vector<std::string> files(names.begin(), names.end());
    for (const std::string& file : files) all.add_file((at.parent_path() / file).string());
    std::set<std::string> seen;
    for (const TensorInfo& tensor : all.tensors_) {
      const std::string& file = files[static_cast<std::size_t>(tensor.file)];
      const auto expected = place.find(tensor.name);
      if (expected == place.end()) {
        throw FormatError(at.string(),
                          cat("tensor \"", tensor.name, "\": found in ", file, ", expected in no file, since weight_map doesn't name it"));
      }
      if (expected->second != file) {
        throw FormatError(at.string(), cat("tensor \"", tensor.name, "\": found in ", file, ", expected in ", expected->second, " only"));
      }
      seen.insert(tensor.name);
    }
    for (const auto& [tensor, file] : place) {
      if (!seen.contains(tensor))
        throw FormatError(at.string(), cat("tensor \"", tensor, "\": expected in ", file, ", which doesn't have it"));
    }
  }
  std::sort(all.tensors_.begin(), all.tensors_.end(), [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  return all;
}

const TensorInfo* Safetensors::find(std::string_view name) const {
  const auto at =
      std::lower_bound(tensors_.begin(), tensors_.end(), name, [](const TensorInfo& a, std::string_view b) { return a.name < b; });
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

void Safetensors::read_f32(const TensorInfo& tensor, std::int64_t first, std::int64_t count, float* out) const {
  SLUICE_CHECK(first >= 0 && count >= 0 && first <= tensor.elements() - count, "tensor \"", tensor.name, "\": elements [", first, ", ",
               first + count, ") of ", tensor.elements());
  const InputFile& file = files_[static_cast<std::size_t>(tensor.file)];
  if (tensor.dtype == "F32") {
    file.read(tensor.begin + 4 * first, out, 4 * count);
    return;
  }
  const bool is_f16 = tensor.dtype == "F16";
  if (!is_f16 && tensor.dtype != "BF16") {
    throw FormatError(file.path(), cat("tensor \"", tensor.name, "\": found dtype ", tensor.dtype, ", expected F32, F16 or BF16"));
  }
  std::array<std::uint16_t, 32 << 10> piece;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled below before use
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t n = std::min<std::int64_t>(count - done, static_cast<std::int64_t>(piece.size()));
    file.read(tensor.begin + 2 * (first + done), piece.data(), 2 * n);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint16_t bits = piece[static_cast<std::size_t>(i)];
      out[done + i] = is_f16 ? f32_from_f16(bits) : f32_from_bf16(bits);
    }
    done += n;
  }
}

}  // namespace sluice::formats
