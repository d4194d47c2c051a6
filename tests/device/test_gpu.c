/* Every operator of the GPU against the CPU's. Element-wise rules must agree to a few roundings; products and sums,
 * which are added in another order, within the tolerance beside them. Skipped where there is no GPU. ctest-labels: gpu
 */
#include "gpu_work.h"
#include "operator_cases.h"

TEST_EACH(every_operator, operator_cases) { agrees_with_the_cpu(&operator_cases[_i]); }

int main(void) { return gpu_run("gpu"); }
