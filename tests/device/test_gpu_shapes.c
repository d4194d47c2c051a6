/* The GPU's operators that change shapes against the CPU's. Skipped where there is no GPU. ctest-labels: gpu */
#include "gpu_work.h"
#include "shape_cases.h"

START_TEST(every_operator) { agrees_with_the_cpu(&shape_cases[_i]); }
END_TEST

int main(void) {
    const struct check_loop loops[] = {EACH(every_operator, shape_cases)};
    return gpu_run("gpu_shapes", loops, sizeof loops / sizeof *loops);
}
