#pragma once
// Chunks: the unit of transfer and of home tier (design section 2).

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "model/model.hpp"
#include "optim/policy.hpp"

namespace sluice::chunks {

/// Parameters start at multiples of this many elements, shards are whole numbers of such blocks.
inline constexpr std::int64_t kBlock = 256;

/// What is kept of a chunk. With fp32 working parameters those are the master. SGD's momentum buffer and Lion's only moment are kMoment1.
enum class Plane : std::uint8_t { kWorking, kGradient, kMaster, kMoment1, kMoment2 };
inline constexpr int kPlaneCount = 5;
std::string_view name_of(Plane plane);  // "working", "gradient", "master", "exp_avg", "exp_avg_sq"

/// A parameter's part in a chunk: elements [param_begin, param_begin + elements) of it lie at `offset` of the chunk.
struct Slot {
  int param;
  std::int64_t offset;
  std::int64_t param_begin;
  std::int64_t elements;
};

/// Elements of a chunk that belong to no parameter (up to the next multiple of kBlock); always zero.
struct Gap {
  std::int64_t offset;
  std::int64_t elements;
};

struct Chunk {
  std::int64_t elements = 0;    // stored extent, a multiple of kBlock: what it holds, no padded tail
  int group = 0;                // optimizer group: chunks are formed per class
  int run = 0;                  // the run it belongs to
  std::int64_t run_offset = 0;  // where it starts in the run
  std::vector<Slot> slots;
  std::vector<Gap> gaps;
};

/// Chunks that are gathered to contiguous addresses: one, or the consecutive ones that a parameter larger than a chunk spans.
struct Run {
  int first_chunk = 0;
  int chunk_count = 1;
  std::int64_t elements = 0;
};

/// Where a parameter starts.
struct Place {
  int run = 0;
  std::int64_t offset = 0;  // in the run, elements
};

/// Parameters packed in first-use order, one open chunk per optimizer group.
class ChunkLayout {
 public:
  /// `chunk_elements`: capacity, a positive multiple of kBlock (LogicError otherwise).
  ChunkLayout(std::span<const model::ParamSpec> params, const optim::Grouping& grouping, std::int64_t chunk_elements);
  const std::vector<Chunk>& chunks() const noexcept { return chunks_; }
  const std::vector<Run>& runs() const noexcept { return runs_; }
  const Place& place(int param) const { return places_[static_cast<std::size_t>(param)]; }
  std::int64_t elements() const noexcept { return elements_; }  // of all chunks
  /// Of working parameters, wherever they stand.
  DType storage() const noexcept { return grouping_.storage; }
  /// Whether working parameters have a master of their own: where they are stored in 16 bits.
  bool has_master() const noexcept { return storage() != DType::kF32; }
  /// Whether a chunk has that plane: a frozen one the working plane alone, a trained one as many moments as its optimizer keeps.
  bool has(Plane plane, const Chunk& chunk) const;
  /// Bytes of one element of a plane: working as stored, all others f32.
  std::int64_t element_bytes(Plane plane) const;
  /// Where a trained parameter's master stands: what the optimizer steps.
  Plane master() const noexcept { return has_master() ? Plane::kMaster : Plane::kWorking; }
  bool trains(const Chunk& chunk) const { return grouping_.groups[static_cast<std::size_t>(chunk.group)].is_trained; }
  bool trains(const Run& run) const { return trains(chunks_[static_cast<std::size_t>(run.first_chunk)]); }
  const optim::Grouping& grouping() const noexcept { return grouping_; }

 private:
  std::vector<Chunk> chunks_;
  std::vector<Run> runs_;
  std::vector<Place> places_;
  std::int64_t elements_ = 0;
  optim::Grouping grouping_;
};

/// First element of rank r's shard of a chunk of `elements`: block floor(r * n / ranks) of its n blocks; r == ranks gives the end.
std::int64_t shard_begin(std::int64_t elements, std::int64_t rank, std::int64_t ranks);
/// All ranks + 1 of them.
std::vector<std::int64_t> shard_bounds(std::int64_t elements, std::int64_t ranks);
/// The largest shard any rank has: what every rank's layout provides, so that offsets are the same on all ranks.
std::int64_t largest_shard(std::int64_t elements, std::int64_t ranks);

/// Which planes a rank holds whole and which as its shard.
bool is_sharded(Plane plane, int zero_stage);

}  // namespace sluice::chunks
