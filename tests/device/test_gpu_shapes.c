/* The GPU's operators that change shapes against the CPU's. Skipped where there is no GPU. ctest-labels: gpu */
#include "gpu_work.h"
#include "shape_cases.h"

TEST_EACH(every_operator, shape_cases) { agrees_with_the_cpu(&shape_cases[_i]); }

int main(void) { return gpu_run("gpu_shapes"); }
