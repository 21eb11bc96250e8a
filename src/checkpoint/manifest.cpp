#include "checkpoint/manifest.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.hpp"
#include "base/units.hpp"
#include "checkpoint/checksum.hpp"
#include "checkpoint/geometry.hpp"

namespace sluice::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormatName = "sluice-checkpoint";
constexpr const char* kShardMarker = "{\"format\":\"sluice-checkpoint-shard\",";
// The file starts with this, then sixteen digits: the XXH64 of the whole text with these digits as zeros.
constexpr const char* kChecksumPrefix = "{\"manifest_xxh64\":\"";
constexpr std::size_t kDigits = 16;

Json document_of(const std::string& text, const char* name) {
  if (text.empty()) return nullptr;
  Json value = Json::parse(text, nullptr, false);
  SLUICE_CHECK(!value.is_discarded(), "the document \"", name, "\" of a checkpoint is not JSON");
  return value;
}

std::string text_of(const Json& value) {
  return value.is_null() ? std::string() : value.dump();
}

// [param, begin, elements] in the whole parameter; otherwise with the rectangle: [param, begin, elements, [offset], [extent]].
Json json_of(const Region& region, const std::vector<ParamInfo>* params) {
  Json row = {region.param, region.flat_begin, region.elements};
  if (params == nullptr || region.rect_extent != (*params)[static_cast<std::size_t>(region.param)].shape) {
    row.push_back(region.rect_offset);
    row.push_back(region.rect_extent);
  }
  return row;
}

Json json_of(const StoredPlane& plane, const std::vector<ParamInfo>* params) {
  Json pieces = Json::array();
  for (const Region& region : plane.pieces) pieces.push_back(json_of(region, params));
  return {{"name", kPlaneNames[plane.plane]},           {"offset", plane.offset}, {"elements", plane.elements},
          {"checksums_offset", plane.checksums_offset}, {"blocks", plane.blocks}, {"pieces", std::move(pieces)}};
}

Json json_of(const ShardInfo& shard, const std::vector<ParamInfo>* params) {
  Json planes = Json::array();
  for (const StoredPlane& plane : shard.planes) planes.push_back(json_of(plane, params));
  return {{"file", shard.file},
          {"rank", shard.rank},
          {"bytes", shard.bytes},
          {"structure_xxh64", shard.structure},
          {"planes", std::move(planes)}};
}

Json json_of(const std::vector<ParamInfo>& params) {
  Json list = Json::array();
  for (const ParamInfo& param : params) list.push_back({{"name", param.name}, {"shape", param.shape}, {"dtype", name_of(param.dtype)}});
  return list;
}

Json json_of(const Progress& progress) {
  Json value = {{"step", progress.step},
                {"samples", progress.samples},
                {"adam_count", progress.adam_count},
                {"global_batch", progress.global_batch},
                {"epoch", progress.epoch},
                {"samples_per_epoch", progress.samples_per_epoch},
                {"seed", progress.seed},
                {"attempt", progress.attempt}};
  if (const auto& state = progress.loss_scale) {
    value["loss_scale"] = {{"scale", state->scale}, {"hysteresis", state->hysteresis}, {"clean_steps", state->clean_steps}};
  }
  if (progress.best) value["best"] = {{"step", progress.best->step}, {"loss", progress.best->loss}};
  return value;
}

// Reading: every key by name and type, so that a refusal can say which.
class Reader {
 public:
  Reader(const Json& value, std::string source, std::string where) : value_(value), source_(std::move(source)), where_(std::move(where)) {
    if (!value_.is_object()) fail(cat(where_, " is ", value_.type_name(), ", expected an object"));
  }

  [[noreturn]] void fail(const std::string& detail) const { throw FormatError(source_, detail); }

  bool has(const char* key) const { return value_.contains(key); }

  const Json& at(const char* key) const {
    const auto found = value_.find(key);
    if (found == value_.end()) fail(cat("key \"", where_, key, "\" is missing"));
    return *found;
  }

