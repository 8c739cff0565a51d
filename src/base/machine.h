// How much of the machine this process may use.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace outrider {

// Physical cores that affinity and the quotas of control groups allow; a fraction of a core counts
// as one. At least 1.
int usable_cores();

// Bytes that this process can still use without being refused or killed: the machine's available
// memory, or less where control groups or the limit of the address space leave less. Page cache
// that can be dropped counts as available, and so do buffers that are not written to yet.
std::uint64_t available_memory_bytes();

// Bytes that this process holds in memory, without mapped files; 0 if Linux does not say.
std::uint64_t resident_bytes();

// Folders of the control groups that `groups`, the text of /proc/self/cgroup, lists: those of
// version 2, and of version 1 those of `controller`. Each folder is followed by its parent folders,
// whose limits hold as well.
std::vector<std::string> group_folders(std::string_view groups, std::string_view controller);

}  // namespace outrider
