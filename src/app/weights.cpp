#include "app/weights.hpp"

#include <algorithm>
#include <filesystem>
#include <span>
#include <vector>

#include "app/session.hpp"
#include "checkpoint/load.hpp"
#include "comm/local/local_communicator.hpp"
#include "formats/hf_names.hpp"
#include "formats/safetensors.hpp"
#include "model/build.hpp"
#include "parallel/unsharded.hpp"
#include "train/loop.hpp"

namespace sluice::app {
namespace {

bool is_model_directory(const std::string& path) {
  return std::filesystem::exists(std::filesystem::path(path) / "config.json");
}

/// The batch's parameters; its other pieces become zero.
std::vector<train::HeldPiece> parameters_of(std::span<const train::HeldPiece> batch) {
  std::vector<train::HeldPiece> parameters;
  for (const train::HeldPiece& piece : batch) {
    if (piece.is_parameter()) {
      parameters.push_back(piece);
    } else {
      std::fill_n(piece.f32(), piece.count, 0.0F);
    }
  }
  return parameters;
}

void load_checkpointed(train::Engine& engine, const std::string& checkpoint) {
  checkpoint::load_checkpoint(
      *comm::make_single_rank(), checkpoint, train::param_infos(engine.model()), [&](checkpoint::PieceReader& reader) {
        engine.fill(
            [&](std::span<const train::HeldPiece> batch) { reader.read(train::checkpoint_pieces(engine.model(), parameters_of(batch))); });
      });
}

}  // namespace

std::string source_of_weights(const std::string& path) {
  return is_model_directory(path) ? path : newest_whole(path);
}

void check_weights(const std::string& source, const spec::ModelSpec& model) {
  if (!is_model_directory(source)) return;  // a checkpoint was found to be whole
  formats::match_parameters(formats::Safetensors::open(source), model::build_model(model, *parallel::make_unsharded_modules()));
}

void load_weights(train::Engine& engine, const std::string& source) {
  if (!is_model_directory(source)) return load_checkpointed(engine, source);
  const formats::Safetensors files = formats::Safetensors::open(source);
  const std::vector<const formats::TensorInfo*> tensors = formats::match_parameters(files, engine.model());
  const ops::Context ops = ops::make_cpu_context(1);
  engine.fill([&](std::span<const train::HeldPiece> batch) {
    for (const train::HeldPiece& piece : parameters_of(batch)) {
      train::fill_piece(piece, ops, [&](std::int64_t begin, std::int64_t count, float* values) {
        files.read_f32(*tensors[static_cast<std::size_t>(piece.param)], begin, count, values);
      });
    }
  });
}

}  // namespace sluice::app