  std::int64_t integer(const char* key) const {
    const Json& value = at(key);
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) ||
        value.get<std::int64_t>() < 0) {
      fail(cat("key \"", where_, key, "\" is ", value.dump(), ", expected a whole number of at least 0"));
    }
    return value.get<std::int64_t>();
  }

  std::uint64_t unsigned_integer(const char* key) const {
    const Json& value = at(key);
    if (!value.is_number_unsigned()) fail(cat("key \"", where_, key, "\" is ", value.dump(), ", expected a whole number of at least 0"));
    return value.get<std::uint64_t>();
  }

  double number(const char* key) const {
    const Json& value = at(key);
    if (!value.is_number()) fail(cat("key \"", where_, key, "\" is ", value.dump(), ", expected a number"));
    return value.get<double>();
  }

  double positive(const char* key) const {
    const Json& value = at(key);
    if (!value.is_number() || !(value.get<double>() > 0))
      fail(cat("key \"", where_, key, "\" is ", value.dump(), ", expected a number above 0"));
    return value.get<double>();
  }

  std::string text(const char* key) const {
    const Json& value = at(key);
    if (!value.is_string()) fail(cat("key \"", where_, key, "\" is ", value.type_name(), ", expected a text"));
    return value.get<std::string>();
  }

  const Json& array(const char* key) const {
    const Json& value = at(key);
    if (!value.is_array()) fail(cat("key \"", where_, key, "\" is ", value.type_name(), ", expected an array"));
    return value;
  }

  const std::string& source() const { return source_; }

 private:
  const Json& value_;
  std::string source_;
  std::string where_;
};

spec::LossScaleState loss_scale_from(const Json& value, const std::string& source) {
  const Reader reader(value, source, "progress.loss_scale.");
  const std::int64_t hysteresis = reader.integer("hysteresis");
  if (hysteresis < 1 || hysteresis > INT32_MAX)
    reader.fail(cat("key \"progress.loss_scale.hysteresis\" is ", hysteresis, ", expected 1 or more"));
  return {reader.positive("scale"), static_cast<int>(hysteresis), reader.integer("clean_steps")};
}

std::vector<std::int64_t> integers_from(const Json& value, const Reader& reader, const std::string& what) {
  std::vector<std::int64_t> list;
  if (!value.is_array()) reader.fail(cat(what, " is ", value.type_name(), ", expected an array"));
  for (const Json& item : value) {
    if (!item.is_number_integer() || (item.is_number_unsigned() && item.get<std::uint64_t>() > INT64_MAX)) {
      reader.fail(cat(what, " holds ", item.dump(), ", expected whole numbers"));
    }
    list.push_back(item.get<std::int64_t>());
  }
  return list;
}

Region region_from(const Json& row, const std::vector<ParamInfo>* params, const Reader& reader) {
  if (!row.is_array() || (row.size() != 3 && row.size() != 5)) reader.fail(cat("piece ", row.dump(), " has not 3 or 5 entries"));
  const Json head(Json::array({row[0], row[1], row[2]}));
  const std::vector<std::int64_t> numbers = integers_from(head, reader, "a piece");
  Region region;
  region.flat_begin = numbers[1];
  region.elements = numbers[2];
  if (numbers[0] < 0 || numbers[0] > INT32_MAX || (params != nullptr && static_cast<std::size_t>(numbers[0]) >= params->size())) {
    reader.fail(cat("a piece names parameter ", numbers[0], ", which is not listed"));
  }
  region.param = static_cast<int>(numbers[0]);
  if (row.size() == 5) {
    region.rect_offset = integers_from(row[3], reader, "a piece's rectangle");
    region.rect_extent = integers_from(row[4], reader, "a piece's rectangle");
  } else {
    if (params == nullptr) reader.fail("a piece has no rectangle");
    region.rect_extent = (*params)[static_cast<std::size_t>(region.param)].shape;
    region.rect_offset.assign(region.rect_extent.size(), 0);
  }
  return region;
}

