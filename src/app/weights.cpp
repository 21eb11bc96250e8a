#include "app/weights.hpp"

#include "formats/hf_names.hpp"
#include "formats/safetensors.hpp"

namespace sluice::app {

void load_weights(train::Engine& engine, const std::string& directory) {
  const formats::Safetensors files = formats::Safetensors::open(directory);
  const std::vector<const formats::TensorInfo*> tensors = formats::match_parameters(files, engine.model());
  for (const train::HeldPiece& piece : engine.held_pieces()) {
    if (!piece.is_parameter()) continue;
    train::fill_piece(piece, ops::make_cpu_context(1), [&](std::int64_t begin, std::int64_t count, float* values) {
      files.read_f32(*tensors[static_cast<std::size_t>(piece.param)], begin, count, values);
    });
  }
}

}  // namespace sluice::app
