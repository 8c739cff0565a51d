// What the headers of a region (intrinsics.h) include: comes before each region.

#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "cpu/kernels/query_blocks.h"
#include "cpu/kernels/x86/tables.h"
#include "numerics/attention.h"
#include "numerics/functions.h"
#include "numerics/half.h"
#include "numerics/noise.h"
