// For tests that a sanitizer's own memory does not allow, or that it makes slow.

#pragma once

// 1 if the address or thread sanitizer is on: it takes most of the address space and brings its own
// operator new.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OUTRIDER_SANITIZES_MEMORY 1
#elif defined(__has_feature)
#define OUTRIDER_SANITIZES_MEMORY \
  (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define OUTRIDER_SANITIZES_MEMORY 0
#endif
