#pragma once
// What a checkpoint holds, as the training engine hands it over: parameters by global name, the pieces of their planes that
// this rank has in memory, and the position of the run.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "spec/training_spec.hpp"

namespace sluice::checkpoint {

/// The planes of format version 1, all f32. "working" is the parameter itself: what the optimizer steps, the master. "exp_avg" is also
/// Lion's only moment and SGD's momentum buffer.
inline constexpr std::string_view kPlaneNames[] = {"working", "exp_avg", "exp_avg_sq"};
inline constexpr int kPlaneCount = 3;
/// Index into kPlaneNames, or -1.
int plane_index(std::string_view name);

/// A parameter by its global name; the same list in the same order on every rank.
struct ParamInfo {
  std::string name;
  std::vector<std::int64_t> shape;  // of the whole parameter; empty: one number
  DType dtype = DType::kF32;        // version 1 stores f32
  std::int64_t elements() const;
  friend bool operator==(const ParamInfo&, const ParamInfo&) = default;
};

/// Where a piece lies in its parameter: an interval of the row-major flattened rectangle (hyperslab) of the parameter.
/// Data parallelism has the whole parameter as rectangle; tensor parallelism a part of it.
struct Region {
  int param = 0;                          // index into the list of parameters
  std::vector<std::int64_t> rect_offset;  // one per dimension
  std::vector<std::int64_t> rect_extent;
  std::int64_t flat_begin = 0;  // element within the flattened rectangle
  std::int64_t elements = 0;    // may be 0: the piece holds nothing
  friend bool operator==(const Region&, const Region&) = default;
};

/// A region of one plane that this rank holds. Saving reads [elements], loading writes them. In memory it may be kBF16 or kF16, which
/// saving widens and loading rounds to nearest even.
struct Piece {
  std::string plane;
  Region region;
  void* data = nullptr;  // where loading puts it; saving is told when it writes
  DType dtype = DType::kF32;
};

/// The whole of `param` as a region.
Region whole_region(const std::vector<ParamInfo>& params, int param);
/// The interval [begin, begin + elements) of the flattened whole parameter.
Region flat_region(const std::vector<ParamInfo>& params, int param, std::int64_t begin, std::int64_t elements);

/// The checkpoint of a run with the lowest validation loss so far.
struct Best {
  std::int64_t step = 0;
  double loss = 0;
  friend bool operator==(const Best&, const Best&) = default;
};

/// The position of a run between two steps.
struct Progress {
  std::int64_t step = 0;               // optimizer steps done, skipped ones included
  std::int64_t samples = 0;            // position in the sample stream
  std::int64_t adam_count = 0;         // updates applied, by any optimizer: the t of Adam's bias corrections
  std::int64_t global_batch = 0;       // sequences a step
  std::int64_t epoch = 0;              // whole passes over the data
  std::int64_t samples_per_epoch = 0;  // 0: the data has no end that counts
  std::uint64_t seed = 0;
  std::int64_t attempt = 0;                        // which submission of the run saved it, from 1
  std::optional<spec::LossScaleState> loss_scale;  // fp16 only
  std::optional<Best> best;                        // perhaps this one
  friend bool operator==(const Progress&, const Progress&) = default;
};

/// JSON texts of other layers, kept and given back as JSON with equal values; empty: absent.
struct Documents {
  std::string model;
  std::string training;
  std::string plan;
  std::string signature;
  std::string fingerprint;
};

}  // namespace sluice::checkpoint
