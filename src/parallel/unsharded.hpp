#pragma once
#include <memory>

#include "model/modules.hpp"

namespace sluice::parallel {

/// Modules that hold every parameter whole: data parallelism and ZeRO alone.
std::unique_ptr<model::ModuleFactory> make_unsharded_modules();

}  // namespace sluice::parallel
