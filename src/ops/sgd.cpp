#include "ops/sgd.hpp"

#include "ops/bodies.hpp"
#include "ops/update_parts.hpp"

namespace sluice::ops {

SgdFactors sgd_factors(const SgdArgs& args) {
  const bool is_first = args.count == 1;
  SgdFactors f;
  f.gradient_decay = static_cast<float>(args.weight_decay);
  f.momentum = is_first ? 0.0F : static_cast<float>(args.momentum);
  f.gradient_part = is_first ? 1.0F : static_cast<float>(1.0 - args.dampening);
  f.look_ahead = static_cast<float>(args.momentum);
  f.learning_rate = static_cast<float>(args.learning_rate);
  return f;
}

void sgd(const Context& ctx, const SgdArgs& args) {
  SLUICE_CHECK(args.momentum >= 0, "sgd's momentum ", args.momentum, " is negative");
  check_update("sgd", args, (args.momentum > 0) == (args.buffer != nullptr));
  SLUICE_CHECK(args.count >= 1, "sgd's update count starts at 1, not at ", args.count);
  SLUICE_CHECK(!args.nesterov || (args.momentum > 0 && args.dampening == 0), "Nesterov's rule with momentum ", args.momentum,
               " and dampening ", args.dampening);
  const SgdFactors factors = sgd_factors(args);
  return wants_reference(ctx) ? reference::sgd(args, factors) : cpu::sgd(ctx, args, factors);
}

}  // namespace sluice::ops
