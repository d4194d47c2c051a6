/* Every operator but those over images on every instruction set against the baseline. ctest-labels: unit */
#include "operator_cases.h"
#include "set_work.h"

START_TEST(every_set) { sets_agree(&operator_cases[_i]); }
END_TEST

LOOP_TESTS("sets", EACH(every_set, operator_cases))
