/* Attention, norms, embeddings and losses of many shapes, and rows of different lengths, on every instruction set
 * against the baseline. ctest-labels: unit */
#include "length_cases.h"
#include "sequence_cases.h"
#include "set_work.h"

START_TEST(every_set) { sets_agree(&sequence_cases[_i]); }
END_TEST

START_TEST(rows_of_different_lengths) { sets_agree(&length_cases[_i]); }
END_TEST

LOOP_TESTS("sets_sequence", EACH(every_set, sequence_cases), EACH(rows_of_different_lengths, length_cases))
