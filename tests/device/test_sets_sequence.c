/* Attention, norms, embeddings and losses of many shapes, and rows of different lengths, on every instruction set
 * against the baseline. ctest-labels: unit */
#include "length_cases.h"
#include "sequence_cases.h"
#include "set_work.h"

TEST_EACH(every_set, sequence_cases) { sets_agree(&sequence_cases[_i]); }

TEST_EACH(rows_of_different_lengths, length_cases) { sets_agree(&length_cases[_i]); }

CHECK_MAIN("sets_sequence")
