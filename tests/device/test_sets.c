/* Every operator but those over images on every instruction set against the baseline. ctest-labels: unit */
#include "operator_cases.h"
#include "set_work.h"

TEST_EACH(every_set, operator_cases) { sets_agree(&operator_cases[_i]); }

CHECK_MAIN("sets")
