/* Every operator over images on every instruction set against the baseline. ctest-labels: unit */
#include "image_cases.h"
#include "set_work.h"

TEST_EACH(every_set, image_cases) { sets_agree(&image_cases[_i]); }

CHECK_MAIN("sets_image")
