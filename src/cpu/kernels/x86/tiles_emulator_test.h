// AMX's instructions on processors without: a help for tests, so that what HardwareTiles assembles
// is tested everywhere.

#pragma once

#include <signal.h>
#include <ucontext.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "cpu/kernels/x86/tiles_software_test.h"

namespace outrider {

// While one lives, an instruction of AMX that the processor does not know is decoded (as in volume
// 2 of Intel's manual) and done on tiles in plain code. Any other unknown one ends the program. One
// at a time, for one thread.
class TileEmulator {
 public:
  TileEmulator() {
    struct sigaction action = {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = [](int, siginfo_t*, void* context) {
      const auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
      run(const_cast<greg_t(&)[NGREG]>(registers));
    };
    sigaction(SIGILL, &action, &before_);
  }
  ~TileEmulator() { sigaction(SIGILL, &before_, nullptr); }
  TileEmulator(const TileEmulator&) = delete;
  TileEmulator& operator=(const TileEmulator&) = delete;

  static bool has_tiles() { return tiles_.has_value(); }

 private:
  static std::uint64_t number(const greg_t (&registers)[NGREG], int index) {
    static constexpr int kOrder[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                     REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                     REG_R12, REG_R13, REG_R14, REG_R15};
    return static_cast<std::uint64_t>(registers[kOrder[index]]);
  }

  // Three bytes of VEX prefix, the opcode, and what it works on.
  static void run(greg_t (&registers)[NGREG]) {
    const auto* at = std::bit_cast<const std::uint8_t*>(registers[REG_RIP]);
    if (at[0] != 0xc4 || (at[1] & 31) != 2) std::abort();
    const bool index_above_7 = !(at[1] & 0x40), base_above_7 = !(at[1] & 0x20);
    const int prefix = at[2] & 3, opcode = at[3];  // prefix: none, 66, f3, f2
    const int third = ~(at[2] >> 3) & 15;
    const int mode = at[4] >> 6, reg = at[4] >> 3 & 7, rm = at[4] & 7;
    if ((at[2] & 0x84) != 0) std::abort();  // W and L
    const std::uint8_t* next = at + 5;

    char* base = nullptr;
    std::size_t stride = 0;
    if (mode != 3) {
      int base_register = rm;
      if (rm == 4) {
        const int scale = *next >> 6, index = (*next >> 3 & 7) + 8 * index_above_7;
        base_register = *next++ & 7;
        if (index != 4) stride = number(registers, index) << scale;
      }
      if (base_register == 5 && mode == 0) std::abort();  // relative to rip, or no base
      base = std::bit_cast<char*>(number(registers, base_register + 8 * base_above_7));
      std::int32_t offset = 0;
      if (mode == 1) offset = static_cast<std::int8_t>(*next++);
      if (mode == 2) {
        std::memcpy(&offset, next, 4);
        next += 4;
      }
      base += offset;
    }

    const int operation = opcode << 8 | prefix << 4 | (mode == 3);
    switch (operation) {
      case 0x4900: {
        TileConfig config;
        std::memcpy(&config, base, sizeof config);
        tiles_.emplace(config);
        break;
      }
      case 0x4901: tiles_.reset(); break;
      case 0x4931: tiles_.value().zero(reg); break;
      case 0x4b30: tiles_.value().load(reg, base, stride); break;
      case 0x4b20: tiles_.value().store(reg, base, stride); break;
      case 0x5e31: tiles_.value().multiply<std::int8_t>(reg, rm, third); break;
      case 0x5e21: tiles_.value().multiply<std::uint8_t>(reg, rm, third); break;
      default: std::abort();
    }
    registers[REG_RIP] = reinterpret_cast<greg_t>(next);
  }

  inline static std::optional<SoftwareTiles> tiles_;
  struct sigaction before_;
};

}  // namespace outrider