ShardInfo shard_from(const Json& value, const std::vector<ParamInfo>* params, const std::string& source) {
  const Reader reader(value, source, "shards.");
  ShardInfo shard;
  shard.file = reader.text("file");
  const std::int64_t rank = reader.integer("rank");
  if (rank > 99'999'999) reader.fail(cat("key \"shards.rank\" is ", rank));
  shard.rank = static_cast<int>(rank);
  shard.bytes = reader.integer("bytes");
  shard.structure = reader.text("structure_xxh64");
  for (const Json& item : reader.array("planes")) {
    const Reader plane_reader(item, source, "shards.planes.");
    StoredPlane plane;
    const std::string name = plane_reader.text("name");
    plane.plane = plane_index(name);
    if (plane.plane < 0)
      plane_reader.fail(cat("plane \"", name, "\" is unknown; version ", kFormatVersion, " has working, exp_avg, exp_avg_sq"));
    plane.offset = plane_reader.integer("offset");
    plane.elements = plane_reader.integer("elements");
    plane.checksums_offset = plane_reader.integer("checksums_offset");
    plane.blocks = plane_reader.integer("blocks");
    for (const Json& row : plane_reader.array("pieces")) plane.pieces.push_back(region_from(row, params, plane_reader));
    shard.planes.push_back(std::move(plane));
  }
  return shard;
}

std::vector<ParamInfo> params_from(const Json& list, const std::string& source) {
  std::vector<ParamInfo> params;
  std::set<std::string> names;
  for (const Json& item : list) {
    const Reader reader(item, source, "parameters.");
    ParamInfo param;
    param.name = reader.text("name");
    if (!names.insert(param.name).second) reader.fail(cat("parameter ", param.name, " is listed twice"));
    param.shape = integers_from(reader.at("shape"), reader, "the shape of " + param.name);
    std::int64_t elements = 1;
    for (const std::int64_t extent : param.shape) {
      if (extent < 0 || (extent > 0 && elements > INT64_MAX / 8 / extent))
        reader.fail(cat("parameter ", param.name, " has an impossible shape"));
      elements *= extent;
    }
    const std::string dtype = reader.text("dtype");
    if (dtype != "f32") reader.fail(cat("parameter ", param.name, " has dtype ", dtype, "; version ", kFormatVersion, " stores f32"));
    params.push_back(std::move(param));
  }
  return params;
}

// What is wrong with how one shard says it is laid out, or empty.
std::string layout_fault(const std::vector<ParamInfo>& params, const ShardInfo& shard, std::int64_t block_bytes) {
  std::int64_t seen = 0;
  for (const StoredPlane& plane : shard.planes) {
    const std::string where = cat(shard.file, ", plane ", kPlaneNames[plane.plane], ": ");
    if ((seen & (std::int64_t{1} << plane.plane)) != 0) return where + "listed twice";
    seen |= std::int64_t{1} << plane.plane;
    std::int64_t elements = 0, blocks = 0;
    for (const Region& region : plane.pieces) {
      const std::string fault = region_fault(params, region);
      if (!fault.empty()) return where + fault;
      if (region.elements == 0) return where + "a piece is empty";
      elements += region.elements;
      blocks += blocks_of(region.elements, block_bytes);
    }
    if (elements != plane.elements) return cat(where, "holds ", plane.elements, " elements, its pieces have ", elements);
    if (blocks != plane.blocks) return cat(where, "has ", plane.blocks, " blocks, its pieces have ", blocks);
    if (plane.offset > shard.bytes || elements > (shard.bytes - plane.offset) / kElementBytes) return where + "leaves its file";
    if (plane.checksums_offset > shard.bytes || blocks > (shard.bytes - plane.checksums_offset) / 8)
      return where + "its checksums leave the file";
  }
  std::vector<std::pair<std::int64_t, std::int64_t>> extents;  // the planes' and their checksums'
  for (const StoredPlane& plane : shard.planes) {
    extents.emplace_back(plane.offset, plane.offset + plane.elements * kElementBytes);
    extents.emplace_back(plane.checksums_offset, plane.checksums_offset + plane.blocks * 8);
  }
  std::sort(extents.begin(), extents.end());
  for (std::size_t i = 1; i < extents.size(); ++i) {
    if (extents[i].first < extents[i - 1].second) return cat(shard.file, ": two planes share byte ", extents[i].first);
  }
  return {};
}

}  // namespace

std::int64_t Manifest::bytes() const {
  std::int64_t sum = 0;
  for (const ShardInfo& shard : shards) sum += shard.bytes;
  return sum;
}

