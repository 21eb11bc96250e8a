#pragma once
// Proofs about a graph that don't share code with what built it.

#include <span>
#include <string>

#include "schedule/graph.hpp"

namespace sluice::schedule {

/// Waits point backwards; sequence numbers count up in each lane; every use lies in its arena; persistent buffers stand apart
/// from all others; what a task reads was last written, byte by byte in the linear order, through the buffer it reads (a
/// persistent one: or by an earlier run); moves go between neighbouring tiers on their lane, and disks get whole blocks. Throws
/// LogicError naming the tasks.
void check_order(const StepGraph& graph);

/// For every two tasks that touch the same byte of a tier, one of them writing, waits or lane order have one complete before the other
/// starts; two of an asynchronous lane that touch it through one buffer may be under way together, since that lane keeps their order.
/// Byte-accurate over the placed offsets. Throws LogicError naming both tasks and the bytes.
void check_races(const StepGraph& graph);

/// A cancelled step leaves the state of the step before: every task happens after the agree that governs it, what runs after a cancel
/// depends on nothing that is skipped, and no cancel point lies between the changes of one step to the state (updates, gathers and moves
/// into persistent parameters and moments): it skips all of them or none. An agree within the step asks once the compute tasks before it
/// are done. Throws LogicError naming the tasks.
void check_cancel(const StepGraph& graph);

/// The union of the classes' orders, lane edges included, with their meetings merged, is acyclic, and lanes meet in the same
/// sequence of kinds, chunks, bytes and element types. One graph per class of ranks. Throws LogicError naming the first differing task.
void check_meetings(std::span<const StepGraph* const> classes);

/// All of these, of a graph that every rank has alike.
void check_all(const StepGraph& graph);

/// A text of a lane's meetings that two ranks can compare: hash first, then a line each.
std::string describe_meetings(const StepGraph& graph);
/// The first line in which two texts of describe_meetings differ; empty when equal.
std::string first_difference(const std::string& here, const std::string& there);

}  // namespace sluice::schedule
