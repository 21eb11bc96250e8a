#pragma once
// How tests write down what a task touches.

#include "schedule/graph.hpp"

namespace sluice::schedule {

inline Use read(BufferId b) {
  return {b, Access::kRead, Role::kInput};
}
inline Use write(BufferId b) {
  return {b, Access::kWrite, Role::kOutput};
}
inline Use both(BufferId b) {
  return {b, Access::kReadWrite, Role::kOutput};
}

}  // namespace sluice::schedule