std::string to_json(const Manifest& manifest) {
  Json value = {{"manifest_xxh64", std::string(kDigits, '0')},
                {"format", kFormatName},
                {"version", manifest.version},
                {"save_id", manifest.save_id},
                {"writer", manifest.writer},
                {"created", manifest.created},
                {"progress", json_of(manifest.progress)},
                {"model", document_of(manifest.documents.model, "model")},
                {"training", document_of(manifest.documents.training, "training")},
                {"plan", document_of(manifest.documents.plan, "plan")},
                {"signature", document_of(manifest.documents.signature, "signature")},
                {"fingerprint", document_of(manifest.documents.fingerprint, "fingerprint")},
                {"block_bytes", manifest.block_bytes},
                {"parameters", json_of(manifest.params)}};
  Json shards = Json::array();
  for (const ShardInfo& shard : manifest.shards) shards.push_back(json_of(shard, &manifest.params));
  value["shards"] = std::move(shards);
  value["index"] = {{"file", kIndexName}, {"bytes", manifest.index_bytes}, {"xxh64", manifest.index_checksum}};
  std::string text = value.dump() + "\n";
  const std::string digits = to_hex(xxh64(text.data(), text.size()));
  text.replace(std::string_view(kChecksumPrefix).size(), kDigits, digits);
  return text;
}

Manifest manifest_from_json(const std::string& text, const std::string& source) {
  const Json value = Json::parse(text, nullptr, false);
  if (value.is_discarded()) throw FormatError(source, cat("is not JSON (", text.size(), " bytes); the checkpoint is damaged"));
  const Reader reader(value, source, "");
  // Format and version first: a later version may compute its checksum in another way.
  const std::string format = reader.text("format");
  if (format != kFormatName) reader.fail(cat("format is \"", format, "\", expected \"", kFormatName, "\""));
  Manifest manifest;
  const std::int64_t version = reader.integer("version");
  if (version != kFormatVersion) {
    reader.fail(cat("format version is ", version, ", this program reads version ", kFormatVersion, "; use the program that wrote it"));
  }
  const std::string expected = reader.text("manifest_xxh64");
  const std::size_t prefix = std::string_view(kChecksumPrefix).size();
  if (text.compare(0, prefix, kChecksumPrefix) != 0 || expected.size() != kDigits) reader.fail("does not begin with its own checksum");
  std::string blank = text;
  blank.replace(prefix, kDigits, std::string(kDigits, '0'));
  const std::string found = to_hex(xxh64(blank.data(), blank.size()));
  if (found != expected) reader.fail(cat("its text has checksum ", found, ", expected ", expected, "; the checkpoint is damaged"));

  manifest.save_id = reader.text("save_id");
  manifest.writer = reader.text("writer");
  manifest.created = reader.integer("created");
  const Reader progress(reader.at("progress"), source, "progress.");
  manifest.progress = {progress.integer("step"),
                       progress.integer("samples"),
                       progress.integer("adam_count"),
                       progress.integer("global_batch"),
                       progress.integer("epoch"),
                       progress.integer("samples_per_epoch"),
                       progress.unsigned_integer("seed"),
                       progress.integer("attempt"),
                       std::nullopt,
                       std::nullopt};
  if (progress.has("loss_scale")) manifest.progress.loss_scale = loss_scale_from(progress.at("loss_scale"), source);
  if (progress.has("best")) {
    const Reader best(progress.at("best"), source, "progress.best.");
    manifest.progress.best = {best.integer("step"), best.number("loss")};
  }
  manifest.documents = {text_of(reader.at("model")), text_of(reader.at("training")), text_of(reader.at("plan")),
                        text_of(reader.at("signature")), text_of(reader.at("fingerprint"))};
  manifest.block_bytes = reader.integer("block_bytes");
  if (manifest.block_bytes < kElementBytes || manifest.block_bytes % kElementBytes != 0 || manifest.block_bytes > kGiB) {
    reader.fail(cat("key \"block_bytes\" is ", manifest.block_bytes, ", expected a multiple of 4 of at most 1 GiB"));
  }
  manifest.params = params_from(reader.array("parameters"), source);
  for (const Json& item : reader.array("shards")) {
    ShardInfo shard = shard_from(item, &manifest.params, source);
    const auto index = static_cast<int>(manifest.shards.size());
    if (shard.rank != index || shard.file != shard_name(index)) {
      reader.fail(cat("shard ", index, " is ", shard.file, " of rank ", shard.rank, ", expected ", shard_name(index)));
    }
    const std::string fault = layout_fault(manifest.params, shard, manifest.block_bytes);
    if (!fault.empty()) reader.fail(fault);
    manifest.shards.push_back(std::move(shard));
  }
  const Reader index(reader.at("index"), source, "index.");
  manifest.index_bytes = index.integer("bytes");
  manifest.index_checksum = index.text("xxh64");
  const std::string fault = shards_fault(manifest.params, manifest.shards);
  if (!fault.empty()) reader.fail(fault);
  return manifest;
}

