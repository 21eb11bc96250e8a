#pragma once
// Everything that kernels need, included before for_each_isa.inc changes the instruction set.

#include <immintrin.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/rng.hpp"
#include "device/cpu/cpu_device.hpp"
