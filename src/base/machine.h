// What this process may take of the machine.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace outrider {

// Physical cores: affinity and the quotas of control groups counted, parts of a core as a whole
// one; at least 1.
int usable_cores();

// Bytes that can still be taken without being refused or killed: the machine's available memory, or
// less where control groups or the limit of the address space leave less. Page cache that can be
// dropped counts as free; buffers not yet written to do not count as taken.
std::uint64_t available_memory_bytes();

// Bytes that this process holds in memory, mapped files aside; 0 where the system does not say.
std::uint64_t resident_bytes();

// Folders of the control groups, of version 2 and of version 1's `controller`, that this process is
// in, each followed by those above it, which limit it as well. `groups`: /proc/self/cgroup's text.
std::vector<std::string> group_folders(std::string_view groups, std::string_view controller);

}  // namespace outrider