std::string to_json(const ShardInfo& shard) {
  return json_of(shard, nullptr).dump();
}

ShardInfo shard_from_json(const std::string& text, const std::string& source) {
  const Json value = Json::parse(text, nullptr, false);
  if (value.is_discarded()) throw FormatError(source, "is not JSON");
  return shard_from(value, nullptr, source);
}

std::string shard_map_text(const ShardIdentity& identity, const std::vector<ParamInfo>& params, const std::vector<StoredPlane>& planes) {
  const Json head = {{"format", "sluice-checkpoint-shard"},
                     {"version", kFormatVersion},
                     {"save_id", identity.save_id},
                     {"step", identity.step},
                     {"rank", identity.rank},
                     {"ranks", identity.ranks}};
  Json lists;
  for (const StoredPlane& plane : planes) {
    Json pieces = Json::array();
    for (const Region& region : plane.pieces) pieces.push_back(json_of(region, &params));
    lists[std::string(kPlaneNames[plane.plane])] = std::move(pieces);
  }
  const Json body = {{"parameters", json_of(params)}, {"planes", lists.is_null() ? Json::object() : lists}};
  return head.dump() + "\n" + body.dump() + "\n";
}

bool find_identity(const std::string& bytes, ShardIdentity& identity) {
  const std::size_t begin = bytes.find(kShardMarker);
  if (begin == std::string::npos) return false;
  const std::size_t end = bytes.find('\n', begin);
  if (end == std::string::npos) return false;
  const Json value = Json::parse(bytes.substr(begin, end - begin), nullptr, false);
  if (value.is_discarded()) return false;
  try {
    const Reader reader(value, "shard", "");
    identity.save_id = reader.text("save_id");
    identity.step = reader.integer("step");
    identity.rank = static_cast<int>(reader.integer("rank"));
    identity.ranks = static_cast<int>(reader.integer("ranks"));
  } catch (const FormatError&) {
    return false;  // the line itself is damaged: the file has no readable identity
  }
  return true;
}

std::string shards_fault(const std::vector<ParamInfo>& params, const std::vector<ShardInfo>& shards) {
  std::vector<std::vector<const Region*>> held[kPlaneCount];
  for (auto& lists : held) lists.resize(params.size());
  for (const ShardInfo& shard : shards) {
    for (const StoredPlane& plane : shard.planes) {
      for (const Region& region : plane.pieces) held[plane.plane][static_cast<std::size_t>(region.param)].push_back(&region);
    }
  }
  const bool has_second = std::any_of(held[2].begin(), held[2].end(), [](const auto& regions) { return !regions.empty(); });
  for (std::size_t p = 0; p < params.size(); ++p) {
    for (int plane = 0; plane < kPlaneCount; ++plane) {
      if (plane > 0 && held[1][p].empty() && held[2][p].empty()) continue;  // frozen, or its optimizer keeps nothing
      if (plane == 2 && !has_second) continue;
      const std::string fault = cover_fault(params[p], held[plane][p]);
      if (!fault.empty()) return cat("plane ", kPlaneNames[plane], " of parameter ", params[p].name, ": ", fault);
    }
  }
  return {};
}

std::string shard_name(int rank) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "rank-%05d.h5", rank);
  return buffer.data();
}

std::string step_name(std::int64_t step) {
  std::array<char, 40> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "step-%08lld", static_cast<long long>(step));
  return buffer.data();
}

std::int64_t step_of_name(const std::string& name) {
  if (name.rfind("step-", 0) != 0) return -1;
  std::int64_t step = -1;
  const auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || step < 0 || step_name(step) != name) return -1;
  return step;
}

std::int64_t blocks_of(std::int64_t elements, std::int64_t block_bytes) {
  return divide_up(elements * kElementBytes, block_bytes);
}

}  // namespace sluice::checkpoint
