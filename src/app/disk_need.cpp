#include "app/disk_need.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "app/swap.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "optim/policy.hpp"

namespace sluice::app {

namespace fs = std::filesystem;

DiskNeed disk_need(const Configuration& configuration, const model::Model& model, std::int64_t steps) {
  const optim::Grouping grouping = optim::group_parameters(model, configuration.training);
  DiskNeed need;
  std::int64_t elements = 0;
  for (std::size_t p = 0; p < model.params.size(); ++p) {
    const std::int64_t planes = grouping.trains(static_cast<int>(p)) ? 1 + grouping.moments : 1;
    elements += model.params[p].elements();
    need.checkpoint_bytes += 4 * planes * model.params[p].elements();
  }
  const bool evaluates = !configuration.valid_data.empty() || configuration.valid_fraction > 0;
  // A new one is whole before the oldest goes.
  std::int64_t most = configuration.checkpoint_keep + 1 + (evaluates && configuration.checkpoint_best ? 1 : 0);
  if (steps > 0) {
    const std::int64_t interval = configuration.checkpoint_interval;
    const std::int64_t made = interval > 0 ? divide_up(steps, interval) : 1;
    most = configuration.checkpoint_keep > 0 ? std::min(most, made) : made;
  }
  need.checkpoints = std::max<std::int64_t>(most, 1);
  if (configuration.export_model) need.export_bytes = elements * size_of(spec::dtype_of(configuration.training.precision));
  return need;
}

std::int64_t remaining_need(const Configuration& configuration, const model::Model& model, std::int64_t steps) {
  return std::max<std::int64_t>(0, disk_need(configuration, model, steps).total() - bytes_below(configuration.output + "/checkpoints"));
}

std::int64_t free_disk_bytes(const std::string& path) {
  std::error_code error;
  fs::path at = fs::absolute(path, error).lexically_normal();
  while (!error && !fs::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  const fs::space_info space = fs::space(at, error);
  return error ? -1 : static_cast<std::int64_t>(space.available);
}

std::string describe(const DiskNeed& need, const std::string& path, std::int64_t free_bytes) {
  std::string text =
      cat("disk: ", format_bytes(need.total()), " at most: ", need.checkpoints, " checkpoint", need.checkpoints == 1 ? "" : "s", " of ",
          format_bytes(need.checkpoint_bytes), need.checkpoints > 1 ? " (one of them being written)" : "");
  if (need.export_bytes > 0) text += cat(", ", format_bytes(need.export_bytes), " of exported weights");
  if (free_bytes >= 0) text += cat("; ", format_bytes(free_bytes), " are free at ", path);
  return text;
}

}  // namespace sluice::app
