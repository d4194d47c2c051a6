/* On a virtual machine one question (cpuid) takes as long as a step of a small model, and what gcc does for
 * __builtin_cpu_supports at each start asks ten. So four are asked, once in a process and only where it needs them. */
#include "base/instructions.h"

#ifdef __x86_64__
#include <cpuid.h>

#define YMM_STATE 0x06u /* what the system saves: of XCR0 */
#define ZMM_STATE 0xe6u
#define AVX512 (bit_AVX512F | bit_AVX512VL | bit_AVX512DQ | bit_AVX512BW)
#define AVX512_BF16 (1u << 5)     /* cpuid (7, 1), eax; compilers do not know all of these names yet */
#define AMX (1u << 22 | 1u << 24) /* cpuid (7, 0), edx: bfloat16 and tiles */

/* A bit for each of enum instruction_set. */
static unsigned find_instructions(void) {
    unsigned max, a, b, c, d, saved, high, sets = 1u << INSTRUCTIONS_AVX2;
    __cpuid(0, max, b, c, d);
    __cpuid(1, a, b, c, d);
    if (max < 7 || !(c & bit_FMA) || !(c & bit_OSXSAVE)) return 0;
    __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    __cpuid_count(7, 0, max, b, c, d);
    if (!(b & bit_AVX2) || (saved & YMM_STATE) != YMM_STATE) return 0;
    if ((b & AVX512) != AVX512 || (saved & ZMM_STATE) != ZMM_STATE) return sets;
    sets |= 1u << INSTRUCTIONS_AVX512;
    bool has_amx = (d & AMX) == AMX;
    if (max < 1) return sets;
    __cpuid_count(7, 1, a, b, c, d);
    if (!(a & AVX512_BF16)) return sets;
    return sets | 1u << INSTRUCTIONS_AVX512_BF16 | (unsigned)has_amx << INSTRUCTIONS_AMX;
}
#else
static unsigned find_instructions(void) { return 0; }
#endif

bool processor_has(enum instruction_set set) {
    static _Atomic unsigned found; /* 0: not asked yet */
    const unsigned asked = 1u << 31;
    if (!found) found = find_instructions() | asked;
    return found >> set & 1;
}
