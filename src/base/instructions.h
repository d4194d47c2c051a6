/* instructions: which vector instructions of x86 the processor has and the system saves. */
#pragma once

#include <stdbool.h>

/* AVX2: with FMA. AVX512: F, VL, DQ and BW, with AVX2. AVX512_BF16: with AVX512. AMX: tiles of bfloat16, with
 * AVX512_BF16; the system saves them only for processes that ask. */
enum instruction_set { INSTRUCTIONS_AVX2, INSTRUCTIONS_AVX512, INSTRUCTIONS_AVX512_BF16, INSTRUCTIONS_AMX };
bool processor_has(enum instruction_set set);
