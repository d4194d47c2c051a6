/* Attention, norms, embeddings and losses of many shapes on every instruction set against the baseline.
 * ctest-labels: unit */
#include "sequence_cases.h"
#include "set_work.h"

START_TEST(every_set) { sets_agree(&sequence_cases[_i]); }
END_TEST

LOOP_TESTS("sets_sequence", EACH(every_set, sequence_cases))
