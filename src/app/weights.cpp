#include "app/weights.hpp"

#include "formats/hf_names.hpp"
#include "formats/safetensors.hpp"

namespace sluice::app {

void load_weights(train::Engine& engine, const std::string& directory) {
  const formats::Safetensors files = formats::Safetensors::open(directory);
  const std::vector<const formats::TensorInfo*> tensors = formats::match_parameters(files, engine.model().params);
  for (const train::HeldPiece& piece : engine.held_pieces()) {
    if (piece.plane == chunks::Plane::kWorking)
      files.read_f32(*tensors[static_cast<std::size_t>(piece.param)], piece.begin, piece.count, piece.data);
  }
}

}  // namespace sluice::app
