/* Every operator over images on every instruction set against the baseline. ctest-labels: unit */
#include "image_cases.h"
#include "set_work.h"

START_TEST(every_set) { sets_agree(&image_cases[_i]); }
END_TEST

LOOP_TESTS("sets_image", EACH(every_set, image_cases))
